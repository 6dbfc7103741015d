"""The documentation: file names lead to what exists, and the site can be built, whose links do."""

import os
import re
from pathlib import Path

import pytest

from .support.site import build_site

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
#: Folders that have no files of the repository, or large ones without text.
ELSEWHERE = {".git", ".venv", "data", "logs", "runs", "results", "site", "__pycache__", "build", "dist"}
TEXTS = {".py", ".md", ".sh", ".yaml", ".yml", ".toml", ".js", ".html", ".css", ".cff", ""}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def repository_texts() -> dict[str, str]:
    """The texts of all files of this checkout, by their names."""
    texts = {}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            subfolder for subfolder in folders if subfolder not in ELSEWHERE and not subfolder.startswith(".venv")
        ]
        for file in files:
            path = Path(folder, file)
            if path.suffix in TEXTS:
                texts[name(path)] = path.read_text(encoding="utf-8", errors="replace")
    return texts


def test_pages_mentioned_anywhere_exist() -> None:
    mentioned = {
        (file, page)
        for file, text in repository_texts().items()
        for page in re.findall(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|py|png|svg)\b", text)
    }
    assert len(mentioned) > 60
    assert sorted(mention for mention in mentioned if not (ROOT / mention[1]).is_file()) == []


def test_architecture_page_names_files_that_exist() -> None:
    text = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", text))
    assert len(names) > 40
    missing = [name for name in names if not (ROOT / "esync" / name).exists() and not (ROOT / name).exists()]
    # The second mention of a file may leave its folder out.
    assert not [name for name in missing if not any((ROOT / "esync").rglob(name))]


# --- the site -------------------------------------------------------------------------------------


def html(site: Path, page: Path) -> str:
    """The article of a page of docs/ on the site."""
    inside = page.relative_to(ROOT / "docs")
    folder = inside.parent if inside.name == "index.md" else inside.with_suffix("")
    text = (site / folder / "index.html").read_text(encoding="utf-8")
    return text.partition("<article")[2].partition("</article>")[0]


def test_site_builds_without_warnings_and_has_every_page(site: Path) -> None:
    for page in PAGES:
        assert html(site, page), page


def test_site_links_lead_to_files_and_anchors_that_exist(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html") if path.name != "404.html"}
    anchors = {path: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for path, text in pages.items()}
    broken, seen = [], 0
    for path, text in pages.items():
        for link in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            if re.match(r"\w+:", link):
                continue
            seen += 1
            file, _, anchor = link.partition("#")
            target = Path(os.path.normpath(path.parent / file)) if file else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or (anchor and target in anchors and anchor not in anchors[target]):
                broken.append((str(path.relative_to(site)), link))
    assert seen > 2000
    assert broken == []


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r'<(?:script|img|iframe)[^>]*\bsrc="(\w+:)?//|<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="https?:'
    )
    assert [str(path) for path in site.rglob("*.html") if loads.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "api.md"], ids=name)
def test_page_has_the_same_lists_code_and_tables_on_the_site_as_on_a_code_host(site: Path, page: Path) -> None:
    """MkDocs' Markdown is older than CommonMark: it wants other indentations and blank lines."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")

    def count(text: str) -> dict[str, int]:
        return {tag: len(re.findall(rf"<{tag}\b", text)) for tag in ("li", "pre", "table", "tr")}

    assert count(html(site, page)) == count(markdown.render(page.read_text(encoding="utf-8")))


def test_api_page_has_every_public_name(site: Path) -> None:
    import esync

    page = (site / "reference/api/index.html").read_text(encoding="utf-8")
    missing = [
        symbol
        for symbol in esync.__all__
        if f'id="esync.{symbol}"' not in page and f"<code>esync.{symbol}</code>" not in page
    ]
    assert missing == []


def test_site_with_broken_link_or_anchor_does_not_build(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text("# Site\n\n[one](missing.md) [two](#nowhere)\n")
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0]
    settings = settings.replace("docs_dir: docs", f"docs_dir: {pages}")
    settings = settings.replace("[docs/site_hooks.py]", f"[{ROOT}/docs/site_hooks.py]")
    (tmp_path / "mkdocs.yml").write_text(settings)
    done = build_site(tmp_path / "out", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert "missing.md" in done.stderr
    assert "nowhere" in done.stderr
