"""size_average and reduce: what reduction says of a loss, in programs from before there was reduction. PyTorch takes both still."""
import functools


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


def with_size_average(loss):
    """The function, or the __init__ of a class, which also takes size_average and reduce: by name, or None and bools in PyTorch's places.
    Other values in these places mean the function's own arguments."""
    names = loss.__code__.co_varnames[: loss.__code__.co_argcount]
    if "reduction" not in names:
        return loss
    order = _pytorchs_order(names)
    old = [i for i, n in enumerate(order) if n in ("size_average", "reduce")]

    @functools.wraps(loss)
    def taking(*args, size_average=None, reduce=None, **kwargs):
        if len(args) > old[0] and all(args[i] is None or isinstance(args[i], bool) for i in old if i < len(args)):
            named = dict(zip(order, args))
            size_average, reduce = named.pop("size_average"), named.pop("reduce", reduce)
            args, kwargs = (), {**named, **kwargs}
        if size_average is not None or reduce is not None:
            kwargs["reduction"] = reduction_of(size_average, reduce)
        return loss(*args, **kwargs)

    return taking
