"""The protocol between workers and parameter servers, without clocks, threads, sockets or MXNet.

The worker's side is `client`: `transfer` moves the vectors, `status_reader` reads the statuses of
the servers, `pending` has the handles of exchanges, `mailbox` moves the rule's state to and from
checkpoints, and `host_exchange` combines the exchanges of the workers of a host.

The server's side is `endpoint` and `parameter_server`: `payload_staging` keeps payloads until they
are complete, `round_state` counts commits and rounds and decides when the run ends, `staleness`
decides which workers are too far ahead, and `server_model` has the weights and runs the rules.

Both sides use `wire`, the messages; `handshake`, a worker's first message; `specification`, what the
exchange does; `scalars`, the numbers in commits; `status`, the answer to all messages; and `layout`,
the keys. `store` is the interface to the key stores. `resume_negotiation` chooses the checkpoint to
resume from, and `replacement_recovery` the round in which a replacement begins.

May import `base`, `blockwise`, `codecs`, `host_group`, `weighted_sum` and `weighting`.
"""
