"""Options that several algorithms have, about what their exchanges carry."""

from typing import Literal

from pydantic import model_validator

from .. import config
from ..exchange.codecs.quantization import AUTO, COMPRESSIONS, NONE
from .options import Options, option
from .rate_scaling import RateDecayOptions


class AsynchronousOptions(RateDecayOptions):
    """Options of algorithms with asynchronous exchanges.

    Every worker keeps its own batch-norm statistics, and the learning rate falls with the samples in the servers'
    last answer to this worker.
    """

    statistics: Literal["mean", "rank0"] = option(
        config.STATISTICS,
        agreed_as="evaluated statistics",
        help="batch-norm statistics to evaluate and export: the mean of all workers' latest, or those of rank 0, "
        "as published",
    )


class CompressionOptions(Options):
    """Options of algorithms whose messages can be compressed."""

    compression: Literal["none", "fp16", "4bit", "2bit", "auto"] = option(
        config.COMPRESSION,
        fixed=True,
        agreed_as="compression",
        help="compression of the messages between workers and servers; auto: the finest one that fits the network, "
        "chosen by the state server in each round; see docs/how-to/compression.md",
    )

    @model_validator(mode="after")
    def _compression_is_chosen(self) -> "CompressionOptions":
        if self.compression == AUTO and not self.asks_state_server:
            raise ValueError(
                f"--compression {AUTO} is chosen by the state server, which is not asked here: give one of "
                f"{NONE}, {', '.join(COMPRESSIONS)}, or choose mode esync or tiered without --local-iterations"
            )
        return self

    @property
    def asks_state_server(self) -> bool:
        """Whether a state server is asked when to exchange."""
        return False
