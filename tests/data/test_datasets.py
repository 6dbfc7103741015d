from pathlib import Path

import numpy as np
import pytest
import tiny_dataset
from tiny_dataset import CONTENTS, idx_bytes

from esync import config
from esync.data import DataError, find_data_dir, load
from esync.data.datasets import Dataset
from esync.data.fetch import faults
from esync.data.registry import FASHION_MNIST


def test_load_fashion_mnist_returns_four_arrays(tmp_path):
    tiny_dataset.write(tmp_path)
    data = load("fashion-mnist", tmp_path)
    assert (data.name, data.classes) == ("fashion-mnist", 10)
    assert data.train_images.shape == (40, 28, 28)
    assert data.test_images.shape == (20, 28, 28)
    assert data.train_images.tobytes() == CONTENTS["train-images-idx3-ubyte.gz"][16:]
    np.testing.assert_array_equal(data.train_labels, np.arange(40) % 10)
    np.testing.assert_array_equal(data.test_labels, np.arange(20) % 10)


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("cat", "dog"), ("cat", "dog", "2")),
        (("10", "7", "x" * 51), ("10", "7", "2")),
        (("x" * 51, "0", "cat"), ("0", "1", "2")),  # "0" is the number of the first, too
        (("2", "cat", "cat"), ("0", "1", "2")),
    ],
)
def test_labels_of_classes_are_different(names, labels):
    nothing = np.empty(0)
    assert Dataset("pets", 3, nothing, nothing, nothing, nothing, names).labels == labels


@pytest.mark.parametrize(
    ("name", "array", "wrong"),
    [
        ("train-labels-idx1-ubyte.gz", np.arange(39) % 10, "39 labels; expected 40"),
        ("t10k-images-idx3-ubyte.gz", np.zeros((19, 28, 28)), "20 labels; expected 19"),
        ("t10k-labels-idx1-ubyte.gz", None, "t10k-labels-idx1-ubyte.gz: no such file"),
        ("train-labels-idx1-ubyte.gz", np.full(40, 10), "label 10; expected labels from 0 to 9"),
        ("train-images-idx3-ubyte.gz", np.zeros((40, 28, 27)), r"images of (28, 27) pixels; expected (28, 28)"),
    ],
)
def test_load_with_inconsistent_files_names_the_file(tmp_path, name, array, wrong):
    folder = tiny_dataset.write(tmp_path, CONTENTS if array is None else {**CONTENTS, name: idx_bytes(array)})
    if array is None:
        (folder / name).unlink()
    with pytest.raises(DataError) as caught:
        load("fashion-mnist", tmp_path)
    assert wrong in str(caught.value)
    assert name.split("-")[0] in str(caught.value)  # train or t10k: the file is named
    assert f"fetch --to {tmp_path}" in str(caught.value)


def test_load_with_empty_test_set_is_refused(tmp_path):
    none = {"t10k-images-idx3-ubyte.gz": np.empty((0, 28, 28)), "t10k-labels-idx1-ubyte.gz": np.empty(0)}
    tiny_dataset.write(tmp_path, CONTENTS | {name: idx_bytes(array) for name, array in none.items()})
    with pytest.raises(DataError, match="no samples"):
        load("fashion-mnist", tmp_path)


def test_load_with_unknown_data_set_lists_the_known_ones(tmp_path):
    with pytest.raises(DataError, match="imagenet: unknown data set; expected one of fashion-mnist"):
        load("imagenet", tmp_path)


def test_find_data_dir_without_argument_takes_first_directory_with_the_set(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(config, "DATA_DIRS", (str(first), str(second)))
    with pytest.raises(DataError) as caught:
        find_data_dir(None, "fashion-mnist")
    assert str(first / "fashion-mnist") in str(caught.value)
    assert str(second / "fashion-mnist") in str(caught.value)
    assert f"fetch --to {first}" in str(caught.value)
    tiny_dataset.write(second)
    assert find_data_dir(None, "fashion-mnist") == second
    tiny_dataset.write(first)
    assert find_data_dir(None, "fashion-mnist") == first
    assert find_data_dir(second, "fashion-mnist") == second
    with pytest.raises(DataError, match="elsewhere"):
        find_data_dir(str(tmp_path / "elsewhere"), "fashion-mnist")


def test_fashion_mnist_files_match_the_registry():
    candidates = [Path(__file__).parents[2] / config.DATA_DIRS[0], *map(Path, config.DATA_DIRS)]
    data_dir = next((place for place in candidates if (place / "fashion-mnist").is_dir()), None)
    if data_dir is None:
        pytest.skip("Fashion-MNIST is not on this machine")
    assert faults(FASHION_MNIST, data_dir) == {}
    data = load("fashion-mnist", data_dir)
    assert np.bincount(data.train_labels).tolist() == [6000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10


def test_find_data_dir_elsewhere_finds_that_of_the_checkout(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    (checkout / "scripts" / "setup.sh").touch()
    tiny_dataset.write(checkout / "data")
    monkeypatch.setattr(config, "__file__", str(checkout / "config.py"))
    monkeypatch.setattr(config, "DATA_DIRS", ("data",))
    monkeypatch.chdir(tmp_path)
    assert find_data_dir(None, "fashion-mnist") == checkout / "data"
    tiny_dataset.write(tmp_path / "data")
    assert find_data_dir(None, "fashion-mnist").resolve() == (tmp_path / "data").resolve()
