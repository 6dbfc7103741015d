import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.handshake import Greeting, Resumed, decode
from esync.exchange.protocol.layout import STATISTICS, WEIGHTS
from esync.exchange.protocol.resume_negotiation import Offer, Offers, RunProgress
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.specification import Specification
from esync.rules import add_mean_update, replace_by_mean


@pytest.fixture
def greeting() -> Greeting:
    return Greeting(
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


def changed(greeting: Greeting, **change: Any) -> Greeting:
    """The same greeting with other fields, its own or its specification's."""
    asked = {name: value for name, value in change.items() if name in Specification.__dataclass_fields__}
    own = {name: value for name, value in change.items() if name not in asked}
    return replace(greeting, specification=replace(greeting.specification, **asked), **own)


def test_it_arrives_as_it_was_sent(greeting):
    assert Greeting.decode(greeting.encode()) == greeting
    assert Greeting.decode(greeting.encode().encode()) == greeting


def test_no_limits_arrive_as_no_limits(greeting):
    unlimited = replace(greeting, limits=Limits())
    assert Greeting.decode(unlimited.encode()).limits == Limits()


def test_its_layout_is_that_of_its_model(greeting):
    layout = greeting.layout()
    assert (layout.sizes, layout.servers, layout.bucket_elements) == ({WEIGHTS: 100, STATISTICS: 10}, 2, 16)


def test_workers_may_differ_in_who_they_are(greeting):
    assert greeting.differences(replace(greeting, rank=2, nonce=5)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sizes": {WEIGHTS: 101, STATISTICS: 10}}, ["weights 101 instead of 100"]),
        ({"sizes": {WEIGHTS: 100, STATISTICS: 0}}, ["statistics 0 instead of 10"]),
        ({"rule": "sgd", "options": {}}, ["options {} instead of", "rule sgd instead of delay_compensated_sgd"]),
        ({"synchronous": True}, ["synchronous True instead of False"]),
        ({"private": False}, ["private False instead of True"]),
        ({"weighting": "samples"}, ["weighting samples instead of uniform"]),
        ({"staleness": 3}, ["staleness 3 instead of inf"]),
        ({"scalars": {"loss": "mean"}}, ["scalars {'loss': 'mean'} instead of {}"]),
        ({"vectors": {STATISTICS: "sgd"}}, ["rule of statistics sgd instead of mean"]),
        (
            {"sizes": {WEIGHTS: 100, STATISTICS: 10, "control": 100}, "vectors": {"control": "add_mean_update"}},
            ["control 100 instead of nothing", "rule of control add_mean_update instead of nothing"],
        ),
        ({"bucket_elements": 8}, ["bucket elements 8 instead of 16"]),
        ({"protocol": wire.PROTOCOL + 1}, [f"protocol {wire.PROTOCOL + 1} instead of {wire.PROTOCOL}"]),
        ({"limits": Limits(rounds=8)}, ["limits"]),
        ({"agreement": {"network": "alexnet", "seed": 0}}, ["network alexnet instead of lenet"]),
        ({"agreement": {"network": "lenet"}}, ["seed nothing instead of 0"]),
        ({"agreement": {"network": "lenet", "seed": 0, "size": 5}}, ["size 5 instead of nothing"]),
    ],
)
def test_what_does_not_match_is_named(greeting, change, said):
    differences = greeting.differences(changed(greeting, **change))
    assert len(differences) == len(said)
    for difference, beginning in zip(differences, said, strict=True):
        assert difference.startswith(beginning)


def test_a_greeting_matches_itself_after_the_journey(greeting):
    """Numbers and infinities must not look different for having been JSON."""
    for limits in (Limits(), Limits(3, 1e6, 0.5)):
        mine = replace(greeting, limits=limits)
        assert mine.differences(Greeting.decode(mine.encode())) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        "5",
        "null",
        "{}",
        b"\xff\xfe",
        b"\x80\x04\x95",  # the beginning of a pickle
        '{"limits": 5}',
        '{"limits": {"rounds": 1, "years": 2}}',
    ],
)
def test_garbage_is_refused(text):
    with pytest.raises(ValueError, match="not a greeting of a worker of this version"):
        Greeting.decode(text)


