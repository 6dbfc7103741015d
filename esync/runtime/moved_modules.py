"""Modules of earlier versions and where they are now, for those who import one.

Modules inside packages that still exist are left out, because they were only parts of those.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

#: Module of an earlier version → where its content is now.
MOVED = {
    "SimpleStateServer.server": "esync.state_server",
    "SimpleStateServer.settings": "esync.state_server.settings",
    "esync.accuracy": "esync.training.accuracy",
    "esync.adamw": "esync.gluon.optimizers",
    "esync.assembly": "esync.training.worker_setup",
    "esync.callbacks": "esync.training.callbacks",
    "esync.checkpoint": "esync.checkpoints",
    "esync.collectives": "esync.exchange.collectives",
    "esync.compression": "esync.exchange.codecs.quantization",
    "esync.curves": "esync.training.csv_curves",
    "esync.depthwise": "esync.models.depthwise",
    "esync.device": "esync.runtime.device",
    "esync.earlier_checkpoints": "esync.checkpoints.store",
    "esync.engine": "esync.runtime.mxnet_import",
    "esync.environment": "esync.runtime.environment",
    "esync.errors": "esync.runtime.errors",
    "esync.exchange.ledger": "esync.exchange.protocol.round_state",
    "esync.files": "esync.runtime.files",
    "esync.finalmodel": "esync.models.export",
    "esync.flat_arrays": "esync.gluon.flat_arrays",
    "esync.follow": "esync.training.checkpoint_evaluator",
    "esync.gluon_trainer": "esync.gluon.trainer_interface",
    "esync.handles": "esync.runtime.futures",
    "esync.hostsgd": "esync.gluon.optimizers",
    "esync.landing": "esync.gluon.overlap_merge",
    "esync.liveness": "esync.membership",
    "esync.lossy_output": "esync.runtime.output",
    "esync.masters": "esync.gluon.master_weights",
    "esync.measure": "esync.runtime.phase_timer",
    "esync.memory": "esync.runtime.mxnet_arrays",
    "esync.modelview": "esync.algorithms.model_view",
    "esync.numpy_aliases": "esync.runtime.numpy_aliases",
    "esync.optimizer_rules": "esync.gluon.optimizer_to_rule",
    "esync.parenthood": "esync.runtime.processes",
    "esync.printable": "esync.runtime.output",
    "esync.priority": "esync.runtime.processes",
    "esync.program": "esync.runtime.program",
    "esync.progress": "esync.runtime.progress",
    "esync.randomness": "esync.gluon.randomness",
    "esync.rarely": "esync.runtime.output",
    "esync.rendezvous": "esync.membership.rendezvous",
    "esync.replica": "esync.gluon.replica",
    "esync.roundlog": "esync.training.round_log",
    "esync.rounds": "esync.training.round_callbacks",
    "esync.sparse": "esync.exchange.codecs.sparse",
    "esync.standing": "esync.trainer_status",
    "esync.straggle": "esync.runtime.straggler_injection",
    "esync.tables": "esync.runtime.terminal",
    "esync.watchdog": "esync.runtime.watchdog",
    "esync.weighting": "esync.exchange.weighting",
    "esync.writer": "esync.training.background_writer",
    "logs_tools.collect": "esync.reports.aggregate",
    "logs_tools.comparison": "esync.reports.metrics_table",
    "logs_tools.facts": "esync.reports.algorithm_info",
    "logs_tools.figures": "esync.reports.figures",
    "logs_tools.load": "esync.reports.runs",
    "logs_tools.metrics": "esync.reports.metrics",
    "logs_tools.modes": "esync.reports.modes",
    "logs_tools.rounds": "esync.reports.rounds",
    "logs_tools.style": "esync.reports.style",
    "logs_tools.summary_file": "esync.reports.summary_file",
    "logs_tools.sync_switch": "esync.reports.sync_switch",
    "logs_tools.tables": "esync.reports.tables",
    "logs_tools.terminal": "esync.runtime.terminal",
    "logs_tools.tree": "esync.reports.discovery",
}

#: Modules of which programs need one name, which is public → how to import that.
IMPORTS = {
    "esync.checkpoint": "from esync import Checkpoints",
    "esync.engine": "from esync import mx",
    "esync.exchange.ledger": "from esync import Limits",
}


class _Refusal(MetaPathFinder):
    """A finder that finds nothing, and comes last, after all others have failed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse a module that has moved.

        Raises:
            ImportError: the module has moved. (A ModuleNotFoundError's message would be lost in
                `from esync import engine`.)
        """
        if name in MOVED:
            advice = IMPORTS.get(name) or f"it is {MOVED[name]} now"
            raise ImportError(f"{name} has moved: {advice}", name=name)


def install() -> None:
    """Make imports of moved modules fail with a message that names the new place."""
    sys.meta_path.append(_Refusal())
