"""Command line of the launcher: start a whole cluster, show its progress, and end it.

Every flag of the worker may be given; flags override the description's `train` section.
"""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from .. import arguments, config
from ..arguments.flag_types import positive
from ..reports.comparison import Comparison
from ..runtime import descriptions, output, preemption, program, terminal
from ..runtime.cores import threads
from ..runtime.files import expanded
from . import flags, repeat, report, slurm, user_program, view
from .agent_pool import AgentPool
from .description import Description, errors_of, read
from .folders import LogFolders
from .gather import gather
from .hosts import locate
from .plan import plan
from .preflight import check_hosts, fixed_ports, prepare
from .reachability import try_paths
from .repeat import Repetition, RunEnd
from .resources import HostResources, Ports
from .services import ports_needed
from .spec import LaunchPlan
from .supervisor import PREEMPTING, Supervisor

_notify, _print_error = terminal.messages_of("launch"), terminal.messages_of("launch: error")

#: Variable that holds the secret shared by the workers and the state server of a job on several
#: machines.
TOKEN_VARIABLE = "ESYNC_TOKEN"

#: Printed above the commands of --dry-run, which contain no token. Launch itself passes it on
#: through ssh's standard input, so that no list of processes shows it.
TOKEN_NEEDED = f"""\
# Set {TOKEN_VARIABLE} first, to the same secret text for the state server and for every worker, on
# each machine. For a command that begins with ssh, this shell's variable does not count: ssh passes
# it on only with -o SendEnv={TOKEN_VARIABLE}, and where the sshd there accepts it (AcceptEnv);
# `ssh HOST env` shows what a command gets there. Without the token the state server does not start,
# because it listens on the network.
# To make one: python -c "import secrets; print(secrets.token_urlsafe(24))\""""


