"""The trainings that this server coordinates; at present one, which the published calls mean: `default`.

Like the coordinator, a job is given the time and can be tested without waiting.
"""

from threading import Lock

from esync import config
from esync.coordination.coordinator import ConflictError, Coordinator


class Job:
    """One training, or the place for one: it has a coordinator from its first /init/ on."""

    def __init__(self) -> None:
        self._coordinator: Coordinator | None = None
        self._run = ""
        self._lock = Lock()

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the present training. Raises `ConflictError` before the first /init/."""
        coordinator = self._coordinator
        if coordinator is None:
            raise ConflictError("no training has been initialised: rank 0 has to call /init/ first", retry_after=1.0)
        return coordinator

    def init(self, coordinator: Coordinator, now: float, run: str = "") -> None:
        """Begin a new training with this coordinator, unless another one is going on.

        Another one is going on if its workers told something new in the last config.JOB_ALIVE seconds. Published
        clients do not say who they are, so what counts is *new*: the first questions of a training whose /init/ is
        still on its way (k = 0, 1, …) look like repetitions in the records of the training before it.

        Args:
            coordinator: of the new training.
            now: seconds, of the clock that the coordinator is called with.
            run: a text that only this training uses, if the client sends one. A repeated /init/ of the same run (its
                answer may have been lost) changes nothing.

        Raises:
            ConflictError: another training is going on.
        """
        with self._lock:
            present = self._coordinator
            if present is not None:
                if run and run == self._run:
                    return
                heard = present.last_progress
                silence = config.JOB_ALIVE if heard is None else now - heard
                if silence < config.JOB_ALIVE:
                    raise ConflictError(
                        f"another training is running here: one of its workers was heard {silence:.1f} s ago",
                        retry_after=config.JOB_ALIVE - silence,
                    )
            self._coordinator = coordinator
            self._run = run


default = Job()
