"""What is to go away warns before. docs/versions.md has the policy; each name that is deprecated calls this."""
import warnings

_said = set()


def deprecated(name, instead, removed_in=None, stacklevel=3):
    """Warns that `name` is deprecated in favour of `instead`, at the line of the caller's caller.

    With `removed_in`, a version of PyFlame, this is a DeprecationWarning, once for each process. Without it the name is one that PyTorch has deprecated
    and still has: a FutureWarning at each call, as in PyTorch.
    """
    if removed_in is None:
        warnings.warn(f"{name} is deprecated in favour of {instead}, as in PyTorch", FutureWarning, stacklevel=stacklevel)
    elif name not in _said:
        _said.add(name)
        warnings.warn(f"{name} is deprecated in favour of {instead}; PyFlame {removed_in} will not have it", DeprecationWarning, stacklevel=stacklevel)
