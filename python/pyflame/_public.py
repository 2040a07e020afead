"""How a function that is composed of others becomes a function of the package, and a method of Tensor."""
from __future__ import annotations

import copyreg

from . import _C
from ._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import Function

copyreg.pickle(type(_C.relu), lambda function: function.__name__)  # functions of the module are copied and pickled by name, as Python's are


def method(function: Function) -> Function:
    """Makes a function whose first argument is a tensor a method of Tensor as well, by the same name."""
    setattr(Tensor, function.__name__, function)
    return function


def overload(function: Function) -> Function:
    """The function. In the place of typing.overload when a program runs: `import typing` costs milliseconds. Type checkers see that of typing."""
    return function


def floating(input: Tensor) -> Tensor:
    """The input, or in the default dtype where it is of integers or bools."""
    return input if input.is_floating_point() or input.is_complex() else input.to(_C.get_default_dtype())


def beside(result: Tensor, input: Tensor) -> Tensor:
    """The result, in which an input has no part: its gradient is zero."""
    return _C.where(_C.ones((), dtype=_C.bool_, device=result.device), result, input.expand(*result.shape)) if input.requires_grad else result
