"""Standard output on a full disk, and its buffering."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from esync.runtime import output
from esync.runtime.output import LossyFile

from ..support import child

#: What a locale makes of Python's encodings, without the UTF-8 mode that Python may choose by itself.
LOCALES = ({"PYTHONIOENCODING": "latin1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
PROGRAM = "from esync.runtime import output; output.install(); print('hello'); import os; os._exit(0)"


@pytest.mark.parametrize("unbuffered", [["-u"], []])
def test_output_keeps_the_buffering_that_the_user_chose(tmp_path: Path, unbuffered: list[str]) -> None:
    with open(tmp_path / "out", "wb") as out:
        command = [sys.executable, *unbuffered, "-c", PROGRAM]
        subprocess.run(command, stdout=out, check=True, timeout=60, env=child.environment())
    assert (tmp_path / "out").read_text() == ("hello\n" if unbuffered else "")


@pytest.mark.parametrize("unbuffered", [["-u"], []])
def test_output_to_full_disk_counts_the_missing_bytes(unbuffered: list[str]) -> None:
    program = (
        "import sys; from esync.runtime import output; output.install(); print('hello', flush=True); "
        "sys.stderr.write(output.missing())"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, *unbuffered, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, done.stderr) == (
        0,
        "6 bytes of standard output could not be written: No space left on device",
    )


def test_output_to_file_that_fails_at_close_reports_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS does so: it accepts writes and sends them later."""

    class Remote(output.io.FileIO):
        def close(self) -> None:
            if not self.closed:
                super().close()
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    class OnRemote(LossyFile, Remote):
        pass

    file = OnRemote(tmp_path / "log", "wb")
    file.write(b"hello")
    file.close()
    assert file.closed
    assert "quota" in file.why.lower()


@pytest.mark.parametrize(
    ("words", "locale"),
    list(zip(["launch :", "--help", "launch --help", "simulate --help", "compare --help"], LOCALES * 3, strict=False)),
)
def test_command_in_locale_without_utf_8_prints_escapes(words: str, locale: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "esync", *words.split()],
        capture_output=True,
        timeout=60,
        env=child.environment(**locale),
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("locale", LOCALES, ids=["latin1", "ascii"])
def test_metric_with_any_name_is_printed_in_any_locale(locale: dict[str, str]) -> None:
    program = (
        "from esync.runtime.progress import Progress, ProgressReporter\n"
        "from esync.launch.view import LineView, choose\n"
        "from esync.launch.status_table import WorkerRow\n"
        "progress = Progress(0, 1, 2, 3.0, 0.1, 5.0, 0.5, 1, 'Genauigkeit \\u03bc')\n"
        "ProgressReporter(quiet=False, machine=True).round(progress)\n"
        "view = choose('title', quiet=False)\n"
        "from esync import config\n"
        "config.LAUNCH_LINE_EVERY = 0\n"
        "view.show([WorkerRow('worker-0', 'host', 'cpu', 'training', progress)])\n"
        "view.print('\\u03bc')\n"
        "print('end')\n"
    )
    done = child.run("-c", program, **locale)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Genauigkeit \\u03bc") == 3
    assert done.stdout.endswith("end\n")


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-", "| true", ">/dev/full"])
@pytest.mark.parametrize("program", ["", "from esync.runtime import output; output.install()"])
def test_reporter_with_output_that_cannot_be_written_goes_on(tmp_path: Path, redirection: str, program: str) -> None:
    """A training that has written its file has not been ended by what it has printed."""
    lines = (
        f"import os, time, esync\n{program}\n"
        "from esync.runtime.progress import ProgressReporter\n"
        "number = os.open('first', os.O_WRONLY | os.O_CREAT)\n"
        "for _ in range(20):\n"
        "    ProgressReporter(quiet=False, machine=False).print('x' * 10_000)\n"
        "    time.sleep(0.01)\n"
        "os.write(number, b'model')\n"
    )
    (tmp_path / "program.py").write_text(lines)
    shell = f"{sys.executable} program.py {redirection}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        env=child.environment(PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
    )
    assert (tmp_path / "first").read_bytes() == b"model"  # and nothing printed
    assert b"Traceback" not in done.stderr
    if redirection != ">/dev/full" or program:
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("words", "code"), [("--help", 0), ("launch :", 0), ("completion bash", None)])
def test_command_whose_reader_has_gone_is_silent(words: str, code: int | None) -> None:
    """None stands for any exit code: the command may have been in the middle of its output."""
    command = f"set -o pipefail; {sys.executable} -m esync {words} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, env=child.environment())
    assert done.stderr == b""
    assert code in (None, done.returncode)


def test_lossy_file_waits_for_pipe_that_does_not_block() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    program = f"import os, time; time.sleep(0.2)\nwhile data := os.read({reader}, 65536): print(len(data), flush=True)"
    process = subprocess.Popen([sys.executable, "-c", program], pass_fds=[reader], stdout=subprocess.PIPE, text=True)
    os.close(reader)
    with LossyFile(writer, "wb") as file:
        assert file.write(bytes(300_000)) == 300_000
    assert sum(map(int, process.communicate(timeout=60)[0].split())) == 300_000
    assert not file.missing
