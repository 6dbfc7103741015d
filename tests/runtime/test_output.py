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
