"""Networks: named, built, made faster on CPUs, and exported at the end.

See `names`, which needs no MXNet, `networks`, `group_norm`, `depthwise` and `export`.

May import `runtime`.
"""
