"""Supervise a job from the start of its first process to the end of its last one.

Nothing of it is left behind.
"""

import math
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from .. import config
from ..runtime import progress
from .processes import Process
from .replacements import Replacement, Replacements, Verdict, is_worker_0
from .spec import LaunchPlan, ProcessSpec
from .status_table import WorkerRow
from .unreachable import UnreachableProcesses
from .view import LaunchView

#: Seconds between two looks at the processes.
TICK = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Failure:
    """A process that has ended when it should not have.

    Attributes:
        name: the process's name.
        where: its host and device.
        how: exit code or signal, in words.
        log: the file with its output.
        last_lines: the end of its output.
        consequence: whether it has ended because another process had failed before.
    """

    name: str
    where: str
    how: str
    log: Path
    last_lines: tuple[str, ...] = ()
    consequence: bool = False


@dataclass
class JobOutcome:
    """How a job has ended.

    Attributes:
        began: seconds since 1970.
        seconds: from the start of the first process to the end of the last one.
        failures: in the order in which they were noticed, but first those that are no consequence of
            another one, as far as is known.
        interrupted: name of the signal that ended the job, "" if none did.
        exit_codes: exit codes of the processes by name, without those that launch has ended.
        replacements: processes that were started in the place of others.
        lost: workers that the others have gone on without.
        lost_hosts: hosts that no longer answered, and without which the job went on.
    """

    began: float = field(default_factory=time.time)
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    interrupted: str = ""
    exit_codes: dict[str, int] = field(default_factory=dict)
    replacements: list[Replacement] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lost_hosts: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the job was completed."""
        return not self.failures and not self.interrupted


class Supervisor:
    """Runs one job, in the main thread only.

    Args:
        plan: what to start.
        logs: folder for the output of the processes.
        view: what the user sees.
        restarts: how often each worker may be replaced.
        patience: seconds that a host may not answer before its processes are given up.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        logs: Path,
        view: LaunchView,
        restarts: int = 0,
        patience: float = config.LAUNCH_WAIT_FOR_HOST,
    ) -> None:
        self._plan, self._logs, self._view = plan, logs, view
        self._unreachable = UnreachableProcesses(plan, patience)
        self._replacements = Replacements(restarts, bool(getattr(plan.options, "elastic", False)))
        self._processes: list[Process] = []
        self._outcome = JobOutcome()
        self._farewell = math.inf  # until when workers may go on after the servers (time.monotonic)
        self._ending = False
        self._hurry = False

    def run(self) -> JobOutcome:
        """Start all processes, watch them, end those that are left, and return the outcome."""
        self._began = self._heard = time.monotonic()
        self._outcome.began = time.time()
        with self._signals():
            try:
                self._start()
                self._until_workers_end()
                self._linger()
            finally:
                self._end()
        self._name_idle()
        self._outcome.seconds = time.monotonic() - self._began
        self._outcome.failures.sort(key=lambda failure: failure.consequence)
        self._outcome.replacements, self._outcome.lost = self._replacements.made, self._replacements.lost
        self._outcome.lost_hosts = sorted(self._unreachable.lost_hosts)
        return self._outcome

    # --- the phases of a job ----------------------------------------------------------------------

    def _start(self) -> None:
        """Start the processes one by one, unless something goes wrong."""
        for spec in self._plan.processes:
            if self._over:
                return
            process = Process(
                self._replacements.supervised(spec), self._log_of(spec), self._view.process_line, self._view.say
            )
            self._processes.append(process)
            limit = time.monotonic() + self._plan.options.start_timeout
            while not process.ready and not self._over:
                self._tick()
                if time.monotonic() > limit:
                    how = f"was not ready after {self._plan.options.start_timeout:.0f} s"
                    self._outcome.failures.append(self._failure(process, how))

    def _until_workers_end(self) -> None:
        while not self._over and (self._running("worker") or (self._awaits_worker and not self._finished)):
            self._tick()
            if self._finished:
                self._end_latecomers()
        if not self._over:
            for name in self._unreachable.give_up_all():
                self._replacements.take_back(name)
                self._replacements.lost.append(name)

    def _linger(self) -> None:
        """Let the other processes end by themselves.

        After a failure they have a moment to say why they end, too, and longer if it was theirs: the
        first one that ends need not be the one that has failed.
        """
        if self._outcome.interrupted:
            return
        if self._outcome.failures:
            limit, roles = config.LAUNCH_LINGER, ("worker", "server")
        else:
            limit, roles = config.LAUNCH_FAREWELL, ("server", "scheduler")
            self._stop_endless()
        end = time.monotonic() + limit
        while self._running(*roles) and not self._outcome.interrupted:
            if time.monotonic() > end + config.LAUNCH_GRACE * self._awaits_culprit:
                break
            self._tick()

    def _end(self) -> None:
        """End whatever still runs: the workers first, while they can still tell the servers."""
        self._ending = True
        workers = [process for process in self._processes if process.spec.role == "worker"]
        try:
            for group in (workers, self._processes):
                for process in group:
                    process.terminate()
                end = time.monotonic() + config.LAUNCH_GRACE
                while any(process.running for process in group) and time.monotonic() < end and not self._hurry:
                    self._look()
                for process in group:
                    process.kill()
            end = time.monotonic() + config.LAUNCH_GRACE  # the kernel may take its time, but not for ever
            while any(process.running for process in self._processes) and time.monotonic() < end:
                self._look()
            self._show()
        finally:
            for process in self._processes:
                process.kill()
                process.close()

    # --- one look ---------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return bool(self._outcome.failures or self._outcome.interrupted)

    @property
    def _finished(self) -> bool:
        """Whether the run is finished.

        A server has ended for that reason, so that nobody can join any more.
        """
        return any(process.exit_code == 0 for process in self._processes if process.spec.role == "server")

    @property
    def _servers_unneeded(self) -> bool:
        """Whether all workers that still run know that the run is finished, and need no server."""
        workers = [process for process in self._processes if process.spec.role == "worker" and process.running]
        return bool(workers) and all(progress.FINISHED in process.events for process in workers)

    @property
    def _awaits_worker(self) -> bool:
        """Whether the job cannot end without a worker that is unreachable."""
        done = any(process.exit_code == 0 for process in self._processes if process.spec.role == "worker")
        return bool(self._unreachable.workers) and not (done and self._replacements.elastic)

    @property
    def _awaits_culprit(self) -> bool:
        """Whether the job has failed, and the process whose error that was still runs."""
        return bool(self._outcome.failures) and any(process.running and process.gives_up for process in self._processes)

    def _running(self, *roles: str) -> bool:
        return any(process.running and process.spec.role in roles for process in self._processes)

    def _tick(self) -> None:
        self._look()
        self._retry_unreachable()
        self._show()
        self._announce()

    def _look(self) -> None:
        """Read the processes' output until the next tick, and note which of them have ended."""
        end = time.monotonic() + TICK
        pipes = {process.output.fileno(): process for process in self._processes if not process.output.closed}
        while pipes and (left := end - time.monotonic()) > 0:
            poll = select.poll()
            for number in pipes:
                poll.register(number, select.POLLIN)
            for number, _ in poll.poll(1000 * left):
                if not pipes[number].read():
                    del pipes[number]
        time.sleep(max(0.0, end - time.monotonic()))
        for process in list(self._processes):
            if process.poll():
                self._note_end(process)
        for replacement in self._replacements.made:
            if replacement.reported is None:
                replacement.follow(self._newest(replacement.name), self._began)
        for process in self._processes:
            done = process.exit_code == 0  # it may have joined and ended since the last look
            if process.spec.name in self._unreachable and (done or (process.running and process.arrived)):
                self._unreachable.host_answers(process)
                if done or process.settled:
                    seconds = self._unreachable.rejoined(process)
                    self._view.say(f"{process.spec.name} ({process.spec.where}) is back after {seconds:.0f} s")

    def _note_end(self, process: Process) -> None:
        assert process.exit_code is not None
        if process.told_to_end:
            return
        self._outcome.exit_codes[process.spec.name] = process.exit_code
        if not self._ending and (process.exit_code != 0 or process.spec.endless or self._took_no_part(process)):
            self._deal_with(process)

    def _took_no_part(self, process: Process) -> bool:
        """Return whether a user's program has ended with success, but has made no Trainer.

        The other workers would wait for that.
        """
        joined = progress.JOINED in process.events or any(
            each.name == process.spec.name for each in self._replacements.made
        )
        return process.spec.own_program and not joined and not self._finished

    def _deal_with(self, process: Process) -> None:
        """React to a process that has ended when it should not have.

        It is replaced, or the job goes on without it, or the job fails.
        """
        name, how = process.spec.name, process.how_it_ended
        verdict = self._replacements.verdict(process) if not self._over else Verdict.FAIL
        last = f"; its last line: {process.last_lines[-1]}" if process.last_lines else ""
        if verdict is Verdict.RECONNECT and not self._finished:
            self._await_host(process, how, last)
            return
        self._unreachable.forget(name)
        if process.spec.role in ("server", "scheduler") and self._servers_unneeded:
            self._view.say(f"{name} ({process.spec.where}) {how}: the run is finished, and nobody needs it any more")
            return
        if verdict is Verdict.IGNORE:
            self._view.say(f"{name} ({process.spec.where}) {how} after it had done its work")
            return
        worker = process.spec.role == "worker" and progress.LEFT not in process.events
        if self._finished and worker and not self._over:
            self._report_latecomer(process, how)
            return
        if verdict is Verdict.REPLACE:
            at = time.monotonic() - self._began
            self._replacements.made.append(Replacement(name, how, at, error=process.error))
            count = self._replacements.count(name)
            self._view.say(
                f"{name} ({process.spec.where}) {how}{last}; starting a replacement "
                f"({count} of at most {self._replacements.restarts}), output in {process.log}"
            )
            self._restart(process, self._replacements.again(process))
        else:
            self._go_on_or_fail(process, verdict is Verdict.GO_ON, how + self._replacements.why_not(process), last)

    def _go_on_or_fail(self, process: Process, may_go_on: bool, how: str, last: str = "") -> None:
        """Go on without a process, or fail the job if the others cannot, or are gone."""
        if may_go_on and self._running("worker"):
            self._replacements.lost.append(process.spec.name)
            self._view.say(f"{process.spec.name} ({process.spec.where}) {how}{last}; the others go on without it")
        else:
            self._outcome.failures.append(self._failure(process, how))

    def _end_latecomers(self) -> None:
        """End replacements that come too late, and workers that hang, once the run has finished."""
        now = time.monotonic()
        self._farewell = min(self._farewell, now + config.LAUNCH_FAREWELL)
        for process in self._processes:
            if process.spec.role != "worker" or not process.running or process.told_to_end:
                continue
            if progress.JOINED not in process.events:
                process.terminate()
                self._report_latecomer(process, "was not needed any more")
            elif now > self._farewell and not process.spec.own_program:  # which may have more to do than to train
                process.kill()
                self._report_latecomer(process, f"did not end within {config.LAUNCH_FAREWELL:.0f} s")

    def _report_latecomer(self, process: Process, how: str) -> None:
        """Report a worker that was missing when the run was finished.

        It is a failure if that worker was to write the model.
        """
        if is_worker_0(process):
            reason = f"{how}: the run was finished, but worker 0 had gone: {progress.WITHOUT_FINAL_MODEL}"
            self._outcome.failures.append(self._failure(process, reason))
        else:
            self._view.say(f"{process.spec.name} ({process.spec.where}) {how}: the run is finished")

    def _restart(self, process: Process, spec: ProcessSpec) -> None:
        """Start a process in the place of one that has ended; its output goes to the same file."""
        process.close()
        self._processes.remove(process)
        self._processes.append(Process(spec, process.log, self._view.process_line, self._view.say, again=True))

    def _await_host(self, process: Process, how: str, last: str) -> None:
        """Plan the restart of a process that has lost its connection.

        It is started again as soon as its host, or a spare one, answers.
        """
        name = process.spec.name
        if name not in self._unreachable:
            at = time.monotonic() - self._began
            self._replacements.made.append(Replacement(name, how, at, counted=False))
            self._view.say(
                f"{name} ({process.spec.where}) {how}{last}; starting a replacement as soon as a host answers, "
                f"output in {process.log}"
            )
        if self._unreachable.record(process, self._replacements.again):
            return
        why = self._unreachable.give_up(name)
        self._replacements.take_back(name)
        self._go_on_or_fail(process, self._replacements.elastic and process.spec.role == "worker", why)

    def _retry_unreachable(self) -> None:
        """Start unreachable processes again when it is time to; say which hosts are waited for."""
        if self._over or self._ending:
            return
        for spec in self._unreachable.due():
            self._restart(self._newest(spec.name), spec)
        for sentence in self._unreachable.announcements():
            self._view.say(sentence)

    def _log_of(self, spec: ProcessSpec) -> Path:
        return self._logs / f"{spec.name}.log"

    def _newest(self, name: str) -> Process:
        return next(process for process in reversed(self._processes) if process.spec.name == name)

    def _failure(self, process: Process, how: str) -> Failure:
        return Failure(
            process.spec.name,
            process.spec.where,
            how,
            process.log,
            tuple(process.last_lines),
            process.failed_after_another,
        )

    def _stop_endless(self) -> None:
        for process in self._processes:
            if process.spec.endless:
                process.terminate()

    # --- what the user sees -----------------------------------------------------------------------

    def _name_idle(self) -> None:
        """Say which workers have contributed nothing to the model, as a server has found."""
        for process in self._processes:
            if progress.CONTRIBUTED in process.events:
                for rank, spec in enumerate(self._plan.workers):
                    if rank not in process.events[progress.CONTRIBUTED]["ranks"]:
                        self._view.say(
                            f"worker {rank} ({spec.where}) has contributed nothing to the model; what it has printed: "
                            f"{self._log_of(spec)}"
                        )

    def _show(self) -> None:
        self._view.show(self._rows())

    def _rows(self) -> list[WorkerRow]:
        started = {process.spec.name: process for process in self._processes}
        return [self._row(spec, started.get(spec.name)) for spec in self._plan.workers]

    def _row(self, spec: ProcessSpec, process: Process | None) -> WorkerRow:
        if process is None:
            return WorkerRow(spec.name, spec.host.name, spec.device, "waiting")
        name, spec = spec.name, process.spec
        if name in self._unreachable and not (process.running and process.arrived):
            state = "away"
        elif process.running:
            state = "training" if process.progress or progress.JOINED in process.events else "starting"
        elif process.told_to_end:
            state = "ended"
        elif name in self._replacements.lost:
            state = "lost"
        else:
            state = "failed" if process.exit_code else "done"
        return WorkerRow(name, spec.host.name, spec.device, state, process.progress)

    def _announce(self) -> None:
        """Say what is waited for, if no round has been reported for some time."""
        waited_for = [process for process in self._processes if process.spec.role == "worker" and process.running]
        if not waited_for:  # before the workers start, or after they have ended
            waited_for = [process for process in self._processes if process.running]
        newest = max((process.reported for process in self._processes), default=self._began)
        silent = min(waited_for, key=lambda process: process.reported, default=None)
        if silent is None:
            return
        reports = (process.events.get(progress.MISSING) for process in self._processes)
        missing = next((report for report in reports if report and report["what"]), None)
        joined = silent.spec.own_program and progress.JOINED in silent.events and missing is None
        patience = config.ANNOUNCE_AFTER if silent.progress or not joined else config.LAUNCH_PROGRAM_SILENCE
        now = time.monotonic()
        if now - max(newest, self._heard) < patience:
            return
        self._heard = now
        if missing is not None:
            self._view.say(f"waiting for {missing['what']} for {now - missing['at']:.0f} s")
            return
        names = ", ".join(process.spec.name for process in waited_for)
        words = f"; {silent.spec.name} said last: {silent.last_lines[-1]}" if silent.last_lines else ""
        what = "nothing has been printed" if silent.spec.own_program else "no round has been reported"
        self._view.say(f"{what} for {now - newest:.0f} s; still running: {names}{words}")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Have signals end the job instead of this process."""

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._hurry = bool(self._outcome.interrupted)  # the second one
            self._outcome.interrupted = self._outcome.interrupted or signal.Signals(number).name

        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            if number != signal.SIGHUP or before[number] is not signal.SIG_IGN:  # that would be nohup
                signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number in SIGNALS:
                signal.signal(number, before[number])
