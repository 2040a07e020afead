"""Gradients compared with central differences."""
from .. import _C
from .._C import Tensor
from .._grad_mode import enable_grad, no_grad
from .modes import grad


def _check_what_is_asked(op, check_batched_grad, check_batched_forward_grad, check_forward_ad, check_backward_ad):
    for name, asked in (("check_batched_grad", check_batched_grad), ("check_batched_forward_grad", check_batched_forward_grad), ("check_forward_ad", check_forward_ad)):
        if asked:
            raise NotImplementedError(f"{op}: there is nothing that {name} could check; got {name}=True; expected False; hint: the backward pass is what PyFlame has")
    if not check_backward_ad:
        raise ValueError(f"{op}: nothing is left to check; got check_backward_ad=False; expected True")


def _of_real_pairs(func, inputs):
    """func and its inputs with pairs of real numbers in place of complex128 ones."""
    complexes = {i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.dtype == _C.complex128}

    def real(*xs):
        results = func(*(_C.view_as_complex(x) if i in complexes else x for i, x in enumerate(xs)))
        results = (results,) if isinstance(results, Tensor) else tuple(results)
        return [_C.view_as_real(o) if isinstance(o, Tensor) and o.is_complex() else o for o in results]

    return real, tuple(_C.view_as_real(x.detach()).clone().requires_grad_(x.requires_grad) if i in complexes else x for i, x in enumerate(inputs))


def gradcheck(func, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False,
              check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False, check_backward_ad=True, fast_mode=False, masked=None):
    """Compares the gradients of func(*inputs) with central differences in float64.

    Every tensor among inputs that requires a gradient must be float64 or complex128. On a difference: RuntimeError that names the
    worst element (or False with raise_exception=False). Of complex inputs and outputs, the real and the imaginary parts are checked, as of view_as_real(): in the error, the
    last position is 0 for the real part and 1 for the imaginary one.

    func: of tensors, returns a tensor or several. inputs: a tensor or a tuple. eps: each element is moved by eps to both sides. A gradient is
    wrong where it is further than atol + rtol * |difference| from the central difference. nondet_tol, check_undefined_grad,
    check_grad_dtypes, fast_mode and masked are accepted for PyTorch's programs and change nothing: each element is checked. check_batched_grad,
    check_batched_forward_grad and check_forward_ad: NotImplementedError, because there is no forward mode and no batched backward pass to check; so
    check_backward_ad must be True (ValueError)."""
    _check_what_is_asked("gradcheck", check_batched_grad, check_batched_forward_grad, check_forward_ad, check_backward_ad)
    import numpy as np

    func, inputs = _of_real_pairs(func, (inputs,) if isinstance(inputs, Tensor) else tuple(inputs))
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck: no input requires a gradient")
    for i in checked:
        if inputs[i].dtype != _C.float64:
            raise ValueError(f"gradcheck: input {i} is {inputs[i].dtype}; expected pyflame.float64 or complex128, anything less is too coarse for eps")

    def outputs(xs):
        return [(k, o) for k, o in enumerate(func(*xs)) if isinstance(o, Tensor) and o.is_floating_point()]

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


def gradgradcheck(func, inputs, grad_outputs=None, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False,
              check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False, check_backward_ad=True, fast_mode=False, masked=None, *,
              gen_non_contig_grad_outputs=False, check_fwd_over_rev=False, check_rev_over_rev=True):
    """gradcheck of the gradients of func, weighted by grad_outputs, which are drawn at random unless given: a tensor of the shape of each output that requires a
    gradient (RuntimeError otherwise).

    gen_non_contig_grad_outputs: those that are drawn are not contiguous. check_fwd_over_rev and check_rev_over_rev are check_forward_ad and check_backward_ad. The other
    arguments are those of gradcheck, and so are the errors: RuntimeError for a wrong gradient, or False with raise_exception=False; ValueError where no input
    requires a gradient, or one that does is neither float64 nor complex128. True where all are right."""
    _check_what_is_asked("gradgradcheck", check_batched_grad, check_batched_forward_grad, check_forward_ad or check_fwd_over_rev, check_backward_ad and check_rev_over_rev)
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    out = func(*inputs)
    outs = [o for o in ((out,) if isinstance(out, Tensor) else out) if isinstance(o, Tensor) and o.requires_grad]
    if grad_outputs is None:
        weights = [_C.randn(*o.shape, 1 + bool(gen_non_contig_grad_outputs), dtype=o.dtype, device=o.device).select(-1, 0).detach().requires_grad_() for o in outs]
    else:
        weights = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    n = len(inputs)

    def first(*args):
        asked = [isinstance(x, Tensor) and x.requires_grad for x in inputs]
        with enable_grad():
            xs = [x.detach().requires_grad_() if needs and not x.requires_grad else x for x, needs in zip(args, asked)]
            result = func(*xs)
            results = [o for o in ((result,) if isinstance(result, Tensor) else result) if isinstance(o, Tensor) and o.requires_grad]
            return grad(results, [x for x, needs in zip(xs, asked) if needs], list(args[n:]), create_graph=True, materialize_grads=True)

    return gradcheck(first, inputs + tuple(weights), eps, atol, rtol, raise_exception)
