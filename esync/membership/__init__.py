"""Liveness: is the other process still there?

Nobody tells a process that another one has died, but the connections to it end. `connections` asks the kernel about
this process's connections, `names` looks up the hosts they lead to, and `peers` tells which of the known processes
this one is connected to. `failure_detector` concludes who is gone, for everybody in the same way; `monitor` runs it in
a thread (workers, servers, schedulers), `membership` draws the conclusions from a worker that is gone (servers).
There `heartbeats` speaks for a worker whose main thread is busy.
"""
