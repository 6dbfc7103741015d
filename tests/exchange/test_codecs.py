"""The codecs that specifications ask for."""

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Flat, Specification
from esync.exchange.codecs.factory import codec_of
from esync.exchange.protocol.layout import Layout

LAYOUT = Layout({WEIGHTS: 5000}, 2, 1024)
SPARSE = {"tensors": [5000], "secondary_ratio": 0.0, "dense_below": 0, "values": "float32"}


def dense(compression: str, synchronous: bool = True) -> Specification:
    return Specification("sgd", synchronous, compression=compression, tensors=[5000])


def sparse(synchronous: bool = False) -> Specification:
    return Specification("difference", synchronous, SPARSE, sparse=True)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (dense("fp16", synchronous=False), "compression 'fp16' needs rounds"),
        (dense("topk:0.01"), "'topk:0.01', but should be one of none, fp16, 4bit, 2bit"),
        (sparse(synchronous=True), "sparse steps have no use for rounds"),
    ],
)
def test_codec_that_is_none_or_does_not_fit_the_exchange_is_refused(asked: Specification, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        codec_of(asked, LAYOUT, 3)


@pytest.mark.parametrize("compression", ["none", "fp16", "2bit"])
def test_codec_sizes_are_known_without_values(compression: str) -> None:
    codec = codec_of(dense(compression), LAYOUT, 3)
    encoder, decoder = codec.encoder(0), codec.decoder(0)
    written: dict[int, list[int]] = {0: [], 1: []}
    buffers: dict[int, int] = {}

    def buffer(key: int, elements: int) -> np.ndarray:
        buffers[key] = elements
        return np.empty(elements, np.float32)

    for packed in encoder.write(Flat(np.random.default_rng(1).standard_normal(5000).astype(np.float32)), buffer):
        written[packed.shard].append(buffers[packed.key])
    for server in range(2):
        sizes = sorted(encoder.sizes(server))
        assert sorted(written[server]) == sizes == sorted(decoder.answer_sizes(server, 0))
        assert sorted(size for _, size in decoder.answer_arrays(server, 0)) == sizes
