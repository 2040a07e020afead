"""Gradients: backward and grad, functions with gradients written in Python, gradient checks, recomputation."""
from .._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from .function import Function, FunctionCtx  # noqa: F401
from .gradcheck import gradcheck, gradgradcheck  # noqa: F401
from .modes import backward, detect_anomaly, grad, set_detect_anomaly, set_multithreading_enabled  # noqa: F401
from .recompute import checkpoint  # noqa: F401
from .variable import Variable  # noqa: F401

_SUBMODULES = ("anomaly_mode", "forward_ad", "functional", "grad_mode", "graph", "profiler")


def __getattr__(name):
    if name in _SUBMODULES:
        from importlib import import_module

        return import_module("." + name, __name__)
    from .._misspelt import missing

    raise missing(__name__, name)
