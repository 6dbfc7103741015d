import numpy as np

from esync.runtime import numpy_aliases


def test_numpy_aliases_restore_missing_names(monkeypatch):
    for name in numpy_aliases.ALIASES:
        monkeypatch.delattr(np, name, raising=False)
    numpy_aliases.install()
    assert (np.bool, np.int, np.float, np.object) == (bool, int, float, object)
    assert np.zeros(2, np.float).dtype == np.float64


def test_numpy_aliases_leave_existing_names_alone(monkeypatch):
    sentinel = object()
    monkeypatch.setattr(np, "bool", sentinel, raising=False)
    numpy_aliases.install()
    assert np.bool is sentinel
