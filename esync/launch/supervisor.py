"""Supervise a job from the start of its first process to the end of its last one."""

import math
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from .. import config
from ..runtime import progress
from ..runtime.preemption import EXIT_CODE
from .outcome import Failure, JobOutcome
from .processes import Process
from .replacements import Replacement, Replacements, Verdict, is_worker_0
from .silence import SilenceMonitor
from .spec import LaunchPlan, ProcessSpec
from .status_table import WorkerRow
from .unreachable import UnreachableProcesses
from .view import QuietView

#: Seconds between two checks of the processes.
TICK = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Signals by which a machine announces that it will be taken away.
PREEMPTING = (signal.SIGTERM, signal.SIGUSR1)


class Supervisor:
    """Runs one job, in the main thread only.

    Args:
        plan: what to start.
        logs: folder for the output of the processes.
        view: shows the job to the user.
        restarts: how often each worker may be replaced.
        patience: seconds without an answer after which a host's processes are given up.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        logs: Path,
        view: QuietView,
        restarts: int = 0,
        patience: float = config.LAUNCH_WAIT_FOR_HOST,
    ) -> None:
        self._plan, self._logs, self._view = plan, logs, view
        self._unreachable = UnreachableProcesses(plan, patience)
        self._replacements = Replacements(restarts, bool(getattr(plan.options, "elastic", False)))
        self._processes: list[Process] = []
        self._outcome = JobOutcome()
        self._preempted_by = ""  # a signal that has come, and has not been handled yet
        self._notice_ends = math.inf  # when workers that have been preempted are ended (time.monotonic)
        self._farewell = math.inf  # when workers that outlive the servers are killed (time.monotonic)
        self._ending = False
        self._kill_now = False

    def run(self) -> JobOutcome:
        """Start all processes, watch them, terminate those that remain, and return the outcome."""
        self._began = time.monotonic()
        self._silence = SilenceMonitor(self._began)
        self._outcome.began = time.time()
        with self._signals():
            try:
                self._start()
                if self._preempted_by:
                    self._preempt()
                self._until_workers_end()
                self._linger()
            finally:
                self._end()
        self._report_idle_workers()
        self._outcome.seconds = time.monotonic() - self._began
        self._outcome.failures.sort(key=lambda failure: failure.consequence)
        self._outcome.replacements, self._outcome.lost = self._replacements.entries, self._replacements.lost
        self._outcome.lost_hosts = sorted(self._unreachable.lost_hosts)
        return self._outcome

    # --- the phases of a job ----------------------------------------------------------------------

    def _start(self) -> None:
        """Start the processes one by one, until one fails, or the job is preempted."""
        for spec in self._plan.processes:
            if self._over or self._preempted_by:
                return
            process = Process(
                self._replacements.supervised(spec), self._log_of(spec), self._view.process_line, self._view.print
            )
            self._processes.append(process)
            limit = time.monotonic() + self._plan.options.start_timeout
            while not (process.ready or self._over or self._preempted_by):
                self._tick()
                if time.monotonic() > limit:
                    how = f"was not ready after {self._plan.options.start_timeout:.0f} s"
                    self._outcome.failures.append(self._failure(process, how))

    def _until_workers_end(self) -> None:
        while not self._over and (self._running("worker") or (self._awaits_worker and not self._finished)):
            self._tick()
            if self._preempted_by:
                self._preempt()
            if self._finished:
                self._end_late_workers()
        if not self._over:
            for name in self._unreachable.give_up_all():
                self._replacements.withdraw(name)
                self._replacements.lost.append(name)

    def _preempt(self) -> None:
        """Have the workers write a checkpoint and end; end the job when their time is over."""
        now, notice = time.monotonic(), self._plan.preemption_notice or 0.0
        if not self._outcome.preempted:
            self._outcome.preempted, self._notice_ends = self._preempted_by, now + notice
            self._view.print(f"{self._preempted_by}: the workers have {notice:g} s to write a checkpoint and end")
        # The others need a replacement for the round under way: it is told when it has joined, since it listens then.
        joining = {replacement.name for replacement in self._replacements.entries if replacement.joined is None}
        for process in self._processes:
            if process.spec.role == "worker" and process.spec.name not in joining:
                process.preempt()
        if now > self._notice_ends and not self._outcome.interrupted:
            self._view.print(f"not all workers have ended within {notice:g} s")
            self._outcome.interrupted = self._outcome.preempted

    def _linger(self) -> None:
        """Let the other processes end by themselves.

        After a failure they get a moment to report why they end, and longer if the error was theirs:
        the first process to end need not be the one that has failed.
        """
        codes = {process.exit_code for process in self._processes if process.spec.role == "worker"}
        untold = self._outcome.preempted and not (codes & {0, EXIT_CODE} or self._outcome.failures)
        if self._outcome.interrupted or untold:
            return  # the servers would wait for workers that had not joined when they were preempted
        if self._outcome.failures:
            limit, roles = config.LAUNCH_LINGER, ("worker", "server")
        else:
            limit, roles = config.LAUNCH_FAREWELL, ("server", "scheduler")
            self._stop_endless()
        end = min(time.monotonic() + limit, self._notice_ends)
        while self._running(*roles) and not self._outcome.interrupted:
            if time.monotonic() > end + config.LAUNCH_GRACE * self._cause_still_running:
                break
            self._tick()

    def _end(self) -> None:
        """Terminate the running processes: workers first, so that they can still notify the servers."""
        self._ending = True
        workers = [process for process in self._processes if process.spec.role == "worker"]
        try:
            for group in (workers, self._processes):
                for process in group:
                    process.terminate()
                end = time.monotonic() + config.LAUNCH_GRACE
                while any(process.running for process in group) and time.monotonic() < end and not self._kill_now:
                    self._check()
                for process in group:
                    process.kill()
            end = time.monotonic() + config.LAUNCH_GRACE  # even a killed process may take a moment to end
            while any(process.running for process in self._processes) and time.monotonic() < end:
                self._check()
            self._show()
        finally:
            for process in self._processes:
                process.kill()
                process.close()

    # --- one check --------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return bool(self._outcome.failures or self._outcome.interrupted)

    @property
    def _finished(self) -> bool:
        """Whether a server has ended with success, so that the run is over, and no process can join."""
        return any(process.exit_code == 0 for process in self._processes if process.spec.role == "server")

    @property
    def _servers_unneeded(self) -> bool:
        """Whether all running workers know that the run is finished, so that they need no server."""
        workers = [process for process in self._processes if process.spec.role == "worker" and process.running]
        return bool(workers) and all(progress.FINISHED in process.events for process in workers)

    @property
    def _awaits_worker(self) -> bool:
        """Whether the job cannot end without a worker that is unreachable."""
        done = any(process.exit_code == 0 for process in self._processes if process.spec.role == "worker")
        return bool(self._unreachable.workers) and not (done and self._replacements.elastic)

    @property
    def _cause_still_running(self) -> bool:
        """Whether the job has failed, and the process that caused it still runs."""
        return bool(self._outcome.failures) and any(process.running and process.gives_up for process in self._processes)

    def _running(self, *roles: str) -> bool:
        return any(process.running and process.spec.role in roles for process in self._processes)

    def _tick(self) -> None:
        self._check()
        self._retry_unreachable()
        self._show()
        if text := self._silence.announcement(self._processes):
            self._view.print(text)

    def _check(self) -> None:
        """Read the processes' output until the next tick, and handle those that have ended."""
        end = time.monotonic() + TICK
        pipes = {process.output.fileno(): process for process in self._processes if not process.output.closed}
        while pipes and (remaining := end - time.monotonic()) > 0:
            poll = select.poll()
            for number in pipes:
                poll.register(number, select.POLLIN)
            for number, _ in poll.poll(1000 * remaining):
                if not pipes[number].read():
                    del pipes[number]
        time.sleep(max(0.0, end - time.monotonic()))
        for process in list(self._processes):
            if process.poll():
                self._handle_end(process)
        for replacement in self._replacements.entries:
            if replacement.reported is None:
                replacement.follow(self._newest(replacement.name), self._began)
        for process in self._processes:
            done = process.exit_code == 0  # it may have joined and ended since the last check
            if process.spec.name in self._unreachable and (done or (process.running and process.arrived)):
                self._unreachable.host_answers(process)
                if done or process.settled:
                    seconds = self._unreachable.rejoined(process)
                    self._view.print(f"{process.spec.name} ({process.spec.where}) is back after {seconds:.0f} s")

    def _handle_end(self, process: Process) -> None:
        assert process.exit_code is not None
        if process.terminated:
            return
        self._outcome.exit_codes[process.spec.name] = process.exit_code
        if self._outcome.preempted and process.spec.role == "worker":
            self._handle_preempted(process)
            return
        if not self._ending and (process.exit_code != 0 or process.spec.endless or self._lacks_trainer(process)):
            self._handle_early_end(process)

    def _handle_preempted(self, process: Process) -> None:
        """Fail the job if a worker has failed in its notice; say which one has not heard it."""
        code, how = process.exit_code, process.how_it_ended
        if code == -signal.SIGUSR1:
            self._view.print(f"{process.spec.name} ({process.spec.where}) {how} before it listened for a notice")
        elif code is not None and code > 0 and code != EXIT_CODE and not process.failed_after_another:
            self._outcome.failures.append(self._failure(process, how))

    def _lacks_trainer(self, process: Process) -> bool:
        """Return whether a user's program has ended without making the Trainer that the others wait for."""
        joined = progress.JOINED in process.events or any(
            replacement.name == process.spec.name for replacement in self._replacements.entries
        )
        return process.spec.is_user_program and not joined and not self._finished

    def _handle_early_end(self, process: Process) -> None:
        """Replace a process that has ended too early, go on without it, or fail the job."""
        name, how = process.spec.name, process.how_it_ended
        verdict = self._replacements.verdict(process) if not self._over else Verdict.FAIL
        last = f"; its last line: {process.last_lines[-1]}" if process.last_lines else ""
        if verdict is Verdict.RECONNECT and not self._finished:
            self._await_host(process, how, last)
            return
        self._unreachable.forget(name)
        if process.spec.role in ("server", "scheduler") and self._servers_unneeded:
            self._view.print(f"{name} ({process.spec.where}) {how}: the run is finished, and nobody needs it any more")
            return
        if verdict is Verdict.IGNORE:
            self._view.print(f"{name} ({process.spec.where}) {how} after it had done its work")
            return
        worker = process.spec.role == "worker" and progress.LEFT not in process.events
        if self._finished and worker and not self._over:
            self._report_late_worker(process, how)
            return
        if verdict is Verdict.REPLACE:
            at = time.monotonic() - self._began
            self._replacements.entries.append(Replacement(name, how, at, error=process.error))
            count = self._replacements.count(name)
            self._view.print(
                f"{name} ({process.spec.where}) {how}{last}; starting a replacement "
                f"({count} of at most {self._replacements.restarts}), output in {process.log}"
            )
            self._restart(process, self._replacements.respawn(process))
        else:
            self._continue_or_fail(process, verdict is Verdict.GO_ON, how + self._replacements.why_not(process), last)

    def _continue_or_fail(self, process: Process, may_go_on: bool, how: str, last: str = "") -> None:
        """Go on without a process; fail the job if the others cannot, or no worker runs."""
        if may_go_on and self._running("worker"):
            self._replacements.lost.append(process.spec.name)
            self._view.print(f"{process.spec.name} ({process.spec.where}) {how}{last}; the others go on without it")
        else:
            self._outcome.failures.append(self._failure(process, how))

    def _end_late_workers(self) -> None:
        """Terminate late replacements, and kill workers that hang, once the run is finished."""
        now = time.monotonic()
        self._farewell = min(self._farewell, now + config.LAUNCH_FAREWELL)
        for process in self._processes:
            if process.spec.role != "worker" or not process.running or process.terminated:
                continue
            if progress.JOINED not in process.events:
                process.terminate()
                self._report_late_worker(process, "was not needed any more")
            elif now > self._farewell and not process.spec.is_user_program:  # such a program may do more than train
                process.kill()
                self._report_late_worker(process, f"did not end within {config.LAUNCH_FAREWELL:.0f} s")

    def _report_late_worker(self, process: Process, how: str) -> None:
        """Report a worker that was missing when the run finished.

        If it is worker 0, which writes the model, the job has failed.
        """
        if is_worker_0(process):
            reason = f"{how}: the run was finished, but worker 0 had gone: {progress.WITHOUT_FINAL_MODEL}"
            self._outcome.failures.append(self._failure(process, reason))
        else:
            self._view.print(f"{process.spec.name} ({process.spec.where}) {how}: the run is finished")

    def _restart(self, process: Process, spec: ProcessSpec) -> None:
        """Start the replacement of a process, with its output in the same file."""
        process.close()
        self._processes.remove(process)
        self._processes.append(Process(spec, process.log, self._view.process_line, self._view.print, restarted=True))

    def _await_host(self, process: Process, how: str, last: str) -> None:
        """Schedule the restart of a process that has lost its connection, until its host or a spare one answers."""
        name = process.spec.name
        if name not in self._unreachable:
            at = time.monotonic() - self._began
            self._replacements.entries.append(Replacement(name, how, at, counted=False))
            self._view.print(
                f"{name} ({process.spec.where}) {how}{last}; starting a replacement as soon as a host answers, "
                f"output in {process.log}"
            )
        if self._unreachable.record(process, self._replacements.respawn):
            return
        reason = self._unreachable.give_up(name)
        self._replacements.withdraw(name)
        self._continue_or_fail(process, self._replacements.elastic and process.spec.role == "worker", reason)

    def _retry_unreachable(self) -> None:
        """Restart unreachable processes whose next attempt is due; announce the hosts that are waited for."""
        if self._over or self._ending:
            return
        for spec in self._unreachable.due():
            self._restart(self._newest(spec.name), spec)
        for sentence in self._unreachable.announcements():
            self._view.print(sentence)

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

    def _report_idle_workers(self) -> None:
        """Report the workers that, according to a server, have contributed nothing to the model."""
        for process in self._processes:
            if progress.CONTRIBUTED in process.events:
                for rank, spec in enumerate(self._plan.workers):
                    if rank not in process.events[progress.CONTRIBUTED]["ranks"]:
                        self._view.print(
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
        elif process.terminated or self._outcome.preempted:
            state = "ended"
        elif name in self._replacements.lost:
            state = "lost"
        else:
            state = "failed" if process.exit_code else "done"
        return WorkerRow(name, spec.host.name, spec.device, state, process.progress)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let signals end the job instead of this process."""
        preempting = PREEMPTING if self._plan.preemption_notice is not None else ()

        def interrupt(number: int, frame: FrameType | None) -> None:
            if number in preempting and not self._preempted_by:
                self._preempted_by = signal.Signals(number).name
                return
            self._kill_now = bool(self._outcome.interrupted)  # second signal
            self._outcome.interrupted = self._outcome.interrupted or signal.Signals(number).name

        handled = {*SIGNALS, *preempting}
        before = {number: signal.getsignal(number) for number in handled}
        for number in handled:
            if number != signal.SIGHUP or before[number] is not signal.SIG_IGN:  # ignored by nohup
                signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number in handled:
                signal.signal(number, before[number])
