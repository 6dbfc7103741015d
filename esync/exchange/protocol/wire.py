"""The wire format: headers, messages and the status, as NumPy structured types.

ps-lite sends float32 arrays, whose size is fixed for each key. Buckets of weights, gradients and
updates are such arrays, with a header in front. Messages and the status are packed records whose
bytes are sent as float32; the key store only copies them, so every bit pattern survives.
"""

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np

from .scalars import BUILT_IN

#: Version of this wire format; workers and servers must have the same.
PROTOCOL = 18

#: float32 values that the header takes in front of every bucket.
HEADER_ELEMENTS = 8

#: Bytes of the field "text" in messages and the status (UTF-8); longer texts are cut.
TEXT_BYTES = 392

#: Bytes of the field "includes" of messages; ranks that do not fit wait for the next round.
INCLUDED_BYTES = 128

# --- kinds of a bucket's header and of a message --------------------------------------------------
NOTHING = 0  # initial values of a key, or a push that only announces the key's memory to the server
PAYLOAD = 1  # worker → server: part of a gradient or an update, to be staged until its commit
WEIGHTS = 2  # server → worker: the current model
COMMIT = 3  # use the payload of this sequence number as soon as all its buckets have arrived
LEAVE = 4  # this worker leaves, though the run may go on: its statistics no longer count
STOP = 5  # end the run after the current round
ABORT = 6  # end the run now, it has failed
FETCH = 7  # copy a vector of the rule's state for one bucket, or its weights, to the mailbox
STATE = 8  # in the mailbox: such a vector, on its way to a checkpoint or from one
DONE = 9  # this worker leaves because the run is finished: its statistics stay in the final mean
FOLLOW = 10  # which workers the round of that number does not wait for, as the first server has decided
MEMBER = 11  # in the message of a COMMIT: the commit of another worker of the host, whose payload is in the same sum
ASIDE = 12  # rounds do not wait for this worker from now on, until a commit of its own with use BACK

#: In FETCH and STATE, the "index" of the weights that the rule works on; vectors of its state have 0, 1, …
SERVER_WEIGHTS = -1


class Use(IntEnum):
    """How a commit is used."""

    AS_AGREED = 0
    """As the handshake says for the whole run: TOGETHER or AT_ONCE."""
    TOGETHER = 1
    """With those of all members, as one round."""
    AT_ONCE = 2
    """Alone, as soon as its payload is complete."""
    DISCARD = 3
    """Not at all, it is only acknowledged. Rounds do not wait for its worker."""
    UNAWAITED = 4
    """In the round whose leader names it. Rounds do not wait for its worker."""
    BACK = 5
    """Like UNAWAITED, but after that round, rounds wait for its worker again."""


AS_AGREED, TOGETHER, AT_ONCE, DISCARD, UNAWAITED, BACK = Use

HEADER = np.dtype(
    [
        ("kind", "<i4"),
        ("rank", "<i4"),
        ("nonce", "<i8"),
        ("sequence", "<i8"),
        ("bucket", "<i4"),
        ("index", "<i4"),  # STATE: as FETCH in MESSAGE; PAYLOAD: number of the attempt to send this payload, from 0
    ]
)

MESSAGE = np.dtype(
    [
        ("kind", "<i4"),
        ("rank", "<i4"),
        ("nonce", "<i8"),  # distinguishes a replacement from the dead worker whose slot it took
        ("sequence", "<i8"),  # number of the exchange of this slot, from 1
        *((name, "<f8") for name in BUILT_IN),
        ("samples", "<i8"),  # that went into this payload
        ("buckets", "<i4"),  # of this payload on this server; FETCH: the index of the bucket
        # FETCH: a vector of the rule's state, from 0, or SERVER_WEIGHTS; COMMIT: the attempt whose
        # arrays count; ASIDE: 1 if the worker rests, else 0.
        ("index", "<i4"),
        ("round", "<i8"),  # used together: number of its round, from 1; 0: the current one
        # Several optimizers: number of this commit among those of its iteration, from 1; 0: the last
        # one, which ends the round, or the only one.
        ("position", "<i4"),
        ("use", "<i4"),  # how this commit is used; see Use
        ("part", "<i8"),  # round of the newest part of a checkpoint of this run on this worker's disk; 0: none
        ("switch", "<i4"),  # how the next commits are to be used, see `RoundState.applied`; AS_AGREED: no change
        # Leader's commit: the ranks that the next rounds do not wait for; FOLLOW: those that this
        # round does not wait for; ABORT: the reason. See encode_ranks.
        ("text", f"S{TEXT_BYTES}"),
        # Leader's commit: ranks whose unawaited commits, which have reached all servers, are part
        # of this round; see encode_ranks.
        ("includes", f"S{INCLUDED_BYTES}"),
    ]
)


