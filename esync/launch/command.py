"""Command line of the launcher: start a whole cluster, show its progress, and end it.

Every flag of the worker may be given; flags override the description's `train` section.
"""

import argparse
import os
import secrets
import signal
import sys
from contextlib import closing
from typing import Any

from .. import arguments, config
from ..arguments.flag_types import positive
from ..runtime import descriptions, output, program
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded
from . import flags, report, view
from .agent_pool import AgentPool
from .description import DescriptionError, read
from .folders import LogFolders
from .gather import gather
from .hosts import locate
from .plan import plan, ports_needed
from .preflight import check_hosts, fixed_ports, prepare
from .reachability import try_paths
from .resources import HostResources, Ports
from .spec import LaunchPlan
from .supervisor import Supervisor

#: What workers and state server share, where others can reach it.
TOKEN_VARIABLE = "ESYNC_TOKEN"

#: Launch itself passes a token on over ssh, where no list of processes shows it; a printed command
#: has none.
TOKEN_NEEDED = f"""\
# Set {TOKEN_VARIABLE} first, to the same secret text for the state server and for every worker, on each machine. For a
# command that begins with ssh this shell's does not count: ssh passes it on only with -o SendEnv={TOKEN_VARIABLE}, and
# where the sshd there accepts it (AcceptEnv); `ssh HOST env` shows what a command gets there. Without it the state
# server does not start: it listens on the network.
# To make one: python -c "import secrets; print(secrets.token_urlsafe(24))\""""


def parse_arguments(words: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return launch's own options, and the worker's flags that were typed."""
    program_name = program.name("python -m esync.launch")
    parser = flags.parser_of_all(
        program_name, "Start a whole cluster, as a description says; end it, whatever happens.", words
    )
    parser.usage = f"{program_name} FILE [flags of launch] [flags of the worker, which override FILE]"
    with arguments.reporting_conflicts(parser):
        _add_to(parser)
    options = parser.parse_args(words)
    if options.dry_run and options.json:
        parser.error("--json tells how a job went; with --dry-run there is none")
    given = arguments.given(parser, words)
    if "max_restarts" in given and options.max_restarts and options.collective != "ps":
        parser.error(f"--collective {options.collective} has no server, which --max-restarts needs")
    typed = given & set(flags.known()) - {"quiet"}
    return options, {name: getattr(options, name) for name in sorted(typed)}


def _add_to(parser: argparse.ArgumentParser) -> None:
    """Add launch's own flags."""
    descriptions.add_file(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the commands instead of running them")
    parser.add_argument("--follow", action="store_true", help="print what the processes print, with their names")
    parser.add_argument("--json", type=expanded, metavar="FILE", help="write how the job went to FILE")
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
    """Launch; the exit code: 0 done, 1 failed, 2 bad usage."""
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has started this with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    options, typed = parse_arguments(sys.argv[1:] if words is None else words)
    try:
        return _launch(options, typed)
    except ExpectedError as error:
        _print_error(str(error))
        return 2 if isinstance(error, DescriptionError) else 1
    except BrokenPipeError:  # whoever read the output has gone; the job has been ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        _print_error(f"{error.filename or 'failed'}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:  # before the job has begun, or after its end
        _print_error("interrupted")
        return 1


def _launch(options: argparse.Namespace, typed: dict[str, Any]) -> int:
    description = read(options.file)
    try:
        hosts = locate(description)
    except DescriptionError as error:
        raise DescriptionError(f"{options.file}: {error}") from None
    if not options.dry_run and not all(host.here for host in hosts.values()):
        os.environ[TOKEN_VARIABLE] = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)  # of this job alone
    with Ports() as ports:
        cores = None if "OMP_NUM_THREADS" in os.environ else len(os.sched_getaffinity(0))
        here = HostResources(ports.free(ports_needed(description)), cores)

        def job_on(there: dict[str, HostResources]) -> LaunchPlan:
            try:
                return plan(description, hosts, typed, here, there)
            except DescriptionError as error:
                raise DescriptionError(f"{options.file}: {error}") from None

        job = job_on({})
        if options.dry_run:
            print("\n\n".join(_explain(job)))
            return 0
        with AgentPool(job.hosts, _tell) as agents:
            claims = fixed_ports(description, job)
            for owner, port in claims.pop(None, {}).items():
                ports.claim(port, owner)
            job = job_on(check_hosts(job, agents, claims, ports_needed(description)))
            try_paths(job, agents)
            return _run(job, agents, options)


def _run(job: LaunchPlan, agents: AgentPool, options: argparse.Namespace) -> int:
    with closing(LogFolders(job.folder_here, job.options.overwrite, job.options.resume)) as folders:
        prepare(job, agents)
        title = f"{job.options.network}, {job.mode_folder.name}, {len(job.workers)} workers, {options.file}"
        screen = view.choose(title, options.quiet, options.follow)
        with closing(screen):
            for remark in job.remarks:
                screen.say(remark)
            restarts = options.max_restarts if job.options.collective == "ps" else 0  # nobody can take a rank's place
            outcome = Supervisor(job, folders.processes, screen, restarts, options.wait_for_host).run()
            not_here = gather(job, agents, folders.nonce, screen.say)
            if outcome.ok:  # without some hosts, perhaps: then their logs are not missed
                for name in not_here.keys() & set(outcome.lost_hosts):
                    screen.say(not_here.pop(name))
            missing = list(not_here.values())
        figures = None
        try:
            if outcome.ok and not missing:
                figures = report.read_figures(job)
            if options.json:
                report.write_json(options.json, job, outcome, figures)
        except OSError as error:
            missing.append(f"cannot write {error.filename}: {error.strerror}; the logs are in {job.mode_folder}")
        if outcome.ok and not missing:
            print("\n".join(report.success(figures, job, outcome)), flush=True)
            if lost := output.missing():
                _print_error(f"the job is done, but {lost}")
                return 1
            return 0
        _print_error("\n".join([*([] if outcome.ok else report.failure(outcome)), *missing]))
        return 1


def _explain(job: LaunchPlan) -> list[str]:
    """Return every command, as lines for a shell."""
    several = not all(host.here for host in job.hosts)
    return [
        *([TOKEN_NEEDED] if several and any(spec.role == "state server" for spec in job.processes) else []),
        *(f"# {spec.name} on {spec.host.name} ({spec.host.address})\n{spec.shell}" for spec in job.processes),
        *(
            f"# Nothing on {name} at first: it is a spare host, for the workers of one that is lost"
            for name in job.spares
        ),
    ]


def _tell(text: str) -> None:
    print(f"launch: {text}", file=sys.stderr, flush=True)


def _print_error(text: str) -> None:
    print(f"launch: error: {text}", file=sys.stderr, flush=True)
