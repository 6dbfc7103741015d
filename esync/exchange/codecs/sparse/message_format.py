"""The wire format of a sparse message.

    header | count of each segment (uint32) | code of the indices | values

A *segment* is the part of a tensor that a server holds; the segments of a server are concatenated.
Indices are coded in the shortest of three ways: as a bitmap (1 for each entry); as distances to the
index before, less 1, in one byte each (255 means "255 further"); or as uint32. With the latter two,
a segment whose count is its size is dense: all of its values are sent, and no indices. Values are
float32 or float16, in the order of their indices. Each part is padded to words of four bytes.
The header contains version, kinds and lengths, so truncated messages and messages of other versions
are detected before use.
"""

from dataclasses import dataclass

import numpy as np

from . import Sparse, SparseError, bitmap, join, kernels
from .buffers import SparseMessage

#: Version of this format; both ends must have the same.
VERSION = 3
#: First bytes of a message: b"ESSP".
MAGIC = int.from_bytes(b"ESSP", "little")

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "<u2"),
        ("values", "u1"),  # number in KINDS
        ("indices", "u1"),  # number in INDEX_CODES
        ("segments", "<u4"),
        ("entries", "<u4"),  # of all segments, dense ones included
        ("code", "<u4"),  # bytes of the indices' code, without those that fill its last word
        ("check", "<u4"),  # sum of all words behind the header, modulo 2³²
    ]
)
#: Kinds of values: differences as float32 or float16, or the new values of weights.
KINDS = FLOAT32, FLOAT16, NEW_VALUES = ("float32", "float16", "new values")
VALUE_TYPES = {FLOAT32: "<f4", FLOAT16: "<f2", NEW_VALUES: "<f4"}
INDEX_CODES = GAPS, UINT32, BITS = ("gaps", "uint32", "bits")
#: Every part of a message is padded to a multiple of this number of bytes.
WORD = 4