def test_a_cut_greeting_is_refused(greeting):
    with pytest.raises(ValueError, match="not a greeting"):
        Greeting.decode(greeting.encode()[:-5])


@pytest.mark.parametrize("surplus", [True, False])
def test_a_greeting_with_other_fields_is_refused(greeting, surplus):
    fields = asdict(greeting)
    if surplus:
        fields["colour"] = "blue"
    else:
        del fields["slots"]
    with pytest.raises(ValueError, match="colour" if surplus else "slots"):
        Greeting.decode(json.dumps(fields))


@pytest.mark.parametrize("books", [None, RunProgress(3, 6, 384, 1.5)])
def test_so_does_the_word_that_a_worker_has_gone_back_to_a_checkpoint(greeting, books):
    resumed = Resumed(1, 2**62 + 1, 3, books)
    assert decode(resumed.encode()) == resumed
    assert decode(greeting.encode()) == greeting


def test_what_a_worker_holds_need_not_be_the_same(greeting):
    assert greeting.differences(replace(greeting, offers=Offers())) == []


def test_settings_that_may_differ_are_only_told(greeting):
    mine, theirs = (changed(greeting, own={"learning rate": rate, "momentum": 0.9}) for rate in (0.1, 0.5))
    theirs = replace(Greeting.decode(theirs.encode()), rank=2)
    assert mine.differences(theirs) == []
    assert mine.notice(replace(mine, rank=2)) == ""
    assert mine.notice(theirs).startswith("worker 2 trains with learning rate 0.5 instead of 0.1 of worker 1.")


def test_every_vector_has_a_size_and_a_rule(greeting):
    with pytest.raises(ValueError, match="every vector that is exchanged needs a size and a rule, but control has one"):
        replace(greeting, sizes={**greeting.sizes, "control": 100})
    with pytest.raises(ValueError, match="statistics has one only"):
        replace(greeting, sizes={WEIGHTS: 100})


def test_statistics_are_replaced_by_their_mean_unless_something_else_is_said():
    plain = Specification("sgd", True)
    assert list(plain.vectors.items()) == [(WEIGHTS, "sgd"), (STATISTICS, "mean")]
    more = Specification("sgd", True, vectors={"control": "add_mean_update"})
    assert list(more.vectors.items()) == [(WEIGHTS, "sgd"), (STATISTICS, "mean"), ("control", "add_mean_update")]
    assert replace(more, rule="add_mean_update").vectors[WEIGHTS] == "add_mean_update"
    assert [more.rules()[name] for name in (STATISTICS, "control")] == [replace_by_mean, add_mean_update]


def test_only_weights_have_channels_of_workers_of_their_own():
    asked = Specification("delay_compensated_sgd", False, private=True)
    assert [asked.channel(vector, 2) for vector in (WEIGHTS, STATISTICS)] == [3, 0]
    assert Specification("sgd", False).channel(WEIGHTS, 2) == 0


@pytest.mark.parametrize(
    ("part", "field", "value", "said"),
    [
        (None, "rank", "1", "rank is '1', but should be int"),
        (None, "sizes", [5], ""),
        (None, "sizes", {WEIGHTS: "5", STATISTICS: 0}, "sizes are .*, but should be whole numbers"),
        (None, "specification", "sgd", "mapping"),
        ("specification", "synchronous", 1, "synchronous is 1, but should be bool"),
        ("specification", "vectors", ["control"], "items"),
        ("specification", "colour", "blue", "colour"),
        ("limits", "rounds", "7", "rounds is '7', but should be float"),
    ],
)
def test_values_of_other_types_are_refused_at_the_border(greeting, part, field, value, said):
    fields = asdict(greeting)
    (fields[part] if part else fields)[field] = value
    with pytest.raises(ValueError, match=f"not a greeting of a worker of this version: .*{said}"):
        Greeting.decode(json.dumps(fields))
