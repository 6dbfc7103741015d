import pytest

from esync.training.background_writer import BackgroundWriter


def test_background_writer_update_follows_the_pending_write(tmp_path):
    writer = BackgroundWriter("the files")
    writer.write(tmp_path / "a", b"one")
    writer.update(tmp_path / "a", lambda content: content + b", two")
    writer.update(tmp_path / "b", lambda content: content + b"never")
    writer.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"one, two"}


def test_background_writer_that_fails_raises_at_the_next_call(tmp_path):
    def fail(content: bytes) -> bytes:
        raise ZeroDivisionError

    writer = BackgroundWriter("the files")
    writer.write(tmp_path / "a", b"one")
    writer.update(tmp_path / "a", fail)
    for give in (writer.flush, writer.close, lambda: writer.write(tmp_path / "b", b"two")):
        with pytest.raises(ZeroDivisionError):
            give()
    assert not (tmp_path / "b").exists()


def test_background_writer_after_close_is_refused(tmp_path):
    writer = BackgroundWriter("the files")
    writer.close()
    with pytest.raises(ValueError, match="the files are closed"):
        writer.write(tmp_path / "a", b"one")
