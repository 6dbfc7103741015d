"""A worker that prints its rank, and the variables that asking for it may have changed."""

import os

import esync
from esync import mx

net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize()
trainer = esync.Trainer(net.collect_params(), "sgd", algorithm="sync", limits=esync.Limits(rounds=1))
trainer.start()
with mx.autograd.record():
    loss = net(mx.nd.ones((4, 2))).sum()
loss.backward()
trainer.step(4)
print("rank", trainer.rank, os.environ.get("PORT"), flush=True)
trainer.close()
