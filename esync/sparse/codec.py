"""The wire format of a sparse message; docs/dgs.md describes it.

    header | count of each segment (uint32) | code of the indices | values

A *segment* is a tensor, or the part of one, that a server holds; a server's segments lie one behind the other. One
whose count is its size is dense: all of its values are there, and none of its indices. The indices of the others are
coded as distances, a byte each where they are below 255, or as uint32 where that is shorter. Values are float32 or
float16, in the order of their places. The header says version, kinds and lengths, so that a message that is cut short,
or of another version, is known before anything is done with it.
"""

from dataclasses import dataclass

import numpy as np

from . import Sparse, SparseError, kernels

#: Changes whenever two versions would misunderstand each other.
VERSION = 1
#: Marks the beginning of a message: b"ESSP".
MAGIC = int.from_bytes(b"ESSP", "little")

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "<u2"),
        ("values", "u1"),  # place in VALUE_TYPES
        ("indices", "u1"),  # place in INDEX_CODES
        ("segments", "<u4"),
        ("entries", "<u4"),  # of all segments, dense ones included
        ("code", "<u4"),  # bytes of the indices' code
        ("check", "<u4"),  # sum of all bytes behind the header, modulo 2³²
    ]
)
VALUE_TYPES = ("float32", "float16")
INDEX_CODES = ("gaps", "uint32")


@dataclass(frozen=True)
class Codec:
    """Turns sparse vectors into bytes and back.

    Attributes:
        bounds: where each segment begins, and where the last one ends (int64).
        kind: of the values, "float32" or "float16".
    """

    bounds: np.ndarray
    kind: str = "float32"

    def encode(self, entries: Sparse) -> np.ndarray:
        """The message, uint8; values are rounded to the kind. Segments are sent dense where that is shorter."""
        entries = self._fill_up(entries)
        indices, values = entries
        counts, sparse = self._count(indices)
        indices = indices[sparse]
        code = np.empty(4 * indices.size, np.uint8)
        length = kernels.encode_gaps(indices, code)
        code = code[:length] if length >= 0 else indices.astype("<u4").view(np.uint8)
        header = np.zeros((), HEADER)
        header["magic"], header["version"] = MAGIC, VERSION
        header["values"], header["indices"] = VALUE_TYPES.index(self.kind), int(length < 0)
        header["segments"], header["entries"], header["code"] = counts.size, values.size, code.size
        sent = values.astype("<f4" if self.kind == "float32" else "<f2", copy=False)
        body = np.concatenate([counts.astype("<u4").view(np.uint8), code, sent.view(np.uint8)])
        header["check"] = check_sum(body)
        return np.concatenate([np.frombuffer(header.tobytes(), np.uint8), body])

    def decode(self, message: np.ndarray) -> Sparse:
        """The entries of a message (uint8; zeros behind it are allowed).

        Raises:
            SparseError: it is malformed; the message says in what.
        """
        if message.size < HEADER.itemsize:
            raise SparseError(f"a sparse message of {message.size} bytes is shorter than its header")
        header = message[: HEADER.itemsize].view(HEADER)[0]
        if header["magic"] != MAGIC:
            raise SparseError("this is no sparse message")
        if header["version"] != VERSION:
            raise SparseError(f"a sparse message of version {header['version']} where version {VERSION} is expected")
        segments, entries, length = int(header["segments"]), int(header["entries"]), int(header["code"])
        if segments != self.bounds.size - 1:
            raise SparseError(f"a sparse message of {segments} tensors where {self.bounds.size - 1} are expected")
        if header["values"] >= len(VALUE_TYPES) or header["indices"] >= len(INDEX_CODES):
            raise SparseError("a sparse message with unknown kinds of values or indices")
        kind = np.dtype("<f4" if VALUE_TYPES[header["values"]] == "float32" else "<f2")
        total = 4 * segments + length + kind.itemsize * entries
        body = message[HEADER.itemsize : HEADER.itemsize + total]
        if body.size < total or message[HEADER.itemsize + total :].any():
            raise SparseError(f"a sparse message of {message.size} bytes where its header says {total} and a header")
        if check_sum(body) != header["check"]:
            raise SparseError("a sparse message has been damaged on its way: its check sum is wrong")
        counts = body[: 4 * segments].copy().view("<u4").astype(np.int64)
        if (counts > np.diff(self.bounds)).any() or counts.sum() != entries:
            raise SparseError("the counts of a sparse message do not fit its tensors")
        coded = self._decode_indices(body[4 * segments : 4 * segments + length], counts, int(header["indices"]))
        indices = self._with_dense(coded, counts)
        values = body[4 * segments + length :].copy().view(kind).astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise SparseError("a sparse message has values that are infinite or not numbers")
        return indices, values

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _count(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Entries of each segment, and which entries belong to segments that are not dense."""
        counts = np.diff(np.searchsorted(indices, self.bounds))
        return counts, np.repeat(counts < np.diff(self.bounds), counts)

    def _fill_up(self, entries: Sparse) -> Sparse:
        """Zeros for what is missing in segments that are shorter when dense."""
        indices, values = entries
        edges = np.searchsorted(indices, self.bounds)
        counts, sizes = np.diff(edges), np.diff(self.bounds)
        width = 4 if self.kind == "float32" else 2
        fuller = np.flatnonzero((counts < sizes) & (counts * (width + 1) >= sizes * width))
        if not fuller.size:
            return entries
        parts: list[Sparse] = []
        done = 0
        for segment in fuller:
            first, last = edges[segment], edges[segment + 1]
            start, stop = self.bounds[segment], self.bounds[segment + 1]
            dense = np.zeros(stop - start, np.float32)
            dense[indices[first:last] - start] = values[first:last]
            parts += [(indices[done:first], values[done:first]), (np.arange(start, stop), dense)]
            done = last
        parts.append((indices[done:], values[done:]))
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _decode_indices(self, code: np.ndarray, counts: np.ndarray, how: int) -> np.ndarray:
        """The coded indices, ascending, checked against the counts."""
        sizes = np.diff(self.bounds)
        indices = np.empty(int(counts[counts < sizes].sum()), np.int64)
        if INDEX_CODES[how] == "gaps":
            if not kernels.decode_gaps(code, indices):
                raise SparseError("the indices of a sparse message are not as many as it says")
        elif code.size != 4 * indices.size:
            raise SparseError("the indices of a sparse message are not as many as it says")
        else:
            indices = code.copy().view("<u4").astype(np.int64)
        found = np.diff(np.searchsorted(indices, self.bounds))
        if (np.diff(indices) <= 0).any() or (found != np.where(counts < sizes, counts, 0)).any():
            raise SparseError("the indices of a sparse message do not fit its counts")
        return indices

    def _with_dense(self, coded: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """All indices: the coded ones, and those of the dense segments."""
        dense = np.flatnonzero((counts == np.diff(self.bounds)) & (counts > 0))
        edges = np.searchsorted(coded, self.bounds)
        parts, done = [], 0
        for segment in dense:
            parts += [coded[done : edges[segment]], np.arange(self.bounds[segment], self.bounds[segment + 1])]
            done = edges[segment]
        return np.concatenate([*parts, coded[done:]])


def check_sum(body: np.ndarray) -> int:
    """A sum that notices most damage: of all bytes, modulo 2³²."""
    return int(body.sum(dtype=np.uint64)) & 0xFFFFFFFF
