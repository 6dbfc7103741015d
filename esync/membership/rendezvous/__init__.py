"""Rendezvous, where the processes of a cluster find one another: ps-lite's scheduler in Python.

It implements ps-lite's protocol for MXNet's servers and workers, and supports replacements. The
scheduler inside MXNet 1.9.1 aborts at the second replacement ("Check failed:
recovery_nodes->control.node.size() == 1"), accepts the first one only after the heartbeat timeout, and
lets a replacement that is too early wait forever.

    messages        encode and decode ps-lite's control messages
    node_registry   members, their ids, and barriers, without sockets
    contacts        connections to the processes, and the verification of registrations
    zmq_transport   the node registry on ZeroMQ, as used by ps-lite
    directory       queries of workers and servers to the scheduler
    rank_request    a worker asks for a rank before it registers
    listening_port  the port of a worker, which nobody tries to reach
    attendance      who is there, and who is awaited
"""
