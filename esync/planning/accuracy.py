"""Measured accuracies that the model of samples does not predict; `accuracy.yaml` has them."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from .candidates import Candidate


@dataclass(frozen=True)
class MeasuredAccuracy:
    """Measured accuracy of a method, in words.

    Attributes:
        skewed: with the data divided by class.
        iid: how it can fail with the data divided evenly; "": it was not seen to fail.
    """

    skewed: str
    iid: str = ""


#: Mode and the flags that affect the accuracy → measured accuracy.
_MEASURED = {
    method: MeasuredAccuracy(**texts)
    for method, texts in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
}


def measured_accuracy(candidate: Candidate) -> MeasuredAccuracy:
    """Return the measured accuracy of a candidate's method."""
    marks = []
    for name, value in candidate.variation.items():
        if name == "compression":
            marks.append(str(value))
        elif name != "collective":  # it computes the same sums
            marks.append(name)
    return _MEASURED.get(" ".join([candidate.mode, *sorted(marks)]), MeasuredAccuracy("not measured"))
