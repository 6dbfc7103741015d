"""Flags of the sparse exchanges of DGS and its relatives."""

import argparse
from collections.abc import Mapping

from .. import config
from .modes import SPARSE
from .values import above_to_one, index, not_negative, to_one

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "sparse_ratio": SPARSE,
    "secondary_ratio": SPARSE,
    "sparse_values": SPARSE,
    "sparse_dense_below": SPARSE,
    "dgc_clip": ("dgc-async",),
    "dgc_warm_up": ("dgc-async",),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    sparse = parser.add_argument_group("sparse exchanges (modes dgs, gd-async, dgc-async)")
    add = sparse.add_argument
    add(
        "--sparse-ratio",
        type=above_to_one,
        default=config.SPARSE_RATIO,
        help="share of each tensor's values that a worker sends (default: %(default)s)",
    )
    add(
        "--secondary-ratio",
        type=to_one,
        default=config.SPARSE_SECONDARY_RATIO,
        help="the same for what a server answers; 0: all that has changed (default: %(default)s)",
    )
    add(
        "--sparse-values",
        choices=("float32", "float16"),
        default=config.SPARSE_VALUES,
        help="on the wire (default: %(default)s)",
    )
    add(
        "--sparse-dense-below",
        type=index,
        metavar="VALUES",
        default=config.SPARSE_DENSE_BELOW,
        help="tensors with fewer values are sent whole, so that more than --sparse-ratio of a small network is sent; "
        "0: none is (default: %(default)s)",
    )
    add(
        "--dgc-clip",
        type=not_negative,
        default=config.DGC_CLIP,
        help="mode dgc-async: largest norm of the mean gradient of a batch, divided by √workers; 0: no limit (default: "
        "%(default)s)",
    )
    add(
        "--dgc-warm-up",
        type=index,
        default=config.DGC_WARM_UP,
        help="mode dgc-async: exchanges over which the ratio falls to its final value (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Nothing here depends on another flag."""
