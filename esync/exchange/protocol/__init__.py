"""The protocol between workers and parameter servers, without time, threads, sockets or MXNet.

`client` is the worker's side, `endpoint` and `parameter_server` are the server's; `wire` has the
messages, `handshake` a worker's first message, `layout` the keys. `round_state` decides which round
it is, who has committed and when the run ends; `payload_staging` keeps payloads until they are
complete. `resume_negotiation` chooses the checkpoint to go on from, and `replacement_recovery` the
round in which a replacement begins. May import `base`, `blockwise`, `codecs`, `host_group` and
`weighting`; `store` is the interface to the key stores.
"""
