"""Samples by which replaced weights are noticed, of arrays of both of MXNet's kinds."""

import pytest

from esync.gluon.weight_samples import Sampler
from esync.runtime.mxnet_import import mx


@pytest.mark.parametrize("module", [mx.nd, mx.np], ids=["nd", "np"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sample_differs_where_an_array_was_replaced(module, dtype):
    arrays = [module.ones((3, 5), dtype=dtype), module.ones((40, 40), dtype=dtype)]
    sampler = Sampler(lambda: arrays)
    before = sampler.sample()
    arrays[1][:] = 2
    after = sampler.sample()
    assert [len(sample) for sample in before] == [15 * arrays[0].asnumpy().itemsize, 64]
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)
