"""Runs programs with PyFlame under PyTorch's name, or with PyTorch, and prints their losses as JSON.

    python tests/ports/run.py mnist vae    with PyFlame; all of them without names
    python tests/ports/run.py --torch      with PyTorch
    python tests/ports/run.py --record     with PyTorch, into losses.json
"""
import importlib
import json
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")
LOSSES = os.path.join(HERE, "losses.json")


def names():
    """The names of all programs."""
    return sorted(f[:-3] for f in os.listdir(PROGRAMS) if f.endswith(".py"))


def losses(name):
    """The losses of a program, in the framework that `import torch` means."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    module = importlib.import_module(name)
    dtype = getattr(module, "DTYPE", "float32")
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        return {"dtype": dtype, "losses": list(module.main())}
    except Exception as error:  # a program that fails does not hide the others
        return {"dtype": dtype, "error": f"{type(error).__name__}: {error}"}
    finally:
        torch.set_default_dtype(torch.float32)


def main():
    options, asked = [a for a in sys.argv[1:] if a.startswith("-")], [a for a in sys.argv[1:] if not a.startswith("-")]
    warnings.simplefilter("ignore")
    if "--torch" not in options and "--record" not in options:
        import pyflame.torch.as_torch  # noqa: F401
    sys.path[:0] = [HERE, PROGRAMS]
    found = {name: losses(name) for name in asked or names()}
    lines = "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in found.items()) + "\n}\n"
    if "--record" not in options:
        return print(lines)
    with open(LOSSES, "w", encoding="utf-8") as f:
        f.write(lines)


if __name__ == "__main__":
    main()
