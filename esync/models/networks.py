"""Networks by name, with their input sizes, and networks built by a user's functions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..runtime import user_functions
from ..runtime.mxnet_import import mx
from ..runtime.user_code import UserCodeError, readable_errors
from .depthwise import pad_beforehand
from .names import GROUP, SCALABLE, SUFFIX, NetworkName, parse_network


def resize(images: Any, size: int | None) -> Any:
    """Resize a batch (n, channels, height, width) to (n, channels, size, size).

    A batch of this size, or any batch if size is None, is returned unchanged.

    Pixel centres are aligned (align_corners=False), as in OpenCV's and Gluon's linear resizing.
    """
    if size is None or images.shape[2:] == (size, size):
        return images
    return mx.nd.contrib.BilinearResize2D(images, height=size, width=size, align_corners=False)


@dataclass(frozen=True)
class NetworkEntry:
    """A network that can be trained.

    Attributes:
        build: called with the number of classes, and by name with the `width` if the network is one
            of `names.SCALABLE`, and with the `norm_layer` if it is not batch norm; returns the
            network, not initialized.
        size: height and width of its input, in pixels.
    """

    build: Callable[..., Any]
    size: int = 28


def _from_gluoncv(name: str) -> Callable[..., Any]:
    def build(classes: int, **options: Any) -> Any:
        from gluoncv.model_zoo import get_model  # imported late: it takes seconds

        return get_model(name, classes=classes, pretrained=False, **options)

    return build


def _scaled_from_gluoncv(name: str) -> Callable[..., Any]:
    """Return a function that builds a network of gluoncv with its channels multiplied by a width."""

    def build(classes: int, width: float, **options: Any) -> Any:
        net = _from_gluoncv(name)(classes, **options)
        if width != 1:
            for child in (layer for layer in net._children.values() if layer is not net.output):
                child.apply(lambda layer: _scale(layer, width))
        return net

    return build


def _scale(layer: Any, width: float) -> None:
    """Multiply the number of outputs of an uninitialized layer.

    Gluon infers the numbers of inputs, also of normalization layers, from the first batch.
    """
    if isinstance(layer, mx.gluon.nn.Dense):
        outputs = layer._units = max(1, round(layer._units * width))
    elif isinstance(layer, mx.gluon.nn.Conv2D):
        outputs = layer._channels = layer._kwargs["num_filter"] = max(1, round(layer._channels * width))
    else:
        return
    for parameter in layer._reg_params.values():
        parameter._shape = (outputs, *parameter.shape[1:])


def _resnet(version: int, layers: int) -> Callable[..., Any]:
    """Return a function that builds a ResNet of gluoncv with its channels multiplied by a width."""

    def build(classes: int, width: float, **options: Any) -> Any:
        from gluoncv.model_zoo import resnet

        kind, numbers, channels = resnet.resnet_spec[layers]
        block = resnet.resnet_block_versions[version - 1][kind]
        channels = [round(number * width) for number in channels]
        return resnet.resnet_net_versions[version - 1](block, numbers, channels, classes=classes, **options)

    return build


def _mobilenet(version: int) -> Callable[..., Any]:
    def build(classes: int, width: float, **options: Any) -> Any:
        from gluoncv.model_zoo import mobilenet

        make = mobilenet.get_mobilenet if version == 1 else mobilenet.get_mobilenet_v2
        return make(width, classes=classes, **options)

    return build


def _lenet(classes: int) -> Any:
    """Return LeNet-5 with ReLU and max pooling: small, without batch norm, for tests."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="lenet_")
    with net.name_scope():
        net.add(
            nn.Conv2D(6, kernel_size=5, padding=2, activation="relu"),
            nn.MaxPool2D(pool_size=2, strides=2),
            nn.Conv2D(16, kernel_size=5, activation="relu"),
            nn.MaxPool2D(pool_size=2, strides=2),
            nn.Flatten(),
            nn.Dense(120, activation="relu"),
            nn.Dense(84, activation="relu"),
            nn.Dense(classes),
        )
    return net


