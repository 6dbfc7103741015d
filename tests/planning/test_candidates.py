"""What is tried, from the registry of algorithms."""

import pytest

from esync.algorithms.registry import ALGORITHMS
from esync.launch import flags
from esync.launch.description import read
from esync.planning.candidates import (
    Candidate,
    PlanClass,
    candidates,
    class_of,
    excluded,
    fast_devices,
    twins,
    unsuited,
)
from esync.planning.forecast import prepared
from esync.simulate.cluster import model
from esync.simulate.job import SimulationJob, run

from .clusters import write


def tried(path, modes=ALGORITHMS):
    description, _ = prepared(read(path))
    return [dict(candidate.flags) for candidate in candidates(read(path), model(description, path.parent), modes)]


def test_every_mode_is_tried_excluded_or_as_fast_as_another(tmp_path):
    modes = {flags["mode"] for flags in tried(write(tmp_path, 0.1, 0.2))}
    assert modes | excluded(ALGORITHMS).keys() | twins(ALGORITHMS).keys() == set(ALGORITHMS)
    assert not modes & excluded(ALGORITHMS).keys()
    assert "sync-switch" in excluded(ALGORITHMS)
    assert "gradients" in excluded(ALGORITHMS)["dgs"]


def test_modes_of_plain_sgd_do_not_suit_other_optimizers():
    assert {"dcasgd", "scaffold"} <= unsuited("adam").keys()
    assert not {"esync", "tiered", "sync", "async", "local", "local-sgd"} & unsuited("adam").keys()
    assert not unsuited("sgd")
    assert not unsuited("")


def test_flags_that_a_mode_has_are_tried_and_no_others(tmp_path):
    settings = tried(write(tmp_path, 0.1, 0.2), ["sync", "esync", "async", "local-sgd"])
    assert {"mode": "sync", "compression": "fp16"} in settings
    assert {"mode": "esync", "overlap": True, "compression": "fp16"} in settings
    assert {"mode": "sync", "collective": "ring"} in settings
    assert {"mode": "local-sgd", "local_iterations": 50} in settings
    assert not [setting for setting in settings if setting["mode"] == "esync" and "local_iterations" in setting]
    assert [setting for setting in settings if setting["mode"] == "async"] == [{"mode": "async"}]


def test_collectives_are_not_tried_in_the_mode_of_a_preset_that_compresses(tmp_path):
    settings = tried(write(tmp_path, 0.1, 0.2, train="preset: skewed-data"), ["sync", "esync"])
    assert {setting["mode"] for setting in settings if "collective" in setting} == {"sync"}


def test_values_of_the_description_are_tried_too(tmp_path):
    settings = tried(write(tmp_path, 0.1, 0.2, train="local_iterations: 7, staleness: 4"))
    assert {"mode": "local-sgd", "local_iterations": 7} in settings
    assert {"mode": "esync", "local_iterations": 7} in settings
    assert {"mode": "ssp", "staleness": 4} in settings
    assert {"mode": "ssp"} in settings  # without it, too


def by_host(path, modes, per_host=None):
    pool = candidates(read(path), model(read(path), path.parent), modes, per_host)
    return [(dict(candidate.flags), candidate.ranks) for candidate in pool if candidate.per_host], pool


def test_rounds_of_workers_that_share_a_host_are_tried_as_one_exchange_of_each_host(tmp_path):
    path = write(tmp_path, 0.1, 0.5, 0.1, 0.5, on_one_host=2)
    settings, every = by_host(path, ["sync", "esync", "async", "ssp", "local"])
    assert ({"mode": "sync"}, None) in settings
    assert ({"mode": "esync", "overlap": True, "compression": "fp16"}, None) in settings
    assert not [flags for flags, _ in settings if flags["mode"] not in ("sync", "esync") or "collective" in flags]
    assert ({"mode": "sync"}, (0, 2)) not in settings  # the fastest two have hosts of their own
    together = [candidate for candidate in every if candidate.per_host]
    assert len({(str(candidate.flags), candidate.ranks, candidate.batch_by_speed) for candidate in every}) == len(
        every
    ) - len(together)  # each of them is tried flat, too


