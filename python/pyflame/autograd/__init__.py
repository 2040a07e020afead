"""Gradients: backward and grad, functions with gradients written in Python, gradient checks, recomputation."""
from .._grad_mode import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad, set_grad_enabled as set_grad_enabled
from .function import Function as Function, FunctionCtx as FunctionCtx
from .gradcheck import gradcheck as gradcheck, gradgradcheck as gradgradcheck
from .modes import (
    backward as backward,
    detect_anomaly as detect_anomaly,
    grad as grad,
    set_detect_anomaly as set_detect_anomaly,
    set_multithreading_enabled as set_multithreading_enabled,
)
from .recompute import checkpoint as checkpoint
from .variable import Variable as Variable

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from . import (
        anomaly_mode as anomaly_mode,
        forward_ad as forward_ad,
        functional as functional,
        grad_mode as grad_mode,
        graph as graph,
        profiler as profiler,
    )
del TYPE_CHECKING

_SUBMODULES = ("anomaly_mode", "forward_ad", "functional", "grad_mode", "graph", "profiler")


def __getattr__(name):
    if name in _SUBMODULES:
        from importlib import import_module

        return import_module("." + name, __name__)
    from .._misspelt import missing

    raise missing(__name__, name)