@dataclass(frozen=True)
class MessageFormat:
    """Encodes sparse vectors as messages, and decodes them.

    Attributes:
        bounds: start of each segment, and end of the last one (int64).
        kind: of the values, one of KINDS; messages of other kinds are refused.
    """

    bounds: np.ndarray
    kind: str = "float32"

    def message(self, entries: Sparse) -> SparseMessage:
        """Return the message of a sparse vector; values are rounded to the kind."""
        counts = np.diff(np.searchsorted(entries[0], self.bounds))
        if self.bitmap_is_shorter(counts):
            bits = bitmap.no_marks(int(self.bounds[-1]))
            bitmap.mark(bits, entries[0])
            return self.assemble(counts, BITS, bits.view(np.uint8), entries[1])
        indices, values = self._fill_up(entries)
        edges = np.searchsorted(indices, self.bounds)
        counts = np.diff(edges)
        coded = [indices[edges[first] : edges[last]] for first, last in runs(counts < np.diff(self.bounds))]
        code, coding = encode_indices(coded)
        return self.assemble(counts, coding, code, values)

    def assemble(self, counts: np.ndarray, coding: str, code: np.ndarray, values: np.ndarray) -> SparseMessage:
        """Return the message for coded indices.

        Args:
            counts: entries of each segment.
            coding: the coding of the indices, one of INDEX_CODES.
            code: of the indices, uint8.
            values: float32.
        """
        sent = _filled(values.astype(VALUE_TYPES[self.kind], copy=False).view(np.uint8))
        counted, coded = counts.astype("<u4").view(np.uint8), _filled(code)
        header = np.zeros(1, HEADER)
        header["magic"], header["version"] = MAGIC, VERSION
        header["values"], header["indices"] = KINDS.index(self.kind), INDEX_CODES.index(coding)
        header["segments"], header["entries"], header["code"] = counts.size, values.size, code.size
        header["check"] = check_sum(counted, coded, sent)
        return SparseMessage([header.view(np.uint8), counted, coded, sent])

    def dense_is_shorter(self, counts: np.ndarray) -> np.ndarray:
        """Return for which segments dense values are not longer than values with one-byte distances."""
        return counts * (self._width + 1) >= np.diff(self.bounds) * self._width

    def bitmap_is_shorter(self, counts: np.ndarray) -> bool:
        """Return whether a bitmap is not longer than distances of one byte each."""
        dense = self.dense_is_shorter(counts)
        coded = int(counts[~dense].sum())
        filled = int(np.diff(self.bounds)[dense].sum()) - int(counts[dense].sum())
        return 0 < 8 * bitmap.words(int(self.bounds[-1])) <= coded + self._width * filled

    def decode(self, message: np.ndarray) -> Sparse:
        """Return the entries of a message (uint8, may be followed by zeros).

        Raises:
            SparseError: it is malformed.
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
        if header["values"] != KINDS.index(self.kind) or header["indices"] >= len(INDEX_CODES):
            raise SparseError(f"a sparse message with other kinds of values or indices than expected ({self.kind})")
        kind = np.dtype(VALUE_TYPES[self.kind])
        behind = 4 * segments + -(-length // WORD) * WORD  # where the values begin
        total = behind + -(-kind.itemsize * entries // WORD) * WORD
        body = message[HEADER.itemsize : HEADER.itemsize + total]
        if body.size < total or message[HEADER.itemsize + total :].any():
            raise SparseError(f"a sparse message of {message.size} bytes where its header says {total} and a header")
        if check_sum(body) != header["check"]:
            raise SparseError("a sparse message has been damaged on its way: its check sum is wrong")
        counts = body[: 4 * segments].view("<u4").astype(np.int64)
        if (counts > np.diff(self.bounds)).any() or counts.sum() != entries:
            raise SparseError("the counts of a sparse message do not fit its tensors")
        indices = self._decode_positions(body[4 * segments : 4 * segments + length], counts, int(header["indices"]))
        values = body[behind : behind + kind.itemsize * entries].view(kind).astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise SparseError("a sparse message has values that are infinite or not numbers")
        return indices, values

    # --- helpers ----------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        """Bytes of a value."""
        return np.dtype(VALUE_TYPES[self.kind]).itemsize

    def _fill_up(self, entries: Sparse) -> Sparse:
        """Add zeros for the missing entries of segments that are sent dense."""
        indices, values = entries
        edges = np.searchsorted(indices, self.bounds)
        counts, sizes = np.diff(edges), np.diff(self.bounds)
        fuller = np.flatnonzero((counts < sizes) & self.dense_is_shorter(counts))
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
        return join(parts)

    def _decode_positions(self, code: np.ndarray, counts: np.ndarray, coding: int) -> np.ndarray:
        """Return all indices, ascending, checked against the counts."""
        if INDEX_CODES[coding] != BITS:
            return self._with_dense(self._decode_indices(code, counts, coding), counts)
        size = int(self.bounds[-1])
        if code.size != 8 * bitmap.words(size):
            raise SparseError("a sparse message has more or fewer bits than places")
        bits = np.frombuffer(code.tobytes(), np.uint64).copy()
        actual = np.zeros(counts.size, np.int64)
        bitmap.count_marks(bits, self.bounds, actual)
        if (actual != counts).any() or int(bits[-1]) >> (1 + (size - 1) % 64):
            raise SparseError("the indices of a sparse message do not fit its counts")
        indices = np.empty(int(counts.sum()), np.int64)
        bitmap.list_marked(bits, indices)
        return indices

    def _decode_indices(self, code: np.ndarray, counts: np.ndarray, coding: int) -> np.ndarray:
        """Return the coded indices, ascending, checked against the counts."""
        sizes = np.diff(self.bounds)
        indices = np.empty(int(counts[counts < sizes].sum()), np.int64)
        if INDEX_CODES[coding] == GAPS:
            if not kernels.decode_gaps(code, indices):
                raise SparseError("a sparse message has more or fewer indices than it says")
            ascending = True
        elif code.size != 4 * indices.size:
            raise SparseError("a sparse message has more or fewer indices than it says")
        else:
            indices = code.copy().view("<u4").astype(np.int64)
            ascending = bool((np.diff(indices) > 0).all())
        actual = np.diff(np.searchsorted(indices, self.bounds))
        if not ascending or (actual != np.where(counts < sizes, counts, 0)).any():
            raise SparseError("the indices of a sparse message do not fit its counts")
        return indices

    def _with_dense(self, coded: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return all indices: the coded ones, and those of the dense segments."""
        dense = np.flatnonzero((counts == np.diff(self.bounds)) & (counts > 0))
        edges = np.searchsorted(coded, self.bounds)
        parts, done = [], 0
        for segment in dense:
            parts += [coded[done : edges[segment]], np.arange(self.bounds[segment], self.bounds[segment + 1])]
            done = edges[segment]
        return np.concatenate([*parts, coded[done:]])


def encode_indices(coded: list[np.ndarray]) -> tuple[np.ndarray, str]:
    """Return the shorter code of ascending indices, given in pieces, and its kind."""
    code = np.empty(4 * sum(piece.size for piece in coded), np.uint8)
    length, before = 0, -1
    for piece in coded:
        length = kernels.encode_gaps(piece, before, code, length)
        if length < 0:
            return np.concatenate(coded).astype("<u4").view(np.uint8), UINT32
        before = int(piece[-1]) if piece.size else before
    return code[:length], GAPS


def runs(chosen: np.ndarray) -> list[tuple[int, int]]:
    """Return the runs of True values: index of the first one, and one past that of the last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def check_sum(*parts: np.ndarray) -> int:
    """Return the sum of all words, modulo 2³²; the parts (uint8) consist of whole words."""
    return sum(int(kernels.word_sum(part.view("<u4"))) for part in parts) & 0xFFFFFFFF


def _filled(part: np.ndarray) -> np.ndarray:
    """Return a part (uint8), padded with zeros to whole words."""
    missing = -part.size % WORD
    return np.concatenate([part, np.zeros(missing, np.uint8)]) if missing else part