def test_synchronous_sgd_is_tried_with_batches_by_speed_on_unequal_devices_only(tmp_path):
    divided = [
        candidate for candidate in by_host(write(tmp_path, 0.1, 0.5), ["sync", "esync"])[1] if candidate.batch_by_speed
    ]
    assert {candidate.mode for candidate in divided} == {"sync"}
    assert all(
        candidate.flags.keys() <= {"mode", "collective", "compression"} and candidate.ranks is None
        for candidate in divided
    )
    assert not [candidate for candidate in by_host(write(tmp_path, 0.5, 0.5), ["sync"])[1] if candidate.batch_by_speed]


def test_candidates_per_host_leave_out_what_cannot_be_exchanged_so(tmp_path):
    path = write(tmp_path, 0.1, 0.5, 0.1, 0.5, on_one_host=2)
    modes = ["sync", "async", "local"]
    _, every = by_host(path, modes, True)
    assert {candidate.mode for candidate in every} == {"sync"}
    assert all(candidate.per_host or candidate.ranks == (0, 2) for candidate in every)
    assert not by_host(path, modes, False)[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"mode": "sync"}, PlanClass.EXACT),
        ({"mode": "sync", "collective": "ring"}, PlanClass.EXACT),
        ({"mode": "sync", "compression": "fp16"}, PlanClass.AVERAGING),
        ({"mode": "esync"}, PlanClass.AVERAGING),
        ({"mode": "diloco"}, PlanClass.AVERAGING),
        ({"mode": "dylu"}, PlanClass.ASYNCHRONOUS),
        ({"mode": "ssp"}, PlanClass.ASYNCHRONOUS),
    ],
)
def test_class_of_a_method_follows_from_what_it_exchanges_when(words, expected):
    assert class_of(flags.understood(words), Candidate(words)) is expected


def test_averaging_is_tried_on_the_fastest_devices_too(tmp_path):
    path = write(tmp_path, 0.1, 0.1, 1.0)
    pool = candidates(read(path), model(read(path), path.parent), ["esync", "local-sgd", "sync", "dylu"])
    few = [dict(candidate.flags) for candidate in pool if candidate.ranks == (0, 1)]
    hidden = {"overlap": True, "compression": "fp16"}
    assert {"mode": "sync"} in few
    assert [setting for setting in few if setting["mode"] == "esync"] == [
        {"mode": "esync"},
        {"mode": "esync", **hidden},
    ]
    assert {"mode": "local-sgd", "local_iterations": 50, **hidden} in few
    assert not [setting for setting in few if setting["mode"] == "dylu"]
    assert class_of(flags.understood({"mode": "esync"}), Candidate({"mode": "esync"}, (0, 1))) is PlanClass.AVERAGING
    assert class_of(flags.understood({"mode": "sync"}), Candidate({"mode": "sync"}, (0, 1))) is PlanClass.FAST


def test_groups_of_fast_devices_end_where_the_next_is_slower(tmp_path):
    path = write(tmp_path, 1.0, 0.1, 0.5, 0.1, 0.1)
    assert fast_devices(model(read(path), tmp_path)) == [(1, 3, 4), (1, 2, 3, 4)]
    path = write(tmp_path, 0.1, 0.101, 0.102, 0.1)
    assert fast_devices(model(read(path), tmp_path)) == []


@pytest.mark.parametrize("twin", twins(ALGORITHMS))
def test_modes_that_stand_for_another_take_as_long(tmp_path, twin):
    path, results = write(tmp_path, 0.1, 0.3, bandwidth="100Mbit"), []
    for mode in (twin, twins(ALGORITHMS)[twin]):
        job = SimulationJob(path, "none", {"mode": mode, "rounds": 5, "max_time": None}, logs=False, quiet=True)
        result = run(job).result
        results.append((result["seconds"], result["samples"], result["traffic"], result["devices"]))
    assert results[0] == results[1]
