"""How much of PyTorch's operator database PyFlame has: each sample of each operator, values and gradients, on both.

PyTorch's own tests are driven by a table, op_db, which makes sample inputs for each operator. This program calls PyFlame's function of the same
name with the same samples. Where PyTorch raises, PyFlame is not asked.

    pip install torch expecttest numpy scipy     beside an installed pyflame
    python tools/opinfo.py [--only 'cum*'] [--json FILE] [--verbose]

Values are compared for float32, float64, int64 and bool, gradients for float64. complex64 and complex128, with gradients for the latter, are counted
apart: an operator of real numbers alone is complete without them.
"""
import argparse
import collections
import fnmatch
import json
import math
import os
import signal
import sys
import warnings

OUTSIDE = ("sparse.", "masked.", "jiterator_", "torch.ops.", "to_sparse", "torch._scaled", "_")  # not meant to be there
RANDOM = {"bernoulli", "empty", "empty_like", "new_empty", "rand_like", "randint", "randn", "randn_like", "randint_like", "nn.functional.dropout", "uniform",
          "normal", "multinomial", "cauchy", "exponential", "geometric", "log_normal", "nn.functional.dropout2d", "nn.functional.dropout3d",
          "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "empty_strided", "new_empty_strided", "empty_permuted", "svd_lowrank", "pca_lowrank",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"}  # by shape and dtype
TOLERANCE = {"float16": (2e-2, 1e-2), "float32": (2e-4, 2e-5), "float64": (1e-7, 1e-9)}  # relative, absolute
TOLERANCE |= {"complex64": TOLERANCE["float32"], "complex128": TOLERANCE["float64"]}
KINDS = {"real": ("float32", "float64", "int64", "bool"), "complex": ("complex64", "complex128")}
# Operators whose entry in op_db calls a function with its arguments in another order, or a property.
ADAPTED = {"einsum": lambda pf: lambda operands, equation: pf.einsum(equation, *operands), "where": lambda pf: lambda x, cond, other: pf.where(cond, x, other),
           "zero_": lambda pf: lambda x: x.clone().zero_(), "polygamma": lambda pf: lambda x, n: pf.polygamma(n, x),
           "special.polygamma": lambda pf: lambda x, n: pf.special.polygamma(n, x),
           "T": lambda pf: lambda x: x.T, "mT": lambda pf: lambda x: x.mT, "H": lambda pf: lambda x: x.H, "mH": lambda pf: lambda x: x.mH, "index_add": lambda pf: lambda x, dim, index, src, **kw: x.index_add(dim, index, src, **kw),
           "svd_lowrank": lambda pf: lambda a, b, **kw: pf.svd_lowrank(a @ b.mT, **kw), "pca_lowrank": lambda pf: lambda a, b, **kw: pf.pca_lowrank(a @ b.mT, **kw),
           "linalg.pinv.singular": lambda pf: lambda a, b: pf.linalg.pinv(a @ b.mT), "linalg.lstsq.grad_oriented": lambda pf: lambda a, b, driver: pf.linalg.lstsq(a, b, driver=driver)[:2],
           "nn.functional.embedding": lambda pf: lambda weight, index, **kw: pf.nn.functional.embedding(index, weight, **kw),
           "nn.functional.embedding_bag": lambda pf: lambda weight, index, **kw: pf.nn.functional.embedding_bag(index, weight, **kw),
           "max_pool2d_with_indices_backward": lambda pf: lambda x, **kw: max_pool2d_backward(pf, x, **kw),
           "slice": lambda pf: lambda x, dim=0, start=None, end=None, step=1: x[(slice(None),) * dim + (slice(start, end, step),)],
           "meshgrid": lambda pf: lambda *t, **kw: pf.meshgrid(*[y for x in t for y in (x if isinstance(x, (list, tuple)) else [x])], **kw)}
