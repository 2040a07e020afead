"""Decorators of PyTorch's script compiler, which is not here: they return what they are given."""
from . import _refused

export = ignore = unused = _overload = _overload_method = _refused.identity


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """A function that calls if_true where the argument of that name or place is true, and if_false elsewhere.

    arg_name: its name. arg_index: its place among those without a name, from 0. default: its value in a call without it. func_name: the name of the
    function that is returned. module_name is accepted for PyTorch's programs and changes nothing. TypeError for a func_name that is no str, and in the call for
    what is no function.
    """

    def chosen(*args, **kwargs):
        asked = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if asked else if_false)(*args, **kwargs)

    chosen.__name__ = func_name
    return chosen
