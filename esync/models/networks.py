"""Networks by name, with the input size that each of them needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..runtime.mxnet_import import mx
from .depthwise import pad_beforehand


def resize(images: Any, size: int) -> Any:
    """Resize an NDArray batch (n, channels, height, width) to (n, channels, size, size); returned as is if it fits.

    Pixel centres are aligned (align_corners=False), as in OpenCV's and Gluon's linear resizing.
    """
    if images.shape[2:] == (size, size):
        return images
    return mx.nd.contrib.BilinearResize2D(images, height=size, width=size, align_corners=False)


@dataclass(frozen=True)
class NetworkEntry:
    """A network that can be trained.

    Attributes:
        build: makes it, not initialized; called with the number of classes.
        size: height and width of its input, in pixels.
    """

    build: Callable[[int], Any]
    size: int = 28


def _from_gluoncv(name: str) -> Callable[[int], Any]:
    def build(classes: int) -> Any:
        from gluoncv.model_zoo import get_model  # imported late: it takes seconds

        return get_model(name, classes=classes, pretrained=False)

    return build


def _lenet(classes: int) -> Any:
    """LeNet-5 with ReLU and max pooling: small, no batch norm; for tests and quick looks."""
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
    """One hidden layer of 64: the least that learns Fashion-MNIST to 0.85; for experiments of many runs."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        net.add(nn.Dense(64, activation="relu"), nn.Dense(classes))
    return net


def _cifar_resnet32(classes: int) -> Any:
    """ResNet-32 of He et al. (2016), Table 6, from gluoncv's parts, which name 20, 56 and 110 layers only."""
    from gluoncv.model_zoo.cifarresnet import get_cifar_resnet

    return get_cifar_resnet(1, 32, classes=classes)


#: Name on the command line → the network.
MODELS: dict[str, NetworkEntry] = {
    "alexnet": NetworkEntry(_from_gluoncv("alexnet"), 224),
    "resnet18-v1": NetworkEntry(_from_gluoncv("resnet18_v1")),
    "resnet50-v1": NetworkEntry(_from_gluoncv("resnet50_v1")),
    "resnet50-v2": NetworkEntry(_from_gluoncv("resnet50_v2")),
    "mobilenet-v1": NetworkEntry(_from_gluoncv("mobilenet1.0")),
    "mobilenet-v2": NetworkEntry(_from_gluoncv("mobilenetv2_1.0")),
    "inception-v3": NetworkEntry(_from_gluoncv("inceptionv3"), 299),
    "lenet": NetworkEntry(_lenet),
    "mlp": NetworkEntry(_mlp),
    "cifar-resnet20-v1": NetworkEntry(_from_gluoncv("cifar_resnet20_v1"), 32),
    "cifar-resnet32-v1": NetworkEntry(_cifar_resnet32, 32),
    "cifar-resnet56-v1": NetworkEntry(_from_gluoncv("cifar_resnet56_v1"), 32),
    "cifar-resnet110-v1": NetworkEntry(_from_gluoncv("cifar_resnet110_v1"), 32),
}


def build(name: str, classes: int, context: Any, seed: int, hybridize: bool = True, channels: int = 1) -> Any:
    """Return a network ready to train: initialized (Xavier, as published), its shapes known, hybridized.

    `channels` is the number of colour planes of its input.

    The same name, classes and seed give the same initial weights, on every worker.
    """
    model = MODELS[name]
    net = model.build(classes)
    mx.random.seed(seed)
    net.initialize(mx.init.Xavier(), ctx=context)
    images = mx.nd.zeros((2, channels, model.size, model.size), ctx=context)
    net.hybridize(hybridize, static_alloc=True, static_shape=True)
    net(images)  # lets shapes that are inferred become known
    if context.device_type == "cpu" and pad_beforehand(net, images.shape):
        net.hybridize(hybridize, static_alloc=True, static_shape=True)
        net(images)
    mx.nd.waitall()
    return net
