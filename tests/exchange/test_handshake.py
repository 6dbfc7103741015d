import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.handshake import Handshake, Resumed, StartNotice, decode
from esync.exchange.protocol.layout import STATISTICS, WEIGHTS
from esync.exchange.protocol.resume_negotiation import Offer, Offers, RunProgress
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.specification import RANDOM_NUMBERS, Specification
from esync.rules import add_mean_update, replace_by_mean


@pytest.fixture
def handshake() -> Handshake:
    return Handshake(
        rank=1,
        nonce=2**62 + 1,
        slots=3,
        sizes={WEIGHTS: 100, STATISTICS: 10},
        servers=2,
        bucket_elements=16,
        specification=Specification("delay_compensated_sgd", False, {"strength": 0.1, "adaptive": True}, private=True),
        limits=Limits(rounds=7),
        agreement={"network": "lenet", "seed": 0},
        offers=Offers(True, (Offer(6, 2**61, 2, (0, 2)),), "no"),
    )


def changed(handshake: Handshake, **change: Any) -> Handshake:
    """The same handshake with other fields, its own or its specification's."""
    asked = {name: value for name, value in change.items() if name in Specification.__dataclass_fields__}
    fields = {name: value for name, value in change.items() if name not in asked}
    return replace(handshake, specification=replace(handshake.specification, **asked), **fields)


def test_handshake_decoded_equals_the_encoded_one(handshake):
    assert Handshake.decode(handshake.encode()) == handshake
    assert Handshake.decode(handshake.encode().encode()) == handshake


def test_handshake_differences_ignore_what_belongs_to_the_process(handshake):
    assert handshake.differences(replace(handshake, rank=2, nonce=5, address="b:1", offers=Offers())) == []


@pytest.mark.parametrize(
    ("change", "beginnings"),
    [
        ({"sizes": {WEIGHTS: 101, STATISTICS: 10}}, ["weights 101 instead of 100"]),
        ({"rule": "sgd", "options": {}}, ["options {} instead of", "rule sgd instead of delay_compensated_sgd"]),
        ({"statistics_weighting": "samples"}, ["statistics weighting samples instead of as-updates"]),
        ({"staleness": 3}, ["staleness 3 instead of inf"]),
        ({"vectors": {STATISTICS: "sgd"}}, ["rule of statistics sgd instead of mean"]),
        (
            {"sizes": {WEIGHTS: 100, STATISTICS: 10, "control": 100}, "vectors": {"control": "add_mean_update"}},
            ["control 100 instead of nothing", "rule of control add_mean_update instead of nothing"],
        ),
        ({"bucket_elements": 8}, ["bucket elements 8 instead of 16"]),
        ({"protocol": wire.PROTOCOL + 1}, [f"protocol {wire.PROTOCOL + 1} instead of {wire.PROTOCOL}"]),
        ({"version": "0.0"}, ["version 0.0 instead of"]),
        ({"limits": Limits(rounds=8)}, ["limits"]),
        ({"agreement": {"network": "alexnet", "seed": 0}}, ["network alexnet instead of lenet"]),
        ({"agreement": {"network": "lenet", "seed": 0, "size": 5}}, ["size 5 instead of nothing"]),
    ],
)
def test_handshake_differences_name_each_mismatch(handshake, change, beginnings):
    differences = handshake.differences(changed(handshake, **change))
    assert len(differences) == len(beginnings)
    for difference, beginning in zip(differences, beginnings, strict=True):
        assert difference.startswith(beginning)


@pytest.mark.parametrize("text", ["hello", "[]", "{}", b"\x80\x04\x95", '{"limits": 5}'])  # the fourth begins a pickle
def test_handshake_decode_of_garbage_is_refused(text):
    with pytest.raises(ValueError, match="not a handshake of a worker of this version"):
        Handshake.decode(text)


@pytest.mark.parametrize("progress", [None, RunProgress(3, 6, 384, 1.5, resting=(2,))])
def test_resumed_message_decoded_equals_the_encoded_one(handshake, progress):
    resumed = Resumed(1, 2**62 + 1, 3, progress)
    assert decode(resumed.encode()) == resumed
    assert decode(handshake.encode()) == handshake


