"""What processes of a cluster import and read: once, in the process that all of them are forked from.

A worker needs more processor time for its imports and for Fashion-MNIST than for the few rounds of a test.
"""

import contextlib
import functools

import esync.coordination.client
import esync.coordination.delayed
import esync.coordination.round_reporter
import esync.evaluate
import esync.exchange.collectives.worker_exchange
import esync.exchange.keystores.mxnet_server
import esync.exchange.keystores.mxnet_store
import esync.exchange.keystores.sender_check
import esync.exchange.protocol.client
import esync.exchange.protocol.host_exchange
import esync.exchange.protocol.parameter_server
import esync.gluon.randomness
import esync.models.networks
import esync.scheduler
import esync.server
import esync.state_server.serving
import esync.trainer
import esync.training.loop
import esync.worker  # noqa: F401
from esync.data import DataError, datasets, load

datasets.read_idx = functools.cache(datasets.read_idx)
with contextlib.suppress(DataError):  # where there is none, the tests that need it say so
    load("fashion-mnist")
