"""Key stores, which carry the protocol between workers and parameter servers.

`mxnet_store` and `mxnet_server` are the two ends of MXNet's key store; `sender_check` protects its
port. `keyed` is the base of all stores (the tests have one in memory). `shared_host_group` is the
memory through which the workers of one host exchange as one, `memory_host_group` that for workers
in one process. May import `base`, `host_group`, `protocol` and `worker_monitor`.
"""
