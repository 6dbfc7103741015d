"""Key stores, which carry the messages of the protocol between workers and parameter servers.

`mxnet_store` and `mxnet_server` are the two ends over MXNet's key store, which `sender_check`
guards against strangers. `keyed` is what it has in common with the store of the tests, which has
servers and workers in one process (tests/exchange/memory_store.py). `shared_host_group` is the
memory by which the workers of one host exchange as one, `memory_host_group` that of workers in one
process. May import `base`,
`host_group`, `protocol` and `worker_monitor`.
"""
