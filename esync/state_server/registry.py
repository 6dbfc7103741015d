"""Registry of jobs by name; their journals in the state folder survive the server's end."""

import logging
from pathlib import Path

from .. import config
from ..coordination.coordinator import ConflictError, Coordinator, InvalidError
from ..coordination.straggler_policies import OnlinePolicy, OnlinePolicySettings
from ..coordination.tier_settings import TierSettings
from ..runtime.output import printable
from ..runtime.worker_environment import JOB
from .history import History
from .jobs import Job
from .responses import UnavailableError

logger = logging.getLogger("esync.state_server")

SUFFIX = ".journal"


def check_name(name: str) -> None:
    """Check a job's name, which is also that of a file.

    Raises:
        InvalidError: a job cannot have that name.
    """
    if not JOB.fullmatch(name):
        raise InvalidError(
            f"{name[:80]!r} is not a name of a job: up to 64 letters, digits, dots, hyphens and underscores, the first "
            "one a letter or digit"
        )


class JobRegistry:
    """All jobs of a state server; its callers hold `service.lock`.

    Args:
        folder: folder of the journals; None keeps none (for tests).
        history: records rounds and events; None records nothing.
    """

    def __init__(self, folder: Path | None = None, history: History | None = None) -> None:
        self._folder, self._history = folder, history
        self._jobs: dict[str, Job] = {}

    def restore(self) -> None:
        """Restore the jobs whose journals are in the folder.

        Raises:
            OSError: the folder cannot be read or written.
        """
        if self._folder is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            try:
                job = Job.restore(path, self._history)
            except OSError:
                raise
            except Exception as error:  # an invalid journal must not affect the other jobs
                aside = path.with_suffix(".damaged")
                path.rename(aside)
                logger.error(
                    "job %s is lost, its journal cannot be used (now %s): %s: %s",
                    path.stem, aside, type(error).__name__, printable(str(error)),
                )  # fmt: skip
                continue
            self._jobs[job.name] = job
        self.sweep()

    def begin(
        self,
        name: str,
        num_workers: int,
        epsilon: float | None,
        slowest_iterations: int,
        run: str = "",
        watching: OnlinePolicySettings | None = None,
        tiering: TierSettings | None = None,
    ) -> Job:
        """Begin a training under this name, unless another one is running under it.

        See `Coordinator` for `num_workers`, `epsilon` and `slowest_iterations`. `watching` configures
        the detection of stragglers (None: no detection), and `tiering` the division of the workers.

        A repeated call of the same run changes nothing.

        Raises:
            InvalidError: the name or the tiers are invalid.
            ConflictError: another training is running under that name.
            UnavailableError: its journal cannot be written, for instance because the disk is full.
        """
        check_name(name)
        coordinator = Coordinator(num_workers, epsilon, slowest_iterations, tiering=tiering)
        present = self._jobs.get(name)
        if present is not None:
            if run and run == present.run and present.ended is None:
                return present
            if remaining := present.alive_for(present.clock.now()):
                raise ConflictError(
                    f"another training is running as job {name!r}, and counts as going on for {remaining:.1f} s "
                    f"without news of its workers: wait, choose another name (--job), or end it "
                    f"(POST /api/v1/jobs/{name}/end)",
                    retry_after=remaining,
                )
        else:
            self.sweep()
        watch = None if watching is None else OnlinePolicy.of(num_workers, watching)
        job = Job(name, coordinator, run, watch)
        job.history = self._history
        path = self._folder / f"{name}{SUFFIX}" if self._folder else None
        try:
            if present is None:
                job.begin(path)
            else:
                job.take_over(present, path)
        except OSError as error:
            raise UnavailableError(
                f"job {name!r} cannot be begun, its journal {path} cannot be written: {error.strerror}"
            ) from None
        self._jobs[name] = job
        return job

    def find(self, name: str) -> Job | None:
        """Return a job, or None if there is none of that name.

        Raises:
            InvalidError: a job cannot have that name.
        """
        job = self._jobs.get(name)
        if job is None:
            check_name(name)
        return job

    def get(self, name: str) -> Job:
        """Return a job.

        Raises:
            ConflictError: it has not begun yet; the error contains the time to wait before a retry.
        """
        job = self._jobs.get(name) or self.find(name)
        if job is None:  # another worker may be earlier than rank 0
            first = "call /init/ first" if name == config.JOB else "begin it"
            raise ConflictError(f"no training has been begun as job {name!r}: rank 0 has to {first}", retry_after=1.0)
        return job

    def all(self) -> list[Job]:
        """Return the jobs, the newest first."""
        self.sweep()
        return sorted(self._jobs.values(), key=lambda job: job.started, reverse=True)

    def sweep(self) -> None:
        """Forget the jobs that have had no news for config.JOB_FORGOTTEN seconds."""
        for job in list(self._jobs.values()):
            if job.idle() > config.JOB_FORGOTTEN:
                job.end("no news for too long", job.clock.now())
                job.close(delete=True)
                del self._jobs[job.name]

    def close(self) -> None:
        """Close the journals."""
        for job in self._jobs.values():
            job.close()
