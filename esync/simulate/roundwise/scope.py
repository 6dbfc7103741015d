"""Which jobs can be simulated round by round."""

import argparse

from ...algorithms import SCAFFOLD, SSGD, Algorithm, DiLoCo, ESync, FedProx, LocalSGD
from ...algorithms.registry import all_flags, flags_of
from ...launch import flags
from ..cluster import ClusterModel

_AVERAGING = frozenset({"local_iterations", "global_lr", "outer_momentum", "weighting", "run_ahead"})
#: Algorithm → the names of its own options that this simulation takes into account, or that change no times. Subclasses
#: are not covered: they may exchange at other times.
ALGORITHMS: dict[type[Algorithm], frozenset[str]] = {
    SSGD: frozenset(),
    LocalSGD: _AVERAGING,
    DiLoCo: _AVERAGING,
    FedProx: _AVERAGING | {"prox_mu"},
    SCAFFOLD: _AVERAGING,
    ESync: _AVERAGING | {"epsilon", "slowest_iterations"},
}
#: Flags of all modes that this simulation takes into account, and those that change no times. One that is not among
#: them has to have its default, so that a flag which is added some day is not ignored here.
REGARDED = frozenset(
    {*("mode", "network", "batch_size", "seed", "rounds", "epochs", "max_time", "dataset"), "use_dcasgd"}
)
WITHOUT_EFFECT = frozenset(
    {
        *("no_hybridize", "optimizer", "momentum", "weight_decay", "learning_rate", "local_lr"),
        *("data_dir", "partition", "split_by_class", "gpu", "cpu", "step_time"),
        *("target_accuracy", "eval_duration", "test_images", "no_evaluation", "log_dir", "overwrite", "quiet"),
        *("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume", "no_export"),
        *("state_server_ip", "state_server_port", "job", "start_timeout", "round_timeout", "lease"),
        "wait_for_replacement",
    }
)


class EntangledError(Exception):
    """Messages of two rounds wait for one another on a server, so rounds cannot be worked out one after the other."""


def covers(cluster: ClusterModel, options: argparse.Namespace) -> bool:
    """Whether this job can be simulated round by round (it may still turn out to be entangled)."""
    heeded = ALGORITHMS.get(options.algorithm)
    if heeded is None:
        return False
    own = flags_of(options.algorithm)
    if any(getattr(options, dest) != each.default for dest, each in own.items() if each.name not in heeded):
        return False
    others = flags.known().keys() - REGARDED - WITHOUT_EFFECT - all_flags().keys()
    if any(getattr(options, name) != flags.known()[name].default for name in others):
        return False
    if any(worker.crashes or worker.device.spells for worker in cluster.workers):
        return False
    # A port that is a server's and a worker's at once is shared by messages to the one and from the other.
    servers = {server.host for server in cluster.servers}
    return len(servers) == 1 or not any(worker.host in servers for worker in cluster.workers)
