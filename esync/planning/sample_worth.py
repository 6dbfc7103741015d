"""Model of samples: how much a sample contributes, compared with one in sequential SGD.

A rule of thumb, fitted to the measured times to an accuracy in docs/how-to/plan.md.
"""

#: N: with N + 1 devices that compute at the same time, a sample is worth half of one in sequential SGD.
HALF_DEVICES = 7.0
#: H: with H + 1 local iterations between two exchanges, a sample is worth half of one in sequential SGD.
HALF_LOCAL = 22.0


def worth(local_iterations: float, batches: float) -> float:
    """Return the worth of a sample, which is 1 in sequential SGD.

    Gradients that are summed or averaged are partly redundant. With h local iterations between two
    exchanges on the device that does most of them, and B batches of all devices, n = B ÷ h devices
    compute at the same time, and a sample is worth

        1 ÷ (1 + (n − 1) ÷ N) · 1 ÷ (1 + (h − 1) ÷ H).

    The first factor is the trade-off between steps and examples of McCandlish et al., *An Empirical
    Model of Large-Batch Training* (2018), with a critical batch size of N batches. The second models
    the drift of the replicas in the same form.

    Args:
        local_iterations: h, 1 or more.
        batches: B, 1 or more.
    """
    devices = max(1.0, batches / max(1.0, local_iterations))
    extra_iterations = max(0.0, local_iterations - 1)
    return 1 / (1 + (devices - 1) / HALF_DEVICES) / (1 + extra_iterations / HALF_LOCAL)
