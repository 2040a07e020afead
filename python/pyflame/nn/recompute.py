"""Recomputation of modules: what Module.enable_gradient_checkpointing and the setting gradient_checkpointing do."""
import types
import weakref

from .. import _C, _tree
from .._C import Tensor
from ..autograd import recompute as functions
from ..autograd.recompute import checkpoint
from .hooks import register_module_forward_pre_hook


def run_again(forward, args, kwargs):
    """forward(*args, **kwargs), whose intermediates are not kept; the backward pass calls it again. Arguments and results may be nested tensors and DTensors."""
    leaves, rebuild = _tree.flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if _taped(leaf) is not None]
    first = []

    def run(*tensors):
        full = list(leaves)
        for i, t in zip(at, tensors):
            full[i] = _with(leaves[i], t)
        inner_args, inner_kwargs = rebuild(full)
        results, nest = _tree.flatten(forward(*inner_args, **inner_kwargs))
        tensors = [_taped(r) for r in results]
        if not first:  # the structure of the results, without the tensors
            first.append(([r if t is None else _with(r, None) for r, t in zip(results, tensors)], [t is not None for t in tensors], nest))
        return tuple(t for t in tensors if t is not None)

    made = iter(checkpoint(run, *(_taped(leaves[i]) for i in at)))
    forms, has_tensor, nest = first[0]
    return nest([_with(form, next(made)) if has else form for form, has in zip(forms, has_tensor)])


def _taped(leaf):
    """The tensor of a leaf that the tape knows: a tensor itself, this process's part of a DTensor, or None."""
    return leaf if isinstance(leaf, Tensor) else getattr(leaf, "_local_tensor", None)


def _with(leaf, tensor):
    """A leaf like this one with another tensor."""
    return leaf._with_local(tensor) if hasattr(leaf, "_with_local") else tensor


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


# ---- the setting gradient_checkpointing


class _AtFirstCall:
    """Recomputes blocks of the first module that the program calls in training. A hook of all modules waits for it, and is removed then."""

    def __init__(self, names):
        self._names, self._changed = names, []
        self._handle = register_module_forward_pre_hook(self._called)

    def _called(self, module, *_):
        if not (module.training and _C.is_grad_enabled()):
            return
        self._handle.remove()
        known = dict(module.named_modules())
        missing = [name for name in self._names if name not in known]
        if missing:
            raise ValueError(f"settings: gradient_checkpointing names modules that are not there; got {', '.join(missing)}; expected names of modules in {type(module).__name__}, "
                             "which is the first module that the program calls in training")  # fmt: skip
        new = [name for name in self._names if not is_recomputed(known[name])]
        enable(module, new)
        self._changed = [weakref.ref(known[name]) for name in new]

    def undo(self):
        self._handle.remove()
        for changed in self._changed:
            module = changed()
            if module is not None:
                keep(module)


_setting, _later = None, None


def set_gradient_checkpointing(value):
    """value: None: as the program says; False: nothing is recomputed; names: these modules of the first one that the program calls in training are recomputed,
    too. Returns the value before."""
    global _setting, _later
    before, _setting = _setting, value
    if _later is not None:
        _later.undo()
    functions.enabled = value is not False
    _later = _AtFirstCall(list(value)) if value else None
    return before
