"""Links and file names in the documentation lead to existing files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documentation_links_lead_to_existing_files(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)(#[^)\s]+)?\)", text)
    missing = [link for link, _ in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_architecture_page_names_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", text))
    assert len(names) > 40
    missing = [name for name in names if not (ROOT / "esync" / name).exists() and not (ROOT / name).exists()]
    # The second mention of a file may leave its folder out.
    assert not [name for name in missing if not any((ROOT / "esync").rglob(name))]
