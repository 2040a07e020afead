"""Names for the annotations of the package's functions. Type checkers and editors read this module; nothing imports it when a program runs.

A module that uses these names imports them where only type checkers look, because `import typing` would cost every program some milliseconds:

    from __future__ import annotations

    TYPE_CHECKING = False  # type checkers take this name as true
    if TYPE_CHECKING:
        from ._annotations import Dim, Number
"""
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable, Optional, TypeVar, Union

import numpy as np

from ._C import Tensor, device, dtype, memory_format

# A number of Python.
Number = Union[int, float, complex]
# What arithmetic takes beside a tensor.
Operand = Union[Tensor, int, float, complex]
# What pyflame.tensor() takes: numbers, nested sequences of them, arrays and tensors.
TensorLike = Union[Tensor, "np.ndarray[Any, Any]", int, float, complex, Sequence[Any]]
# The sizes of a tensor.
Shape = Sequence[int]
# One dim, or several.
Dim = Union[int, Sequence[int]]
# A dtype, its name, Python's float, int, bool or complex, and NumPy's dtypes.
DType = Union[dtype, str, type, "np.dtype[Any]"]
# A device, its name, or the number of a GPU.
Device = Union[device, str, int]
MemoryFormat = memory_format
# How long something may take: a timedelta, or seconds.
Timeout = Union[timedelta, float]
# What out= takes: a tensor of the result's dtype, or one for each part of a result that has several.
Out = Optional[Tensor]
Outs = Optional[Sequence[Tensor]]
# A decorator that returns its function has this type for both.
Function = TypeVar("Function", bound=Callable[..., Any])