def message_type(scalars: Iterable[str] = ()) -> np.dtype:
    """Return the record type of a message with these scalars in addition to the built-in ones."""
    return _message_type(tuple(scalars))


@lru_cache
def _message_type(scalars: tuple[str, ...]) -> np.dtype:
    return np.dtype([*MESSAGE.descr, *((name, "<f8") for name in sorted(scalars))])


def status_type(slots: int, scalars: Iterable[str] = ()) -> np.dtype:
    """Return the type of the record that every server publishes for its workers.

    Fields of slots are arrays of length `slots`. The field "scalars" exists if there are scalars
    other than the built-in ones, and has their combined values over all workers.
    """
    return _status_type(slots, tuple(scalars))


@lru_cache
def _status_type(slots: int, scalars: tuple[str, ...]) -> np.dtype:
    return np.dtype(
        [
            ("round", "<i8"),  # rounds completed (synchronous), or commits applied ÷ slots (asynchronous)
            ("version", "<i8"),  # commits applied to the weights
            ("step", "<i8"),  # changes of the weights: one per round, or per commit used at once
            ("samples", "<i8"),  # of all workers
            ("samples_together", "<i8"),  # those of commits that were used together, in rounds
            ("rounds_together", "<i8"),  # rounds in which commits were used together
            ("fastest", "<f8"),  # seconds of an iteration on the fastest worker; 0: not known
            ("elapsed", "<f8"),  # seconds from the last worker's handshake to the last change of this record
            ("exchanged_at", "<f8"),  # elapsed when the weights last changed
            ("job", "<i8"),  # number of this job: the nonce of the first holder of slot 0
            ("resume_at", "<i8"),  # the round that the workers resume from; -1: they start from scratch
            ("whole", "<i8"),  # round of the newest checkpoint known to be complete; 0: none
            ("stop_at", "<i8"),  # the run ends when this many rounds are done; -1: not known yet
            ("aborted", "<i4"),  # 1: the run has failed, for the reason in "text"
            ("synchronous", "<i4"),  # 1: the next commits should be used together, 0: each of them at once
            ("text", f"S{TEXT_BYTES}"),  # reason of the failure, or a notice
            ("acknowledged", "<i8", (slots,)),  # sequence number of the slot's last acknowledged commit
            ("used", "<i4", (slots,)),  # how that commit was applied to the weights: TOGETHER or AT_ONCE; 0: not at all
            ("wait", "<f8", (slots,)),  # seconds from that commit to the last one of its round, by the server's clock
            ("answer", "<i8", (slots,)),  # bytes of the message that answers that commit, or its compression
            ("nonce", "<i8", (slots,)),  # of the process that holds the slot; 0: none
            ("arrivals", "<i4", (slots,)),  # number of processes that have held it so far
            ("member", "<i4", (slots,)),  # 1: the worker takes part in the rounds
            ("excluded", "<i4", (slots,)),  # 1: a member that rounds do not wait for at the leader's request
            ("aside", "<i4", (slots,)),  # bit 0: the same, at its own request; bit 1: `RoundState.resting`
            ("needed", "<i4", (slots,)),  # 1: a checkpoint of now needs its part
            ("committed", "<i4", (slots,)),  # 1: a commit of it is pending
            *([("scalars", [(name, "<f8") for name in sorted(scalars)])] if scalars else []),
        ]
    )


