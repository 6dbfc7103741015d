"""Results of the ESync paper (Li, Zhou, Yu, v1.12), from Table 1 and its figures.

The values of the accuracy figures (ResNet-18-v1, two hours) were read off by eye, with an error of a
few percent. The published implementation draws them smoothed
(`esync.reports.published_smoothing`), so the times to an accuracy are those of smoothed curves.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

ACCURACY = 0.8  # test accuracy whose time was read off
END = 7200.0  # seconds that the published runs lasted


@dataclass(frozen=True)
class Table1Row:
    """A network's row in Table 1.

    Attributes:
        speedup: time of SSGD to ACCURACY ÷ time of ESync.
        esync, standalone: final test accuracy of ESync, and of sequential SGD.
    """

    speedup: float
    esync: float
    standalone: float


@dataclass(frozen=True)
class PublishedRun:
    """A published run.

    Attributes:
        final_accuracy: test accuracy at its end.
        reached: seconds to ACCURACY; None if it is not known.
    """

    final_accuracy: float
    reached: float | None = None


TABLE_1 = {
    "resnet18-v1": Table1Row(7, 0.926, 0.919),
    "mobilenet-v1": Table1Row(2, 0.905, 0.906),
    "resnet50-v1": Table1Row(4, 0.914, 0.910),
    "resnet50-v2": Table1Row(6, 0.917, 0.918),
    "alexnet": Table1Row(27, 0.932, 0.928),
    "inception-v3": Table1Row(7, 0.940, 0.932),
}
#: Values of the figures of ResNet-18-v1, by the name of the mode's folder.
RESNET18 = {
    "esync": PublishedRun(0.925, 9 * 60.0),
    "sync": PublishedRun(0.86, 60 * 60.0),
    "async": PublishedRun(0.90, 9 * 60.0),
    "dcasgd": PublishedRun(0.90, 9 * 60.0),
    "esync-niid": PublishedRun(0.78),
    "sync-niid": PublishedRun(0.73),
    "async-niid": PublishedRun(0.68),
    "dcasgd-niid": PublishedRun(0.73),
}


def full_width(network: str) -> str:
    """Return the full-width network of a variant: `resnet18-v1` for `resnet18-v1x0.25-groupnorm`."""
    return re.sub(r"(x[0-9.]+)?(-groupnorm)?$", "", network)


def published_runs(network: str) -> Mapping[str, PublishedRun]:
    """Return the published runs of a network or of its full-width form, by the names of modes' folders."""
    row = TABLE_1.get(full_width(network))
    if row is None:
        return {}
    published = {"esync": PublishedRun(row.esync), "local": PublishedRun(row.standalone)}
    return published | RESNET18 if full_width(network) == "resnet18-v1" else published
