"""Python's multiprocessing under PyTorch's name. Tensors are copied from process to process."""
from multiprocessing import *  # noqa: F401,F403
from multiprocessing import get_context, set_start_method  # noqa: F401

from . import _refused

spawn = _refused.function("multiprocessing.spawn", "training with several processes comes later; Python's multiprocessing starts them for other work")


def set_sharing_strategy(new_strategy):
    """Nothing: tensors are copied from process to process."""


def get_sharing_strategy():
    """'file_descriptor'."""
    return "file_descriptor"


def get_all_sharing_strategies():
    """{'file_descriptor'}."""
    return {"file_descriptor"}
