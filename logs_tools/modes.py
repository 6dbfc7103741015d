"""The modes that the log tools know: their folders, the names of their summaries, and who they are in a figure."""

from dataclasses import dataclass
from pathlib import Path

BASELINE = "SSGD"  # what a speedup is measured against
STANDALONE = "Standalone"  # sequential SGD on one device


@dataclass(frozen=True)
class Mode:
    """One way of training whose logs lie in a folder of their own.

    Attributes:
        folder: name of the folder below the network's folder; also the value of `--mode`.
        summary: stem of the summary file inside that folder.
        method: the algorithm, as legends and tables name it.
        iid: whether every worker's share of the data has the same distribution.
    """

    folder: str
    summary: str
    method: str
    iid: bool = True

    @property
    def label(self) -> str:
        """Method and kind of data in a few words."""
        return self.method if self.iid else f"{self.method} non-i.i.d."

    def summary_path(self, network_folder: Path) -> Path:
        """Where the summary of this mode lies."""
        return network_folder / self.folder / f"{self.summary}.json"


#: In the order in which tables and figures show them. The file names are those of the published implementation.
MODES: tuple[Mode, ...] = (
    Mode("esync", "ESync", "ESync"),
    Mode("local-sgd", "Local-SGD", "Local SGD"),
    Mode("diloco", "DiLoCo", "DiLoCo"),
    Mode("dylu", "DyLU", "DyLU"),
    Mode("sync", "Sync", BASELINE),
    Mode("async", "Async", "ASGD"),
    Mode("ssp", "SSP", "SSP"),
    Mode("dcasgd", "DCASGD", "DC-ASGD"),
    Mode("sync-switch", "Sync-Switch", "Sync-Switch"),
    Mode("gd-async", "GD-Async", "GD-async"),
    Mode("dgc-async", "DGC-Async", "DGC-async"),
    Mode("dgs", "DGS", "DGS"),
    Mode("esync-niid", "ESync-Non-IID", "ESync", iid=False),
    Mode("local-sgd-niid", "Local-SGD-Non-IID", "Local SGD", iid=False),
    Mode("diloco-niid", "DiLoCo-Non-IID", "DiLoCo", iid=False),
    Mode("dylu-niid", "DyLU-Non-IID", "DyLU", iid=False),
    Mode("ssp-niid", "SSP-Non-IID", "SSP", iid=False),
    Mode("sync-niid", "Sync-Non-IID", BASELINE, iid=False),
    Mode("async-niid", "Async-Non-IID", "ASGD", iid=False),
    Mode("dcasgd-niid", "DCASGD-Non-IID", "DC-ASGD", iid=False),
    Mode("sync-switch-niid", "Sync-Switch-Non-IID", "Sync-Switch", iid=False),
    Mode("gd-async-niid", "GD-Async-Non-IID", "GD-async", iid=False),
    Mode("dgc-async-niid", "DGC-Async-Non-IID", "DGC-async", iid=False),
    Mode("dgs-niid", "DGS-Non-IID", "DGS", iid=False),
    Mode("local", STANDALONE, STANDALONE),
)

BY_FOLDER: dict[str, Mode] = {mode.folder: mode for mode in MODES}
