"""Draws options of an algorithm, within the types, bounds and choices that its class states."""

import argparse
import math
import random
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from esync.algorithms import Algorithm
from esync.algorithms.options import annotated, limits
from esync.algorithms.registry import flags_of
from esync.arguments import algorithm_of, choose_algorithm
from esync.launch import flags

BATCH = 8
#: Probability that an option is drawn; otherwise it keeps its default.
DRAWN = 0.4
#: Largest distance of an integer from the smallest one allowed: a single value, one of a list.
NEAR, NEAR_IN_LISTS = 3, 11
#: Distances from the smallest number allowed, where there is no largest one.
DISTANCES = (0.01, 0.1, 0.5, 1.0, 2.0)
#: Probability that a number is the smallest or the largest one allowed.
AT_THE_END = 0.5


def searchable(algorithm: type[Algorithm]) -> bool:
    """Return whether the workers exchange something, and gradients do not decide what."""
    return algorithm.sends != "nothing" and not algorithm.needs_gradients


@lru_cache(maxsize=16)
def find(mode: str) -> type[Algorithm]:
    """Return the algorithm that a mode means.

    Raises:
        ValueError: there is no such mode, or none that can be searched.
    """
    algorithm = algorithm_of(mode)
    if not searchable(algorithm):
        why = "exchanges nothing" if algorithm.sends == "nothing" else "needs gradients"
        raise ValueError(f"mode {mode} {why}, so it cannot be searched")
    return algorithm


@lru_cache(maxsize=256)
def parse(mode: str, words: tuple[str, ...]) -> argparse.Namespace:
    """Return the worker's flags of a mode with these options.

    Raises:
        ValueError: the mode refuses them.
    """
    line = ["--mode", mode, "--batch-size", str(BATCH), *words]
    try:
        return flags.parse(line)
    except flags.FlagError as error:  # perhaps the algorithm wants to know how many samples the run has
        try:
            return flags.parse([*line, "--epochs=1"])
        except flags.FlagError:
            raise error from None


def accepted(mode: str, words: tuple[str, ...]) -> bool:
    """Return whether a mode takes these options."""
    try:
        choose_algorithm(parse(mode, words))
    except ValueError:
        return False
    return True


def draw_options(mode: str, arguments: tuple[str, ...], chance: random.Random) -> tuple[str, ...]:
    """Draw some of the options that are not given; return all of them, as words.

    Values that the algorithm refuses are left out.
    """
    options, words = parse(mode, arguments), list(arguments)
    for dest, flag in flags_of(options.algorithm).items():
        if dest in options.typed or chance.random() >= DRAWN:
            continue
        value = sample(flag.kind, chance)
        if value is None:
            continue
        tried = argparse.Namespace(**{**vars(options), dest: value, "typed": options.typed | {dest}})
        try:
            tried.algorithm.check_flags(tried, tried.typed)
            choose_algorithm(tried)
        except ValueError:
            continue
        options = tried
        several = isinstance(value, tuple)
        words.append(flags.flag(dest) + ("" if several or value is True else f"={value}"))
        words.extend(map(str, value if several else ()))
    return tuple(words)


def sample(kind: Any, chance: random.Random, near: int = NEAR) -> Any:
    """Draw a value of an annotated type.

    Returns None where the type does not tell which values there are, as for a text.
    """
    bounds: list[Any] = []
    if get_origin(kind) is Annotated:
        kind, *bounds = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        kinds = [argument for argument in get_args(kind) if argument is not type(None)]
        return sample(annotated(chance.choice(kinds), bounds), chance)
    if get_origin(kind) is Literal:
        return chance.choice(get_args(kind))
    if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        values = {sample(get_args(kind)[0], chance, NEAR_IN_LISTS) for _ in range(chance.randint(1, 3))}
        return None if None in values else tuple(sorted(values))
    if kind is bool:
        return True
    limit = limits(bounds)
    if kind is int:
        low = int(max(limit.get("ge", 0), math.floor(limit.get("gt", -1)) + 1))
        return chance.randint(low, int(min(limit.get("le", math.inf), limit.get("lt", math.inf) - 1, low + near)))
    if kind is float:
        minimum, maximum = limit.get("ge", limit.get("gt", 0.0)), limit.get("le", limit.get("lt", math.inf))
        if "gt" not in limit and chance.random() < AT_THE_END:
            return minimum
        if maximum == math.inf:
            return minimum + chance.choice(DISTANCES)
        return maximum if "le" in limit and chance.random() < AT_THE_END else chance.uniform(minimum, maximum)
    return None
