"""Modes whose logs were found: their folders, the names of their summaries, and their labels and styles.

Who an algorithm is, its runs say (`esync.reports.facts`). Of logs that do not, because they are
older, the built-in algorithms are known by the names of their folders; anything else goes by its
folder's name.
"""

from dataclasses import dataclass
from pathlib import Path

from ..algorithms.base import Style, spare_style
from ..algorithms.registry import ALGORITHMS, LABEL_LENGTH, NON_IID, stem_of
from ..runtime.output import printable
from .facts import AlgorithmFacts

BASELINE = "sync"  # name of the algorithm that a speedup is measured against
STANDALONE = "local"  # name of sequential SGD on one device
BASELINE_LABEL = ALGORITHMS[BASELINE].label


@dataclass(frozen=True)
class Mode:
    """One way of training whose logs lie in a folder of their own.

    Attributes:
        folder: name of the folder below the network's folder.
        summary: stem of the summary file inside that folder.
        method: the algorithm, as legends and tables name it.
        style: how the algorithm looks in figures.
    """

    folder: str
    summary: str
    method: str
    style: Style

    @property
    def name(self) -> str:
        """The algorithm's name in folders: the same for both kinds of data, and no other algorithm's."""
        return self.folder.removesuffix(NON_IID) or self.folder

    @property
    def iid(self) -> bool:
        """Whether every worker's share of the data has the same distribution."""
        return self.name == self.folder

    @property
    def built_in(self) -> bool:
        """Whether it is one of the project's own algorithms."""
        return self.name in ALGORITHMS

    @property
    def label(self) -> str:
        """Method and kind of data in a few words."""
        return self.method if self.iid else f"{self.method} non-i.i.d."

    def summary_path(self, network_folder: Path) -> Path:
        """Return where the summary of this mode lies."""
        return network_folder / self.folder / f"{self.summary}.json"

    def place(self) -> tuple[int, int, str]:
        """Key for sorting: i.i.d. data first; built-in algorithms in their order, then the others; local at the end."""
        known = list(ALGORITHMS)
        kind = 2 if self.name == STANDALONE else int(not self.iid)
        return kind, known.index(self.name) if self.built_in else len(known), self.folder


def mode_of(folder: str, said: AlgorithmFacts = AlgorithmFacts()) -> Mode:  # noqa: B008 - frozen
    """Return the mode whose logs lie in a folder of this name, as its runs say or else as the folder's name tells.

    The summaries of built-in algorithms have the published names, whatever the runs say.
    """
    name = folder.removesuffix(NON_IID) or folder
    known = ALGORITHMS.get(name)
    if known:
        stem, method, style = known.summary, known.label, known.style
    else:
        stem = said.summary or stem_of(name)
        method = printable(name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 1]}…")
        style = spare_style(name)
    return Mode(folder, stem if name == folder else f"{stem}-Non-IID", said.label or method, style)


#: Folders of the built-in algorithms, in the order in which tables and figures show them.
FOLDERS: tuple[str, ...] = tuple(
    sorted(
        (name + suffix for name in ALGORITHMS for suffix in ("", NON_IID) if name + suffix != STANDALONE + NON_IID),
        key=lambda folder: mode_of(folder).place(),
    )
)
