"""A training program as a user might write it; tests copy it to where they have launch start it.

Usage: python train.py DATA ROUNDS [MISTAKE]. MISTAKE is what the second worker does wrong: "raise"
(an error in the loop), or "late" (one after the run).
"""

import os
import sys

import esync
from esync import mx
from esync.data import Batches, load, partition

folder, rounds, *mistake = sys.argv[1:]
second = os.environ.get("ESYNC_SLOT") == "1"

data = load("fashion-mnist", folder)
context = esync.context()
net = mx.gluon.nn.Dense(10)
net.initialize(ctx=context)
net(mx.nd.zeros((1, 784), ctx=context))
loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()


def accuracy() -> float:
    scores = net(mx.nd.array(data.test_images.reshape(-1, 784) / 255.0, ctx=context)).asnumpy()
    return float((scores.argmax(axis=1) == data.test_labels).mean())


trainer = esync.Trainer(
    net.collect_params(),
    "sgd",
    {"learning_rate": 0.1},
    limits=esync.Limits(rounds=int(rounds)),
    run=esync.Run(evaluate=accuracy),
)
trainer.start()
print(f"I am worker {trainer.rank} of {trainer.workers}, {trainer.algorithm.name}", flush=True)
print("epoch 1: 10 %", end="", flush=True)  # as a progress bar, which does not end its line
share = partition("uniform", data.train_labels, trainer.workers, seed=0).shares[trainer.rank]
for images, labels in Batches(data.train_images, data.train_labels, share, 8, seed=(0, trainer.rank)):
    with mx.autograd.record():
        loss = loss_fn(net(mx.nd.array(images.reshape(8, -1), ctx=context)), mx.nd.array(labels, ctx=context))
    loss.backward()
    trainer.step(8)
    if second and mistake == ["raise"]:
        raise ValueError("no such picture")
    if trainer.finished:
        break
trainer.close()
if mistake == ["late"] and second:
    raise RuntimeError("the disk is full")
