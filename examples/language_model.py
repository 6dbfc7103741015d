"""A language model of characters, with truncated backpropagation through time.

Lines that differ from plain Gluon end in "# esync". Alone, and on every device of a description:

    python examples/language_model.py
    esync launch :quick -- python examples/language_model.py
"""

import argparse
import math
from pydoc_data.topics import topics  # Python's own documentation, which every installation has
from typing import Any

import numpy as np

import esync  # esync
from esync import mx  # esync

gluon = mx.gluon
ROWS, STEPS, UNITS = 16, 32, 128  # pieces of text side by side, characters of each in a batch, units of the LSTM


class CharacterModel(mx.gluon.Block):
    """An LSTM that computes, after each character, scores of the next one."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = gluon.nn.Embedding(characters, UNITS)
        self.lstm = gluon.rnn.LSTM(UNITS, input_size=UNITS)
        self.scores = gluon.nn.Dense(characters, flatten=False, in_units=UNITS)

    def forward(self, text: Any, state: list[Any]) -> tuple[Any, list[Any]]:
        """Return scores and the new state; `text` has the shape (characters, pieces)."""
        output, state = self.lstm(self.embedding(text), state)
        return self.scores(output), state


def columns(text: np.ndarray, context: mx.Context) -> Any:
    """Cut a text into ROWS pieces of equal length; the result has the shape (characters, pieces)."""
    length = len(text) // ROWS
    return mx.nd.array(text[: ROWS * length].reshape(ROWS, length).T, ctx=context)


def main() -> mx.gluon.Block:
    """Train the network and return it."""
    parser = argparse.ArgumentParser(description="Train a language model of characters.")
    parser.add_argument("--epochs", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--characters", type=int, help="of the text to use, 10000 or more (default: all)")
    options = parser.parse_args()
    text = "".join(topics.values())[: options.characters]
    characters, tokens = np.unique(list(text), return_inverse=True)
    train, test = np.split(tokens, [int(0.95 * len(tokens))])

    context = esync.context()  # esync
    net = CharacterModel(len(characters))
    net.initialize(mx.init.Xavier(), ctx=context)
    weights, loss_fn = net.collect_params(), gluon.loss.SoftmaxCrossEntropyLoss()

    def perplexity() -> float:
        pieces = columns(test, context)
        scores, _ = net(pieces[:-1], net.lstm.begin_state(ROWS, ctx=context))
        return math.exp(loss_fn(scores, pieces[1:]).mean().asscalar())

    rate = {"learning_rate": 0.01}
    run = esync.Run(evaluate=perplexity, metric=("perplexity", "min"), every=10, net=net)  # esync
    limits = esync.Limits(samples=options.epochs * len(train))  # esync
    same = {"sum of tokens": int(tokens.sum())}  # esync
    with esync.Trainer(weights, "adam", rate, run=run, limits=limits, agreement=same) as trainer:  # esync
        pieces = columns(esync.shard(train, trainer, contiguous=True), context)  # esync
        state = net.lstm.begin_state(ROWS, ctx=context)
        for first in trainer.batches(range(0, len(pieces) - STEPS, STEPS)):  # esync
            state = [values.detach() for values in state]  # the gradient of a batch ends where the batch begins
            with mx.autograd.record():
                scores, state = net(pieces[first : first + STEPS], state)
                loss = loss_fn(scores, pieces[first + 1 : first + STEPS + 1]).mean()
            loss.backward()
            gluon.utils.clip_global_norm([weight.grad() for weight in weights.values()], 1.0)
            trainer.step(1, samples=ROWS * STEPS)  # esync
    return net


if __name__ == "__main__":
    main()
