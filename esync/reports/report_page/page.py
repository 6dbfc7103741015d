"""Write a report as one HTML file that loads nothing and lets nothing out.

Style, script, icon and figures are in the file. A Content-Security-Policy in the page itself allows
only that script and that style, by their digests, so that a browser would refuse whatever a text
from a log might bring along.
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from django.template import Context, Engine

from ... import web
from .content import Charts, Report, Timeline, as_json

_TEMPLATES = Path(__file__).parent / "template"
_ENGINE = Engine(dirs=[_TEMPLATES])


def report_html(report: Report) -> str:
    """Return the page."""
    parts = [part for section in report.sections for part in section.parts]
    drawn = [
        as_json(chart)
        for part in parts
        if isinstance(part, Charts | Timeline)
        for chart in (part.charts if isinstance(part, Charts) else [part])
    ]
    context = {"report": report, "policy": content_security_policy(), "style": _style(), "icon": _icon()}
    context |= {"figures": _json(drawn), "script": _script()}
    return _ENGINE.get_template("page.html").render(Context(context, use_l10n=False))


@cache
def content_security_policy() -> str:
    """Return the policy that allows a report's own style and script, and nothing else."""
    script, style = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (_script(), _style())
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; "
        "form-action 'none'"
    )


@cache
def _style() -> str:
    return (files(web) / "look.css").read_text(encoding="utf-8") + (_TEMPLATES / "page.css").read_text("utf-8")


@cache
def _script() -> str:
    """Return the shared modules and the page's own script as one, because one file imports nothing."""
    modules = [(files(web) / name).read_text(encoding="utf-8") for name in ("dom.js", "format.js")]
    return re.sub(
        r"^export ", "", "\n".join([*modules, (_TEMPLATES / "page.js").read_text("utf-8")]), flags=re.MULTILINE
    )


@cache
def _icon() -> str:
    icon = (files(web) / "icon.svg").read_text(encoding="utf-8").strip()
    return icon.replace("<svg ", '<svg width="24" height="24" aria-hidden="true" ', 1)


def _json(content: object) -> str:
    r"""Return JSON for a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
