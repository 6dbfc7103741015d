"""Cluster descriptions by name."""

from pathlib import Path

import pytest

from esync.launch import command as launch
from esync.runtime.descriptions import NoDescriptionError, listing, path_of
from esync.simulate import __main__ as simulate
from esync.sync_switch import __main__ as sync_switch

CLUSTERS = Path(__file__).parents[2] / "clusters"
NAMES = sorted(path.stem for path in CLUSTERS.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_path_of_a_name_is_the_file_of_the_checkout(name):
    assert path_of(f":{name}").samefile(CLUSTERS / f"{name}.yaml")


@pytest.mark.parametrize("word", ["clusters/quick.yaml", "./:quick", "a:quick"])
def test_path_of_anything_else_is_that_file(word):
    assert path_of(word) == Path(word)


def test_path_of_unknown_name_is_refused_with_the_list_and_the_nearest():
    with pytest.raises(NoDescriptionError) as refused:
        path_of(":papr")
    names = ", ".join(f":{name}" for name in NAMES)
    assert str(refused.value) == (
        f"no description :papr comes with this package (did you mean :paper?); choose one of {names}"
    )


def test_path_of_name_outside_the_folder_is_refused():
    with pytest.raises(NoDescriptionError):
        path_of(":../clusters/quick")


def test_listing_has_a_line_for_each_description():
    lines = listing().splitlines()
    assert [line.split()[0] for line in lines] == [f":{name}" for name in NAMES]
    assert all(len(line) <= 100 for line in lines)
    quick = next(line for line in lines if line.startswith(":quick "))
    assert "A first look, in half a minute: three workers" in quick


@pytest.mark.parametrize("parse", [launch.parse_arguments, simulate.parse_arguments])
def test_launch_and_simulate_take_a_name_and_list_the_names(parse, capsys):
    options, _ = parse([":quick"])
    assert options.file.samefile(CLUSTERS / "quick.yaml")
    for word, code in ((":", 0), (":nothing", 2), ("~nobody-of-that-name/x.yaml", 2)):
        with pytest.raises(SystemExit) as end:
            parse([word])
        assert end.value.code == code
    printed = capsys.readouterr()
    assert printed.out == f"{listing()}\n"
    assert "error: no description :nothing comes with this package; choose one of :demo" in printed.err
    assert "error: ~nobody-of-that-name/x.yaml: this machine knows no home directory" in printed.err


def test_sync_switch_search_takes_a_name():
    assert sync_switch.build_parser().parse_args(["search", ":sync-switch"]).file.stem == "sync-switch"