# Those of op_db that are in-place methods in PyTorch.
ADAPTED.update({name: lambda pf, name=name: getattr(pf.Tensor, name + "_") for name in ("cauchy", "exponential", "geometric", "log_normal", "uniform")})
LIMIT_S = 20  # for one operator and dtype
# Operators that do not agree on all samples, and what docs/differences.md says of it (a test looks for these words there).
TIES, SIGNS, UPPER = "Ties in `topk`, `sort` and `kthvalue` go to the lower index", "Signs of eigenvectors and singular vectors are LAPACK's choice", "The gradient of `cholesky(upper=True)` of complex matrices"
COMPLEX, BESSEL = "complex tensors in normalizations, `softmax`", "Bessel functions of order 0 and 1 are 0 at infinity"
DOCUMENTED = {
    "real": {**dict.fromkeys(("argsort", "sort", "kthvalue", "topk"), TIES), **dict.fromkeys(("linalg.eig", "linalg.eigh", "linalg.svd", "svd"), SIGNS),
             **dict.fromkeys(("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1"), BESSEL), "as_strided_scatter": "The gradient of `as_strided_scatter`",
             "chalf": "uint16/32/64, complex32", "cov": "`cov` adds weights of float32 more exactly", "hash_tensor": "`hash_tensor`", "histogramdd": "histograms refuse edges that do not ascend",
             "matrix_exp": "`matrix_exp` and products are right relative to their largest elements", "mode": "`mode` gives the last index of its value",
             "normal": "A number below 0\n  is refused as the standard deviation", "unique": "`unique` sorts always"},
    "complex": {**dict.fromkeys(("cumprod", "log_softmax", "logaddexp", "logcumsumexp", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rms_norm", "softmax"), COMPLEX),
                **dict.fromkeys(("linalg.eig", "linalg.eigh", "linalg.svd", "svd"), SIGNS), **dict.fromkeys(("cholesky", "linalg.cholesky", "linalg.cholesky_ex"), UPPER),
                "as_strided_scatter": "The gradient of `as_strided_scatter`", "chalf": "uint16/32/64, complex32", "cov": "`cov` adds weights of float32 more exactly", "istft": "`istft` has a gradient of its window",
                "normal": "A number below 0\n  is refused as the standard deviation", "pow": "0 to the power of a complex number"},
}


def documented(kind, name):
    """What docs/differences.md says of an operator's samples that differ; None where it says nothing."""
    return DOCUMENTED[kind].get(name)


def max_pool2d_backward(pf, x, kernel_size=(), stride=(), padding=(0,), dilation=(1,), ceil_mode=False, **_):
    """What op_db calls under this name: the gradient of max_pool2d for a gradient of ones."""
    out, at = pf.nn.functional.max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode, True)
    return pf.max_pool2d_with_indices_backward(pf.ones_like(out), x, kernel_size, stride, padding, dilation, ceil_mode, at)


class Late(Exception):
    pass


def find(pf, name):
    """The function, or the method, of that name."""
    if name in ADAPTED and hasattr(pf.Tensor, name + "_" * (not name.endswith("_"))):
        return ADAPTED[name](pf)
    if hasattr(pf.Tensor, name) and (name.endswith("_") or not callable(getattr(pf, name, len))):
        return getattr(pf.Tensor, name)
    place = pf
    for part in name.split("."):
        place = getattr(place, part, None)
        if place is None:
            place = getattr(pf.Tensor, name, None)
            break
    return ADAPTED[name](pf) if name in ADAPTED and (place is not None or name == "slice") else place


class Converter:
    """PyTorch's arguments as PyFlame's, with leaves that need gradients."""

    def __init__(self, torch, pf):
        self.torch, self.pf, self.leaves = torch, pf, []
        self.dtypes = {getattr(torch, n): getattr(pf, n) for n in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "complex64", "complex128")}
        self.dtypes[torch.bool] = pf.bool_

    def copied(self, x):
        """The same values. A view has the same place in a storage of the same size, which as_strided() can see."""
        if x.dtype == self.torch.bfloat16:
            return self.copied(x.float()).to("bfloat16")
        stored = x.untyped_storage().nbytes() // x.element_size()
        if x.is_conj() or x.is_neg() or stored == x.numel() or 0 in x.shape:
            return self.pf.tensor(x.resolve_conj().resolve_neg().numpy().copy())
        whole = x.as_strided((stored,), (1,), 0)
        return self.pf.tensor(whole.numpy().copy()).as_strided(tuple(x.shape), x.stride(), x.storage_offset())

    def __call__(self, x):
        if isinstance(x, self.torch.Tensor):
            for leaf, made in self.leaves:
                if leaf is x:
                    return made
            x.grad = None  # samples may share it
            made = self.copied(x.detach())
            if x.requires_grad and x.is_leaf:
                made.requires_grad_()
                self.leaves.append((x, made))
            return made
        if isinstance(x, self.torch.dtype):
            return self.dtypes[x]
        if isinstance(x, self.torch.memory_format):
            return getattr(self.pf, str(x).rpartition(".")[2])
        if isinstance(x, self.torch.layout):
            return getattr(self.pf, str(x).rpartition(".")[2])
        if isinstance(x, self.torch.device):
            return str(x)
        if isinstance(x, (list, tuple, self.torch.Size)):
            return type(x)(self(y) for y in x) if type(x) in (list, tuple) else tuple(self(y) for y in x)
        if isinstance(x, self.torch.nn.Module):
            return getattr(self.pf.nn, type(x).__name__)()
        if isinstance(x, dict):
            return {k: self(v) for k, v in x.items()}
        return x