def parse_arguments(words: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return launch's own options, and the worker's flags that are on the command line."""
    words, program_words = user_program.split(words)
    program_name = program.name("python -m esync.launch")
    parser = flags.parser_of_all(
        program_name, "Start a whole cluster, as a description says; end it, whatever happens.", words
    )
    parser.usage = (
        f"{program_name} FILE [flags of launch] [flags of the worker, which override FILE]\n"
        f"       {program_name} FILE [flags of launch] [flags of the cluster] -- python train.py [its own flags]"
    )
    parser.epilog = (
        "Behind -- stands a program of your own that uses esync.Trainer; every worker runs it in the place of the "
        "built-in worker. Then the flags about networks, data and training are the program's own, and -m chooses the "
        "mode where the program names none (docs/how-to/launch.md)."
    )
    with arguments.reporting_conflicts(parser):
        _add_to(parser)
    options = arguments.parse_args(parser, words)
    if program_words == ():
        parser.error("a program should follow --, for instance -- python train.py --epochs 3")
    options.program = program_words or ()
    if options.dry_run and options.json:
        parser.error("--json describes how a job went, and with --dry-run there is none")
    present = arguments.typed_flags(parser, words)
    if "max_restarts" in present and options.max_restarts and options.collective != "ps":
        parser.error(f"--collective {options.collective} has no server, which --max-restarts needs")
    typed = present & set(flags.all_flags()) - {"quiet"}
    return options, {name: getattr(options, name) for name in sorted(typed)}


def _add_to(parser: argparse.ArgumentParser) -> None:
    """Add launch's own flags."""
    descriptions.add_file(parser)
    parser.add_argument(
        "--slurm",
        action="store_true",
        help="run on the nodes of the Slurm job that this is part of, which FILE then does not describe",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands instead of running them")
    parser.add_argument("--follow", action="store_true", help="print what the processes print, with their names")
    parser.add_argument("--json", type=expanded, metavar="FILE", help="write how the job went to FILE")
    parser.add_argument(
        "--repeat",
        type=arguments.count,
        metavar="N",
        help="run the job N times, with the seeds from --seed upwards, each run in a folder of its own, and print the "
        "means of their figures; a program finds its seed in ESYNC_SEED, and in the place of {seed} among its words",
    )
    restarts = parser.add_mutually_exclusive_group()
    restarts.add_argument(
        "--max-restarts",
        type=arguments.count,
        default=config.LAUNCH_RESTARTS,
        metavar="N",
        help="how often each worker that dies is replaced (default: %(default)s)",
    )
    restarts.add_argument(
        "--no-restart", dest="max_restarts", action="store_const", const=0, help="end the job when a worker dies"
    )
    parser.add_argument(
        "--wait-for-host",
        type=positive,
        default=config.LAUNCH_WAIT_FOR_HOST,
        metavar="S",
        help="seconds that a host may be away before its processes are given up (default: %(default)g)",
    )


def main(words: list[str] | None = None) -> int:
    """Run the launcher and return its exit code: 0 done, 1 failed, 2 bad usage."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell may have started this process with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    options, typed = parse_arguments(sys.argv[1:] if words is None else words)
    return terminal.run_command(lambda: _launch(options, typed), _print_error)


class _PreemptedError(KeyboardInterrupt):
    """A signal has preempted the job before its first process has begun, or after the last one has ended."""


def _preempt(number: int, frame: FrameType | None) -> NoReturn:
    raise _PreemptedError(signal.Signals(number).name)


def _launch(options: argparse.Namespace, typed: dict[str, Any]) -> int:
    description = read(options.file, cluster=slurm.cluster() if options.slurm else None)
    if description.preemption_notice is not None:
        for number in PREEMPTING:
            signal.signal(number, _preempt)
    try:
        if options.repeat is not None:
            return _repeat(description, options, typed)
        return _launch_once(description, options, typed, options.program or description.program).exit_code
    except _PreemptedError as signalled:
        _notify(report.preempted_by(str(signalled)))
        return preemption.EXIT_CODE


def _repeat(description: Description, options: argparse.Namespace, typed: dict[str, Any]) -> int:
    """Launch the job with several seeds; return the exit code."""
    words = options.program or description.program
    runs = repeat.repetitions(options.repeat, {} if options.program else description.train, typed)

    def launch(repetition: Repetition) -> RunEnd:
        run_options = argparse.Namespace(**vars(options))
        file = options.json
        run_options.json = file and file.with_name(f"{file.stem}-{repetition.name}{file.suffix}")
        if not words:
            return _launch_once(description, run_options, {**typed, **repetition.typed, "seed": repetition.seed}, ())
        program = [word.replace(repeat.PLACEHOLDER, str(repetition.seed)) for word in words]
        return _launch_once(description, run_options, {**typed, **repetition.typed}, program, repetition.seed)

    def write(comparison: Comparison) -> None:
        if options.json:
            comparison.write_json(options.json)

    if words and not any(repeat.PLACEHOLDER in word for word in words):
        _notify(
            "the program finds its seed in the variable ESYNC_SEED; if it does not read it, all runs are the same: "
            f"write {repeat.PLACEHOLDER} among its words, for instance --seed {repeat.PLACEHOLDER}, to tell it"
        )
    return repeat.run_all(runs, launch, _notify, _print_error, write)


def _launch_once(
    description: Description,
    options: argparse.Namespace,
    typed: dict[str, Any],
    program: Sequence[str],
    seed: int | None = None,
) -> RunEnd:
    """Launch one job, and return how it has ended; `seed` is passed to the user's program."""
    with errors_of(options.file):
        hosts = locate(description)
    if not options.dry_run and not all(host.local for host in hosts.values()):
        os.environ[TOKEN_VARIABLE] = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(
            24
        )  # valid for this job only
    with Ports() as ports:
        local = HostResources(ports.free(ports_needed(description)), threads())
        token = secrets.token_hex(8)

        def job_on(remote: dict[str, HostResources]) -> LaunchPlan:
            with errors_of(options.file):
                return plan(description, hosts, typed, local, remote, program, seed, token)

        job = job_on({})
        if options.dry_run:
            print("\n\n".join(_explain(job)))
            return RunEnd(0)
        with AgentPool(job.hosts, _notify) as agents:
            claims = fixed_ports(description, job)
            for owner, port in claims.pop(None, {}).items():
                ports.claim(port, owner)
            job = job_on(check_hosts(job, agents, claims, ports_needed(description)))
            try_paths(job, agents)
            return _run(job, agents, options)


def _run(job: LaunchPlan, agents: AgentPool, options: argparse.Namespace) -> RunEnd:
    with closing(LogFolders(job.folder_here, job.options.overwrite, job.options.resume)) as folders:
        prepare(job, agents)
        before = report.logged_before(job)
        title = f"{job.trained}, {job.mode_folder.name}, {len(job.workers)} workers, {options.file}"
        screen = view.choose(title, options.quiet, options.follow)
        with closing(screen):
            for remark in job.remarks:
                screen.print(remark)
            restarts = options.max_restarts if job.options.collective == "ps" else 0  # nobody can take a rank's place
            outcome = Supervisor(job, folders.processes, screen, restarts, options.wait_for_host).run()
            not_here = gather(job, agents, folders.nonce, screen.print)
            if outcome.ok:  # the job does not need the logs of hosts that it has gone on without
                for name in not_here.keys() & set(outcome.lost_hosts):
                    screen.print(not_here.pop(name))
            missing = list(not_here.values())
        figures = None
        earlier: list[str] = []
        try:
            if outcome.ok and not missing:
                figures = report.read_figures(job)
                earlier = report.earlier_logs(job)
            if options.json:
                report.write_outcome(options.json, job, outcome, figures)
        except OSError as error:
            missing.append(f"cannot write {error.filename}: {error.strerror}; the logs are in {job.mode_folder}")
        page = report.write_page(job, outcome, figures)
        if not outcome.preempted:  # no time is left, and the run goes on
            for problem in report.attach_files(job, Path(options.file), outcome, before):
                _notify(problem)
        if outcome.ok and not missing:
            lines = [*report.success(figures, job, outcome), *([page] if page else []), *earlier]
            print("\n".join(lines), flush=True)
            if lost := output.missing():
                _print_error(f"the job is done, but {lost}")
            return RunEnd(int(bool(lost)), job.folder_here if figures else None)
        preempted = bool(outcome.preempted and not outcome.failures)
        say = _notify if preempted and not missing else _print_error
        say("\n".join([*([] if outcome.ok else report.failure(outcome)), *missing]))
        return RunEnd(
            preemption.EXIT_CODE if preempted else 1, interrupted=bool(outcome.interrupted or outcome.preempted)
        )


def _explain(job: LaunchPlan) -> list[str]:
    """Return every command, as lines for a shell."""
    several = not all(host.local for host in job.hosts)
    return [
        *([TOKEN_NEEDED] if several and any(spec.role == "state server" for spec in job.processes) else []),
        *(f"# {spec.name} on {spec.host.name} ({spec.host.address})\n{spec.shell}" for spec in job.processes),
        *(
            f"# Nothing on {name} at first: it is a spare host, for the workers of one that is lost"
            for name in job.spares
        ),
    ]
