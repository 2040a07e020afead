"""Gradients: backward and grad, functions with gradients written in Python, gradient checks, recomputation."""
from . import _C
from ._C import Tensor
from ._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False):
    """Adds the gradients of the sum of tensors (each weighted by its entry of grad_tensors) to the .grad of every leaf.

    RuntimeError if a tensor requires no gradient, if its tape was freed, or if a saved tensor was overwritten."""
    _C._backward(tensors, grad_tensors, retain_graph, create_graph)


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False):
    """The gradients of outputs with respect to inputs, as a tuple; nothing is accumulated.

    RuntimeError if the outputs do not depend on an input; with allow_unused, its gradient is None instead."""
    return _C._grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)


class FunctionCtx:
    """Passes values from forward to backward."""

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self._to_save = ()
        self._saved = None
        self._non_differentiable = ()

    def save_for_backward(self, *tensors):
        """Keeps tensors (inputs, outputs or others; None is allowed) for backward; if one is overwritten in between, backward raises."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward: not a tensor; got {type(t).__name__}; expected tensors or None")
        self._to_save = tensors

    @property
    def saved_tensors(self):
        return self._to_save if self._saved is None else self._saved

    def mark_non_differentiable(self, *tensors):
        """Marks outputs that get no gradient."""
        self._non_differentiable = tensors


class Function:
    """An operation whose gradient you write: subclass with static methods forward(ctx, *args) and backward(ctx, *grads), and call
    ``MyFunction.apply(*args)``. backward returns one gradient (or None) for each argument of forward."""

    @staticmethod
    def forward(ctx, *args):
        raise NotImplementedError("Function: forward is not implemented; expected a static method forward(ctx, *args)")

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError("Function: backward is not implemented; expected a static method backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args):
        ctx = FunctionCtx(tuple(isinstance(a, Tensor) and a.requires_grad for a in args))
        recording = _C.is_grad_enabled() and any(ctx.needs_input_grad)
        with no_grad():
            result = cls.forward(ctx, *args)
        single = isinstance(result, Tensor)
        outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        for o in outs:
            if not isinstance(o, Tensor):
                raise TypeError(f"{cls.__name__}: forward returned {type(o).__name__}; expected a tensor or a tuple of tensors")
        if not recording:
            return result
        return cls._record(ctx, args, outs, single)

    @classmethod
    def _record(cls, ctx, args, outs, single):
        tensor_at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        flat = [o.is_floating_point() and not any(o is n for n in ctx._non_differentiable) for o in outs]
        saved_at = [i for i, t in enumerate(ctx._to_save) if t is not None]
        n_saved = len(ctx._to_save)
        like = [None if f else (o.shape, o.dtype, o.device) for o, f in zip(outs, flat)]

        def run(grads, saved):
            it = iter(grads)
            full = [next(it) if f else _C.zeros(meta[0], dtype=meta[1], device=meta[2]) for f, meta in zip(flat, like)]
            unpacked = [None] * n_saved
            for i, t in zip(saved_at, saved):
                unpacked[i] = t
            ctx._saved = tuple(unpacked)
            try:
                result = cls.backward(ctx, *full)
            finally:
                ctx._saved = None  # an output among them would keep itself alive
            if not isinstance(result, (tuple, list)):
                result = (result,)
            if len(result) != len(args):
                raise RuntimeError(
                    f"{cls.__name__}: backward returned {len(result)} gradients; expected {len(args)}, one for each argument of forward"
                )
            return [result[i] for i in tensor_at]

        inputs = [args[i] for i in tensor_at]
        saved = [ctx._to_save[i] for i in saved_at]
        kept = [o for o, f in zip(outs, flat) if f]
        attached = _C._attach(cls.__name__, run, inputs, kept, saved)
        ctx._to_save = ()
        it = iter(attached)
        # The object that forward returned is kept where it can be, so that attributes and identity survive.
        final = []
        for o, f in zip(outs, flat):
            new = next(it) if f else o
            final.append(o if f and new.is_same(o) else new)
        return final[0] if single else tuple(final)


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True):
    """Runs function(*args) without keeping its intermediates. The backward pass computes them again, with the same random numbers.

    function takes and returns tensors (a tensor or a tuple); other arguments are passed on as they are."""
    tensor_at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    single = []

    def run(tensors):
        full = list(args)
        for i, t in zip(tensor_at, tensors):
            full[i] = t
        result = function(*full)
        if not isinstance(result, (Tensor, tuple, list)):
            raise TypeError(f"checkpoint: the function returned {type(result).__name__}; expected a tensor or a tuple of tensors")
        single.append(isinstance(result, Tensor))
        return [result] if single[-1] else list(result)

    outs = _C._checkpoint(run, [args[i] for i in tensor_at])
    return outs[0] if single[0] else tuple(outs)


def gradcheck(func, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """Compares the gradients of func(*inputs) with central differences in float64.

    Every floating tensor among inputs that requires a gradient must be float64. On a difference: RuntimeError that names the
    worst element (or False with raise_exception=False)."""
    import numpy as np

    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck: no input requires a gradient")
    for i in checked:
        if inputs[i].dtype != _C.float64:
            raise ValueError(f"gradcheck: input {i} is {inputs[i].dtype}; expected pyflame.float64, anything less is too coarse for eps")

    def outputs(xs):
        r = func(*xs)
        r = (r,) if isinstance(r, Tensor) else tuple(r)
        return [(k, o) for k, o in enumerate(r) if isinstance(o, Tensor) and o.is_floating_point()]

    base = [x.detach().numpy().copy() if i in checked else None for i, x in enumerate(inputs)]

    def values_at(i, flat_index, delta):
        xs = list(inputs)
        for j in checked:
            a = base[j].copy()
            if j == i:
                a.reshape(-1)[flat_index] += delta
            xs[j] = _C.tensor(a, device=inputs[j].device)
        with no_grad():
            return [o.detach().double().numpy().copy() for _, o in outputs(xs)]

    worst = None
    leaves = [_C.tensor(base[i], device=x.device, requires_grad=True) if i in checked else x for i, x in enumerate(inputs)]
    outs = [(k, o) for k, o in outputs(leaves) if o.requires_grad]
    names = [k for k, _ in outputs(inputs)]
    for i in checked:
        n = base[i].size
        numeric = {}
        for e in range(n):
            hi, lo = values_at(i, e, eps), values_at(i, e, -eps)
            for k, h, low in zip(names, hi, lo):
                numeric.setdefault(k, np.zeros((h.size, n)))[:, e] = ((h - low) / (2 * eps)).reshape(-1)
        for k, o in outs:
            for row in range(o.numel()):
                seed = np.zeros(o.numel())
                seed[row] = 1.0
                g = grad([o], [leaves[i]], [_C.tensor(seed.reshape(o.shape), dtype=o.dtype, device=o.device)], retain_graph=True, allow_unused=True)[0]
                exact = np.zeros(n) if g is None else g.detach().numpy().reshape(-1)
                want = numeric[k][row]
                excess = np.abs(exact - want) - (atol + rtol * np.abs(want))
                excess = np.where(np.isnan(excess), np.inf, excess)
                e = int(np.argmax(excess)) if n else -1
                if n and excess[e] > 0 and (worst is None or excess[e] > worst[0]):
                    at = tuple(int(v) for v in np.unravel_index(e, base[i].shape))
                    out_at = tuple(int(v) for v in np.unravel_index(row, o.shape))
                    worst = (excess[e], i, at, k, out_at, exact[e], want[e])
    if worst is None:
        return True
    if not raise_exception:
        return False
    _, i, at, k, out_at, got, want = worst
    raise RuntimeError(
        f"gradcheck: a gradient is wrong; got d output {k}{list(out_at)} / d input {i}{list(at)} = {got:.9g}; "
        f"expected {want:.9g} by central differences with eps {eps:g} (tolerance {atol:g} + {rtol:g} * |expected|)"
    )
