"""Data sets: fetched and checked (`fetch`), read (`load`), divided among workers (`partition`), cut into `Batches`.

A data set is an entry of `registry`. Needs NumPy but not MXNet. May import `config` and `runtime`.
"""

from .batches import Batches, as_floats
from .datasets import Dataset, find_data_dir, load
from .errors import DataError
from .partitions import Partition, parse_partition, partition, redistribute
from .registry import REGISTRY

__all__ = [
    "REGISTRY",
    "Batches",
    "DataError",
    "Dataset",
    "Partition",
    "as_floats",
    "find_data_dir",
    "load",
    "parse_partition",
    "partition",
    "redistribute",
]
