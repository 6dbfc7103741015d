"""A worker whose program has a connection of its own, which ends while it trains.

Usage: python connected_worker.py PORT, where somebody listens who closes the connection after the
first byte.
"""

import socket
import sys
import time

from esync import config

config.PEER_GONE = 0.5

import esync  # noqa: E402
from esync.runtime.mxnet_import import mx  # noqa: E402

tracker = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
socket.setdefaulttimeout(30.0)

net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize()
trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, algorithm="sync")
steps, ended = 0, None
while ended is None or time.monotonic() - ended < 3.0:
    with mx.autograd.record():
        loss = net(mx.nd.ones((4, 2))).sum()
    loss.backward()
    trainer.step(4)
    steps += 1
    if steps == 3:
        tracker.sendall(b"x")
        assert tracker.recv(1) == b""
        ended = time.monotonic()
print(f"{steps} steps")
trainer.close()
