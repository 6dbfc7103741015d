"""The schedule of Sync-Switch: segments of synchronous (BSP) and asynchronous (ASP) training.

Published schedules are lists with one entry per segment; ends are *global steps*: a step of BSP
uses the batches of all workers, a step of ASP one worker's. Here everything is turned into samples,
so that what depends on how far the training is (the learning rate, for instance) is not shifted by
the number of workers or the place of a switch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .. import config

#: Names that --hparams may set for a segment.
HYPER_PARAMETERS = ("learning_rate", "momentum", "weight_decay")

#: What may become of the momentum at a switch from BSP to ASP: value of --switch-momentum → the
#: factor of the momentum, given the number of workers and how much of the ramp is over (1: all).
MOMENTUM_AT_SWITCH: dict[str, Callable[[int, float], float]] = {
    "keep": lambda workers, ramped: 1.0,
    "reset": lambda workers, ramped: 1.0,  # it is the buffer that begins anew
    "zero": lambda workers, ramped: 0.0,
    "scale": lambda workers, ramped: 1 / workers,
    "linear": lambda workers, ramped: min(1.0, (1 + math.floor(ramped * (workers - 1))) / workers),
    "doubling": lambda workers, ramped: min(1.0, 2 ** math.floor(ramped * math.ceil(math.log2(workers))) / workers),
}
KEEP, RESET = "keep", "reset"
RAMPS = ("linear", "doubling")


@dataclass(frozen=True)
class ScheduleSegment:
    """One stretch of a run.

    Attributes:
        synchronous: whether it is BSP.
        end: samples of all workers by which it is over.
        evaluate_every: global steps between two evaluations; None: as the run has it.
        hyper: hyper-parameters that differ from the run's.
    """

    synchronous: bool
    end: float
    evaluate_every: int | None = None
    hyper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SwitchPlan:
    """The segments of a run, in order; the run ends with the last one."""

    segments: tuple[ScheduleSegment, ...]

    @property
    def samples(self) -> float:
        """Samples of the whole run."""
        return self.segments[-1].end

    @property
    def bsp_share(self) -> float:
        """Share of the samples that BSP uses, 0 to 1."""
        return self.planned_together(self.samples) / self.samples

    @property
    def order(self) -> str:
        """The kinds of the segments, one digit each: 1 for BSP and 0 for ASP."""
        return "".join("1" if segment.synchronous else "0" for segment in self.segments)

    def at(self, samples: float, together: float | None = None) -> ScheduleSegment:
        """Return the segment that the schedule is in.

        Each segment is ended by samples of its own kind. Samples that an online policy trains
        asynchronously during a synchronous segment therefore do not shorten that segment: they are
        taken from the asynchronous ones.

        Args:
            samples: number of samples that all workers have used so far.
            together: number of those that were used synchronously; None: as many as planned.
        """
        return next(self._unfinished(samples, together), self.segments[-1])

    def settings(self, synchronous: bool, samples: float, together: float | None = None) -> ScheduleSegment:
        """Return the segment whose hyper-parameters hold for a step of that kind.

        During a detour to asynchronous training this is the next asynchronous segment, whose
        samples it uses.
        """
        segments = (segment for segment in self._unfinished(samples, together) if segment.synchronous == synchronous)
        return next(segments, self.at(samples, together))

    def asynchronous_left(self, samples: float, together: float) -> float:
        """Return the samples planned for asynchronous training that have not been used yet."""
        return self.samples - self.planned_together(self.samples) - (samples - together)

    def since_switch(self, samples: float, together: float) -> float | None:
        """Return the samples trained asynchronously since the switch from BSP, as the schedule has it.

        Samples of a detour are taken from the next asynchronous segments and count as theirs.

        Args:
            samples: number of samples that all workers have used so far.
            together: number of those that were used synchronously.

        Returns:
            The number of samples; None where no synchronous segment comes before.
        """
        asynchronously, planned = samples - together, 0.0
        switched_at: float | None = None
        after_synchronous = False
        for begin, segment in self._with_begins():
            if segment.synchronous:
                after_synchronous = True
                continue
            if after_synchronous:
                switched_at, after_synchronous = planned, False
            planned += segment.end - begin
            if asynchronously < planned:
                break
        return None if switched_at is None else max(0.0, asynchronously - switched_at)

    def planned_together(self, samples: float) -> float:
        """Return how many of the first `samples` the schedule uses synchronously."""
        return sum(
            min(segment.end, samples) - begin
            for begin, segment in self._with_begins()
            if segment.synchronous and begin < samples
        )

    def _unfinished(self, samples: float, together: float | None) -> Iterator[ScheduleSegment]:
        """Yield the segments that are not over, in order."""
        synchronously = self.planned_together(samples) if together is None else together
        done = {True: synchronously, False: samples - synchronously}
        planned = {True: 0.0, False: 0.0}
        for begin, segment in self._with_begins():
            planned[segment.synchronous] += segment.end - begin
            if done[segment.synchronous] < planned[segment.synchronous]:
                yield segment

    def _with_begins(self) -> Iterator[tuple[float, ScheduleSegment]]:
        """Yield every segment, preceded by the number of samples at which it begins."""
        return zip([0.0, *(segment.end for segment in self.segments)], self.segments, strict=False)


@dataclass(frozen=True)
class Schedule:
    """The requested schedule; it becomes a plan once the number of workers is known.

    Args:
        order: 1 for BSP, anything else for ASP, one character per segment.
        train_steps: the global step at which each segment ends; or
        bsp_share: BSP's share of the samples, with order 10 or 01.
        ckpt_frequency: global steps between two evaluations, of each segment.
        hparams: name=value,… of each segment, names from HYPER_PARAMETERS; "-" for none.

    Raises:
        ValueError: the lists do not fit the order, or an entry cannot be used; the message says
            which.
    """

    order: str = config.SWITCH_ORDER
    train_steps: Sequence[int] = ()
    bsp_share: float | None = None
    ckpt_frequency: Sequence[int] = ()
    hparams: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.order:
            raise ValueError("the switch order is empty: give 1 (BSP) or 0 (ASP) for every segment, 10 for instance")
        for name in ("train_steps", "ckpt_frequency", "hparams"):
            entries = getattr(self, name)
            if entries and len(entries) != len(self.order):
                raise ValueError(
                    f"{name.replace('_', '-')} has {len(entries)} entries, but switch order {self.order} has "
                    f"{len(self.order)} segments: give one for each"
                )
        if any(later <= earlier for earlier, later in pairwise([0, *self.train_steps])):
            raise ValueError(
                f"train-steps {' '.join(map(str, self.train_steps))}: they are global steps, so each should be above "
                "the one before it"
            )
        if self.train_steps and self.bsp_share is not None:
            raise ValueError("train-steps and bsp-share both say when to switch: leave one of them out")
        if not self.train_steps and self._kinds not in ((True, False), (False, True)):
            raise ValueError(f"switch order {self.order} needs train-steps; a share of BSP fits the orders 10 and 01")
        for text in self.hparams:
            parse_hyper(text)

    @property
    def _kinds(self) -> tuple[bool, ...]:
        return tuple(character == "1" for character in self.order)

    @property
    def begins_synchronous(self) -> bool:
        """Whether the first segment that has any samples is BSP."""
        if self.bsp_share in (0.0, 1.0):
            return self.bsp_share == 1.0
        return self._kinds[0]

    def plan(self, workers: int, batch_size: int, samples: float) -> SwitchPlan:
        """Return the plan for a number of workers.

        Args:
            workers: number of workers.
            batch_size: samples of a worker's batch.
            samples: samples after which the run ends in any case; infinite where that is open.

        Raises:
            ValueError: nothing says how long the run is.
        """
        if self.train_steps:
            ends, end = [], 0.0
            for synchronous, (before, step) in zip(self._kinds, pairwise([0, *self.train_steps]), strict=True):
                end += (step - before) * batch_size * (workers if synchronous else 1)
                ends.append(end)
        elif math.isinf(samples):
            raise ValueError("a share of BSP needs to know how long the run is: give epochs, or train-steps instead")
        else:
            share = config.BSP_SHARE if self.bsp_share is None else self.bsp_share
            ends = [(share if self._kinds[0] else 1 - share) * samples, samples]
        frequencies: Sequence[int | None] = self.ckpt_frequency or [None] * len(ends)
        hypers: list[dict[str, float]] = [parse_hyper(text) for text in self.hparams] or [{}] * len(ends)
        starts = [0.0, *ends]
        segments = [
            ScheduleSegment(synchronous, end, frequency, hyper)
            for synchronous, begin, end, frequency, hyper in zip(
                self._kinds, starts, ends, frequencies, hypers, strict=False
            )
            if end > begin  # a share of 0 or 1 leaves one of them out
        ]
        return SwitchPlan(tuple(segments))


def parse_hyper(text: str) -> dict[str, float]:
    """Parse name=value,name=value; ValueError says which part cannot be parsed."""
    if text in ("", "-"):
        return {}
    hyper = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if name not in HYPER_PARAMETERS or not number >= 0 or math.isinf(number):
            raise ValueError(
                f"hparams {text!r}: {part!r} should be NAME=NUMBER with a name of {', '.join(HYPER_PARAMETERS)}"
            )
        hyper[name] = number
    return hyper
