"""Fuzzed API requests from the server's own OpenAPI description.

`pytest -m long` makes more than 10,000 of them.
"""

import warnings
from collections import Counter

import pytest
import schemathesis
from calling import ask, begin, content
from django.conf import settings as django_settings
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

LONG = pytest.mark.long
TOKEN = "correct-horse"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
#: Names that nobody knows are allowed behind a question mark. All other checks are made, without
#: the token, too.
LENIENT = [negative_data_rejection]
#: What no description can say: whether ranks are those of the job; which fields exclude each other;
#: which values and goals fit a metric's name.
BEYOND = (
    *("unknown rank", "tiers of", "cannot be left out", "metric (", "accuracy is"),
    *("expected a finite number", "compressions must"),
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
                exclusions = [positive_data_acceptance] if any(text in response.text for text in BEYOND) else []
                case.validate_response(response, headers=AUTHORIZED, excluded_checks=[*LENIENT, *exclusions])

            call()
    return statuses


def unharmed(job: str, **headers: str) -> None:
    """Play a round on a job with these speeds that nobody has touched since it was begun."""
    for rank, ready in enumerate([False, False, True]):
        assert ask(job, rank, 1, SPEEDS[rank], **headers)["ready"] is ready
    assert [worker["capability"] for worker in content(job, **headers)["workers"]] == SPEEDS


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("examples", [3, pytest.param(250, marks=LONG)])
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