def flat(x):
    return [y for part in x for y in flat(part)] if isinstance(x, (list, tuple)) else [x]


def differs(torch, want, got, random):
    """Why two results are not the same; None where they are."""
    import numpy as np

    want, got = flat(want), flat(got)
    if len(want) != len(got):
        return f"{len(got)} results instead of {len(want)}"
    for w, g in zip(want, got):
        if not isinstance(w, torch.Tensor):
            if w != g and not (isinstance(w, float) and math.isclose(w, g, rel_tol=1e-5)):
                return f"{g!r} instead of {w!r}"
            continue
        if w.dtype == torch.bfloat16:
            w, g = w.float(), g.float()
        a, b = w.detach().numpy(force=True), np.asarray(g.detach().numpy())
        if a.shape != b.shape:
            return f"shape {b.shape} instead of {a.shape}"
        if a.dtype != b.dtype:
            return f"dtype {b.dtype} instead of {a.dtype}"
        relative, absolute = TOLERANCE.get(a.dtype.name, (0, 0))
        if not random and not np.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True):
            return "other values"
    return None


def gradients(torch, want, got, leaves):
    """Backward of the sum of all floating results, on both; the gradients of the leaves."""
    outs = [(w, g) for w, g in zip(flat(want), flat(got)) if isinstance(w, torch.Tensor) and w.requires_grad]
    if not outs or not leaves:
        return [], []
    loss = lambda y: y.real.sum() + 2 * y.imag.sum() if y.is_complex() else y.sum()  # noqa: E731
    sum(loss(w) for w, _ in outs).backward()
    with_history = [loss(g) for _, g in outs if g.requires_grad]
    if with_history:  # otherwise the gradients are zeros
        sum(with_history).backward()
    zero = lambda x, g: torch.zeros_like(x) if g is None else g  # noqa: E731
    return [zero(x, x.grad) for x, _ in leaves], [y.grad if y.grad is not None else y.detach() * 0 for _, y in leaves]


def run_operator(torch, pf, op, function, dtype):
    """(samples, those that agree, first reasons)."""
    td = getattr(torch, dtype)
    if td not in op.supported_dtypes("cpu"):
        return 0, 0, []
    needs_grad = dtype in ("float64", "complex128") and op.supports_autograd
    count, good, reasons = 0, 0, []
    for sample in op.sample_inputs("cpu", td, requires_grad=needs_grad):
        convert = Converter(torch, pf)
        try:
            args, kwargs = convert([sample.input, *sample.args]), convert(sample.kwargs)
            want = op(sample.input, *sample.args, **sample.kwargs)
        except Late:
            raise
        except Exception:  # noqa: BLE001 - PyTorch refuses it, or it is of a kind that does not convert (sparse)
            continue
        count += 1
        random = op.name in RANDOM or bool(sample.kwargs.get("dropout_p")) or bool(sample.kwargs.get("training") and op.name == "nn.functional.multi_head_attention_forward")  # these drop out
        try:
            got = function(*args, **kwargs)
            why = differs(torch, want, got, random)
            if why is None and needs_grad and not random:
                why = differs(torch, *gradients(torch, want, got, convert.leaves), False)
                why = why and "gradient: " + why
        except Late:
            raise
        except Exception as e:  # noqa: BLE001 - counted as a difference, with its text
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:140] if str(e) else ''}"
        good += why is None
        if why and why not in reasons:
            reasons.append(why)
    return count, good, reasons


