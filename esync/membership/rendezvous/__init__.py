"""Rendezvous, where the processes of a cluster find one another: the scheduler of ps-lite, in Python.

It speaks ps-lite's own protocol, so that MXNet's servers and workers notice no difference until one
of them has to be replaced: the scheduler inside MXNet 1.9.1 aborts at the second replacement
("Check failed: recovery_nodes->control.node.size() == 1"), needs the heartbeat timeout to pass
before the first, and lets a newcomer that comes too early wait for ever.

    messages        ps-lite's control messages as bytes
    node_registry   who is there, who gets which id, who has come to a barrier; no sockets in it
    contacts        the way to each process, and whether somebody who registers is there at all
    zmq_transport   the node registry on ZeroMQ, which is what ps-lite uses
    directory       questions of workers and servers to the scheduler
"""
