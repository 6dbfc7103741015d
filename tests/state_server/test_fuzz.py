"""Fuzzed API requests from the server's own OpenAPI description, and fuzzed forms.

`pytest -m long` makes more than 10,000 of them.
"""

import math
import warnings
from collections import Counter

import pytest
import schemathesis
from calling import begin, post, send
from django.conf import settings as django_settings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from esync import config

LONG = pytest.mark.long
TOKEN = "correct-horse"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
#: Names that nobody knows are allowed behind a question mark. All other checks are made, without
#: the token, too.
LENIENT = [negative_data_rejection]
#: What no description can say: whether ranks are those of the job; which fields exclude each other;
#: which values and goals fit a metric's name.
BEYOND = (
    *("unknown rank", "tiers of", "cannot be left out", "say the same thing", "metric (", "accuracy is"),
    "expected a finite number",
)
SPEEDS = [1000.0, 11000.0, 21000.0]  # however long the fuzzing takes, no iteration ends meanwhile
#: Found by hypothesis once; a shrunk example of a failure is worth the time, an explanation is not.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


def fuzz(url: str, examples: int) -> Counter[int]:
    """Call every operation of the description that many times; return the statuses.

    Half of the calls are nonsense.
    """
    statuses: Counter[int] = Counter()
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json", headers=AUTHORIZED)
    for result in schema.get_all_operations():
        operation = result.ok()
        nothing_to_send = (
            not operation.definition.raw.get("parameters") and "requestBody" not in operation.definition.raw
        )
        for mode in [GenerationMode.POSITIVE, *([] if nothing_to_send else [GenerationMode.NEGATIVE])]:
            cases = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=PHASES,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=cases)
            def call(case: schemathesis.Case) -> None:
                response = case.call(base_url=url, headers=AUTHORIZED, timeout=20)
                statuses[response.status_code] += 1
                assert response.status_code < 500, (case.as_curl_command(), response.text)
                known = [positive_data_acceptance] if any(text in response.text for text in BEYOND) else []
                case.validate_response(response, headers=AUTHORIZED, excluded_checks=[*LENIENT, *known])

            call()
    return statuses


TEXT = st.text(max_size=12) | st.integers().map(str) | st.floats().map(str) | st.integers(0, 3).map(str)
NAMES = ["r", "k", "c", "te", "t", "num_workers", "epsilon", "run", "members", "rejoin", "x"]


def fuzz_forms(url: str, examples: int) -> Counter[int]:
    """Call the published calls with all kinds of fields; the records must make sense after each."""
    statuses: Counter[int] = Counter()

    @settings(max_examples=examples, deadline=None, database=None, phases=PHASES)
    @given(
        call=st.sampled_from(["apply", "reset", "init"]),
        fields=st.dictionaries(st.sampled_from(NAMES), TEXT) | st.binary(max_size=60),
    )
    def call(call: str, fields: dict | bytes) -> None:
        status, answer, _ = send(f"{url}/{call}/", fields)
        statuses[status] += 1
        assert status in (200, 400, 409)
        assert status == 200 or answer["error"]
        shown = send(f"{url}/")[1]
        statuses[200] += 1
        assert shown["num_workers"] == 3
        for rank, (r, k, c, te, ready, round) in enumerate(shown["records"]):
            assert r == rank
            assert k >= 0
            assert 0 < c < math.inf
            assert 0 <= te < math.inf
            assert ready in (True, False)
            assert 1 <= round <= shown["t"]

    call()
    return statuses


def unharmed(job: str, **headers: str) -> None:
    """Play a round on a job with these speeds that nobody has touched since it was begun."""
    for rank, ready in enumerate([False, False, True]):
        asked = {"rank": rank, "round": 1, "iteration": 1, "capability": SPEEDS[rank]}
        assert post(f"{job}/query", asked, **headers)[1]["ready"] is ready
    assert [worker["capability"] for worker in send(job, **headers)[1]["workers"]] == SPEEDS


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("examples", [5, pytest.param(250, marks=LONG)])
def test_fuzzed_api_requests_break_nothing(url, running, monkeypatch, examples):
    job = begin(url, "protected-from-all-this", SPEEDS)
    monkeypatch.setattr(django_settings, "TOKEN", TOKEN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        statuses = fuzz(url, examples)
    print(f"{sum(statuses.values())} requests of the JSON API, answers by status: {dict(statuses)}")
    assert sum(statuses.values()) > 10 * examples
    assert {200, 400} <= set(statuses)
    unharmed(job, **AUTHORIZED)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("examples", [100, pytest.param(3000, marks=LONG)])
def test_fuzzed_forms_break_nothing(begun, examples, monkeypatch):
    monkeypatch.setattr(config, "JOB_ALIVE", 1e6)  # however slow this machine is, no /init/ may replace the job
    job = begin(begun, "protected-from-all-this", SPEEDS)
    statuses = fuzz_forms(begun, examples)
    print(f"{sum(statuses.values())} requests with forms, answers by status: {dict(statuses)}")
    unharmed(job)
