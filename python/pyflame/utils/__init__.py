"""Where PyTorch keeps its tools: pyflame.utils.data is pyflame.data."""
from . import data  # noqa: F401

_SUBMODULES = ("_pytree", "checkpoint", "collect_env", "cpp_extension", "dlpack", "hooks", "model_zoo", "tensorboard")


def __getattr__(name):
    if name in _SUBMODULES:
        from importlib import import_module

        return import_module("." + name, __name__)
    raise AttributeError(f"module 'pyflame.utils' has no attribute '{name}'")
