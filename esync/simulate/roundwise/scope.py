"""Which jobs can be simulated round by round."""

import argparse

from ...launch import flags
from ..cluster import ClusterModel

MODES = ("esync", "local-sgd", "diloco", "sync")

#: Flags that this simulation takes into account, and those that change no times. A flag that is not among them has to
#: have its default, so that one which is added some day is not ignored here.
REGARDED = frozenset(
    {
        *("mode", "network", "batch_size", "seed", "rounds", "epochs", "max_time", "dataset"),
        *("epsilon", "slowest_iterations", "local_iterations"),
    }
)
WITHOUT_EFFECT = frozenset(
    {
        *("no_hybridize", "optimizer", "momentum", "weight_decay", "learning_rate", "local_lr", "global_lr"),
        *("outer_momentum", "weighting", "data_dir", "partition", "split_by_class", "gpu", "cpu", "step_time"),
        *("target_accuracy", "eval_duration", "test_images", "no_evaluation", "log_dir", "overwrite", "quiet"),
        *("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume", "no_export"),
        *("state_server_ip", "state_server_port", "job", "start_timeout", "round_timeout", "lease"),
        *("run_ahead", "online_policy"),  # only with --overlap, only in mode sync-switch
    }
)


class EntangledError(Exception):
    """Messages of two rounds wait for one another on a server, so rounds cannot be worked out one after the other."""


def covers(cluster: ClusterModel, options: argparse.Namespace) -> bool:
    """Whether this job can be simulated round by round (it may still turn out to be entangled)."""
    if options.mode not in MODES:
        return False
    others = flags.DEFAULTS.keys() - REGARDED - WITHOUT_EFFECT
    if any(getattr(options, name) != flags.DEFAULTS[name] for name in others):
        return False
    if any(worker.crashes or worker.device.spells for worker in cluster.workers):
        return False
    # A port that is a server's and a worker's at once is shared by messages to the one and from the other.
    servers = {server.host for server in cluster.servers}
    return len(servers) == 1 or not any(worker.host in servers for worker in cluster.workers)