def _mlp(classes: int) -> Any:
    """Return a perceptron with one hidden layer of 64, the smallest that learns Fashion-MNIST to 0.85."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        net.add(nn.Dense(64, activation="relu"), nn.Dense(classes))
    return net


def _cifar_resnet32(classes: int, **options: Any) -> Any:
    """Return ResNet-32 of He et al. (2016), Table 6, from gluoncv's parts.

    gluoncv only has names for 20, 56 and 110 layers.
    """
    from gluoncv.model_zoo.cifarresnet import get_cifar_resnet

    return get_cifar_resnet(1, 32, classes=classes, **options)


#: Name on the command line, without width and normalization → the network.
MODELS: dict[str, NetworkEntry] = {
    "alexnet": NetworkEntry(_scaled_from_gluoncv("alexnet"), 224),
    "resnet18-v1": NetworkEntry(_resnet(1, 18)),
    "resnet50-v1": NetworkEntry(_resnet(1, 50)),
    "resnet50-v2": NetworkEntry(_resnet(2, 50)),
    "mobilenet-v1": NetworkEntry(_mobilenet(1)),
    "mobilenet-v2": NetworkEntry(_mobilenet(2)),
    "inception-v3": NetworkEntry(_scaled_from_gluoncv("inceptionv3"), 299),
    "lenet": NetworkEntry(_lenet),
    "mlp": NetworkEntry(_mlp),
    "cifar-resnet20-v1": NetworkEntry(_from_gluoncv("cifar_resnet20_v1"), 32),
    "cifar-resnet32-v1": NetworkEntry(_cifar_resnet32, 32),
    "cifar-resnet56-v1": NetworkEntry(_from_gluoncv("cifar_resnet56_v1"), 32),
    "cifar-resnet110-v1": NetworkEntry(_from_gluoncv("cifar_resnet110_v1"), 32),
}


def input_size(name: str) -> int | None:
    """Return the side of a network's square input in pixels; None for a user's network, which is not resized for."""
    return None if ":" in name else MODELS[parse_network(name).base].size


def input_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a network's input, given the shape of a sample of the data set.

    Both are (channels, height, width) for images.

    Raises:
        UserCodeError: the network takes images, but the samples are not images.
    """
    size = input_size(name)
    if size is None:
        return shape
    if len(shape) != 3:
        raise UserCodeError(
            f"network {name} takes images, and the samples have the shape {shape}; give a network of your own for "
            f"them: {user_functions.FORMS}"
        )
    return (shape[0], size, size)


def build(
    name: str,
    classes: int,
    context: Any,
    seed: int,
    hybridize: bool = True,
    shape: tuple[int, ...] = (1, 28, 28),
) -> Any:
    """Return an initialized and hybridized network with known shapes.

    The initialization is Xavier's, as in the published implementation. The same arguments give the same
    initial weights on every worker. Parameters that a user's function has initialized are not changed.

    Args:
        name: a name for `parse_network`, or the name of a user's function.
        classes: number of classes of the data set.
        context: the MXNet device.
        seed: seed of the initial weights.
        hybridize: whether to compile the network.
        shape: shape of a sample of the data set: channels, height, width.

    Raises:
        UserCodeError: the user's function does not return a network for this data set.
    """
    mx.random.seed(seed)
    expected = input_shape(name, shape)
    # New counters in names, so that the order of the values is the same in every process.
    with mx.name.NameManager():
        if ":" in name:
            return _build_of_user(name, classes, context, hybridize, expected)
        net = _build_named(parse_network(name), classes)
    net.initialize(mx.init.Xavier(), ctx=context)
    inputs = mx.nd.zeros((2, *expected), ctx=context)
    if name.endswith(SUFFIX):
        net(inputs)  # group norm's channels cannot be inferred from a compiled network
    net.hybridize(hybridize, static_alloc=True, static_shape=True)
    net(inputs)  # infers the shapes
    if context.device_type == "cpu" and pad_beforehand(net, inputs.shape):
        net.hybridize(hybridize, static_alloc=True, static_shape=True)
        net(inputs)
    mx.nd.waitall()
    return net


def _build_named(name: NetworkName, classes: int) -> Any:
    options: dict[str, Any] = {"width": name.width} if name.base in SCALABLE else {}
    if name.normalization == GROUP:
        from .group_norm import GroupNorm

        options["norm_layer"] = GroupNorm
    return MODELS[name.base].build(classes, **options)


def _build_of_user(text: str, classes: int, context: Any, hybridize: bool, shape: tuple[int, ...]) -> Any:
    """Return the initialized network of a user's function, after checking that it suits the data set."""
    net = user_functions.call(text, {"classes": classes, "shape": shape}, needed=("classes",))
    if not isinstance(net, mx.gluon.Block):
        description = f"an object of class {type(net).__name__}" if net is not None else "nothing"
        raise UserCodeError(f"{text} has returned {description}, but should return a network: a Gluon block")
    with readable_errors(f"{text} makes a network that cannot be initialized"):
        _initialize(net.collect_params().values(), context)
    # A plain Block has no graph of its own, but its children may have.
    if hybridize:
        net.hybridize(static_alloc=True, static_shape=True)
    with readable_errors(
        f"{text} makes a network that cannot take samples of the shape {shape}", lambda error: _remark(hybridize)
    ):
        outputs = net(mx.nd.zeros((2, *shape), ctx=context))
        mx.nd.waitall()
    scores = outputs[0] if isinstance(outputs, list | tuple) and outputs else outputs
    if getattr(scores, "shape", None) != (2, classes):
        shape_ = f"{scores.shape[1:]}" if hasattr(scores, "shape") else f"an object of class {type(scores).__name__}"
        raise UserCodeError(
            f"{text} makes a network whose output for a sample is of the shape {shape_}, but the data set has "
            f"{classes} classes: it should be ({classes},); a function that takes an argument classes is told how many"
        )
    return net


def _initialize(parameters: Iterable[Any], context: Any) -> None:
    """Initialize the uninitialized parameters; move the others to the device."""
    default = mx.init.Xavier()
    for parameter in parameters:
        if parameter._data is None and not parameter._deferred_init:
            parameter.initialize(ctx=context, default_init=default)
        else:
            parameter.reset_ctx(context)


def _remark(hybridize: bool) -> str:
    return "; where only a compiled network fails, --no-hybridize helps" if hybridize else ""
