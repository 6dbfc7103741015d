"""A process that makes one Trainer after the other.

Usage: python second_trainer.py WHAT: "open" leaves the first one as it is; "cell" does so in a
notebook; "closed" closes it; a port is that of the scheduler of a second cluster that the second
Trainer joins after the first one was closed.
"""

import os
import sys

import esync
from esync.runtime.errors import ExpectedError
from esync.runtime.mxnet_import import mx

what = sys.argv[1]


def train(value: float):
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize(mx.init.Constant(value))
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, algorithm="sync")
    for _ in range(2):
        with mx.autograd.record():
            loss = net(mx.nd.ones((4, 2))).sum()
        loss.backward()
        trainer.step(4)
    print(net.weight.data().asnumpy().tolist(), flush=True)
    return trainer


first = train(1.0)
if what == "cell":
    sys.ps1 = "In : "
if what not in ("open", "cell"):
    first.close()
if what.isdecimal():
    os.environ["DMLC_PS_ROOT_PORT"] = what
    del os.environ["PORT"]
try:
    second = train(3.0)
except ExpectedError as error:
    print(error)
    if what in ("open", "cell"):
        first.close()
else:
    second.close()
