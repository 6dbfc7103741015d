"""A generative adversarial network, whose two parts have an optimizer each.

Lines that differ from plain Gluon end in "# esync". Alone, and on every device of a description:

    python examples/gan.py
    esync launch :quick -- python examples/gan.py
"""

import argparse

import numpy as np

import esync  # esync
from esync import mx  # esync
from esync.data import load

gluon, nn = mx.gluon, mx.gluon.nn
BATCH_SIZE, NOISE, SIDE = 32, 16, 28  # images in a batch, numbers that one is generated from, pixels of its side


def build(context: mx.Context) -> tuple[mx.gluon.Block, mx.gluon.Block, mx.gluon.Block]:
    """Return a generator of images, a discriminator, and the network of one after the other."""
    generator, discriminator, both = nn.HybridSequential(), nn.HybridSequential(), nn.HybridSequential()
    generator.add(nn.Dense(128), nn.LeakyReLU(0.2), nn.Dense(256), nn.LeakyReLU(0.2))
    generator.add(nn.Dense(SIDE**2, activation="sigmoid"))
    discriminator.add(nn.Dense(256), nn.LeakyReLU(0.2), nn.Dense(128), nn.LeakyReLU(0.2), nn.Dense(1))
    both.add(generator, discriminator)
    both.initialize(mx.init.Xavier(), ctx=context)
    both(mx.nd.zeros((1, NOISE), ctx=context))  # lets the shapes become known
    return generator, discriminator, both


def frechet_distance(real: np.ndarray, generated: np.ndarray) -> float:
    """Compute the distance between normal distributions with the moments of two samples of images.

    Where networks of some size are trained, features of a classifier take the place of pixels.
    """
    pixels = [images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49) for images in (real, generated)]
    means, (first, second) = [values.mean(axis=0) for values in pixels], [np.cov(values.T) for values in pixels]
    root = np.sqrt(np.maximum(np.linalg.eigvals(first @ second).real, 0)).sum()  # trace of the product's root
    return float(((means[0] - means[1]) ** 2).sum() + np.trace(first + second) - 2 * root)


def main() -> mx.gluon.Block:
    """Train generator and discriminator, and return both."""
    parser = argparse.ArgumentParser(description="Train a generative adversarial network.")
    parser.add_argument("--epochs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--samples", type=int, help="of the data set to use (default: all)")
    options = parser.parse_args()
    context = esync.context()  # esync
    data = load("fashion-mnist")
    train = data.train_images[: options.samples].reshape(-1, SIDE**2) / np.float32(255)
    test = data.test_images[:2000] / np.float32(255)
    generator, discriminator, both = build(context)
    test_noise = mx.nd.random.normal(shape=(len(test), NOISE), ctx=context)

    def distance() -> float:
        return frechet_distance(test, generator(test_noise).asnumpy())

    loss_fn, adam = gluon.loss.SigmoidBCELoss(), {"learning_rate": 2e-4, "beta1": 0.5}
    run = esync.Run(evaluate=distance, metric=("Fréchet distance", "min"), every=50, net=generator)  # esync
    limits = esync.Limits(samples=options.epochs * len(train))  # esync
    with esync.Trainer(generator.collect_params(), "adam", adam, run=run, limits=limits) as trainer:  # esync
        critic = trainer.add_optimizer(discriminator.collect_params(), "adam", adam)  # esync
        part = esync.shard(train, trainer)  # esync
        for batch in trainer.batches(gluon.data.DataLoader(part, BATCH_SIZE, shuffle=True)):  # esync
            images = batch.as_in_context(context)
            noise = mx.nd.random.normal(shape=(len(images), NOISE), ctx=context)
            ones, zeros = mx.nd.ones(len(images), ctx=context), mx.nd.zeros(len(images), ctx=context)
            generated = generator(noise)
            with mx.autograd.record():
                loss = loss_fn(discriminator(images), ones) + loss_fn(discriminator(generated), zeros)
            loss.backward()
            critic.step(len(images))
            with mx.autograd.record():
                loss = loss_fn(both(noise), ones)
            loss.backward()
            trainer.step(len(images))
    return both


if __name__ == "__main__":
    main()
