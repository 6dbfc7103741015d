"""Measured accuracies of the methods, from docs/results/beyond.md and docs/results/esync.md.

Unless a text says otherwise, the figures are final accuracies of a perceptron on the paper's cluster
(devices 1:117), after equal samples, with the data divided evenly (i.i.d.) or by class (skewed).
Synchronous SGD reaches 0.792 and 0.807 there.
"""

from dataclasses import dataclass

from .candidates import Candidate


@dataclass(frozen=True)
class KnownAccuracy:
    """Measured accuracy of a method, in words.

    Attributes:
        iid: with the data divided evenly.
        skewed: with the data divided by class.
    """

    iid: str
    skewed: str


_NOT_MEASURED = KnownAccuracy("not measured", "not measured")
_SYNC = KnownAccuracy(
    "SGD with a larger batch: 0.792",
    "0.807; with batch norm, ResNet-18 (narrow) stays at 0.414, with group norm at 0.854",
)
_ASYNC = KnownAccuracy(
    "ResNet-18: 0.858 after 15 min, sync 0.866 after 34 min; with momentum and rates made for sync it "
    "can fail (LeNet, 8 workers: 0.503 instead of 0.815)",
    "ResNet-18: 0.405, sync 0.422",
)
#: Mode and the flags that affect the accuracy → measured accuracy.
_KNOWN: dict[tuple[str, ...], KnownAccuracy] = {
    ("local",): KnownAccuracy(
        "plain SGD: after 148,160 samples ResNet-18 is at 0.889 (esync 0.844)",
        "the same: one device has all of the data",
    ),
    ("sync",): _SYNC,
    ("sync", "fp16"): KnownAccuracy("as sync: 0.792", "as sync: 0.807"),
    ("sync", "2bit"): KnownAccuracy("as good as sync: 0.807", "as sync: 0.807"),
    ("esync",): KnownAccuracy(
        "0.806, at 0.8 fifty times sooner than sync", "fails after equal samples: 0.497 (sync 0.807, much later)"
    ),
    ("esync", "fp16"): KnownAccuracy("as esync: 0.808", "as esync: 0.504 (sync 0.807)"),
    ("esync", "2bit"): KnownAccuracy("fails: 0.795 (esync 0.806)", "fails: 0.433 (esync 0.497, sync 0.807)"),
    ("esync", "overlap"): KnownAccuracy("as esync: 0.804, sooner", "fails: 0.390 (esync 0.497, sync 0.807)"),
    ("esync", "fp16", "overlap"): KnownAccuracy(
        "with --weighting samples: 0.813; ResNet-18 0.872, as esync",
        "with --weighting samples it fails: 0.339 (esync 0.497, sync 0.807)",
    ),
    ("local-sgd",): KnownAccuracy("0.802", "0.741 (sync 0.807); diloco 0.793"),
    ("diloco",): KnownAccuracy("0.837", "0.793 (sync 0.807)"),
    ("ssp",): KnownAccuracy("0.830", "0.798 (sync 0.807)"),
    ("dylu",): KnownAccuracy("0.809", "0.652 (sync 0.807, later)"),
    ("async",): _ASYNC,
    ("dcasgd",): KnownAccuracy(
        "ResNet-18: 0.852 after 15 min, sync 0.866 after 34 min", "ResNet-18: 0.330, sync 0.422"
    ),
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
