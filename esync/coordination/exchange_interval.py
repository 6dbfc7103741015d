"""The number of local iterations per exchange, from the times of an exchange and an iteration.

It is used by the algorithms with `--local-iterations auto`, and by the state server.
"""

import math

from .. import config

#: Subtracted before rounding up, so that rounding errors do not add an iteration.
_ROUNDING = 1e-6


def iterations_per_exchange(
    exchange_seconds: float,
    iteration_seconds: float,
    overlap: bool = False,
    share: float = config.AUTO_EXCHANGE_SHARE,
    most: int = config.AUTO_MAX_ITERATIONS,
) -> int:
    """Return the fewest local iterations per exchange that keep the time for exchanges small.

    If the worker waits, a round of H iterations of c seconds and an exchange of x seconds takes
    H·c + x, so the exchange takes at most the share s of it if H ≥ (1 − s)/s · x/c. If the worker
    trains during the exchange, H ≥ x/c hides it. With fewer iterations, the network slows training
    down; with more, replicas diverge without benefit. The trade-off is that of Wang and Joshi,
    "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update
    SGD" (SysML 2019, arXiv 1810.08313), whose ratio of communication and computation times, α, is
    x/c. They choose H from a bound on the error, which needs constants of the loss; this rule needs
    only times.

    Args:
        exchange_seconds: of one exchange, without waiting for other workers; at least 0.
        iteration_seconds: of one local iteration; above 0.
        overlap: whether the worker trains during an exchange.
        share: largest share of a round for an exchange without overlap; above 0, at most 1.
        most: largest result.

    Returns:
        From 1 to `most`.

    Raises:
        ValueError: a time or the share is outside its range.
    """
    if not (exchange_seconds >= 0 and iteration_seconds > 0 and 0 < share <= 1):
        raise ValueError(
            f"exchange_seconds is {exchange_seconds}, iteration_seconds {iteration_seconds}, share {share}, but they "
            "should be at least 0, above 0, and above 0 and at most 1"
        )
    ratio = exchange_seconds / iteration_seconds
    interval = ratio if overlap else (1 - share) / share * ratio
    return int(min(max(1, math.ceil(min(interval, most) - _ROUNDING)), most))
