"""The content of run.json, for any training program."""

import functools
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..algorithms.loading import digest, source
from ..version import __version__

if TYPE_CHECKING:
    from ..algorithms import Algorithm
    from ..trainer import Trainer

#: Options about the cluster, not the training.
PER_WORKER = ("state_server", "job")


def trainer_facts(trainer: "Trainer") -> dict[str, Any]:
    """Return the facts of a started trainer, real or simulated, about its run."""
    algorithm = trainer.algorithm
    plan = getattr(algorithm, "plan", None)
    return {
        "version": __version__,
        "versions": versions(),
        "rank": trainer.rank,
        "workers": trainer.workers,
        "mode": algorithm.name,
        "algorithm": algorithm_facts(type(algorithm)),
        "per_worker_rates": algorithm.per_worker_rates,
        "step_time": getattr(trainer.world.device, "step_time", None),
        "parameters": trainer.replica.size,
        "model_bytes": 4 * trainer.replica.size,
        "options": {
            **{name: value for name, value in algorithm.effective_options.items() if name not in PER_WORKER},
            **({"batch_by_speed": True} if trainer.algorithm.batches is not None else {}),
            **({"per_host": per_host} if (per_host := getattr(trainer.world, "per_host", 1)) > 1 else {}),
        },
        **({"switch_order": plan.order, "bsp_share": plan.bsp_share} if plan is not None else {}),
    }


def facts_after_start(facts: Mapping[str, Any], trainer: "Trainer") -> dict[str, Any]:
    """Return the facts known before a trainer was started, updated by those of the started trainer.

    For instance, a plan's share of BSP overrides the flag's value.
    """
    newest = trainer_facts(trainer)
    return {**facts, **newest, "options": {**facts.get("options", {}), **newest["options"]}}


def algorithm_facts(algorithm: "type[Algorithm]") -> dict[str, Any]:
    """Return the description of an algorithm for the log tools, which do not import it."""
    return {
        "name": algorithm.name,
        "label": algorithm.label,
        "folder": algorithm.name,
        "summary": algorithm.summary,
        "style": asdict(algorithm.style),
        **({"source": source(algorithm), "digest": digest(algorithm)} if source(algorithm) else {}),
    }


@functools.cache  # a simulation asks for every worker
def versions() -> dict[str, str]:
    """Return the versions of this package, Python, and the numerical libraries."""
    from importlib.metadata import PackageNotFoundError, version

    packages = {"esync": __version__, "python": platform.python_version()}
    for name in (
        "mxnet",
        "mxnet-cu101",
        "mxnet-cu112",
        "mxnet-cu117",
        "gluoncv",
        "numpy",
        "numba",
        "pydantic",
        "mpi4py",
    ):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return packages
