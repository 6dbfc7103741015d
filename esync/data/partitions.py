"""Partition samples among workers: pure functions from sample counts or labels to index arrays.

Every sample is in exactly one share, or in `dropped`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

#: What --partition accepts.
GRAMMAR = "uniform, contiguous, class or dirichlet:ALPHA with 0 < ALPHA <= 1e6, for instance dirichlet:0.3"


@dataclass(frozen=True, eq=False)
class Partition:
    """One int64 array of sample indices per worker, and the indices that no worker got."""

    shares: list[np.ndarray]
    dropped: np.ndarray


def partition(spec: str, labels: np.ndarray, parts: int, seed: int) -> Partition:
    """Split the samples with these labels into `parts` shares as the text `spec` says (see GRAMMAR).

    Raises:
        ValueError: the text is not understood, or there are fewer samples than shares.
    """
    return parse_partition(spec)(labels, parts, seed)


def parse_partition(spec: str) -> Callable[[np.ndarray, int, int], Partition]:
    """Turn the text of --partition into a function of (labels, parts, seed).

    Raises:
        ValueError: the text is not understood; the message says what would be.
    """
    simple: dict[str, Callable[[np.ndarray, int, int], Partition]] = {
        "uniform": lambda labels, parts, seed: uniform(len(labels), parts, seed),
        "contiguous": lambda labels, parts, seed: contiguous(len(labels), parts),
        "class": lambda labels, parts, seed: by_class(labels, parts),
    }
    if spec in simple:
        return simple[spec]
    scheme, _, argument = spec.partition(":")
    try:
        alpha = float(argument)
    except ValueError:
        alpha = 0.0
    if scheme != "dirichlet" or not 0 < alpha <= 1e6:
        raise ValueError(f"partition {spec!r}: expected {GRAMMAR}")
    return lambda labels, parts, seed: dirichlet(labels, parts, alpha, seed)


def uniform(samples: int, parts: int, seed: int) -> Partition:
    """Shuffle and split (i.i.d. shares): sizes differ by one sample at most, nothing is dropped."""
    _check(samples, parts)
    shares = np.array_split(np.random.default_rng(seed).permutation(samples), parts)
    return Partition(shares, _no_samples())


def contiguous(samples: int, parts: int) -> Partition:
    """Equal shares in the order of the file, as in the public implementation of ESync; the remainder is dropped."""
    _check(samples, parts)
    return _equal_shares(np.arange(samples), parts)


def by_class(labels: np.ndarray, parts: int) -> Partition:
    """Sort by label (stable), then equal shares: the paper's non-i.i.d. case (§5); the remainder is dropped."""
    _check(len(labels), parts)
    return _equal_shares(np.argsort(labels, kind="stable"), parts)


def dirichlet(labels: np.ndarray, parts: int, alpha: float, seed: int) -> Partition:
    """Split each class in proportions drawn from Dirichlet(alpha): label skew (Hsu et al. 2019, arXiv:1909.06335).

    A large alpha comes near to equal class mixtures. The smaller it is, the fewer workers share a
    class, down to whole classes on single workers. The sizes of the shares differ; nothing is
    dropped. Where a share would be empty, as with a tiny alpha, it gets one sample of the share
    that is the largest then, so that every worker can train.
    """
    _check(len(labels), parts)
    rng = np.random.default_rng(seed)
    pieces: list[list[np.ndarray]] = [[] for _ in range(parts)]
    for label in np.unique(labels):
        samples = rng.permutation(np.flatnonzero(labels == label))
        proportions = rng.dirichlet(np.full(parts, alpha))
        cuts = np.rint(np.cumsum(proportions[:-1]) * len(samples)).astype(int)
        for piece, share in zip(np.split(samples, cuts), pieces, strict=True):
            share.append(piece)
    shares = [np.concatenate(share) for share in pieces]
    for empty in [i for i, share in enumerate(shares) if not len(share)]:
        largest = max(range(parts), key=lambda i: len(shares[i]))
        shares[empty], shares[largest] = shares[largest][-1:], shares[largest][:-1]
    return Partition(shares, _no_samples())


def redistribute(dealt: Partition, members: Collection[int], seed: int) -> Partition:
    """Deal the shares of workers that are gone out to the others: a function of who is there and the seed.

    Args:
        dealt: the shares of all workers.
        members: the ranks that are there.
        seed: of the order in which samples are dealt out.

    Returns:
        For each rank its own share and equal parts of those of the missing ones; nothing for those.
        As it was, where nobody is missing, or nobody is there.
    """
    present = sorted(set(members))
    missing = [rank for rank in range(len(dealt.shares)) if rank not in present]
    if not missing or not present:
        return dealt
    parts: dict[int, list[np.ndarray]] = {rank: [dealt.shares[rank]] for rank in present}
    for rank in missing:
        order = np.random.default_rng([seed, rank]).permutation(dealt.shares[rank])
        for member, part in zip(present, np.array_split(order, len(present)), strict=True):
            parts[member].append(part)
    return Partition(
        [np.concatenate(parts[rank]) if rank in parts else _no_samples() for rank in range(len(dealt.shares))],
        dealt.dropped,
    )


def _equal_shares(order: np.ndarray, parts: int) -> Partition:
    size = len(order) // parts
    *shares, dropped = np.split(order, [size * (i + 1) for i in range(parts)])
    return Partition(shares, dropped)


def _no_samples() -> np.ndarray:
    return np.empty(0, np.int64)


def _check(samples: int, parts: int) -> None:
    if not 1 <= parts <= samples:
        raise ValueError(f"cannot split {samples} samples into {parts} shares: each worker needs one sample or more")
