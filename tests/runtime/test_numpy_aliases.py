import numpy as np

from esync.runtime import numpy_aliases


def test_missing_names_are_put_back(monkeypatch):
    for name in numpy_aliases.ALIASES:
        monkeypatch.delattr(np, name, raising=False)
    numpy_aliases.install()
    assert (np.bool, np.int, np.float, np.object) == (bool, int, float, object)
    assert np.zeros(2, np.float).dtype == np.float64


def test_names_that_are_there_stay_as_they_are(monkeypatch):
    sentinel = object()
    monkeypatch.setattr(np, "bool", sentinel, raising=False)
    numpy_aliases.install()
    assert np.bool is sentinel
