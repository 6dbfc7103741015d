"""Texts from every rank to every rank: greetings, and what was measured."""

import numpy as np

from .coroutines import Fibre, until_done
from .transport import Request, Transport

#: Tags of what is no bucket. Those of buckets begin at FIRST_BUCKET and are used again after BUCKETS of them.
CONTROL, LENGTH, TEXT, PROBE = range(4)
FIRST_BUCKET, BUCKETS = 16, 4096


def bucket_tag(index: int) -> int:
    """The tag of a bucket's messages; those that are on their way at the same time have different ones."""
    return FIRST_BUCKET + index % BUCKETS


def gather_texts(transport: Transport, text: str, texts: dict[int, str]) -> Fibre:
    """A fibre that fills `texts`, rank → what that rank has said; what has come already stands there meanwhile."""
    own = np.frombuffer(text.encode(), np.uint8)
    peers = [rank for rank in range(transport.size) if rank != transport.rank]
    length = np.array([own.size], np.int64)
    sent: list[Request] = [transport.isend(length, peer, LENGTH) for peer in peers]
    sent += [transport.isend(own, peer, TEXT) for peer in peers]
    lengths = {peer: np.zeros(1, np.int64) for peer in peers}
    arriving = {peer: transport.irecv(lengths[peer], peer, LENGTH) for peer in peers}
    coming: dict[int, np.ndarray] = {}
    texts[transport.rank] = text
    while arriving:
        got_on = False
        for peer, request in list(arriving.items()):
            if not request.done():
                continue
            got_on = True
            if peer in coming:
                texts[peer] = coming[peer].tobytes().decode()
                del arriving[peer]
            else:
                coming[peer] = np.empty(int(lengths[peer][0]), np.uint8)
                arriving[peer] = transport.irecv(coming[peer], peer, TEXT)
        if arriving:
            yield got_on
    for request in sent:
        yield from until_done(request)
