"""A program that does what public programs do beside their Trainer, or in its place.

Usage: python outside_program.py WHAT: "loop" goes through its epochs without a look at
trainer.finished, of which rank 1 has fewer, "with" does so in a with statement; a name of a key
store makes it, "gluon" by a gluon.Trainer; "spawn", "forkserver" and "run" start a process in which
this program runs again.
"""

import multiprocessing
import subprocess
import sys

import esync
from esync import mx

WHAT = sys.argv[1]

if WHAT == "before":
    mx.kv.create("dist_sync")
net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize()
trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm="sync")
trainer.start()


def backward() -> None:
    with mx.autograd.record():
        loss = net(mx.nd.ones((4, 2))).sum()
    loss.backward()


def loop() -> None:
    for _ in range(3 if trainer.rank == 1 else 1000):
        backward()
        trainer.step(4)


backward()
trainer.step(4)
if WHAT == "loop":
    loop()
elif WHAT == "with":
    with trainer:
        loop()
elif WHAT == "gluon":
    other = mx.gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_async")
    backward()
    other.step(4)
elif WHAT in ("spawn", "forkserver"):
    process = multiprocessing.get_context(WHAT).Process(target=print, args=("from the child",))
    process.start()
    process.join()
elif WHAT == "run":
    subprocess.run([sys.executable, __file__, "loop"], check=False)
elif WHAT.startswith("dist"):
    mx.kv.create(WHAT)
print("at the end")
