"""The wire format of a sparse message.

    header | count of each segment (uint32) | code of the indices | values

A *segment* is the part of a tensor that a server holds; the segments of a server are concatenated.
Indices are coded in the shortest of three ways: as a bitmap (1 for each entry); as distances to the
index before, less 1, in one byte each (255 means "255 further"); or as uint32. With the latter two,
a segment whose count is its size is dense: all of its values are sent, and no indices. Values are
float32 or float16, in the order of their indices. Each part is padded to words of four bytes.
Both ends know the segments and the type of the values, and compare their versions in the handshake.
"""

from dataclasses import dataclass

import numpy as np

from . import Sparse, bitmap, join, kernels
from .buffers import SparseMessage

HEADER = np.dtype(
    [
        ("indices", "<u4"),  # number in INDEX_CODES
        ("code", "<u4"),  # bytes of the indices' code, without those that fill its last word
    ]
)
INDEX_CODES = GAPS, UINT32, BITS = ("gaps", "uint32", "bits")
#: Every part of a message is padded to a multiple of this number of bytes.
WORD = 4


@dataclass(frozen=True)
class MessageFormat:
    """Encodes sparse vectors as messages, and decodes them.

    Attributes:
        bounds: start of each segment, and end of the last one (int64).
        kind: of the values, "float32" or "float16".
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
        sent = _filled(values.astype(self.kind, copy=False).view(np.uint8))
        header = np.array([(INDEX_CODES.index(coding), code.size)], HEADER)
        return SparseMessage([header.view(np.uint8), counts.astype("<u4").view(np.uint8), _filled(code), sent])

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
        """Return the entries of a message (uint8, may be followed by zeros)."""
        header = message[: HEADER.itemsize].view(HEADER)[0]
        length, begin = int(header["code"]), HEADER.itemsize + 4 * (self.bounds.size - 1)
        counts = message[HEADER.itemsize : begin].view("<u4").astype(np.int64)
        indices = self._decode_positions(message[begin : begin + length], counts, INDEX_CODES[header["indices"]])
        values = message[begin + -(-length // WORD) * WORD :][: self._width * indices.size]
        return indices, values.view(self.kind).astype(np.float32, copy=False)

    # --- helpers ----------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        """Bytes of a value."""
        return np.dtype(self.kind).itemsize

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

    def _decode_positions(self, code: np.ndarray, counts: np.ndarray, coding: str) -> np.ndarray:
        """Return all indices, ascending."""
        if coding == BITS:
            indices = np.empty(int(counts.sum()), np.int64)
            bitmap.list_marked(np.frombuffer(code.tobytes(), np.uint64).copy(), indices)
            return indices
        if coding == GAPS:
            indices = np.empty(int(counts[counts < np.diff(self.bounds)].sum()), np.int64)
            kernels.decode_gaps(code, indices)
        else:
            indices = code.copy().view("<u4").astype(np.int64)
        return self._with_dense(indices, counts)

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


def _filled(part: np.ndarray) -> np.ndarray:
    """Return a part (uint8), padded with zeros to whole words."""
    missing = -part.size % WORD
    return np.concatenate([part, np.zeros(missing, np.uint8)]) if missing else part
