"""Weights & Biases: `--wandb PROJECT`, or `esync.Run(loggers=[WandbLogger(PROJECT)])`.

Its own settings (WANDB_MODE, WANDB_ENTITY, WANDB_DIR, …) hold: https://docs.wandb.ai/models/track/environment-variables.
The step of all charts is the round, by `define_metric`, because evaluations arrive later than newer rounds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .logger import LoggedRun, Logger, LoggerError, one_line, require


class WandbLogger(Logger):
    """Logs a run to Weights & Biases.

    Runs of one `--repeat` are a group. run.json is the run's config; the final model is an artifact, and so
    are, after `esync launch`, the description and the report.

    Args:
        project: name of the project.
        settings: further arguments of `wandb.init`, which outrank those of this class.

    Raises:
        LoggerError: wandb is not installed.
    """

    name = "wandb"

    def __init__(self, project: str, **settings: Any) -> None:
        require("wandb", "wandb", "Weights & Biases needs wandb")
        self._project, self._settings = project, settings
        self._run: Any = None

    @classmethod
    def of(cls, reference: Mapping[str, str]) -> "WandbLogger":
        """Return the logger of a run that `begin` has begun before."""
        return cls(reference["project"], **({"entity": reference["entity"]} if "entity" in reference else {}))

    def begin(self, run: LoggedRun) -> dict[str, str]:
        """See `Logger.begin`."""
        import wandb

        resumed = {"id": run.resumed_id, "resume": "allow"} if run.resumed_id else {}
        settings = {
            **{"project": self._project, "name": run.name or None, "group": run.group or None},
            **{"config": dict(run.facts) or None, "reinit": "create_new", **resumed},
            **self._settings,
        }
        try:
            self._run = logged = wandb.init(**settings)
        except (wandb.Error, OSError, ValueError) as error:
            raise LoggerError(f"Weights & Biases: {one_line(error)}") from None
        logged.define_metric("round")
        logged.define_metric("*", step_metric="round")
        entity = {"entity": logged.entity} if logged.entity else {}
        return {"id": logged.id, "project": logged.project, **entity, "name": run.name, "group": run.group}

    def write(self, step: int, wall_time: float, scalars: Mapping[str, float | None]) -> None:
        """See `Logger.write`."""
        present = {tag: value for tag, value in scalars.items() if value is not None}
        self._run.log({"round": step, "_timestamp": wall_time, **present})

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        """See `Logger.add_files`."""
        import wandb

        artifact = wandb.Artifact(f"{name}-{self._run.id}", type=name)
        for path in paths:
            if path.is_dir():
                artifact.add_dir(str(path))
            else:
                artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def close(self, error: str = "") -> None:
        """See `Logger.close`."""
        self._run.finish(exit_code=1 if error else 0)
