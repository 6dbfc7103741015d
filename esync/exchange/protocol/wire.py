"""The wire format: headers, messages and the status, as NumPy structured types.

ps-lite carries float32 arrays of a size that is fixed for each key. Buckets of weights, gradients
and updates are such arrays with a small header in front. Messages and the status are packed records
whose raw bytes travel as float32 (the key store only ever copies them, so every bit pattern
survives).
"""

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from .scalars import BUILT_IN

#: Changes whenever a worker and a server of different versions would misunderstand each other.
PROTOCOL = 16

#: float32 values that the header takes in front of every bucket.
HEADER_ELEMENTS = 8

#: Bytes kept for a reason or a name in messages and the status, UTF-8, cut where longer.
TEXT_BYTES = 392

#: Bytes kept for the ranks whose unawaited commits a round takes in; the others have to wait for
#: the next one.
INCLUDED_BYTES = 128

# --- kinds of a bucket's header and of a message --------------------------------------------------
NOTHING = 0  # initial values of a key, and the push that only shows the server where a key is stored
PAYLOAD = 1  # worker → server: part of a gradient or an update, to be staged until its commit
WEIGHTS = 2  # server → worker: the current model
COMMIT = 3  # the payload of this sequence number is complete when all its buckets are there: use it
LEAVE = 4  # this worker will not be heard again, though the run may go on: its statistics no longer count
STOP = 5  # end the run after the round under way
ABORT = 6  # end the run now, it has failed
FETCH = 7  # put the rule's state for one bucket into the mailbox, or the weights that it works on
STATE = 8  # in the mailbox: the same, on its way to a checkpoint or back from one
DONE = 9  # the run is over and this worker will not be heard again: its statistics stay in the final mean
FOLLOW = 10  # which workers the round of that number does not wait for, as the first server has decided
MEMBER = 11  # behind a COMMIT, in one message: that of another worker of its host, whose payload is in the COMMIT's
ASIDE = 12  # rounds do not wait for this worker from now on, until a commit of its own says BACK

#: In FETCH and STATE, stands for the weights that the rule works on, in place of the number of a
#: vector of its state.
SERVER_WEIGHTS = -1


class Use(IntEnum):
    """How a commit is used."""

    AS_AGREED = 0
    """As the handshake says, which holds for the whole run."""
    TOGETHER = 1
    """With those of all members, as one round."""
    AT_ONCE = 2
    """Alone, as soon as it is complete."""
    DISCARD = 3
    """Not at all, only acknowledged: rounds do not wait for its worker."""
    UNAWAITED = 4
    """Together, in the round whose leader names it; rounds do not wait for its worker."""
    BACK = 5
    """Like UNAWAITED, but from the end of that round on they wait for its worker again."""


AS_AGREED, TOGETHER, AT_ONCE, DISCARD, UNAWAITED, BACK = Use

HEADER = np.dtype(
    [
        ("kind", "<i4"),
        ("rank", "<i4"),
        ("nonce", "<i8"),
        ("sequence", "<i8"),
        ("bucket", "<i4"),
        ("place", "<i4"),  # STATE: as in MESSAGE; PAYLOAD: which attempt to send this exchange's payload, from 0
    ]
)

MESSAGE = np.dtype(
    [
        ("kind", "<i4"),
        ("rank", "<i4"),
        ("nonce", "<i8"),  # tells a replacement from the dead worker whose slot it took
        ("sequence", "<i8"),  # counts the exchanges of one slot, from 1
        *((name, "<f8") for name in BUILT_IN),
        ("samples", "<i8"),  # that went into this payload
        ("buckets", "<i4"),  # of this payload on this server; FETCH: the index of the bucket
        # FETCH: number of a vector of the rule's state, from 0, or SERVER_WEIGHTS; COMMIT: the
        # attempt whose arrays count.
        ("place", "<i4"),
        ("round", "<i8"),  # used together: number of the round that it is part of, from 1; 0: the one under way
        ("use", "<i4"),  # how this commit is used; see Use
        ("part", "<i8"),  # round of the newest part of a checkpoint of this run on this worker's disk; 0: none
        ("switch", "<i4"),  # how commits are to be used from now on, see `RoundState.applied`; AS_AGREED: as before
        # Of the leader's commit: the ranks that rounds do not wait for from now on; FOLLOW: those
        # that this one does not wait for; see encode_ranks.
        ("text", f"S{TEXT_BYTES}"),
        # Of the leader's commit: ranks whose unawaited commits, which are on all servers, are part
        # of this round; see encode_ranks.
        ("includes", f"S{INCLUDED_BYTES}"),
    ]
)

