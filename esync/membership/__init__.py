"""Membership and liveness: which processes belong to the cluster, and which are still alive.

The death of a process is detected by the end of its connections. `connections` queries the kernel for
them, `peers` returns the known processes to which this one is connected, and `failure_detector` decides
which are gone; `monitor` runs it in a thread. `heartbeats` sends messages for a worker whose main thread
is busy. `rendezvous` is the scheduler, where the processes find one another. May import `config` and `runtime`.
"""
