"""The settings that the state server chooses from measured times: those of `--preset fast`.

A round is to last as long as config.ROUND_ITERATIONS iterations of the fastest worker, and longer
only where the coarsest compression still needs it:

* *Interval.* The longer a round is, the further the models drift apart; the shorter it is, the more
  exchanges there are. From 4 to 16 iterations of the fastest worker the time to an accuracy hardly
  differs (results/fastest-device/README.md), so one constant serves all clusters.
* *Compression.* The finest one that does not make rounds longer.
* *Who takes part.* Rounds wait for the fastest workers, as many as make the most progress: their
  samples a second times what a sample is worth (`samples.worth`), as in `esync plan`. This is
  m-synchronous SGD (arXiv 2602.03802) with local iterations.
  Where all together make less than config.PLAN_GAIN more progress than the fastest one alone, the
  others are left out, as a plan recommends, too.
  Slower ones join when they are ready, if they need longer than a round; else they are left out,
  because their exchanges would lengthen the others'. A worker is also left out if more than
  config.NOISE_SCALE batches of all workers are done during one of its own: Ringmaster ASGD
  (Maranjyan, Tyurin, Richtárik, arXiv 2501.16168, theorem 4.2) ignores gradients that are delayed by
  more than R = max(1, σ²/ε) steps. σ²/ε is the gradient noise scale in batches (McCandlish et al.,
  arXiv 1812.06162). A share of less than 1/R of the summed speed is the same condition.

`choose` and what it calls are pure functions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .. import config
from ..samples import worth
from .exchange_interval import least_computing
from .records import Record
from .tier_settings import TierSettings


@dataclass(frozen=True)
class AutomaticSettings:
    """The settings of a round.

    Attributes:
        seconds: time for which the workers compute in it.
        iterations: local iterations of the slowest worker that it waits for.
        compression: of its exchange; "": not chosen here.
        slowest: seconds of an iteration up to which rounds wait for a worker; 0: not chosen here.
        alone: whether the fastest worker trains alone.
    """

    seconds: float
    iterations: int
    compression: str = ""
    slowest: float = 0.0
    alone: bool = False


def choose(
    requested: TierSettings,
    paces: Sequence[float],
    exchanges: Mapping[str, float],
    counted: int,
    before: AutomaticSettings,
) -> AutomaticSettings:
    """Return the settings of the next round.

    With `requested.chooses_workers`, of all groups of the fastest workers that end where the next one is clearly
    slower, the one with the most progress is chosen. What an exchange takes is assumed to be in
    proportion to their number, as where a server's port is the bottleneck.

    Args:
        requested: what is chosen; has an `exchange_share`.
        paces: seconds of an iteration of each worker that may take part, ascending, above 0.
        exchanges: compression → measured seconds of an exchange, without the wait for others.
        counted: number of the workers whose exchanges these are.
        before: the present settings, which are kept where the change would bring little.
    """
    if not requested.chooses_workers:
        return _settings(requested, paces[0], paces[-1], exchanges, before)
    groups: list[tuple[float, AutomaticSettings]] = []
    for number, (pace, following) in enumerate(zip(paces, [*paces[1:], math.inf], strict=True), 1):
        if following > (1 + config.TIER_HYSTERESIS) * pace:
            scaled = {name: seconds * number / counted for name, seconds in exchanges.items()}
            settings = replace(_settings(requested, paces[0], pace, scaled, before), slowest=pace)
            exchange = exchange_seconds(settings.compression, scaled, requested.compressions) if scaled else 0.0
            # Iterations from a model to the one that has them: workers go on during the exchange.
            speeds = 1 / np.array(paces[:number])
            brought = worth(config.NOISE_SCALE, speeds * (max(settings.seconds, pace) + exchange))
            groups.append((float(np.sum(speeds) * brought), settings))
    best = max(value for value, _ in groups)
    alone, settings = groups[0]
    if settings.slowest == paces[0] and len(paces) > 1 and paces[1] > paces[0]:
        needed = config.PLAN_GAIN - (0 if before.alone or not before.slowest else config.AUTOMATIC_GAIN)
        if best < (1 + needed) * alone:
            return replace(settings, alone=True)
    threshold = best / (1 + config.AUTOMATIC_GAIN)
    present = [pair for pair in groups if pair[1].slowest <= (1 + config.TIER_HYSTERESIS) * before.slowest]
    if present and present[-1][0] >= threshold:
        return present[-1][1]
    return next(settings for value, settings in groups if value >= threshold)


def _settings(
    requested: TierSettings, fastest: float, slowest: float, exchanges: Mapping[str, float], before: AutomaticSettings
) -> AutomaticSettings:
    """Return the settings for workers of these seconds an iteration."""
    share = requested.exchange_share
    assert share is not None
    usual = config.ROUND_ITERATIONS * fastest if requested.chooses_iterations else before.iterations * slowest
    compression = before.compression
    if requested.compressions and exchanges:
        for compression in requested.compressions:
            spare = 1.0 if compression == before.compression else 1 - config.AUTOMATIC_SPARE
            exchange = exchange_seconds(compression, exchanges, requested.compressions)
            if least_computing(exchange, share) <= spare * usual:
                break
    if not requested.chooses_iterations:
        return AutomaticSettings(usual, before.iterations, compression)
    exchange = exchange_seconds(compression, exchanges, requested.compressions) if exchanges else 0.0
    seconds = max(usual, least_computing(exchange, share))
    return AutomaticSettings(seconds, _iterations(seconds, slowest, before.iterations), compression)


def exchange_seconds(compression: str, measured: Mapping[str, float], compressions: Mapping[str, float]) -> float:
    """Return the seconds of an exchange with a compression: measured, or estimated from its bits.

    With one other compression measured, the estimate is in proportion to the bits, which is too long
    where the bandwidth is not all that counts; with two, it is on the line through the finest two.
    """
    if compression in measured or not compressions:
        return measured[compression]
    bits = compressions[compression]
    points = sorted((compressions[other], seconds) for other, seconds in measured.items())
    (coarser, less), (finer, more) = points[-2:] if len(points) > 1 else [(0.0, 0.0), *points]
    return more + (bits - finer) * max(0.0, more - less) / (finer - coarser)


def _iterations(seconds: float, slowest: float, before: int) -> int:
    """Return the iterations of the slowest worker that come closest to the seconds of a round.

    At least one; the present number is kept if it is off by less than config.AUTOMATIC_SPARE.
    """
    iterations = min(seconds / slowest, config.SLOWEST_ITERATIONS_MAX)
    unchanged = abs(before - iterations) <= config.AUTOMATIC_SPARE * iterations
    return before if unchanged else max(1, math.floor(iterations + 0.5))


@dataclass
class SettingsChooser:
    """Chooses the settings of a job's rounds from the measured times of its workers.

    Attributes:
        requested: what it chooses; has an `exchange_share`.
        settings: of the present round.
        earlier_compression: of the round before.
        exchanges: compression → seconds of an exchange.
    """

    requested: TierSettings
    settings: AutomaticSettings
    earlier_compression: str
    exchanges: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, requested: TierSettings, iterations: int) -> "SettingsChooser":
        """Return the chooser of a job whose slowest worker does so many iterations in the first round."""
        coarsest = next(reversed(list(requested.compressions)), "")
        return cls(requested, AutomaticSettings(0.0, iterations, coarsest), coarsest)

    def choose(self, awaited: Sequence[Record], present: Sequence[Record]) -> None:
        """Choose the settings of the round that begins.

        Args:
            awaited: records of the workers that rounds wait for.
            present: of all workers that could take part.
        """
        compression = self.earlier_compression = self.settings.compression
        candidates = present if self.requested.chooses_workers else awaited
        paces = sorted(record.capability for record in candidates if record.capability > 0)
        if not paces:
            return
        # After a change, workers with a fast link report first, which says nothing about the others.
        partial = any(record.compression != compression or not record.exchanges for record in awaited)
        representative = not (partial and self.requested.compressions)
        if representative and (exchange := max((record.exchange for record in awaited), default=0.0)):
            # What has been measured with other compressions was at another time, and changes with the network.
            change = exchange / (self.exchanges.get(compression) or exchange)
            self.exchanges = {name: change * seconds for name, seconds in self.exchanges.items()}
            self.exchanges[compression] = exchange
        self.settings = choose(self.requested, paces, self.exchanges, max(1, len(awaited)), self.settings)
