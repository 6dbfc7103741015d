"""What a check has found, and how checks are run so that none can end the program."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ..runtime.errors import ExpectedError

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: what was looked at, in one or two words.
        status: "ok"; "warning" for what only some trainings need; "problem" for what all need.
        message: what is there, or what is wrong.
        remedy: what to do about it; "" where nothing is to be done.
    """

    check: str
    status: Status
    message: str
    remedy: str = ""

    def lines(self) -> str:
        """Return the finding for a terminal: one line, and one more for the remedy."""
        first = f"{self.status:<8} {self.check}: {self.message}"
        return f"{first}\n{'':9}{self.remedy}" if self.remedy else first


#: A check: its name, and a function without arguments that returns what it has found.
Check = tuple[str, Callable[[], Finding | Iterable[Finding]]]


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """Run checks one after another, and yield what they find.

    An exception becomes a problem of the check that has raised it.
    """
    for name, check in checks:
        try:
            findings = check()
            yield from [findings] if isinstance(findings, Finding) else findings
        except ModuleNotFoundError as error:
            package = (error.name or str(error)).partition(".")[0]
            yield Finding(name, "problem", f"the package {package} is not installed", REINSTALL)
        except (ExpectedError, OSError) as error:
            yield Finding(name, "problem", str(error))
        except Exception as error:  # whatever is broken here should be named, not end the other checks
            yield Finding(name, "problem", f"cannot be checked: {type(error).__name__}: {error}", REINSTALL)


#: What helps where a package is missing or broken.
REINSTALL = "install this package again: pip install -e '.[cpu]' in its checkout, in a new virtual environment"
