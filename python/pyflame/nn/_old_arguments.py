"""size_average and reduce: what reduction says of a loss, in programs from before there was reduction. PyTorch takes both still."""
from __future__ import annotations

import functools

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._annotations import Function


def _pytorchs_order(names):
    """The names of positional arguments in PyTorch's order, with size_average and reduce."""
    order = list(names)
    if "size_average" not in names:
        first = "ignore_index" if "ignore_index" in names else "eps" if "log_input" in names else "reduction"
        order.insert(order.index(first), "size_average")
        order.insert(order.index("reduction"), "reduce")
    return order


def reduction_of(size_average, reduce):
    """What they say, in the word of today: PyTorch's rule."""
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def _by_name(op, order, args, kwargs):
    """Positional arguments in PyTorch's order, and those by name, as one dict."""
    named = dict(zip(order, args))
    for name in ("size_average", "reduce"):
        if not (named.get(name) is None or isinstance(named[name], bool)):
            raise TypeError(f"{op}: {name} is not a bool; got {named[name]!r}; expected None, True or False in this place; hint: give what follows {name} by name")
    for name in named.keys() & kwargs.keys():
        raise TypeError(f"{op}: got two values for {name}; expected one, by place or by name")
    return {**named, **kwargs}


def with_size_average(loss: Function) -> Function:
    """The function, or the __init__ of a class, with its positional arguments in PyTorch's order: size_average and reduce have places among them.
    A word in the place of size_average is reduction, if that follows it."""
    names = loss.__code__.co_varnames[: loss.__code__.co_argcount]
    if "reduction" not in names:
        return loss
    order = _pytorchs_order(names)
    first = order.index("size_average")
    op = loss.__qualname__.replace(".__init__", "").lstrip("_")

    @functools.wraps(loss)
    def taking(*args, **kwargs):
        if first < len(args) <= len(order) and not (isinstance(args[first], str) and names[first] == "reduction"):
            args, kwargs = (), _by_name(op, order, args, kwargs)
        size_average, reduce = kwargs.pop("size_average", None), kwargs.pop("reduce", None)
        if size_average is not None or reduce is not None:
            kwargs["reduction"] = reduction_of(size_average, reduce)
        return loss(*args, **kwargs)

    return taking
