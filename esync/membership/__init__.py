"""Membership and liveness: which processes belong to the cluster, and which are still alive.

Nobody tells a process that another one has died, but the connections to it end. `connections` asks
the kernel about them, `names` looks up hosts, `peers` tells which known processes this one is
connected to, and `failure_detector` concludes who is gone; `monitor` runs it in a thread.
`heartbeats` speaks for a worker whose main thread is busy. `rendezvous` is the scheduler, where the
processes find one another. May import `config` and `runtime`.
"""