#: Values of the built-in scalars where a message does not set them, if not 0.
_UNSAID = [(name, scalar.default) for name, scalar in BUILT_IN.items() if scalar.default != 0]


def message_type(scalars: Iterable[str] = ()) -> np.dtype:
    """Return the record type of a message with these scalars beside the built-in ones."""
    return _message_type(tuple(scalars))


@lru_cache
def _message_type(scalars: tuple[str, ...]) -> np.dtype:
    return np.dtype([*MESSAGE.descr, *((name, "<f8") for name in sorted(scalars))])


def status_type(slots: int, scalars: Iterable[str] = ()) -> np.dtype:
    """Return the type of the record that every server keeps for its workers to pull.

    It has one entry per worker slot. The field "scalars", where there are any beside the built-in
    ones, has the combined values over all workers.
    """
    return _status_type(slots, tuple(scalars))


@lru_cache
def _status_type(slots: int, scalars: tuple[str, ...]) -> np.dtype:
    return np.dtype(
        [
            ("round", "<i8"),  # rounds completed (synchronous), or commits applied ÷ slots (asynchronous)
            ("version", "<i8"),  # commits that have gone into the weights
            ("step", "<i8"),  # times that the weights have changed: once per round, or once per commit used at once
            ("samples", "<i8"),  # of all workers
            ("samples_together", "<i8"),  # those of them whose commits were used together, as rounds
            ("rounds_together", "<i8"),  # rounds in which commits were used together
            ("fastest", "<f8"),  # seconds of an iteration on the fastest worker; 0: none has sent it
            ("elapsed", "<f8"),  # seconds from the last worker's handshake to the last change of this record
            ("exchanged_at", "<f8"),  # elapsed when the weights last changed
            ("job", "<i8"),  # number of this job: the nonce of the first holder of slot 0
            ("resume_at", "<i8"),  # the round that the workers go on from; -1: from the beginning
            ("whole", "<i8"),  # round of the newest checkpoint that is known to be whole; 0: none
            ("stop_at", "<i8"),  # the run ends when this many rounds are done; -1: not known yet
            ("aborted", "<i4"),  # 1: the run has failed, for the reason in text
            ("synchronous", "<i4"),  # 1: the next commits should be used together, 0: each of them at once
            ("text", f"S{TEXT_BYTES}"),
            ("acknowledged", "<i8", (slots,)),  # sequence number of the last commit of that slot that was dealt with
            ("used", "<i4", (slots,)),  # how that commit went into the weights: TOGETHER or AT_ONCE; 0: not at all
            ("wait", "<f8", (slots,)),  # seconds from that commit to the last one of its round, by the server's clock
            ("answer", "<i8", (slots,)),  # bytes of the sparse message that answers that commit
            ("nonce", "<i8", (slots,)),  # who holds the slot; 0: nobody
            ("arrivals", "<i4", (slots,)),  # how many workers have held it so far
            ("member", "<i4", (slots,)),  # 1: counted in the round under way
            ("excluded", "<i4", (slots,)),  # 1: is there, but rounds do not wait for it
            ("aside", "<i4", (slots,)),  # bit 0: likewise, because it has said so itself; bit 1: `RoundState.resting`
            ("needed", "<i4", (slots,)),  # 1: a checkpoint of now needs its part
            ("committed", "<i4", (slots,)),  # 1: has committed in the round under way
            *([("scalars", [(name, "<f8") for name in sorted(scalars)])] if scalars else []),
        ]
    )


