"""esync.shard: which samples each worker gets, and what data sets it takes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import esync
from esync.gluon.shard import Shard
from esync.runtime.mxnet_import import mx

from ..support.small_net import local_trainer, make_net

data = mx.gluon.data


@dataclass
class Worker:
    """A trainer whose rank is known once it has been started."""

    slot: int
    workers: int
    started: bool = False

    def start(self) -> None:
        self.started = True

    @property
    def rank(self) -> int:
        assert self.started
        return self.slot


def shards(dataset: Any, workers: int, **options: Any) -> list[Any]:
    return [esync.shard(dataset, Worker(rank, workers), **options) for rank in range(workers)]


@pytest.mark.parametrize("samples", [3, 10, 11])
def test_shards_of_all_workers_are_disjoint_equal_and_complete(samples):
    dealt = shards(list(range(samples)), 3)
    assert sorted(sample for shard in dealt for sample in shard) == list(range(samples))
    sizes = [len(shard) for shard in dealt]
    assert max(sizes) - min(sizes) <= 1


def test_shard_depends_on_the_seed_only():
    first, again, other = (shards(list(range(60)), 3, **options) for options in ({}, {"seed": 0}, {"seed": 1}))
    assert [list(shard) for shard in first] == [list(shard) for shard in again]
    assert [list(shard) for shard in first] != [list(shard) for shard in other]


@pytest.mark.parametrize(
    "tokens",
    [
        np.arange(22.0).reshape(11, 2),
        mx.nd.arange(11),
        mx.np.arange(11),
        list(range(11)),
        "abcdefghijk",
        data.SimpleDataset(range(11)),
        data.ArrayDataset(np.arange(11), np.arange(11.0)),
    ],
    ids=lambda tokens: type(tokens).__name__,
)
def test_contiguous_shards_follow_one_another_in_order_of_the_ranks(tokens):
    first, *tail = shards(tokens, 3, contiguous=True)
    assert [len(first), *map(len, tail)] == [4, 4, 3]
    joined = [plain(token) for part in (first, *tail) for token in part]
    assert joined == [plain(token) for token in tokens]
    kind = Shard if isinstance(tokens, data.Dataset) else type(tokens)
    assert type(first) is kind
    if kind is not Shard:
        assert [plain(token) for token in first[1:3]] == joined[1:3]


def plain(token: Any) -> Any:
    """A token without its array."""
    token = token.asnumpy() if isinstance(token, mx.nd.NDArray) else token
    return np.asarray(token).tolist()


def test_contiguous_shard_with_a_seed_is_refused():
    with pytest.raises(ValueError, match=r"seed=3: with contiguous=True .* leave the seed out"):
        esync.shard([1, 2, 3], Worker(0, 3), 3, contiguous=True)


def test_shard_is_started_trainers_share():
    trainer = local_trainer(make_net())
    assert sorted(esync.shard([5, 6, 7], trainer)) == [5, 6, 7]
    assert trainer._started


@pytest.mark.parametrize("form", ["numpy", "ndarray", "array dataset", "transformed before", "transformed after"])
def test_shard_of_each_kind_of_data_set_gives_its_samples(form):
    images, labels = np.arange(20.0).reshape(10, 2), np.arange(10)
    pairs = data.ArrayDataset(images, labels)
    of = {
        "numpy": lambda worker: esync.shard(images, worker),
        "ndarray": lambda worker: esync.shard(mx.nd.array(images), worker),
        "array dataset": lambda worker: esync.shard(pairs, worker),
        "transformed before": lambda worker: esync.shard(pairs.transform_first(np.negative), worker),
        "transformed after": lambda worker: esync.shard(pairs, worker).transform_first(np.negative),
    }[form]
    samples = [sample for rank in range(3) for sample in of(Worker(rank, 3))]
    firsts = [sample if form in ("numpy", "ndarray") else sample[0] for sample in samples]
    values = sorted(np.asarray([first.asnumpy() if form == "ndarray" else first for first in firsts]).reshape(-1))
    assert values == sorted((-images if form.startswith("transformed") else images).reshape(-1))
    if form not in ("numpy", "ndarray"):
        assert all(abs(image[0]) == 2 * label for image, label in samples)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_shard_in_a_data_loader_with_processes_gives_all_samples(loader_workers):
    images, labels = np.arange(20, dtype=np.float32).reshape(10, 2), np.arange(10)
    shard = esync.shard(data.ArrayDataset(images, labels), Worker(1, 2)).transform_first(np.negative)
    loader = data.DataLoader(shard, batch_size=2, shuffle=True, num_workers=loader_workers)
    batches = [(image.asnumpy(), label.asnumpy()) for image, label in loader]
    assert len(batches) == 3
    got = sorted(int(value) for _, label in batches for value in label)
    assert got == sorted(label for _, label in shard)
    assert all((image[:, 0] == -2 * label).all() for image, label in batches)


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize(
    ("dataset", "error", "text"),
    [
        ((np.zeros(4), np.zeros(4)), TypeError, r"not a tuple.*ArrayDataset\(images, labels\)"),
        (data.DataLoader([1.0, 2.0], 1), TypeError, r"DataLoader has not both.*make the loader from the result"),
        (iter([1, 2, 3]), TypeError, r"with len\(\) and \[\], but list_iterator has not both"),
        ([1, 2], ValueError, r"2 samples into 3 shares"),
    ],
    ids=["tuple", "loader", "iterator", "too few"],
)
def test_shard_of_what_cannot_be_divided_is_refused(dataset, error, text, contiguous):
    with pytest.raises(error, match=text):
        esync.shard(dataset, Worker(0, 3), contiguous=contiguous)


def test_sampler_of_the_whole_data_set_is_told_the_size_of_the_part():
    part = esync.shard(list(range(40)), Worker(0, 2))
    with pytest.raises(IndexError, match=r"sample 31 of .* this worker's part has 20 samples; make samplers"):
        list(data.DataLoader(part, 4, sampler=[3, 19, 31]))


def test_columns_by_name_are_refused_where_a_sample_is_read():
    columns = {"x": np.zeros(4), "y": np.zeros(4)}
    with pytest.raises(TypeError, match=r"have the numbers 0 to 1, but dict has no [01]: .*ArrayDataset"):
        esync.shard(columns, Worker(0, 2))[0]


def test_key_error_of_the_data_sets_own_is_passed_on():
    class Labeled(data.Dataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return {"cat": 0}["dog"]

    with pytest.raises(KeyError, match="dog"):
        esync.shard(Labeled(), Worker(0, 2))[0]
