"""Fetching from a Debian package, by real apt-get and dpkg-deb.

The repository has one tiny package.
"""

import dataclasses
import hashlib
import shutil
import subprocess
import tempfile

import pytest
import tiny_dataset
from mirror import Mirror

from esync.data.fetch import faults, fetch

PACKAGE = "dataset-tiny"
ENTRY = dataclasses.replace(tiny_dataset.ENTRY, debian_package=PACKAGE)
CONTROL = (
    f"Package: {PACKAGE}\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: -\n"
)

pytestmark = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("dpkg-deb")), reason="neither Debian nor Ubuntu"
)


def publish(repository, contents):
    """Build the package with these contents and a repository that holds it."""
    tree = repository / "tree"
    tiny_dataset.write(tree / "usr/share/datasets", contents)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(CONTROL)
    package = repository / f"{PACKAGE}_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, capture_output=True)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    index = f"{CONTROL}Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n"
    (repository / "Packages").write_text(index)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Make an empty folder the only source of packages that apt knows, without package lists."""
    folder, state = tmp_path / "repository", tmp_path / "apt"
    for path in (folder, state / "lists" / "partial", state / "cache" / "archives" / "partial"):
        path.mkdir(parents=True)
    (state / "sources.list").write_text(f"deb [trusted=yes] file:{folder} ./\n")
    (state / "status").touch()
    (state / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{state}/sources.list"; Dir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State::Lists "{state}/lists"; Dir::State::status "{state}/status"; Dir::Cache "{state}/cache";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(state / "apt.conf"))
    rooms = tmp_path / "temporary"
    rooms.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(rooms))
    yield folder
    assert list(rooms.iterdir()) == []  # whatever happened, the temporary files are gone


def fetch_beside_mirror(folder):
    """Fetch the data set where there is a mirror, too; return what that was asked for."""
    with Mirror() as mirror:
        fetch(dataclasses.replace(ENTRY, mirrors=(mirror.url,)), folder / "data")
    assert faults(ENTRY, folder / "data") == {}
    return mirror.requests


def test_fetch_from_debian_package_leaves_the_machines_package_lists_unchanged(repository, tmp_path, capsys):
    publish(repository, tiny_dataset.CONTENTS)
    fetch(ENTRY, tmp_path / "data")
    assert faults(ENTRY, tmp_path / "data") == {}
    assert f"from the Debian package {PACKAGE}" in capsys.readouterr().out
    assert list((tmp_path / "apt" / "lists" / "partial").iterdir()) == []
    assert [path.name for path in (tmp_path / "apt" / "lists").iterdir()] == ["partial"]


def test_fetch_from_debian_package_uses_the_machines_package_lists(repository, tmp_path):
    publish(repository, tiny_dataset.CONTENTS)
    subprocess.run(["apt-get", "-qq", "-oAPT::Sandbox::User=root", "update"], check=True, capture_output=True)
    (repository / "Packages").unlink()  # so a list of our own would not find it
    fetch(ENTRY, tmp_path / "data")
    assert faults(ENTRY, tmp_path / "data") == {}


def test_fetch_without_debian_package_downloads_and_says_why(repository, tmp_path, capsys):
    (repository / "Packages").touch()
    fetch_beside_mirror(tmp_path)
    assert "the Debian package cannot be used (apt-get: E: Unable to locate package" in capsys.readouterr().out


def test_fetch_with_debian_package_of_other_content_downloads_the_rest(repository, tmp_path, capsys):
    names = list(tiny_dataset.CONTENTS)
    publish(repository, {name: tiny_dataset.CONTENTS[name][:-1] + b"?" for name in names})
    fetch_beside_mirror(tmp_path)
    assert f"({PACKAGE}: {names[0]}: content with SHA-256" in capsys.readouterr().out


def test_fetch_with_incomplete_debian_package_downloads_the_rest(repository, tmp_path, capsys):
    publish(repository, {name: tiny_dataset.CONTENTS[name] for name in list(tiny_dataset.CONTENTS)[:3]})
    assert len(fetch_beside_mirror(tmp_path)) == 1
    assert f"{PACKAGE}: holds no t10k-labels-idx1-ubyte.gz" in capsys.readouterr().out


def test_fetch_on_machine_without_apt_downloads_and_says_so(repository, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    fetch_beside_mirror(tmp_path)
    assert "apt-get: not on this machine" in capsys.readouterr().out
