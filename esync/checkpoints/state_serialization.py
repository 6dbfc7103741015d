"""Serialization of the state of an optimizer or an algorithm: to JSON and arrays, and back.

It does not use pickle, which would run whatever somebody has put into the file.

Gluon's optimizers keep their state in nested tuples, lists and dicts of NDArrays and numbers, some
of it in the updater, some (counters, Nadam's schedule, a learning rate scheduler) in objects'
attributes.
"""

from typing import Any

import numpy as np

from ..runtime.mxnet_import import mx

#: Attributes of an optimizer that are not stored: the parameters themselves, an alias of the
#: counters, and the scheduler, which is stored on its own.
NO_STATE = ("param_dict", "lr_scheduler", "_index_update_count")


class NotStorableError(TypeError):
    """A value in a state cannot be put into a file."""


def encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a state as values that JSON can hold.

    Its arrays are put into `arrays` and referred to by name.

    Raises:
        NotStorableError: it holds something other than arrays, numbers, texts, tuples, lists and
            dicts.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        raise NotStorableError("an array of Python objects cannot be put into a checkpoint")
    if isinstance(value, (np.ndarray, mx.nd.NDArray)):
        name = f"array-{len(arrays)}"
        arrays[name] = value if isinstance(value, np.ndarray) else value.asnumpy()
        return {"array": name, "ndarray": not isinstance(value, np.ndarray)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [encode(item, arrays) for item in value]}
    if type(value) is dict:
        return {"dict": [[encode(key, arrays), encode(item, arrays)] for key, item in value.items()]}
    raise NotStorableError(f"{type(value).__name__} cannot be put into a checkpoint")


def decode(tree: Any, arrays: dict[str, np.ndarray], context: Any) -> Any:
    """Return the state that was given to `encode`; NDArrays are made on the device `context`."""
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        array = arrays[tree["array"]]
        return mx.nd.array(array, ctx=context, dtype=array.dtype) if tree["ndarray"] else array
    if "dict" in tree:
        return {decode(key, arrays, context): decode(item, arrays, context) for key, item in tree["dict"]}
    kind, values = next(iter(tree.items()))
    decoded = [decode(value, arrays, context) for value in values]
    return tuple(decoded) if kind == "tuple" else decoded


def attributes(holder: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the attributes of an optimizer or a scheduler that can be stored; {} for None."""
    stored = {}
    for name, value in vars(holder).items() if holder is not None else ():
        if name not in NO_STATE:
            try:
                stored[name] = encode(value, arrays)
            except NotStorableError:
                continue  # a function, for instance, which the program has set again
    return stored


class OptimizerState:
    """The state of a Gluon trainer's local optimizer.

    Args:
        trainer: a gluon.Trainer in the state that the program gave it. What a checkpoint has that
            differs from it is restored, unless the program now begins with another value, which
            then is what the user wants.

    Attributes:
        initial: the attributes of the optimizer and of its scheduler in that state, encoded.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.initial = self._values({})

    def save(self, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return the state as JSON; arrays are put into `arrays`."""
        updater = self._trainer._updaters[0]
        return {"initial": self.initial, "now": self._values(arrays), "states": encode(updater.states, arrays)}

    def load(self, saved: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Go back to the state that `save` has returned."""
        trainer = self._trainer
        updater, context = trainer._updaters[0], trainer._params[0].list_ctx()[0]
        updater.states = decode(saved["states"], arrays, context)
        updater.states_synced = dict.fromkeys(updater.states, True)
        for owner, holder in self._owners().items():
            for name, value in saved["now"].get(owner, {}).items() if holder is not None else ():
                if saved["initial"][owner].get(name) == self.initial[owner].get(name):
                    setattr(holder, name, decode(value, arrays, context))

    @property
    def half_precision(self) -> bool:
        """Whether some of the trained weights are float16."""
        return any(p.grad_req != "null" and np.dtype(p.dtype) == np.float16 for p in self._trainer._params)

    def masters(self, saved: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return whether the optimizer keeps float32 copies of float16 weights.

        With `saved`, return whether the saved one did. The result is a setting, name → value, for
        comparisons.
        """
        now = vars(self._trainer._optimizer) if saved is None else saved["now"]["optimizer"]
        return {"multi_precision": now.get("multi_precision", False)}

    def _owners(self) -> dict[str, Any]:
        optimizer = self._trainer._optimizer
        scaler = getattr(self._trainer, "_amp_loss_scaler", None)  # of automatic mixed precision
        return {"optimizer": optimizer, "scheduler": optimizer.lr_scheduler, "loss scaler": scaler}

    def _values(self, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        return {owner: attributes(holder, arrays) for owner, holder in self._owners().items()}
