"""What the flags and the ESYNC_* variables have in common, in both directions.

Launch turns the flags of a job into the variables of its processes, whatever program these run. The
worker, the server and the scheduler take them as the defaults of their own flags.
"""

import argparse
import math
from typing import Any

from ..runtime.worker_environment import WorkerEnvironment

#: Flags of all modes that `WorkerEnvironment` has, too, under the same names.
SHARED = (
    *("job", "collective", "start_timeout", "round_timeout", "wait_for_replacement", "step_time", "log_dir"),
    *("tensorboard", "wandb", "mlflow", "weight_average", "overwrite"),
    *("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume"),
)


def environment_of(options: argparse.Namespace) -> WorkerEnvironment:
    """Return the settings that flags make, as a process finds them in its environment."""
    lease = options.lease if options.elastic else math.inf
    return WorkerEnvironment(lease=lease, **{name: getattr(options, name) for name in SHARED})


def defaults_of(settings: WorkerEnvironment) -> dict[str, Any]:
    """Return the defaults of the flags, by their destinations, that an environment sets."""
    defaults = {name: value for name in (*SHARED, "seed") if (value := getattr(settings, name)) is not None}
    if settings.lease < math.inf:
        defaults |= {"elastic": True, "lease": settings.lease}
    if settings.device is not None:
        cpu = settings.device == "cpu"
        defaults |= {"cpu": int(cpu), "gpu": None if cpu else int(settings.device.removeprefix("gpu"))}
    return {**defaults, "straggle": settings.straggler_events}
