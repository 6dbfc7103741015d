import cv2
import numpy as np
import pytest

from esync.models.networks import resize
from esync.runtime.mxnet_import import mx


@pytest.mark.parametrize("size", [299, 14])
def test_resize_agrees_with_opencv_linear_interpolation(size):
    images = np.random.default_rng(0).random((3, 1, 28, 28), np.float32)
    expected = [cv2.resize(image[0], (size, size), interpolation=cv2.INTER_LINEAR) for image in images]
    resized = resize(mx.nd.array(images), size)
    assert resized.shape == (3, 1, size, size)
    np.testing.assert_allclose(resized.asnumpy()[:, 0], expected, atol=1e-5)


def test_resize_agrees_with_values_worked_out_by_hand():
    # Pixel centres at 1/4, 3/4, … of the old pixels: between two of them a quarter and three
    # quarters of each.
    resized = resize(mx.nd.array([[[[0.0, 4.0], [8.0, 12.0]]]]), 4).asnumpy()[0, 0]
    row = np.array([0.0, 1.0, 3.0, 4.0])
    np.testing.assert_allclose(resized, row + 2 * row[:, np.newaxis], atol=1e-6)


def test_resize_with_unchanged_size_returns_the_same_images():
    images = mx.nd.zeros((2, 1, 28, 28))
    assert resize(images, 28) is images
