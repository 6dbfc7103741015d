"""How long workers compute between exchanges, so that these take a small share of a round.

`--local-iterations auto` takes the number of local iterations from here, `--slowest-iterations auto` from
`automatic_settings`.
"""

import math

from .. import config

#: Subtracted before rounding up, so that rounding errors do not add an iteration.
_ROUNDING = 1e-6


def least_computing(exchange: float, share: float) -> float:
    """Return the seconds of computing of a round whose exchange takes at most a share s of it.

    E ≤ s · (R + E), so that R ≥ E · (1 − s)/s.

    Args:
        exchange: E, seconds of an exchange, without waiting for other workers.
        share: s, between 0 and 1. Where workers train during the exchange, 1/2 hides it.
    """
    return exchange * (1 - share) / share


def iterations_per_exchange(exchange_seconds: float, iteration_seconds: float, share: float) -> int:
    """Return the fewest local iterations per exchange that keep the time for exchanges small.

    With fewer iterations, the network slows training down; with more, replicas diverge without benefit. The
    trade-off is that of Wang and Joshi, "Adaptive Communication Strategies to Achieve the Best
    Error-Runtime Trade-off in Local-Update SGD" (SysML 2019, arXiv 1810.08313), whose ratio of
    communication and computation times, α, is that of the two arguments. They choose the number from a bound
    on the error, which needs constants of the loss; this rule needs only times.

    Args:
        exchange_seconds: of one exchange, without waiting for other workers; at least 0.
        iteration_seconds: of one local iteration; above 0.
        share: largest share of a round for an exchange; see `least_computing`.

    Returns:
        From 1 to config.AUTO_MAX_ITERATIONS.
    """
    interval = least_computing(exchange_seconds, share) / iteration_seconds
    return max(1, math.ceil(min(interval, config.AUTO_MAX_ITERATIONS) - _ROUNDING))
