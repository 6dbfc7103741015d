"""Measured accuracies that the model of samples does not predict.

They are from docs/results/beyond.md and docs/results/esync.md, with data divided by class (skewed), and
of methods that fail with data divided evenly (i.i.d.). Unless a text says otherwise, the figures are
final accuracies of a perceptron on the paper's cluster (devices 1:117), after equal samples.
Synchronous SGD reaches 0.792 and 0.807 there.
"""

from dataclasses import dataclass

from .candidates import Candidate


@dataclass(frozen=True)
class KnownAccuracy:
    """Measured accuracy of a method, in words.

    Attributes:
        skewed: with the data divided by class.
        iid: how it can fail with the data divided evenly; "": it was not seen to fail.
    """

    skewed: str
    iid: str = ""


_NOT_MEASURED = KnownAccuracy("not measured")
_SYNC = KnownAccuracy("0.807; with batch norm, ResNet-18 (narrow) stays at 0.414, with group norm at 0.854")
#: Mode and the flags that affect the accuracy → measured accuracy.
_KNOWN: dict[tuple[str, ...], KnownAccuracy] = {
    ("local",): KnownAccuracy("as evenly divided: one device has all of the data"),
    ("sync",): _SYNC,
    ("sync", "fp16"): KnownAccuracy("as sync: 0.807"),
    ("sync", "2bit"): KnownAccuracy("as sync: 0.807"),
    ("esync",): KnownAccuracy("fails after equal samples: 0.497 (sync 0.807, much later)"),
    ("esync", "fp16"): KnownAccuracy("as esync: 0.504 (sync 0.807)"),
    ("esync", "2bit"): KnownAccuracy("fails: 0.433 (esync 0.497, sync 0.807)", "misses 0.8: 0.795 (esync 0.806)"),
    ("esync", "overlap"): KnownAccuracy("fails: 0.390 (esync 0.497, sync 0.807)"),
    ("esync", "fp16", "overlap"): KnownAccuracy(
        "with --weighting samples it fails: 0.339 (esync 0.497, sync 0.807)",
    ),
    ("local-sgd",): KnownAccuracy("0.741 (sync 0.807); diloco 0.793"),
    ("diloco",): KnownAccuracy("0.793 (sync 0.807)"),
    ("ssp",): KnownAccuracy("0.798 (sync 0.807)"),
    ("dylu",): KnownAccuracy("0.652 (sync 0.807, later)"),
    ("async",): KnownAccuracy(
        "ResNet-18: 0.405, sync 0.422",
        "with momentum and rates made for sync it can fail (LeNet, 8 workers: 0.503 instead of 0.815)",
    ),
    ("dcasgd",): KnownAccuracy("ResNet-18: 0.330, sync 0.422"),
}


def known_accuracy(candidate: Candidate) -> KnownAccuracy:
    """Return the measured accuracy of a candidate's method."""
    marks = []
    for name, value in candidate.variation.items():
        if name == "compression":
            marks.append(str(value))
        elif name != "collective":  # it computes the same sums
            marks.append(name)
    return _KNOWN.get((candidate.mode, *sorted(marks)), _NOT_MEASURED)
