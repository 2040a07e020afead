"""Names for the annotations of optimizers and schedules. Type checkers and editors read this module; nothing imports it when a program runs."""
from collections.abc import Callable
from typing import Any, Dict, List, Literal, Tuple, TypeVar, Union

from .._C import Tensor

# What a closure returns, and so what step(closure) returns.
LossT = TypeVar("LossT")
# The rate of a group. One that is a tensor stays that tensor.
Rate = Union[float, Tensor]
# Two numbers, such as the decays of two moments.
Pair = Tuple[float, float]
# One number for all groups, or one for each.
ForEachGroup = Union[float, List[float], Tuple[float, ...]]
# A function of the step that returns a factor, or one for each group.
Factors = Union[Callable[[int], float], List[Callable[[int], float]], Tuple[Callable[[int], float], ...]]
Anneal = Literal["cos", "linear"]
# What state_dict() returns and load_state_dict() takes.
State = Dict[str, Any]
