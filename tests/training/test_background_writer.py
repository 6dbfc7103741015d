import pytest

from esync.training.background_writer import BackgroundWriter


def test_a_file_is_updated_from_what_was_given_before(tmp_path):
    writer = BackgroundWriter("the files")
    writer.write(tmp_path / "a", b"one")
    writer.update(tmp_path / "a", lambda content: content + b", two")
    writer.update(tmp_path / "b", lambda content: content + b"never")
    writer.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"one, two"}


def test_whatever_goes_wrong_reaches_whoever_gives_the_files(tmp_path):
    def fail(content: bytes) -> bytes:
        raise ZeroDivisionError

    writer = BackgroundWriter("the files")
    writer.write(tmp_path / "a", b"one")
    writer.update(tmp_path / "a", fail)
    for give in (writer.flush, writer.close, lambda: writer.write(tmp_path / "b", b"two")):
        with pytest.raises(ZeroDivisionError):
            give()
    assert not (tmp_path / "b").exists()


def test_a_closed_writer_takes_nothing(tmp_path):
    writer = BackgroundWriter("the files")
    writer.close()
    with pytest.raises(ValueError, match="the files are closed"):
        writer.write(tmp_path / "a", b"one")
