"""The settings that the workers of a run compare at its start."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .algorithms import Algorithm
from .algorithms.loading import agreed_source
from .exchange import WEIGHTS
from .exchange.protocol.specification import RANDOM_NUMBERS
from .gluon.optimizer_trainer import OptimizerTrainer
from .gluon.parameter_kinds import digests
from .gluon.randomness import generator_digests


@dataclass(frozen=True)
class Agreement:
    """Names of settings → their values on this worker.

    Attributes:
        model: must agree on all workers, and between a checkpoint and the run that resumes from it.
        common: must agree on all workers; includes `model`.
        individual: may differ between workers, which log the differences.
    """

    model: dict[str, Any]
    common: dict[str, Any]
    individual: dict[str, Any]

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        parameters: Sequence[Any],
        optimizers: Sequence[OptimizerTrainer],
        dataset_size: int | None,
        settings: Mapping[str, Any],
        sources: Mapping[str, str],
        processes: bool,
    ) -> "Agreement":
        """Return the settings of this worker.

        Args:
            algorithm: the algorithm.
            parameters: that are exchanged.
            optimizers: the trainer, and its further optimizers.
            dataset_size: number of samples of the training set; None: not known.
            settings: the program's own settings.
            sources: digests of the program's source code, which may change before a run is resumed.
            processes: whether each worker is a separate process.
        """
        rules: dict[str, str] = {}
        rates: dict[str, Any] = {}
        for optimizer in optimizers:
            suffix = "" if optimizer.vector == WEIGHTS else f" ({optimizer.vector})"
            rules[f"rule of the servers{suffix}"] = optimizer._rule.name
            rates |= {f"{name}{suffix}": rate for name, rate in optimizer._rates().items()}
        groups = [
            [optimizer._places[id(parameter)] for parameter in group]
            for optimizer in optimizers
            for group in optimizer.vectors.values()
        ]
        model = {
            "algorithm": algorithm.name,
            "parameter shapes": _digest([list(parameter.shape) for parameter in parameters]),
            **({"parameters by optimizer, lr_mult and wd_mult": _digest(groups)} if len(groups) > 1 else {}),
            **{f"constant {name}": digest for name, digest in digests(parameters).items()},
            **algorithm.checkpoint_terms,
            **rules,
            **settings,
        }
        # Rates and sources may differ after a resume, so they are not part of `model`.
        size = {} if dataset_size is None else {"dataset size": dataset_size}
        common_rates, individual = ({}, rates) if algorithm.per_worker_rates else (rates, {})
        source = {**sources, **agreed_source(type(algorithm))}
        common = {**algorithm.terms, **common_rates, **size, **model, **source}
        return cls(model, common, {**individual, RANDOM_NUMBERS: generator_digests()} if processes else individual)


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]
