"""What PyTorch's softmax functions do without a dim."""
import warnings


def softmax_dim(op, input, dim, stacklevel=3):
    """dim, or where it is None the one that PyTorch chooses, with a warning: 0 for 0, 1 or 3 dimensions, otherwise 1."""
    if dim is not None:
        return dim
    chosen = 0 if input.ndim in (0, 1, 3) else 1
    warnings.warn(f"{op}: no dim was given; dim {chosen} is used for {input.ndim} dimensions, as PyTorch does; hint: {op}(x, dim=...)", stacklevel=stacklevel)
    return chosen
