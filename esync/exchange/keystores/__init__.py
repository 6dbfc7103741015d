"""Key stores, which carry the messages of the protocol between workers and parameter servers.

`mxnet_store` and `mxnet_server` are the two ends over MXNet's key store, which `sender_check`
guards against strangers; `memory` has servers and workers in one process, for tests. `keyed` is
what all stores have in common. May import `base`, `protocol` and `worker_monitor`.
"""
