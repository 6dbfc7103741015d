"""Links out of docs/, for the site: what they lead to becomes a part of the site.

The pages link to programs, descriptions of clusters and results as one does on a code host, by
relative paths. On the site, Markdown and sources are pages of their own there, below `repository/`;
figures and data are files. MkDocs calls the functions named on_….
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Where on the site the files of the repository are that are no pages of docs/.
PLACE = "repository"
#: Suffix → language of a source that is shown as a page.
LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml"}
#: Suffixes of sources and notebooks, whose pages have names of their own.
GENERATED = (*LANGUAGES, ".ipynb")
LINK = re.compile(r"(\]\()(?!data:)([^)#\s]+)((?:#[^)\s]*)?\))")
COMMENT = re.compile(r"^<!--.*?-->\n?", re.DOTALL | re.MULTILINE)


def target(link: str, folder: Path) -> Path:
    """Return what a relative link in a folder leads to: of a folder, its README where it has one."""
    path = Path(os.path.normpath(folder / link))
    readme = path / "README.md"
    return readme if readme.is_file() else path


def targets(text: str, folder: Path) -> Iterator[Path]:
    """Yield what the relative links of a Markdown text lead to; `folder` is that of the text."""
    for _, link, _ in LINK.findall(text):
        path = target(link, folder)
        if "://" not in link and path.exists():
            yield path


def source_of(path: Path) -> str:
    """Return a file or a folder of the repository as Markdown.

    Raises:
        ValueError: if it is none that is shown as a page.
    """
    name = path.relative_to(ROOT)
    if path.is_dir():
        inside = sorted(
            each.name + "/" * each.is_dir() for each in path.iterdir() if not each.name.startswith(("_", "."))
        )
        return f"# {name}\n\n" + "".join(f"* [{each}]({each.rstrip('/')})\n" for each in inside)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return "\n\n".join(part for cell in json.loads(text)["cells"] for part in notebook_parts(cell))
    if path.suffix in LANGUAGES:
        return f"# {name}\n\n````{LANGUAGES[path.suffix]}\n{text}````\n"
    raise ValueError(f"{name} is shown as it is")


def notebook_parts(cell: dict[str, Any]) -> Iterator[str]:
    """Yield a cell of a notebook and its outputs as Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"````python\n{source}\n````"
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield f"````text\n{''.join(output['text']).strip()}\n````"
        elif image := output.get("data", {}).get("image/png"):
            yield f"![Output of the cell above](data:image/png;base64,{''.join(image).strip()})"


def is_page(path: Path) -> bool:
    """Return whether a file or folder becomes a page."""
    return path.is_dir() or path.suffix in (".md", *GENERATED)


def place(path: Path) -> str:
    """Return where a file of the repository is, as if in docs/."""
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    if path.is_dir():
        return f"{PLACE}/{name}/index.md"
    return f"{PLACE}/{name}.md" if path.suffix in GENERATED else f"{PLACE}/{name}"


def origin(uri: str) -> Path:
    """Return the file or folder of the repository that a place is for."""
    if not uri.startswith(f"{PLACE}/"):
        return ROOT / "docs" / uri
    path = ROOT / uri.removeprefix(f"{PLACE}/")
    if path.name == "index.md" and not path.exists():
        return path.parent
    return path if path.exists() else path.with_suffix("")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add what the pages link to outside docs/, and what that links to."""
    waiting = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        text = source_of(page)
        if page.suffix in LANGUAGES:
            continue
        for path in targets(text, page if page.is_dir() else page.parent):
            if path in seen or path.is_relative_to(ROOT / "docs"):
                continue
            seen.add(path)
            if is_page(path):
                files.append(File.generated(config, place(path), content=source_of(path)))
                waiting.append(path)
            else:
                files.append(File.generated(config, place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead the links of a page to the places on the site; leave out its comments."""
    here = origin(page.file.src_uri)
    folder = here if here.is_dir() else here.parent
    if here.suffix in LANGUAGES:
        return markdown

    def replaced(link: re.Match[str]) -> str:
        path = target(link[2], folder)
        if "://" in link[2] or not path.exists():
            return link[0]
        return f"{link[1]}{os.path.relpath(place(path), os.path.dirname(page.file.src_uri))}{link[3]}"

    return COMMENT.sub("", LINK.sub(replaced, markdown))
