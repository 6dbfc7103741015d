"""Modes of logs: folders, names of summaries, labels and styles.

The logs of a run describe its algorithm (`summary_file.AlgorithmInfo`). In older logs, the name of
the folder identifies a built-in algorithm, and is the label of any other one. A run with a name
(`--name`) is in the folder MODE@NAME.
"""

from dataclasses import dataclass
from pathlib import Path

from ..algorithms.registry import ALGORITHMS, NON_IID, stem_of
from ..algorithms.styles import Style, spare_style
from ..runtime import run_names
from ..runtime.output import LABEL_LENGTH, printable
from .summary_file import AlgorithmInfo

BASELINE = "sync"  # name of the algorithm with which speedups are compared
STANDALONE = "local"  # name of sequential SGD on one device
NON_IID_LABEL = " non-i.i.d."  # suffix of the label of runs whose workers have different classes
BASELINE_LABEL, STANDALONE_LABEL = ALGORITHMS[BASELINE].label, ALGORITHMS[STANDALONE].label


@dataclass(frozen=True)
class Mode:
    """An algorithm, or a named run of it, with its own folder of logs.

    Attributes:
        folder: name of its folder in the network's folder.
        summary: stem of the summary file in that folder.
        method: the algorithm's label in legends and tables, followed by the run's name.
        style: the algorithm's style in figures.
    """

    folder: str
    summary: str
    method: str
    style: Style

    @property
    def name(self) -> str:
        """Name of the algorithm: the folder's name without the run's name and the suffix for non-i.i.d. data."""
        mode, _ = run_names.parts(self.folder)
        return mode.removesuffix(NON_IID) or mode

    @property
    def run(self) -> str:
        """Name of the run; "" if it has none."""
        return run_names.parts(self.folder)[1]

    @property
    def algorithm(self) -> str:
        """The algorithm's label, without the run's name."""
        return self.method.removesuffix(f", {printable(self.run)}") if self.run else self.method

    @property
    def iid(self) -> bool:
        """Whether every worker's share of the data has the same distribution."""
        return self.name == run_names.parts(self.folder)[0]

    @property
    def built_in(self) -> bool:
        """Whether the algorithm is one of this project's own."""
        return self.name in ALGORITHMS

    @property
    def label(self) -> str:
        """The method and, if not i.i.d., the kind of data."""
        return self.method if self.iid else f"{self.method}{NON_IID_LABEL}"

    def summary_path(self, network_folder: Path) -> Path:
        """Return the path of the mode's summary."""
        return network_folder / self.folder / f"{self.summary}.json"

    def place(self) -> tuple[int, int, str]:
        """Return a sort key: i.i.d. data first; built-in algorithms in their order, others, local last."""
        names = list(ALGORITHMS)
        kind = 2 if self.name == STANDALONE else int(not self.iid)
        return kind, names.index(self.name) if self.built_in else len(names), self.folder


def mode_of(folder: str, info: AlgorithmInfo = AlgorithmInfo()) -> Mode:  # noqa: B008 - frozen
    """Return the mode of a folder, by the description in its runs or else by the folder's name.

    Built-in algorithms always have their own labels, and their summaries the published names.
    """
    mode, run = run_names.parts(folder)
    name = mode.removesuffix(NON_IID) or mode
    algorithm = ALGORITHMS.get(name)
    if algorithm:
        stem, method, style = algorithm.summary, algorithm.label, algorithm.style
    else:
        stem = info.summary or stem_of(name)
        method = printable(name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 1]}…")
        style = spare_style(name)
    method = info.label or method
    label = f"{method}, {printable(run)}" if run else method
    return Mode(folder, stem if name == mode else f"{stem}-Non-IID", label, style)


#: Folders of the built-in algorithms, in the order in which tables and figures show them.
FOLDERS: tuple[str, ...] = tuple(
    sorted(
        (name + suffix for name in ALGORITHMS for suffix in ("", NON_IID) if name + suffix != STANDALONE + NON_IID),
        key=lambda folder: mode_of(folder).place(),
    )
)
