"""Restore the NumPy names that MXNet 1.9.1 still uses and NumPy 1.24 has removed."""

#: Name in NumPy → the built-in type of which it was an alias before NumPy 1.24.
ALIASES = {"bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str}


def install() -> None:
    """Make `import mxnet` work with NumPy 1.24 to 1.26; do nothing if the names exist, or without NumPy."""
    try:
        import numpy as np
    except ModuleNotFoundError:
        return
    for name, builtin in ALIASES.items():
        if name not in vars(np):
            setattr(np, name, builtin)
