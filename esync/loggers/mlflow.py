"""MLflow: `--mlflow URI`, or `esync.Run(loggers=[MLflowLogger(URI)])`.

Its own settings (MLFLOW_TRACKING_TOKEN, MLFLOW_HTTP_REQUEST_TIMEOUT, …) hold:
https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html.
"""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .. import config
from .logger import LoggedRun, Logger, LoggerError, one_line, require

#: Most metrics and parameters of a request, and characters of a parameter, by MLflow's limits.
MAX_METRICS, MAX_PARAMETERS, MAX_LENGTH = 1000, 100, 500


class MLflowLogger(Logger):
    """Logs a run to MLflow, in an experiment with the name of what was trained.

    Runs of one `--repeat` have the same tag `group`. The facts of run.json are parameters; the final model is
    an artifact, and so are, after `esync launch`, the description and the report.

    Args:
        uri: of the tracking server, `http://127.0.0.1:5000` for instance. `sqlite:///FILE` needs no server, but
            the whole package mlflow.
        experiment: name of the experiment; None stands for what was trained.

    Raises:
        LoggerError: mlflow is not installed, or the URI is invalid, or has a password, which the logs would show.
    """

    name = "mlflow"

    def __init__(self, uri: str, experiment: str | None = None) -> None:
        require("mlflow", "mlflow", "MLflow needs mlflow-skinny")
        try:
            password = urlsplit(uri).password
        except ValueError as error:
            raise LoggerError(f"MLflow: {uri!r} is no URI ({error})") from None
        if password:
            raise LoggerError(
                "MLflow: the logs would show the password in the URI: leave it out, and set MLFLOW_TRACKING_USERNAME "
                "and MLFLOW_TRACKING_PASSWORD"
            )
        self._uri, self._experiment = uri, experiment
        self._client: Any = None
        self._run_id, self._metrics, self._sent = "", list[Any](), 0.0
        self._names = dict[str, str]()  # of the metrics: tag → name in MLflow

    @classmethod
    def of(cls, reference: Mapping[str, str]) -> "MLflowLogger":
        """Return the logger of a run that `begin` has begun before."""
        return cls(reference["uri"])

    def begin(self, run: LoggedRun) -> dict[str, str]:
        """See `Logger.begin`."""
        import requests
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        errors = MlflowException, OSError, requests.RequestException
        try:
            self._client = MlflowClient(tracking_uri=self._uri)
            if not (run.resumed_id and self._resume(run.resumed_id)):
                self._create(run)
        except errors as error:
            if self._run_id:
                with suppress(*errors):
                    self._client.set_terminated(self._run_id, "FAILED")
            raise LoggerError(f"MLflow at {self._uri}: {one_line(error)}") from None
        return {"id": self._run_id, "uri": self._uri}

    def _resume(self, number: str) -> bool:
        """Go on with a run, and return whether the server knows it."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.update_run(number, status="RUNNING")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        self._run_id = number
        return True

    def _create(self, run: LoggedRun) -> None:
        """Create a run with its parameters."""
        from mlflow.entities import Param

        name = self._experiment or run.name.split("/")[0]
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        self._run_id = self._client.create_run(experiment, run_name=run.name, tags={"group": run.group}).info.run_id
        # By name, since MLflow refuses one that comes twice.
        texts = {_name(key): text[:MAX_LENGTH] for key, text in _flat(run.facts)}
        parameters = [Param(key, text) for key, text in texts.items()]
        for first in range(0, len(parameters), MAX_PARAMETERS):
            self._client.log_batch(self._run_id, params=parameters[first : first + MAX_PARAMETERS])

    def write(self, step: int, wall_time: float, scalars: Mapping[str, float | None]) -> None:
        """See `Logger.write`."""
        from mlflow.entities import Metric

        at = int(1000 * wall_time)
        self._metrics += [
            Metric(self._metric_name(tag), value, at, step) for tag, value in scalars.items() if value is not None
        ]
        if len(self._metrics) > MAX_METRICS - 50 or time.monotonic() - self._sent > config.LOGGER_EVERY:
            self.flush()

    def _metric_name(self, tag: str) -> str:
        """Return a name that MLflow takes, and that no other metric of the run has."""
        if tag not in self._names:
            name, number = _name(tag), 1
            while name in self._names.values():
                number += 1
                name = f"{_name(tag)}_{number}"
            self._names[tag] = name
        return self._names[tag]

    def flush(self) -> None:
        """See `Logger.flush`."""
        metrics, self._metrics, self._sent = self._metrics, [], time.monotonic()
        for first in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[first : first + MAX_METRICS])

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        """See `Logger.add_files`."""
        for path in paths:
            if path.is_dir():
                self._client.log_artifacts(self._run_id, str(path), name)
            else:
                self._client.log_artifact(self._run_id, str(path), name)

    def close(self, error: str = "") -> None:
        """See `Logger.close`."""
        self.flush()
        self._client.set_terminated(self._run_id, "FAILED" if error else "FINISHED")


def _name(text: str) -> str:
    """Return a name that MLflow takes, which refuses a whole batch because of another one."""
    return re.sub(r"[^\w\-. :/]", "_", text)


def _flat(facts: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Return nested facts as pairs of a name with dots and a text."""
    pairs = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{before}{name}.")
        elif value is not None:
            pairs.append((f"{before}{name}", str(value)))
    return pairs
