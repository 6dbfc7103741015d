"""Names of networks on the command line, with a width and a normalization; needs no MXNet."""

import contextlib
import re
from dataclasses import dataclass, replace

from ..runtime.errors import suggestion

#: Networks whose numbers of channels can be multiplied.
SCALABLE = ("alexnet", "resnet18-v1", "resnet50-v1", "resnet50-v2", "mobilenet-v1", "mobilenet-v2", "inception-v3")
_CIFAR = tuple(f"cifar-resnet{layers}-v1" for layers in (20, 32, 56, 110))
#: Networks whose batch norm can be replaced.
NORMALIZED = (*(name for name in SCALABLE if name != "alexnet"), *_CIFAR)
#: All networks that have a name.
NETWORKS = (*SCALABLE, "lenet", "mlp", *_CIFAR)

BATCH, GROUP = "batch", "group"
#: End of the names of networks with group norm.
SUFFIX = "-groupnorm"
#: Multiples of the published number of channels that make sense.
MIN_WIDTH, MAX_WIDTH = 0.0625, 4.0
#: The form of a network's name, for messages.
FORM = "NAME[xWIDTH][-groupnorm]"


@dataclass(frozen=True)
class NetworkName:
    """The parts of a network's name.

    Attributes:
        base: one of NETWORKS.
        width: factor of the number of channels in every layer.
        normalization: "batch" or "group"; "batch" for networks without normalization, too.
    """

    base: str
    width: float = 1.0
    normalization: str = BATCH

    def __str__(self) -> str:
        width = "" if self.width == 1 else f"x{self.width:g}"
        return f"{self.base}{width}{SUFFIX if self.normalization == GROUP else ''}"

    def with_normalization(self, normalization: str) -> "NetworkName":
        """Return the name of the same network with another normalization.

        Raises:
            ValueError: the network has no replaceable batch norm.
        """
        if normalization == GROUP and self.base not in NORMALIZED:
            raise ValueError(f"network {self.base} has no batch norm that group norm could replace")
        return replace(self, normalization=normalization)


def parse_network(text: str) -> NetworkName:
    """Take a network's name apart, such as `resnet18-v1x0.25-groupnorm`.

    Raises:
        ValueError: there is no such network; the message says what was meant, or what there is.
    """
    rest = text.removesuffix(SUFFIX)
    match = re.fullmatch(r"(.+)x(\d*\.?\d+)", rest)
    if rest in NETWORKS or match is None or match[1] not in NETWORKS:
        base, width = rest, 1.0
    else:
        base, width = match[1], float(match[2])
    if base not in NETWORKS:
        hint = suggestion(text, NETWORKS, limit=1, shown=repr)
        raise ValueError(f"unknown network {text!r}{hint}; known: {', '.join(NETWORKS)}, in the form {FORM}")
    if width != 1 and base not in SCALABLE:
        raise ValueError(f"network {text!r}: {base} has one width; those with a width are {', '.join(SCALABLE)}")
    if not MIN_WIDTH <= width <= MAX_WIDTH:
        raise ValueError(f"network {text!r}: a width should be from {MIN_WIDTH:g} to {MAX_WIDTH:g}")
    name = NetworkName(base, width)
    if rest != text:
        name = name.with_normalization(GROUP)
    if str(name) != text:  # one network has one name, in folders, tables and checkpoints
        raise ValueError(f"network {text!r} is written {str(name)!r}")
    return name


def is_network(text: str) -> bool:
    """Return whether the text names one of these networks."""
    with contextlib.suppress(ValueError):
        return bool(parse_network(text))
    return False


def has_batch_norm(text: str) -> bool:
    """Return whether a network has batch norm; True for a user's network, for which it is unknown."""
    if ":" in text:
        return True
    name = parse_network(text)
    return name.base in NORMALIZED and name.normalization == BATCH
