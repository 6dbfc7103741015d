"""Check this machine, and the hosts of a description: `esync doctor [CLUSTER.yaml]`.

    esync doctor                  # this machine
    esync doctor cluster.yaml     # and all hosts of that description, over ssh
    esync doctor --json           # for programs

Exit codes: 0 no problem, 1 a problem, 2 bad usage.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain

from ..runtime import descriptions, program
from ..version import __version__
from . import engine, machine
from .finding import Finding, run_checks


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    command_parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.diagnosis"),
        description="Check whether this machine can train, and say what to do where it cannot.",
        epilog="Nothing is changed, here or on other hosts.",
        allow_abbrev=False,
    )
    descriptions.add_file(command_parser, optional=True)
    command_parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return command_parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the checks and return the exit code: 0 no problem, 1 a problem, 2 bad usage."""
    options = parser().parse_args(words)
    try:
        from ..runtime.terminal import run_command
    except ModuleNotFoundError:  # a package is missing, which the checks name
        return _diagnose(options)
    return run_command(lambda: _diagnose(options))


def _diagnose(options: argparse.Namespace) -> int:
    findings = []
    for finding in _all_findings(options):
        findings.append(finding)
        if not options.json:
            print(finding.lines(), flush=True)
    problems = sum(finding.status == "problem" for finding in findings)
    warnings = sum(finding.status == "warning" for finding in findings)
    if options.json:
        listed = [asdict(finding) for finding in findings]
        print(json.dumps({"version": __version__, "problems": problems, "findings": listed}, indent=2))
    else:
        print(f"{problems} problem(s), {warnings} warning(s)")
    return int(problems > 0)


def _all_findings(options: argparse.Namespace) -> Iterator[Finding]:
    findings = run_checks(chain(machine.CHECKS, engine.CHECKS))
    if options.file is None:
        return findings

    def cluster() -> Iterator[Finding]:
        from . import cluster  # its packages may be missing

        return cluster.cluster(options.file, lambda text: print(text, file=sys.stderr, flush=True))

    return chain(findings, run_checks([("description", cluster)]))


if __name__ == "__main__":
    sys.exit(main())
