"""A user's program that the workers of a job run: its words, its name, and checks that it can run.

It is given by `esync launch FILE -- python train.py --my-flags`, or by `program:` in the
description. Launch does not read its flags. The settings of the cluster are passed to it in
environment variables (`runtime.worker_environment`).
"""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config
from ..algorithms.registry import all_flags, flags_of
from ..arguments import presets
from ..arguments.environment import SHARED
from ..arguments.training import AUTO
from ..runtime.errors import ExpectedError
from ..runtime.user_code import digest_of_files
from . import flags

Words = tuple[str, ...]

#: Separator between launch's own words and those of the program.
SEPARATOR = "--"
#: Flags that all workers find in their environment.
ENVIRONMENT_FLAGS = frozenset({*SHARED, "elastic", "lease", "name"})
#: Flags of the built-in worker that apply to any program, beside the options of a chosen mode
#: (`applies`). All others configure the training, which is up to the program.
CLUSTER_FLAGS = ENVIRONMENT_FLAGS | {"mode", "preset"}
#: Name of the logs' folder if the program chooses the mode.
ANY_MODE = "program"
#: Words that stand for the Python interpreter of each host.
PYTHON_WORDS = ("python", "python3")
_PYTHON = re.compile(r"python(3(\.[0-9]+)?)?")
#: Flags of Python that take a value.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


class MissingProgramError(ExpectedError):
    """Raised when a host cannot run the program."""


@dataclass(frozen=True)
class UserProgram:
    """A program as it is given on the command line.

    Attributes:
        words: the program and its arguments.
        script: the file that Python runs; "" for a module, or for a program other than Python.
        name: name of the script (without .py) or the module, and of the folder of its logs.
    """

    words: Words
    script: str
    name: str

    @classmethod
    def of(cls, words: Sequence[str]) -> "UserProgram":
        """Return the program with these words."""
        script = module = ""
        if _PYTHON.fullmatch(Path(words[0]).name):
            rest = iter(words[1:])
            for word in rest:
                if word in ("-m", "-c"):
                    module = next(rest, "") if word == "-m" else ""
                    break
                if word in _WITH_VALUE:
                    next(rest, "")
                elif not word.startswith("-"):
                    script = word
                    break
        name = (Path(script).stem if script else module or Path(words[0]).stem).strip(".")
        return cls(tuple(words), script, name or ANY_MODE)

    @property
    def digest(self) -> str:
        """A short digest of the script's content on this machine; "" if there is none."""
        try:
            return digest_of_files([Path(self.script)]) if self.script else ""
        except OSError:
            return ""

    def command(self, python: str) -> Words:
        """Return the words that start the program on a host with this Python."""
        return (python, *self.words[1:]) if self.words[0] in PYTHON_WORDS else self.words

    def check(self, digest: str = "") -> None:
        """Check that the program can be started in the current folder of this machine.

        Args:
            digest: digest of the script on the launching machine; "" if unknown.

        Raises:
            MissingProgramError: the interpreter or the script does not exist, or the script
                differs.
        """
        if self.words[0] not in PYTHON_WORDS and shutil.which(self.words[0]) is None:
            raise MissingProgramError(
                f"there is no program {self.words[0]} in the PATH, and no such file that can be run; `python` means "
                "the Python of each host"
            )
        if not self.script:
            return
        remedy = f"copy it there; a relative path begins in {os.getcwd()}"
        if not Path(self.script).is_file():
            raise MissingProgramError(f"there is no file {self.script}; {remedy}")
        if digest and self.digest != digest:
            raise MissingProgramError(f"{self.script} differs from the one where launch runs; {remedy}")


def split(words: Sequence[str]) -> tuple[list[str], Words | None]:
    """Return launch's own words, and the words after `--` (None without `--`)."""
    launch_words = list(words)
    if SEPARATOR not in launch_words:
        return launch_words, None
    index = launch_words.index(SEPARATOR)
    return launch_words[:index], tuple(launch_words[index + 1 :])


def words_of(value: object) -> Words:
    """Return the words of `program:` in a description, which is a line for a shell or a list.

    Raises:
        ValueError: it is neither; the message says what was expected.
    """
    expected = "expected a command, for instance python train.py --epochs 3, or a list of its words"
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{expected}: {error}") from None
    elif isinstance(value, list) and all(isinstance(word, str | int | float) for word in value):
        if any(isinstance(word, bool) for word in value):
            raise ValueError(f"{expected}; write true and false in quotes")
        words = [str(word) for word in value]
    else:
        raise ValueError(expected)
    if not words or not words[0]:
        raise ValueError(expected)
    return tuple(words)


def applies(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a flag of the built-in worker applies to a program, given all flags beside it."""
    chosen = {**presets.settings_of(settings.get("preset")), **settings}
    return name in CLUSTER_FLAGS or ("mode" in chosen and name in flags_of(flags.algorithm_of(chosen)))


def refuse_training_flags(typed: Mapping[str, Any], described: Mapping[str, Any]) -> None:
    """Raise FlagError if a typed flag applies to the built-in worker only."""
    for name in typed:
        if not applies(name, {**described, **typed}):
            raise flags.FlagError(f"{flags.flag(name)}: {up_to_the_program(name)}")


def up_to_the_program(name: str) -> str:
    """Return why a flag of the built-in worker is refused together with a program."""
    if name in flags.CHOSEN_BY_LAUNCH:
        return f"launch chooses it by itself: {flags.CHOSEN_BY_LAUNCH[name]} says it"
    if name in all_flags():
        return "an option of a mode needs the mode beside it, -m esync for instance, or a preset"
    return (
        "the program decides on it, in its arguments of esync.Trainer and esync.Run, for instance, or by flags of its "
        f"own behind {SEPARATOR}"
    )


def algorithm_options(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of the chosen mode, by their names in Python; None if none are chosen.

    A preset scales a program's learning rate in another way than the built-in worker's, see
    `config.PROGRAM_SCALING`.
    """
    if "mode" not in settings:
        return None
    preset, options_by_flag = presets.settings_of(settings.get("preset")), flags_of(flags.algorithm_of(settings))
    options = {options_by_flag[name].name: value for name, value in settings.items() if name in options_by_flag}
    return ({"lr_scaling": config.PROGRAM_SCALING, **options} if preset.get("momentum") == AUTO else options) or None


def cluster_settings(described: Mapping[str, Any]) -> tuple[flags.Settings, list[str]]:
    """Return the settings of `train` that also apply to a program, and the names of the others."""
    applicable = {name: value for name, value in described.items() if name in CLUSTER_FLAGS}
    return applicable, sorted(described.keys() - applicable.keys())
