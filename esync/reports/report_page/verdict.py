"""The result in sentences: what each group of runs has reached, and how it compares with the first."""

from collections.abc import Callable, Sequence
from statistics import fmean

from ..estimates import LEVEL, Estimate
from ..modes import STANDALONE
from ..run_groups import THROUGHPUT, Group, Quantity, Section
from ..speedups import best_alone, slower_than_fastest
from ..tables import duration


def verdict(section: Section) -> list[str]:
    """Return a sentence about each group, and one that compares each further group with the first."""
    time, final, *_ = section.quantities
    sentences = []
    for group in section.groups:
        reached, ended = group.estimate(time), group.estimate(final)
        speed, efficiency = group.estimate(THROUGHPUT), mean_efficiency(group)
        words = []
        if section.target is not None and ended is not None:
            goal = f"{section.target:g}"
            missed = (
                ""
                if not reached or reached.n == len(group.counted)
                else f" in {reached.n} of {len(group.counted)} runs"
            )
            words.append(
                f"reached {section.metric.label} {goal} after {time_with_spread(reached)}{missed}"
                if reached
                else f"did not reach {section.metric.label} {goal}"
            )
        if ended is not None:
            words.append(f"ended at {with_spread(ended, section.metric.text)}")
        if speed is not None:
            words.append(f"processed {with_spread(speed, '{:,.1f}'.format)} samples/s")
        if efficiency is not None:
            words.append(f"used {100 * efficiency:.0f} % of the devices' speed")
        invalid = f" These figures are not valid ({group.invalid})." if group.invalid else ""
        sentences.append(f"{group.label} {_listed(words) or 'has no figures'}.{invalid}")
    reference = section.groups[0]
    for group in section.groups[1:]:
        sentences += _comparison(section, group, reference, time)
    return [*sentences, *_over_one_device(section)]


def _over_one_device(section: Section) -> list[str]:
    """Return a sentence on the speedups over the fastest device alone, if there is a run of it."""
    figures = [group.figures for group in section.groups]
    alone = best_alone(figures)
    speedups = [(group, section.speedup(group, STANDALONE)) for group in section.groups if group.figures is not alone]
    texts = [
        f"{group.label} {value.value:.2f} times as fast{f' (limit {value.limit:.2f})' if value.limit else ''}"
        for group, value in speedups
        if value.value is not None
    ]
    if alone is None or not texts:
        return []
    sentences = [f"Compared with one device alone ({alone.mode.label}), to the target: {_listed(texts)}."]
    if faster := slower_than_fastest(alone, figures):
        sentences.append(f"That device is not the fastest, which is {faster.name}.")
    return sentences


def _comparison(section: Section, group: Group, reference: Group, time: Quantity) -> list[str]:
    """Return a sentence on how much faster a group was than the reference."""
    quantity = time if section.difference(group, time) else THROUGHPUT
    difference = section.difference(group, quantity)
    mean, other = group.estimate(quantity), reference.estimate(quantity)
    if difference is None or mean is None or other is None or min(mean.mean, other.mean) <= 0:
        return []
    faster = other.mean / mean.mean if quantity is time else mean.mean / other.mean
    goal = "to the target" if quantity is time else "in samples/s"
    # A time is given as a difference in seconds, which is what its interval is of.
    if difference.low is None or difference.high is None:
        chance = "; with a single run of either, whether that is more than chance is not known"
    else:
        edges = " to ".join(quantity.text(edge, True) for edge in (difference.low, difference.high))
        interval = f"{100 * LEVEL:g} % confidence interval of the difference: {edges.replace('-', '−')}"
        more = "more" if difference.beyond_chance else "no more"
        chance = f", which is {more} than chance would explain ({interval}{quantity.unit or ' samples/s'})"
    compared = f"{faster:.2f} times as fast as" if faster >= 1 else f"{1 / faster:.2f} times as slow as"
    return [f"{group.label} was {compared} {reference.label} {goal}{chance}."]


def mean_efficiency(group: Group) -> float | None:
    """Return the mean efficiency of a group's valid runs; None if it is not known of all of them."""
    efficiencies = [run.figures.efficiency for run in group.counted]
    return None if None in efficiencies else fmean(value for value in efficiencies if value is not None)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def time_with_spread(value: Estimate) -> str:
    """Return a mean time in words, with its standard deviation in seconds."""
    spread = f" ± {value.sd:.1f} s" if value.sd is not None else ""
    return f"{duration(value.mean)}{spread}"


def with_spread(value: Estimate, text: Callable[[float], str]) -> str:
    """Return a mean with its standard deviation, each written by `text`."""
    return f"{text(value.mean)}{f' ± {text(value.sd)}' if value.sd is not None else ''}"
