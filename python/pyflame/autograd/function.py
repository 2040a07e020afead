"""Functions whose gradient is written in Python."""
import functools

from .. import _C
from .._C import Tensor
from .._grad_mode import no_grad


def _has_gradient(output):
    return output.is_floating_point() or output.is_complex()


class FunctionCtx:
    """What a Function's forward keeps for its backward: both get the same object as ctx. Any attribute may be set on it.

    needs_input_grad: a tuple with a bool for each argument of forward, whether it is a tensor that requires a gradient. The constructor checks nothing and
    raises nothing; save_for_backward is a TypeError for what is no tensor.
    """

    def __init__(self, needs_input_grad=()):
        self.needs_input_grad = needs_input_grad
        self._to_save = ()
        self._saved = None
        self._non_differentiable = ()
        self._dirty = ()
        self._materialize = True

    def save_for_backward(self, *tensors):
        """Keeps tensors (inputs, outputs or others; None is allowed) for backward; if one is overwritten in between, backward raises."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward: not a tensor; got {type(t).__name__}; expected tensors or None")
        self._to_save = tensors

    def save_for_forward(self, *tensors):
        """Does nothing: gradients in forward mode are composed of two backward passes."""

    @property
    def saved_tensors(self):
        """The tuple of what save_for_backward was given, None included; an empty tuple if it was not called."""
        return self._to_save if self._saved is None else self._saved

    saved_variables = saved_tensors

    def mark_non_differentiable(self, *tensors):
        """Marks outputs of forward that get no gradient: their requires_grad is False. Tensors of integers need no mark."""
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors):
        """Names inputs that forward wrote in place and returns: they take over the history of these outputs."""
        self._dirty = tensors

    def mark_shared_storage(self, *pairs):
        """Does nothing. It is accepted for programs of early versions of PyTorch, where it told of inputs and outputs of one memory."""

    def set_materialize_grads(self, value):
        """True (the default): the gradient of an output that nothing depends on is zeros. False: it is None."""
        self._materialize = bool(value)


class Function(FunctionCtx):
    """An operation whose gradient you write: subclass with static methods forward(ctx, *args) and backward(ctx, *grads), and call
    ``MyFunction.apply(*args)``. backward returns one gradient (or None) for each argument of forward. Instead of taking ctx, forward may leave
    it to a static method setup_context(ctx, inputs, output).

    A forward or backward that is not defined is a NotImplementedError when it is needed. TypeError where forward returns no tensor, or backward something else
    than tensors and None; RuntimeError in the backward pass for another number of gradients, or one of another shape. needs_input_grad: as in FunctionCtx."""

    generate_vmap_rule = False  # func.vmap calls the function for each entry, so that there is nothing to generate

    @staticmethod
    def forward(ctx, *args, **kwargs):
        """The results: a tensor or a tuple of tensors. A static method of the subclass, whose ops are not recorded for gradients."""
        raise NotImplementedError("Function: forward is not implemented; expected a static method forward(ctx, *args)")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keeps in ctx what backward needs of the inputs and the output of forward. A static method of the subclass."""
        raise NotImplementedError("Function: setup_context is not implemented; expected a static method setup_context(ctx, inputs, output)")

    @staticmethod
    def backward(ctx, *grads):
        """The gradients of the inputs of forward, from those of its outputs: one for each input, None where there is none. A static method of the subclass."""
        raise NotImplementedError("Function: backward is not implemented; expected a static method backward(ctx, *grads)")

    @classmethod
    def _forward(cls, ctx, args):
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *args)
        result = cls.forward(*args)
        cls.setup_context(ctx, args, result)
        return result

    @classmethod
    def apply(cls, *args):
        """Calls forward with a new ctx and the arguments, which have no keywords, and returns what it returns. backward is recorded if gradients are on
        and an argument requires one.

        TypeError if forward returns no tensor. RuntimeError if forward wrote to a leaf that requires a gradient and marked it with mark_dirty.
        """
        ctx = FunctionCtx(tuple(isinstance(a, Tensor) and a.requires_grad for a in args))
        recording = _C.is_grad_enabled() and any(ctx.needs_input_grad)
        leaves = [a for a in args if isinstance(a, Tensor) and recording and a.requires_grad and a.is_leaf]
        with no_grad():
            result = cls._forward(ctx, args)
        single = isinstance(result, Tensor)
        outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not any(isinstance(o, Tensor) for o in outs):
            raise TypeError(f"{cls.__name__}: forward returned {type(result).__name__}; expected a tensor or a tuple of tensors")
        if not recording:
            return result
        if any(d is leaf for d in ctx._dirty for leaf in leaves):
            raise RuntimeError(f"{cls.__name__}: a leaf that requires a gradient was written in place; expected a tensor that is computed; hint: clone() it")
        return cls._record(ctx, args, outs, single)

    @classmethod
    def _backward(cls):
        """backward, or vjp, which is another name for it."""
        return cls.backward if cls.backward is not Function.backward or not hasattr(cls, "vjp") else cls.vjp

    @classmethod
    def _record(cls, ctx, args, outs, single):
        tensor_at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        flat = [isinstance(o, Tensor) and _has_gradient(o) and not any(o is n for n in ctx._non_differentiable) for o in outs]
        saved_at = [i for i, t in enumerate(ctx._to_save) if t is not None]
        n_saved = len(ctx._to_save)
        like = [(o.shape, o.dtype, o.device) if isinstance(o, Tensor) and not f else None for o, f in zip(outs, flat)]
        n_args = len(args)  # run must not hold the arguments, which may be large and not needed any more

        def fill(meta):
            return _C.zeros(meta[0], dtype=meta[1], device=meta[2]) if meta is not None and ctx._materialize else None

        def run(grads, saved):
            it = iter(grads)
            full = [next(it) if f else fill(meta) for f, meta in zip(flat, like)]
            ctx._saved = tuple(saved[saved_at.index(i)] if i in saved_at else None for i in range(n_saved))
            try:
                result = cls._backward()(ctx, *full)
            finally:
                ctx._saved = None
            result = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            if len(result) > n_args and all(r is None for r in result[n_args:]):
                result = result[:n_args]
            if len(result) != n_args:
                raise RuntimeError(
                    f"{cls.__name__}: backward returned {len(result)} gradients; expected {n_args}, one for each argument of forward"
                )
            return [result[i] for i in tensor_at]

        inputs = [args[i] for i in tensor_at]
        saved = [ctx._to_save[i] for i in saved_at]
        kept = [o for o, f in zip(outs, flat) if f]
        attached = _C._attach(cls.__name__, run, inputs, kept, saved, ctx._materialize)
        ctx._to_save = ()
        final = cls._outputs(ctx, outs, flat, iter(attached))
        return final[0] if single else tuple(final)

    @staticmethod
    def _outputs(ctx, outs, flat, attached):
        """The object that forward returned is kept where it can be, so that attributes and identity survive."""
        final = []
        for o, f in zip(outs, flat):
            new = next(attached) if f else o
            if f and any(o is d for d in ctx._dirty):
                _C._adopt_history(o, new)
                new = o
            final.append(o if f and new.is_same(o) else new)
        return final


class InplaceFunction(Function):
    """A Function with a flag; forward marks what it writes with mark_dirty."""


def once_differentiable(fn):
    """A decorator of backward: its result has no gradient of its own; asking for one raises a RuntimeError."""

    @functools.wraps(fn)
    def wrapped(ctx, *grads):
        with no_grad():
            result = fn(ctx, *grads)
        if not _C.is_grad_enabled() or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return result
        single = isinstance(result, Tensor) or result is None
        parts = [result] if single else list(result)
        marked = [_Once.apply(p, *(g for g in grads if isinstance(g, Tensor) and g.requires_grad)) if isinstance(p, Tensor) else p for p in parts]
        return marked[0] if single else tuple(marked)

    return wrapped


class _Once(Function):
    @staticmethod
    def forward(ctx, x, *grads):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("once_differentiable: a second gradient was asked for of a backward that has none; expected backward() without create_graph=True")
