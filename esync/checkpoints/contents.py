"""The contents of a checkpoint's files.

The model is saved as Gluon saves it, arrays of workers and servers as NumPy does. Trainers are
`esync.Trainer`, which imports this module.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ..gluon.flat_arrays import stored_values
from ..gluon.master_weights import follow
from ..runtime.files import through_memory
from ..runtime.mxnet_arrays import like
from ..runtime.mxnet_import import mx
from .state_serialization import decode
from .store import CheckpointError, Part

MODEL_FILE = "model.params"
SERVER_FILE = "server.npz"
VECTORS_FILE = "vectors.npz"
WORKER_FILE = "worker-{rank}.npz"
#: In the servers' file: the weights that their rule worked on, where the workers had other ones.
SERVER_WEIGHTS = "weights"


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Save arrays under their names, for `load_arrays`."""
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def load_arrays(part: Part, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of a part's file; none where it has no such file."""
    path = part.file(name)
    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def load_server(part: Part) -> tuple[list[Any], np.ndarray | None]:
    """Return what the servers' rule remembered, and the weights that it worked on.

    Returns:
        Its vectors, in order, None for those that it did not remember; and the weights, None where
        they were the model's.
    """
    arrays = load_arrays(part, SERVER_FILE)
    vectors = [arrays.get(f"vector-{index}") for index in range(part.facts.get("vectors", 0))]
    return vectors, arrays.get(SERVER_WEIGHTS)


def tracked_states(part: Part, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the state of everything that a worker has tracked, by name, given its arrays."""
    return {name: decode(state, arrays, mx.cpu()) for name, state in part.facts.get("tracked", {}).items()}


def save_model(path: Path, trainer: Any) -> None:
    """Save the common model as Gluon saves parameters.

    That of asynchronous workers is saved with the mean of their statistics.
    """
    replica = trainer.replica
    with replica.holding(replica.common), through_memory(path) as memory:
        arrays = [stored_values(parameter).as_nd_ndarray() for parameter in trainer.parameters]
        mx.nd.save(str(memory), dict(zip(_names(trainer), arrays, strict=True)))


def _names(trainer: Any) -> list[str]:
    """Return a name for each parameter of the trainer; networks that it has several of may use the same names."""
    counts = Counter[str]()
    names = []
    for parameter in trainer.parameters:
        counts[parameter.name] += 1
        number = counts[parameter.name]
        names.append(parameter.name if number == 1 else f"{parameter.name} {number}")
    return names


def further_vectors(trainer: Any) -> dict[str, np.ndarray]:
    """Return the common values of all vectors that are exchanged beside the model's own."""
    return {name: vector.values for name, vector in trainer.replica.further.items()}


def load_vectors(part: Part, trainer: Any) -> None:
    """Load the further vectors of a checkpoint into the replica.

    Raises:
        CheckpointError: the checkpoint lacks one, or has one of another length.
    """
    saved = load_arrays(part, VECTORS_FILE)
    for name, vector in trainer.replica.further.items():
        if name not in saved or saved[name].size != vector.size:
            existing = f"with {saved[name].size} values" if name in saved else "missing"
            raise CheckpointError(
                f"{part.folder} does not fit: the vector {name!r} of algorithm {trainer.algorithm.name!r} is "
                f"{existing}, "
                f"but should have {vector.size}; begin anew with --overwrite"
            )
        vector.write(0, saved[name])


def load_model(part: Part, trainer: Any) -> None:
    """Load the model by name, or in order where the same network has been given another prefix.

    Float32 copies of float16 weights, restored with the optimizer's state, keep their values where
    these, rounded, are the weights.
    """
    saved = mx.nd.load(str(part.folder / MODEL_FILE))
    names = _names(trainer)
    if set(names) != set(saved):
        names = list(saved)
    for parameter, name in zip(trainer.parameters, names, strict=True):
        parameter.set_data(like(saved[name], stored_values(parameter)))
    for parameter in trainer.trained_parameters:
        master = trainer._master(parameter) if parameter.grad_req != "null" else None
        if master is not None:
            follow(master, stored_values(parameter))
