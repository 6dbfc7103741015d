"""SGD on host memory gives the same bits as MXNet's."""

import numpy as np
import pytest

from esync.engine import mx
from esync.simulate.hostsgd import BLOCK, HostSGD


@pytest.mark.parametrize(("rate", "rescale"), [(0.0005, 1.0), (0.05, 1 / 64), (0.123, 0.37)])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"wd": 0.01}, {"clip_gradient": 0.1}])
def test_the_same_bits(rate, rescale, options):
    random = np.random.default_rng(0)
    values, slopes = (random.standard_normal(2 * BLOCK + 7, np.float32) for _ in range(2))
    weights = []
    for optimizer in (mx.optimizer.SGD, HostSGD):
        update = mx.optimizer.get_updater(optimizer(learning_rate=rate, rescale_grad=rescale, **options))
        weight = mx.nd.array(values)
        for _ in range(3):
            update(0, mx.nd.array(slopes), weight)
        weights.append(weight.asnumpy())
    assert not np.array_equal(weights[0], values)
    assert np.array_equal(*weights)
