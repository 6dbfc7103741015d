"""The learning rate: scaled by the number of workers, with warm-up, and its decay by samples."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator
from typing_extensions import override

from .. import config
from .options import Options, option

#: Scalars by which workers with local iterations learn how much all have done in a round → how they
#: are combined.
ROUND_SAMPLES, MAX_SAMPLES = "round_samples", "most_samples"
SCALARS: Mapping[str, str] = {ROUND_SAMPLES: "sum", MAX_SAMPLES: "maximum"}

#: The error where it is not known of how many samples the shares of a decay are.
NO_SAMPLES = (
    "--lr-decay goes by shares of all samples, so it has to be known how many there will be: give --epochs, or in a "
    "program of your own limits=esync.Limits(samples=...)"
)

Scaling = Literal["none", "linear", "sqrt"]
#: The largest factor of a decay: beyond it, rates are no float32 numbers soon.
MAX_FACTOR = 1e6


def effective_workers(scalars: Mapping[str, float]) -> float | None:
    """Return how many times as much as its busiest worker all workers have done in a round.

    That is Σ sᵢ ÷ max sᵢ, where worker i has trained on sᵢ samples in the round: the number of
    workers where all do the same, and the sum of the devices' speeds over the fastest one's where
    each does as much as it can.

    Args:
        scalars: of the round, with those of SCALARS.

    Returns:
        None where the scalars are not known.
    """
    total, largest = scalars.get(ROUND_SAMPLES, 0.0), scalars.get(MAX_SAMPLES, 0.0)
    return max(1.0, total / largest) if largest > 0 else None


def parse_decay(text: str) -> tuple[tuple[float, float], ...]:
    """Parse SHARE:FACTOR,…, the factors of the learning rate; "" is none.

    Shares are of the run's samples, ascending; factors multiply the first learning rate.

    Raises:
        ValueError: it is something else.
    """
    steps = []
    for part in text.split(",") if text else ():
        share, _, factor = part.partition(":")
        try:
            steps.append((float(share), float(factor)))
        except ValueError:
            raise ValueError(f"{text!r}: {part!r} should be SHARE:FACTOR, 0.5:0.1 for instance") from None
    shares = [share for share, _ in steps]
    ascending = all(share < following for share, following in pairwise(shares))
    if not ascending or not all(0 < share < 1 and 0 < factor <= MAX_FACTOR for share, factor in steps):
        raise ValueError(
            f"{text!r}: shares should ascend from above 0 to below 1, and factors should be above 0 and at most "
            f"{MAX_FACTOR:g}"
        )
    return tuple(steps)


def decayed(decay: Sequence[tuple[float, float]], done: float) -> float:
    """Return the factor of the learning rate when that share of the samples has been used."""
    return next((factor for share, factor in reversed(decay) if done >= share), 1.0)


def _checked_decay(text: str) -> str:
    parse_decay(text)
    return text


class RateDecayOptions(Options):
    """Options of algorithms whose learning rate can fall with the samples of all workers."""

    lr_decay: Annotated[str, AfterValidator(_checked_decay)] = option(
        "",
        metavar="SHARE:FACTOR",
        agreed_as="decay of the learning rate",
        help="factors of the learning rate from given shares of all samples on, such as 0.5:0.1,0.75:0.01 "
        "(default: none)",
    )

    @property
    def decay(self) -> tuple[tuple[float, float], ...]:
        """Shares of the samples and factors; see `parse_decay`."""
        return parse_decay(self.lr_decay)

    @property
    def changes_rate(self) -> bool:
        """Whether the learning rate is multiplied by anything."""
        return bool(self.lr_decay)

    def rate_factor(self, workers: float, samples: int, limit: float = math.inf) -> float:
        """Return by what to multiply a learning rate that suits one worker.

        Args:
            workers: the effective number of workers, at least 1.
            samples: that all workers together have trained on so far.
            limit: samples of the whole run.
        """
        return decayed(self.decay, samples / limit)


class RateScalingOptions(RateDecayOptions):
    """Options of algorithms whose step is the mean of what the workers have computed."""

    lr_scaling: Scaling = option(
        config.LR_SCALING,
        agreed_as="scaling of the learning rate",
        help="factor of the learning rate: 1 (none), the effective number of workers (linear) or its square root "
        "(sqrt); see docs/concepts/means.md",
    )
    warmup_samples: int = option(
        config.WARMUP_SAMPLES,
        ge=0,
        agreed_as="samples of the warm-up",
        help="with --lr-scaling: samples of all workers over which the factor rises from 1; 0: none",
    )

    @model_validator(mode="after")
    def _warm_up_by_scaling(self) -> Any:
        """Refuse a warm-up to the rate that it begins with."""
        if self.warmup_samples and self.lr_scaling == "none":
            raise ValueError("--warmup-samples needs --lr-scaling linear or sqrt: it leads to the scaled learning rate")
        return self

    @property
    @override
    def changes_rate(self) -> bool:
        return self.lr_scaling != "none" or super().changes_rate

    @override
    def rate_factor(self, workers: float, samples: int, limit: float = math.inf) -> float:
        """Return by what to multiply a learning rate that suits one worker.

        The mean of n workers' gradients has a variance n times smaller than one gradient's, and
        takes one step where one worker would take n. Linear scaling (Goyal et al., arXiv
        1706.02677, section 2.1) makes that step n times as long, so that it leads, to first order,
        as far as the n steps. Square root scaling (Krizhevsky, arXiv 1404.5997, section 5.1; Hoffer
        et al., NeurIPS 2017, section 4) keeps the covariance of the step as it is with one worker.
        Gradual warm-up (Goyal et al., section 2.2) begins with the factor 1 and lets it rise evenly.

        The arguments are those of `RateDecayOptions.rate_factor`; n is the effective number of workers.
        """
        full_factor = {"none": 1.0, "linear": float(workers), "sqrt": math.sqrt(workers)}[self.lr_scaling]
        warm = min(1.0, samples / self.warmup_samples) if self.warmup_samples else 1.0
        return (1 + (full_factor - 1) * warm) * super().rate_factor(workers, samples, limit)
