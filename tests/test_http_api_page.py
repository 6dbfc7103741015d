"""docs/reference/http_api.md names every call that the state server answers, and no other."""

import os
import re
from pathlib import Path
from typing import Any

import django
from django.urls import resolve

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "esync.state_server.settings")
django.setup()
from esync.state_server.api import api  # noqa: E402 - needs Django's settings

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/http_api.md"
PUBLISHED = {("GET", "/"), ("POST", "/init/"), ("POST", "/apply/"), ("POST", "/reset/")}


def description() -> dict[str, Any]:
    return api.get_openapi_schema(path_prefix="/api/v1/")


def named(text: str) -> set[tuple[str, str]]:
    """The calls in the first cells of the page's tables, as method and path."""
    return {(method, path) for method, path in re.findall(r"^\| `(GET|POST) (/\S*)` \|", text, re.MULTILINE)}


def test_http_api_page_names_exactly_the_calls_of_the_server() -> None:
    calls = {(method.upper(), path) for path, methods in description()["paths"].items() for method in methods}
    assert len(calls) > 10
    assert named(PAGE.read_text(encoding="utf-8")) == calls | PUBLISHED


def test_http_api_page_names_paths_that_the_server_finds() -> None:
    text = PAGE.read_text(encoding="utf-8")
    paths = {path for _, path in named(text)} | {"/api/v1/openapi.json", "/dashboard", "/metrics"}
    for path in paths:
        assert path in text
        resolve(path.replace("{job}", "default"))  # raises Resolver404


def test_http_api_page_explains_every_status_of_the_description() -> None:
    text = PAGE.read_text(encoding="utf-8")
    described = {
        str(status)
        for methods in description()["paths"].values()
        for call in methods.values()
        for status in call["responses"]
    }
    assert set(re.findall(r"^\| (\d{3}) \|", text, re.MULTILINE)) == described - {"200"}


def test_http_api_page_names_every_field_of_the_bodies() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^###? |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    schemas = description()["components"]["schemas"]
    assert {"Begin", "Query", "Reset", "Report", "Steps", "End", "Tiering", "Watching", "Decision"} <= set(sections)
    for name in set(sections) & set(schemas):
        cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", sections[name], re.MULTILINE)
        fields = {field for cell in cells for field in re.findall(r"\w+", cell)}
        assert fields == set(schemas[name].get("properties", {})), name
