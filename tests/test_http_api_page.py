"""docs/reference/http_api.md names every call that the state server answers, and no other."""

import re
from pathlib import Path

from esync.state_server import operations

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/http_api.md"


def named(text: str) -> set[tuple[str, str]]:
    """The calls in the first cells of the page's tables, as method and path."""
    return {(method, path) for method, path in re.findall(r"^\| `(GET|POST) (/\S*)` \|", text, re.MULTILINE)}


def test_http_api_page_names_exactly_the_calls_of_the_server() -> None:
    calls = {(each.method, each.path) for each in operations.PUBLISHED + operations.API}
    assert len(calls) > 15
    assert named(PAGE.read_text(encoding="utf-8")) == calls


def test_http_api_page_names_paths_that_the_server_finds() -> None:
    for method, path in named(PAGE.read_text(encoding="utf-8")):
        found = operations.find(path.replace("{job}", "default"))
        assert found is not None, path
        assert method in found[0], path


def test_http_api_page_names_every_field_of_the_bodies() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^###? |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    for each in operations.API:
        for model in (each.body, each.answer):
            if model is None or isinstance(model, str):
                continue
            fields = set(re.findall(r"^\| `(\w+)` \|", sections[model.__name__], re.MULTILINE))
            assert fields == set(model.model_fields), model.__name__