def message_elements(slots: int, scalars: Iterable[str] = (), per_host: int = 1) -> int:
    """Return the float32 size of the key of messages and the status.

    A message has room for the commits of `per_host` workers.
    """
    names = tuple(scalars)
    return -(-max(per_host * message_type(names).itemsize, status_type(slots, names).itemsize) // 4)


def scalars_of(status: Any) -> dict[str, float]:
    """Return the values of the added scalars in a status that any worker has sent."""
    if "scalars" not in status.dtype.names:
        return {}
    scalars = status["scalars"]
    return {name: float(scalars[name]) for name in scalars.dtype.names if not math.isnan(scalars[name])}


def pack(record: np.ndarray, elements: int, behind: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Pack records bytewise into a float32 array, and pad it with zeros.

    Args:
        record: the first record.
        elements: size of the array.
        behind: further records, of the same type.
    """
    packed = np.zeros(elements, np.float32)
    content = b"".join([record.tobytes(), *(further.tobytes() for further in behind)])
    packed.view(np.uint8)[: len(content)] = np.frombuffer(content, np.uint8)
    return packed


def unpack(packed: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a copy of the record at the front of a float32 array, zero-dimensional."""
    return np.frombuffer(packed.tobytes(), dtype, count=1)[0].copy()


def unpack_message(packed: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the message at the front of a float32 array, and the MEMBERs behind a COMMIT."""
    size = packed.nbytes - packed.nbytes % dtype.itemsize
    records = iter(packed.view(np.uint8)[:size].copy().view(dtype))
    return next(records), list(takewhile(lambda record: record["kind"] == MEMBER, records))


def with_headers(arrays: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Add the size of the header to that of each array, given as (key, elements)."""
    return [(key, HEADER_ELEMENTS + elements) for key, elements in arrays]


def header_of(bucket: np.ndarray) -> np.ndarray:
    """Return a writable view of the header at the front of a bucket (float32)."""
    return bucket[:HEADER_ELEMENTS].view(HEADER)[0]


def stamp(array: np.ndarray, kind: int, rank: int, nonce: int, sequence: int, bucket: int, index: int = 0) -> None:
    """Write the header of a bucket in front of its values.

    Args:
        array: the bucket, float32, which begins with the header.
        kind: of the array: PAYLOAD, for instance.
        rank: of the worker that sends it.
        nonce: of its process.
        sequence: number of the exchange.
        bucket: index of the bucket.
        index: see HEADER.
    """
    header = header_of(array)
    header["kind"], header["rank"], header["nonce"] = kind, rank, nonce
    header["sequence"], header["bucket"], header["index"] = sequence, bucket, index


def blank_message(scalars: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of an empty message, name → value, without packing it."""
    blank: dict[str, Any] = {name: b"" if name in ("text", "includes") else 0 for name in MESSAGE.names or ()}
    defaults = {name: scalar.default for name, scalar in BUILT_IN.items()}
    return {**blank, **defaults, **dict.fromkeys(scalars, math.nan)}


def message(kind: int, scalars: Iterable[str] = (), **fields: Any) -> np.ndarray:
    """Return a message (message_type).

    Args:
        kind: of the message.
        scalars: names of its scalars other than the built-in ones.
        fields: name → value. A str is encoded and cut to fit. Missing scalars are not sent.
    """
    record = np.zeros((), message_type(scalars))
    for name, value in {**blank_message(scalars), "kind": kind, **fields}.items():
        record[name] = encode_text(value) if isinstance(value, str) else value
    return record


def encode_text(text: str) -> bytes:
    """Encode a text in UTF-8, cut at a whole character to fit into a record.

    Characters that UTF-8 cannot represent (in file names) become "?".
    """
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore").encode()


def encode_ranks(ranks: Sequence[int] | None, size: int = TEXT_BYTES) -> bytes:
    """Encode ranks as a text of at most `size` bytes, as many as fit; None becomes an empty text."""
    if ranks is None:
        return b""
    text = ",".join(map(str, ranks)).encode() or b"-"
    return text if len(text) <= size else (text + b",")[: size + 1].rpartition(b",")[0]


def decode_ranks(text: bytes) -> frozenset[int] | None:
    """Decode a text of `encode_ranks`."""
    return None if not text else frozenset(int(rank) for rank in text.split(b",") if rank != b"-")