def notice(first, handshakes):
    collected = StartNotice(first)
    for handshake in handshakes.values():
        collected.add(handshake)
    return collected.text()


def test_handshake_notice_of_a_replacement_takes_the_place_of_the_one_before(handshake):
    first = changed(handshake, individual={"momentum": 0.9, RANDOM_NUMBERS: {"NumPy's": "a"}})
    odd = replace(changed(handshake, individual={"momentum": 0.5, RANDOM_NUMBERS: {"NumPy's": "a"}}), rank=2)
    well = replace(changed(handshake, individual={"momentum": 0.9, RANDOM_NUMBERS: {"NumPy's": "b"}}), rank=2)
    collected = StartNotice(first)
    collected.add(first)
    collected.add(odd)
    assert "momentum 0.5 instead of 0.9" in collected.text()
    assert "begin with the same random numbers" in collected.text()
    collected.add(well)
    assert collected.text() == ""


def test_handshake_notice_names_own_settings_that_differ(handshake):
    mine, theirs = (changed(handshake, individual={"learning rate": rate, "momentum": 0.9}) for rate in (0.1, 0.5))
    theirs = replace(Handshake.decode(theirs.encode()), rank=2)
    assert mine.differences(theirs) == []
    assert notice(mine, {1: mine, 2: replace(mine, rank=2)}) == ""
    assert notice(mine, {1: mine, 2: theirs}).startswith(
        "worker 2 trains with learning rate 0.5 instead of 0.1 of worker 1."
    )


def test_handshake_notice_names_workers_that_draw_the_same_random_numbers(handshake):
    def seeded(rank: int, numpy: str, python: str) -> Handshake:
        numbers = {RANDOM_NUMBERS: {"NumPy's": numpy, "Python's": python}}
        return Handshake.decode(replace(changed(handshake, individual=numbers), rank=rank).encode())

    apart = {rank: seeded(rank, f"a{rank}", f"b{rank}") for rank in range(3)}
    assert notice(apart[0], apart) == ""
    alike = {rank: seeded(rank, "a0" if rank == 0 else "a", f"b{rank}") for rank in range(3)}
    assert notice(alike[0], alike).startswith("workers 1, 2 begin with the same random numbers (NumPy's): ")
    many = {rank: seeded(rank, "a", "b") for rank in range(500)}
    message = notice(many[0], many)
    assert (
        "workers 0, 1, 2, 3, 4, 5, 6, 7, 8 and 491 more begin with the same random numbers (NumPy's and Python's)"
        in message
    )
    assert len(message.encode()) <= wire.TEXT_BYTES


def test_handshake_vector_without_size_or_rule_is_refused(handshake):
    with pytest.raises(ValueError, match="every vector that is exchanged needs a size and a rule, but control has one"):
        replace(handshake, sizes={**handshake.sizes, "control": 100})
    with pytest.raises(ValueError, match="statistics has one only"):
        replace(handshake, sizes={WEIGHTS: 100})


def test_specification_replaces_statistics_by_their_mean_by_default():
    plain = Specification("sgd", True)
    assert list(plain.vectors.items()) == [(WEIGHTS, "sgd"), (STATISTICS, "mean")]
    spec = Specification("sgd", True, vectors={"control": "add_mean_update"})
    assert list(spec.vectors.items()) == [(WEIGHTS, "sgd"), (STATISTICS, "mean"), ("control", "add_mean_update")]
    assert replace(spec, rule="add_mean_update").vectors[WEIGHTS] == "add_mean_update"
    assert [spec.rules()[name] for name in (STATISTICS, "control")] == [replace_by_mean, add_mean_update]


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        (None, "colour", "blue", "colour"),
        (None, "slots", None, "slots"),
        (None, "specification", "sgd", "mapping"),
        ("specification", "vectors", ["control"], "items"),
        ("specification", "colour", "blue", "colour"),
    ],
)
def test_handshake_decode_with_wrong_field_is_refused(handshake, part, field, value, message):
    fields = asdict(handshake)
    (fields[part] if part else fields)[field] = value
    if value is None:
        del fields[field]
    with pytest.raises(ValueError, match=f"not a handshake of a worker of this version: .*{message}"):
        Handshake.decode(json.dumps(fields))