def compare(torch, pf, name, ops, function, dtypes, row):
    """Adds the samples of these dtypes to a row of the results."""
    for op in ops:
        special = ADAPTED.get(f"{name}.{op.variant_test_name}")
        for dtype in dtypes:
            signal.alarm(LIMIT_S)
            try:
                count, good, reasons = run_operator(torch, pf, op, special(pf) if special else function, dtype)
            except Late:
                count, good, reasons = 1, 0, [f"not finished after {LIMIT_S} s"]
            except Exception as e:  # noqa: BLE001 - op_db itself cannot make the samples here
                count, good, reasons = 0, 0, [f"no samples: {type(e).__name__}"]
            finally:
                signal.alarm(0)
            row["samples"] += count
            row["agree"] += good
            row["reasons"] += [f"{dtype}: {r}" for r in reasons]


def late(*_):
    raise Late


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="operators whose names fit this pattern")
    parser.add_argument("--kinds", default="real,complex", help="real, complex, or both")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--verbose", action="store_true", help="the reasons of all differences")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTORCH_TESTING_DEVICE_ONLY_FOR", "cpu")
    import torch
    import pyflame as pf
    from torch.testing._internal.common_methods_invocations import op_db

    signal.signal(signal.SIGALRM, late)
    torch.manual_seed(0)
    by_name = collections.defaultdict(list)
    for op in op_db:
        if fnmatch.fnmatch(op.name, options.only) and not op.name.startswith(OUTSIDE):
            by_name[op.name].append(op)
    results, totals, unexplained = {}, collections.Counter(), []
    for name, ops in sorted(by_name.items()):
        function = find(pf, name)
        row = {"there": function is not None, "samples": 0, "agree": 0, "reasons": []}
        row["complex"] = {"samples": 0, "agree": 0, "reasons": []}
        for kind, dtypes in KINDS.items():
            if kind in options.kinds.split(","):
                compare(torch, pf, name, ops if function else (), function, dtypes, row if kind == "real" else row["complex"])
        results[name] = row
        totals["names"] += 1
        totals["there"] += row["there"]
        for kind, part in (("real", row), ("complex", row["complex"])):
            whole = row["there"] and part["samples"] > 0 and part["agree"] == part["samples"]
            totals[kind] += whole
            totals["documented " + kind] += part["agree"] < part["samples"] and documented(kind, name) is not None
            if part["agree"] < part["samples"] and documented(kind, name) is None:
                unexplained.append(name)
            totals["has " + kind] += part["samples"] > 0
            if row["there"] and not whole and (kind == "real" and "real" in options.kinds or part["samples"]):
                print(f"{name:45s} {part['agree']:5d} of {part['samples']:5d}  {'; '.join(part['reasons'][:20 if options.verbose else 2])}", flush=True)
    missing = [n for n, r in results.items() if not r["there"]]
    print(f"missing: {' '.join(missing)}")
    print(f"{totals['names']} operators; {totals['there']} are there, {totals['has real']} take real numbers; {totals['real']} agree on all samples, of {totals['documented real']} docs/differences.md has the difference")
    print(f"of those that are there, {totals['has complex']} take complex numbers in PyTorch; {totals['complex']} agree on all complex samples, of {totals['documented complex']} docs/differences.md has the difference")
    print(f"different without a word: {' '.join(sorted(set(unexplained)))}")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
