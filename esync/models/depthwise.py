"""Speed up depthwise convolutions on CPUs whose feature map is smaller than the kernel.

With images of 28 × 28 pixels, MobileNet's last convolutions have maps of 2 × 2 and 1 × 1. oneDNN has no
vectorized gradient of the weights for these: it multiplies a small matrix for each image and channel,
which takes a third of the iteration. The same convolution of a separately padded input is vectorized.
"""

from typing import Any

from ..runtime.mxnet_import import mx


def pad_beforehand(net: Any, shape: tuple[int, ...]) -> int:
    """Pad the input of such convolutions by a separate operator.

    Outputs and gradients are the same except for rounding. Parameters and names are not changed. Call
    `net.hybridize` afterwards.

    Args:
        net: an initialized network whose shapes are known.
        shape: shape of its input, (images, channels, height, width).

    Returns:
        The number of convolutions that were changed.
    """
    outputs = net(mx.sym.var("data")).get_internals()
    sizes = dict(zip(outputs.list_outputs(), outputs.infer_shape(data=shape)[1], strict=True))
    layers: list[Any] = []
    net.apply(lambda block: layers.append(block) if _depthwise(block) else None)
    small = [conv for conv in layers if _smaller_than_kernel(conv, sizes[f"{conv.name}_fwd_output"][2:])]
    for conv in small:
        _pad(conv)
    return len(small)


def _depthwise(block: Any) -> bool:
    return isinstance(block, mx.gluon.nn.Conv2D) and block._kwargs["num_group"] == block._channels > 1


def _smaller_than_kernel(conv: Any, size: tuple[int, ...]) -> bool:
    """Return whether an output of that size implies an input smaller than the kernel."""
    stride, pad = conv._kwargs["stride"], conv._kwargs["pad"]
    return all(size[axis] * stride[axis] - 1 < 2 * pad[axis] for axis in (0, 1))


def _pad(conv: Any) -> None:
    (high, wide), convolve = conv._kwargs["pad"], conv.hybrid_forward
    conv._kwargs["pad"] = (0, 0)

    def padded_first(F: Any, x: Any, weight: Any, bias: Any = None) -> Any:  # noqa: N803 - Gluon's name
        x = F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, high, high, wide, wide), constant_value=0)
        return convolve(F, x, weight, bias)

    conv.hybrid_forward = padded_first
