"""Group normalization with a scale and a shift per channel, fast on CPUs.

MXNet 1.9.1's own GroupNorm has one scale and shift for each group, and takes eight times as long as
batch norm on a core, because broadcasting operators have slow gradients. Matrix products and a
depthwise convolution of 1 × 1 in their place take a third of that.
"""

import math
from typing import Any

import numpy as np
from typing_extensions import override

from ..runtime.mxnet_import import mx

#: Groups of channels that are normalized together.
GROUPS = 4


class GroupNorm(mx.gluon.HybridBlock):
    """Normalizes each sample's groups of channels (Wu and He, ECCV 2018, equation 7).

    It can replace `gluon.nn.BatchNorm` in constructors that accept a norm layer. It has no running
    statistics: training and evaluation compute the same values. Those of float16 inputs are computed in float32.

    Inputs and outputs have the shape (samples, channels, height, width).

    Args:
        groups: number of groups; the largest common divisor with the number of channels is used.
        epsilon: added to the variance.
        center: whether the shift beta is trained.
        scale: whether the scale gamma is trained.
        in_channels: number of channels; 0 takes it from the first input, before the network is hybridized.

    Raises:
        ValueError: from the call: the network is hybridized, and the number of channels is not known.
    """

    def __init__(
        self,
        groups: int = GROUPS,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._groups, self._epsilon = groups, epsilon
        with self.name_scope():
            self.gamma = self._parameter("gamma", "ones", in_channels, scale)
            self.beta = self._parameter("beta", "zeros", in_channels, center)

    def _parameter(self, name: str, initializer: str, size: int, trained: bool) -> Any:
        return self.params.get(
            name,
            grad_req="write" if trained else "null",
            shape=(size,),
            init=initializer,
            allow_deferred_init=True,
            differentiable=trained,
        )

    @override
    def infer_shape(self, x: Any) -> None:
        self.gamma.shape = self.beta.shape = (x.shape[1],)

    @override
    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        channels = self.gamma.shape[0]
        if not channels:
            raise ValueError(
                f"{self.name}: a compiled network cannot infer the number of channels: give in_channels, or let one "
                "batch through the network before hybridize()"
            )
        groups = math.gcd(self._groups, channels)
        half = np.dtype(self.gamma.dtype) == np.float16
        if half:  # sums over a group's values exceed its range
            x, gamma, beta = (F.cast(values, "float32") for values in (x, gamma, beta))
        rows = x.reshape((0, groups, -1)).reshape((-3, 0))  # one for each group of each sample
        ones = F.ones_like(F.slice_axis(rows, axis=0, begin=0, end=1))
        average = F.dot(F.reciprocal(F.sum(ones, axis=1, keepdims=True)), ones)
        centred = rows - F.dot(F.dot(rows, average, transpose_b=True), ones)
        variance = F.dot(F.square(centred), average, transpose_b=True)
        # MXNet's exporter to ONNX does not know rsqrt.
        deviation = F.dot(F.reciprocal(F.sqrt(variance + self._epsilon)), ones)
        normalized = (centred * deviation).reshape_like(x)
        scaled = F.Convolution(
            normalized,
            F.identity(
                gamma.reshape((-1, 1, 1, 1))
            ),  # a copy, because oneDNN reorders a convolution's weights in place
            beta,
            kernel=(1, 1),
            num_filter=channels,
            num_group=channels,
            name="fwd",
        )
        return F.cast(scaled, "float16") if half else scaled