def message_elements(slots: int, scalars: Iterable[str] = (), per_host: int = 1) -> int:
    """Return the float32 size of the key that carries messages one way and the status the other.

    The commits of `per_host` workers fit into one message.
    """
    names = tuple(scalars)
    return -(-max(per_host * message_type(names).itemsize, status_type(slots, names).itemsize) // 4)


def scalars_of(status: Any) -> dict[str, float]:
    """Return the values of the added scalars in a status (status_type).

    Only those that some worker has sent are there.
    """
    if "scalars" not in status.dtype.names:
        return {}
    told = status["scalars"]
    return {name: float(told[name]) for name in told.dtype.names if not math.isnan(told[name])}


def pack(record: np.ndarray, elements: int, behind: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Return records as a float32 array of `elements` values with the same bytes, then zeros.

    Args:
        record: the first one.
        elements: of the array.
        behind: further ones, of the same type.
    """
    packed = np.zeros(elements, np.float32)
    content = b"".join([record.tobytes(), *(each.tobytes() for each in behind)])
    packed.view(np.uint8)[: len(content)] = np.frombuffer(content, np.uint8)
    return packed


def unpack(packed: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the record at the front of a float32 array.

    It is a zero-dimensional structured array, a copy.
    """
    return np.frombuffer(packed.tobytes(), dtype, count=1)[0].copy()


def unpack_message(packed: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the message at the front of a float32 array, and the MEMBERs behind a COMMIT."""
    first = unpack(packed, dtype)
    members: list[np.ndarray] = []
    if first["kind"] == COMMIT:
        content = packed.view(np.uint8)
        for end in range(2 * dtype.itemsize, content.size + 1, dtype.itemsize):
            record = np.frombuffer(content[end - dtype.itemsize : end].tobytes(), dtype)[0]
            if record["kind"] != MEMBER:
                break
            members.append(record.copy())
    return first, members


def with_headers(arrays: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return keys and sizes of arrays with their headers, given those without them."""
    return [(key, HEADER_ELEMENTS + elements) for key, elements in arrays]


def header_of(bucket: np.ndarray) -> np.ndarray:
    """Return the header at the front of a bucket (float32), as a record that writes through."""
    return bucket[:HEADER_ELEMENTS].view(HEADER)[0]


def stamp(bucket: np.ndarray, kind: int, rank: int, nonce: int, sequence: int, index: int, place: int = 0) -> None:
    """Write the header of bucket number `index` in front of its values (float32).

    Args:
        bucket: the array, which begins with the header.
        kind: what the array is: PAYLOAD, for instance.
        rank: of the worker that sends it.
        nonce: of its process.
        sequence: number of the exchange.
        index: number of the bucket.
        place: see HEADER.
    """
    header = header_of(bucket)
    header["kind"], header["rank"], header["nonce"] = kind, rank, nonce
    header["sequence"], header["bucket"], header["place"] = sequence, index, place


def blank_message(scalars: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of an empty message, by name, for those who need not pack it."""
    blank: dict[str, Any] = {name: b"" if name in ("text", "includes") else 0 for name in MESSAGE.names or ()}
    return {**blank, **dict(_UNSAID), **dict.fromkeys(scalars, math.nan)}


def message(kind: int, scalars: Iterable[str] = (), **fields: Any) -> np.ndarray:
    """Return a message (message_type); text may be a str of any length, and is cut to fit.

    Args:
        kind: of the message.
        scalars: names of those that it has beside the built-in ones.
        fields: its content; a scalar that is not among them is not sent.
    """
    record = np.zeros((), message_type(scalars))
    record["kind"] = kind
    for name, default in _UNSAID:
        record[name] = default
    for name in scalars:
        record[name] = math.nan
    for name, value in fields.items():
        record[name] = encode_text(value) if isinstance(value, str) else value
    return record


def encode_text(text: str) -> bytes:
    """Return a text in UTF-8, cut at a whole character so that it fits into a record.

    What UTF-8 cannot hold (in file names) becomes "?".
    """
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore").encode()


def encode_ranks(ranks: Sequence[int] | None, size: int = TEXT_BYTES) -> bytes:
    """Return ranks as a text of a message, as many as fit; None becomes an empty text.

    `size` is the number of bytes that the text may have.
    """
    if ranks is None:
        return b""
    text = ",".join(map(str, ranks)).encode() or b"-"
    return text if len(text) <= size else (text + b",")[: size + 1].rpartition(b",")[0]


def decode_ranks(text: bytes) -> frozenset[int] | None:
    """Return the ranks in a text of `encode_ranks`."""
    return None if not text else frozenset(int(rank) for rank in text.split(b",") if rank != b"-")
