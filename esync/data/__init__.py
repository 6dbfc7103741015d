"""Data sets in memory, who trains on what, and batches: load → partition → Batches. NumPy only, except `resize`."""

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
