"""What is known of the accuracy of a method.

Nothing but what docs/results/beyond.md and docs/results/esync.md say. `worth` is a rule of
thumb for what a sample brings, fitted to what was measured there (docs/how-to/plan.md).
Figures in texts are final accuracies of the stand-in there, a perceptron on the paper's cluster
(devices 1:117), after equal samples and with data dealt out evenly or by class, unless a text says
otherwise. Synchronous SGD is at 0.792 and 0.807 there.
"""

from dataclasses import dataclass

from .. import config
from .candidates import Candidate


@dataclass(frozen=True)
class KnownAccuracy:
    """What is known of a method's accuracy.

    Attributes:
        iid: with data dealt out evenly.
        skewed: with data by class.
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
#: Mode and the flags that matter for accuracy → what is known.
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


def worth(local_iterations: float, batches: float) -> float:
    """Return what a sample is worth, where one in sequential SGD is worth 1: a rule of thumb.

    Samples that are summed or averaged say partly the same. With h local iterations between two
    exchanges on the device that does most of them, and B batches of all devices, n = B ÷ h devices
    compute at the same time, and a sample is worth

        1 ÷ (1 + (n − 1) ÷ N) · 1 ÷ (1 + (h − 1) ÷ H).

    The first factor is the trade-off between steps and examples of McCandlish et al., *An Empirical
    Model of Large-Batch Training* (2018), with a critical batch size of N batches. The second gives
    the drift of the replicas the same form. N and H (`config.PLAN_HALF_DEVICES`,
    `config.PLAN_HALF_LOCAL`) were fitted to measured times to an accuracy.

    Args:
        local_iterations: h, 1 or more.
        batches: B, 1 or more.
    """
    devices = max(1.0, batches / max(1.0, local_iterations))
    drift = max(0.0, local_iterations - 1) / config.PLAN_HALF_LOCAL
    return 1 / (1 + (devices - 1) / config.PLAN_HALF_DEVICES) / (1 + drift)


def known_accuracy(candidate: Candidate) -> KnownAccuracy:
    """Return what is known of a candidate's accuracy."""
    marks = []
    for name, value in candidate.variation.items():
        if name == "compression":
            marks.append(str(value))
        elif name != "collective":  # the same sums by another way
            marks.append(name)
    return _KNOWN.get((candidate.mode, *sorted(marks)), _NOT_MEASURED)
