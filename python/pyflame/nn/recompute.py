"""Recomputation of modules: what Module.enable_gradient_checkpointing does."""
import types

from .. import _C, _tree
from .._C import Tensor
from ..autograd.recompute import checkpoint


def run_again(forward, args, kwargs):
    """forward(*args, **kwargs), whose intermediates are not kept; the backward pass calls it again. Arguments and results may be nested tensors."""
    leaves, rebuild = _tree.flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    first = []

    def run(*tensors):
        full = list(leaves)
        for i, t in zip(at, tensors):
            full[i] = t
        inner_args, inner_kwargs = rebuild(full)
        results, nest = _tree.flatten(forward(*inner_args, **inner_kwargs))
        if not first:  # the structure of the results, without the tensors
            first.append(([None if isinstance(r, Tensor) else r for r in results], [isinstance(r, Tensor) for r in results], nest))
        return tuple(r for r in results if isinstance(r, Tensor))

    made = iter(checkpoint(run, *(leaves[i] for i in at)))
    others, is_tensor, nest = first[0]
    return nest([next(made) if tensor else other for tensor, other in zip(is_tensor, others)])


def _recomputed(self, *args, **kwargs):
    """forward of a module, whose intermediates the backward pass computes again."""
    forward = types.MethodType(type(self).forward, self)
    return run_again(forward, args, kwargs) if self.training and _C.is_grad_enabled() else forward(*args, **kwargs)


class _Recomputed:
    """forward of one module. It is an object, not a closure, so that a copy and a file of the module have one of their own."""

    def __init__(self, module):
        self.module = module

    def __call__(self, *args, **kwargs):
        return _recomputed(self.module, *args, **kwargs)


def is_recomputed(module):
    """Whether a module's forward pass is computed again in the backward pass."""
    return isinstance(module.__dict__.get("forward"), _Recomputed)


def recompute(module):
    """From now on, in training, a module's intermediates are not kept. Copies of it do the same."""
    own = module.__dict__.get("forward")
    if own is not None and not is_recomputed(module):
        raise ValueError(f"enable_gradient_checkpointing: forward of {type(module).__name__} was replaced on the object; expected a method of the class")
    module.__dict__["forward"] = _Recomputed(module)


def keep(module):
    """Undoes recompute()."""
    if is_recomputed(module):
        del module.__dict__["forward"]


def blocks(model, prefix=""):
    """{name: module}: the repeated blocks of a model, which are the children with parameters of its outermost lists and sequences."""
    from .containers import ModuleList, Sequential

    found = {}
    named = [(n, m) for n, m in model.named_children() if next(m.parameters(), None) is not None]
    if isinstance(model, (ModuleList, Sequential)) and len(named) > 1 and all(next(m.children(), None) is not None for _, m in named):
        return {prefix + n: m for n, m in named}
    for name, child in named:
        found.update(blocks(child, f"{prefix}{name}."))
    return found


def enable(model, modules):
    """The modules that are recomputed from now on, by name."""
    if modules is None:
        chosen = blocks(model)
        if not chosen:
            raise ValueError(f"enable_gradient_checkpointing: {type(model).__name__} has no repeated blocks; expected a ModuleList or Sequential of modules with "
                             "children; hint: name modules, as in enable_gradient_checkpointing(['encoder'])")  # fmt: skip
    else:
        chosen = {name: model.get_submodule(name) for name in modules}
    for module in chosen.values():
        if getattr(module, "forward", None) is None:
            raise TypeError(f"enable_gradient_checkpointing: {type(module).__name__} has no forward")
    for module in chosen.values():
        recompute(module)
    return list(chosen)
