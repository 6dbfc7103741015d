"""The protocol between workers and parameter servers, without time, threads, sockets or MXNet.

`client` is the worker's side: `transfer` moves the vectors, `status_reader` reads what the servers
answer, and `host_exchange` shares both among the workers of a host. `endpoint` and
`parameter_server` are the server's side: `payload_staging` keeps payloads until they are complete,
`round_state` decides which round it is, who has committed and when the run ends. `wire` has the
messages, `handshake` a worker's first message, `layout` the keys, and `store` is the interface to
the key stores. `resume_negotiation` chooses the checkpoint to go on from, and
`replacement_recovery` the round in which a replacement begins. May import `base`, `blockwise`,
`codecs`, `host_group`, `weighted_sum` and `weighting`.
"""
