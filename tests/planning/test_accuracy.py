"""What a plan says of accuracies stands in the documents that it names."""

import re
from pathlib import Path

import pytest

from esync.planning import accuracy
from esync.planning.candidates import Candidate

DOCS = Path(__file__).parents[2] / "docs/results"


def test_accuracies_stand_in_the_documents():
    documents = "".join((DOCS / name).read_text() for name in ("beyond.md", "reproduction.md"))
    there = {round(float(number), 3) for number in re.findall(r"\b0\.\d+", documents)}
    said = {float(number) for number in re.findall(r"\b0\.\d{3}\b", Path(accuracy.__file__).read_text())}
    assert said
    assert said <= there


@pytest.mark.parametrize(
    ("flags", "iid"),
    [
        ({"mode": "sync"}, "0.792"),
        ({"mode": "sync", "collective": "ring"}, "0.792"),
        ({"mode": "esync", "compression": "topk:0.01"}, "0.763"),
        ({"mode": "esync", "overlap": True, "compression": "fp16"}, "0.813"),
        ({"mode": "esync", "local_iterations": 50}, "not measured"),
    ],
)
def test_known_accuracy_is_that_of_mode_and_flags(flags, iid):
    assert iid in accuracy.known_accuracy(Candidate(flags)).iid
