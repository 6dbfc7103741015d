"""Data sets: fetched and checked, read, divided among workers, and cut into batches.

See `fetch`, `load`, `partition` and `Batches`.

`registry` lists the data sets. Needs NumPy, but not MXNet. May import `config` and `runtime`.
"""

from .batches import Batches, as_floats
from .datasets import Dataset, find_data_dir, load, locate
from .errors import DataError
from .partitions import Partition, parse_partition, partition, redistribute, share_of, shuffles
from .registry import REGISTRY
from .user_data import FORMS, check_name, is_function, short_dataset_name

__all__ = [
    "FORMS",
    "REGISTRY",
    "Batches",
    "DataError",
    "Dataset",
    "Partition",
    "as_floats",
    "check_name",
    "find_data_dir",
    "is_function",
    "load",
    "locate",
    "parse_partition",
    "partition",
    "redistribute",
    "share_of",
    "short_dataset_name",
    "shuffles",
]
