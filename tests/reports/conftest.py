"""Sketches in the place of pictures, which take seconds to draw."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from esync.reports import figures


@pytest.fixture
def pictures() -> None:
    """Draw pictures as a user gets them."""


@pytest.fixture(autouse=True)
def sketches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the titles of figures where their pictures would be, unless a test asks for `pictures`."""

    def sketch(figure: Figure, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(axes.get_title() for axes in figure.axes))

    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(figures, "save_as", sketch)
