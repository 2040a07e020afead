"""Rules about single operations on tensors."""
from .names import SIZES
from .registry import rule
from .values import minus_one, text_of


@rule("LINT-09")
def loop_over_elements(lint, f, loop):
    """A Python loop over the elements of a tensor on the GPU."""
    small = loop.count is not None and loop.count <= 16
    # A loop that runs a module or a product in each iteration goes over batches, images or time steps, not over elements.
    if loop.elements is None or loop.works or small or not (loop.launches or loop.waits) or any(o.elements for o in f.loops):
        return
    if not loop.waits and not loop.single:
        return  # rows, which may be large
    waits = ", and waits for the GPU each time" if loop.waits else ""
    lint.report("LINT-09", loop.node, f"this Python loop goes through {loop.elements} one element at a time. It launches kernels for each element{waits}",
                "work on the whole tensor at once (index_add_, scatter_add_, bincount, a mask), or bring it to the CPU with .tolist() first")


@rule("LINT-10")
def edges_as_bins(lint, v, target, base):
    lint.report("LINT-10", v.node, f"{v.count} edges bound {minus_one(v.count)} bins, but the result indexes {text_of(target)} with {base.shape[0]} entries: "
                f"rounding at the upper edge gives index {v.count}, out of range, and the bins differ from those of histc",
                "compute the bin: ((x - lo) / (hi - lo) * n).long().clamp_(0, n - 1)")


@rule("LINT-11")
def rows_on_one_channel(lint, n, key, a, b):
    """A matrix product `key` of a and b on the GPU."""
    # K is the last dim of both operands in memory, as in F.linear and x @ w.T.
    k = a.shape[-1] if a.shape and a.kind == "tensor" and not a.turned else None
    size = SIZES.get(a.dtype or "")
    along = b.shape and b.kind == "tensor" and len(b.shape) >= 2 and (not b.turned and b.shape[-1] == k if key == "linear" else b.turned and b.shape[-2] == k)
    if along and isinstance(k, int) and size and k % 256 == 0 and k * size % 512 == 0 and k > 0:
        lint.report("LINT-11", n, f"both operands of this product have rows of K = {k} elements of {size} bytes, a stride of {k * size} bytes that is a multiple of 512: "
                    "on MI300X all rows fall on the same channels of the cache's tag memory",
                    f"pad the rows: allocate K + {128 // size} columns and use the first {k} (x = torch.empty(m, {k + 128 // size})[:, :{k}])")
