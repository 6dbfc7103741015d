"""Rendezvous, where the processes of a cluster find one another: ps-lite's scheduler in Python.

It speaks ps-lite's own protocol, so that MXNet's servers and workers notice no difference until one
of them has to be replaced: the scheduler inside MXNet 1.9.1 aborts at the second replacement
("Check failed: recovery_nodes->control.node.size() == 1"), needs the heartbeat timeout to pass
before the first, and lets a replacement that comes too early wait for ever.

    messages        ps-lite's control messages as bytes
    node_registry   members, their ids, and barriers; no sockets in it
    contacts        connections to the processes, and the check that one that registers is there
    zmq_transport   the node registry on ZeroMQ, which is what ps-lite uses
    directory       questions of workers and servers to the scheduler
"""
