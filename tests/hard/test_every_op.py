"""Every op of the table under hostile conditions. The case tables say how an op is called and what NumPy makes of it; here each case gets
other sizes, values, memory layouts, dtypes, wrong shapes, neighbours to be fused with, and windows. What comes back is what NumPy says, the
same bits in every window, what the reference device computes, or an error that the caller can read; and afterwards the engine goes on.

PYFLAME_SOAK=n runs n times as many examples, other ones each time."""
import collections
import contextlib
import dataclasses
import os
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import pyflame as pf
from pyflame.testing import harness
from pyflame.testing.cases import FLOATS, INTS, OF_PROGRAMS, Spec, all_cases
from pyflame.testing.tolerance import differences, is_float, round_to

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy of empty and not finite values
SOAK = int(os.environ.get("PYFLAME_SOAK", "0"))
DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
EXAMPLES = 30
LARGEST = 1 << 15  # elements of an input
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e-30, 6e4)
ERRORS = (ValueError, TypeError, IndexError, RuntimeError, NotImplementedError)
UNKNOWING = (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError)  # of a table's function that is not made for such sizes or dtypes
# Where infinity and NaN may come out in more than one way, as in PyTorch: products take along a NaN that a mask hides, and make one of a padding's
# zero and an infinite weight; updates may be arranged so that infinity is subtracted from itself. A search needs
# sorted numbers.
NOT_FINITE_FREELY = {"scaled_dot_product_attention", "varlen_attn", "conv1d", "conv2d", "conv_transpose2d", "adam_step", "sgd_step", "fft", "searchsorted", "quantized_linear",
                     "nn.functional.conv_tbc"}
# A failure's text says all there is to know, and a smaller example of it takes minutes to find.
some_examples = settings(max_examples=EXAMPLES * max(SOAK, 1), derandomize=not SOAK, deadline=None, database=None, suppress_health_check=list(HealthCheck),
                         phases=[Phase.generate], report_multiple_bugs=False)

# A case belongs to the primitives that it names, and one without any (views) to its functions.
SUBJECTS = collections.defaultdict(list)
for _case in all_cases():
    for _name in _case.ops or _case.functions:
        SUBJECTS[_name].append(_case)


# ---------------------------------------------------------------- changed cases
@dataclasses.dataclass
class Changed:
    case: object
    arrays: list
    judge: str  # who knows the result: "numpy", "reference" (the device: the dtypes, values or shapes are not the
    # table's), "itself" (no one result is right: of a matrix without full rank, of two values for one place)


def other_sizes(draw, case):
    """Other sizes for the inputs. Equal sizes stay equal, so that shapes that fit each other still do."""
    sizes = sorted({n for s in case.inputs for n in s.shape})
    to = {n: n if n <= 40 and draw(st.integers(0, 2)) else 1 if n == 1 and draw(st.integers(0, 7)) else draw(st.sampled_from(SIZES)) for n in sizes}
    return dataclasses.replace(case, inputs=tuple(dataclasses.replace(s, shape=tuple(to[n] for n in s.shape)) for s in case.inputs))


def other_rank(draw, case):
    """One more dim in front of everything."""
    n = draw(st.sampled_from((1, 2, 0, 3)))
    return dataclasses.replace(case, inputs=tuple(dataclasses.replace(s, shape=(n, *s.shape)) if len(s.shape) < 5 else s for s in case.inputs))


def wrong_shape(draw, case):
    """The inputs with one changed: another size, one dim more, or one dim less."""
    i = draw(st.integers(0, len(case.inputs) - 1))
    shape = list(case.inputs[i].shape)
    kind = draw(st.sampled_from(("size", "more", "less")))
    at = draw(st.integers(0, max(len(shape) - 1, 0)))
    if kind == "more" and len(shape) < 6:
        shape.insert(at, draw(st.sampled_from((1, 2))))
    elif shape and kind == "less":
        del shape[at]
    elif shape:
        shape[at] = draw(st.sampled_from((0, 1, shape[at] + 1, max(shape[at] - 1, 0))))
    inputs = list(case.inputs)
    inputs[i] = dataclasses.replace(inputs[i], shape=tuple(shape))
    return dataclasses.replace(case, inputs=tuple(inputs))


# Their tolerance is made for the dtype of the case.
OF_ONE_DTYPE = {"quantized_linear", "quantized_grouped_mm"}


def other_dtypes(draw, case):
    """All floats another dtype, or any input any dtype."""
    if OF_ONE_DTYPE & {*case.ops}:
        return case
    if draw(st.booleans()):
        dtype = draw(st.sampled_from(FLOATS + INTS))
        return dataclasses.replace(case, inputs=tuple(dataclasses.replace(s, dtype=dtype) if is_float(s.dtype) else s for s in case.inputs))
    i = draw(st.integers(0, len(case.inputs) - 1))
    inputs = list(case.inputs)
    inputs[i] = dataclasses.replace(inputs[i], dtype=draw(st.sampled_from((*FLOATS, *INTS, "bool"))))
    return dataclasses.replace(case, inputs=tuple(inputs))


CHANGES = ("sizes",) * 6 + ("as it is", "rank", "wrong", "wrong", "dtypes", "dtypes", "special")


def change(draw, case, changes=CHANGES):
    judge = "numpy"
    if case.reshaped and draw(st.booleans()):
        case = case.reshaped(tuple(draw(st.lists(st.sampled_from(SIZES), max_size=5 if draw(st.booleans()) else 2))))
    if case.inputs:
        how = draw(st.sampled_from(changes))
        if how in ("sizes", "special"):
            case = other_sizes(draw, case)
        elif how != "as it is":
            case, judge = {"rank": other_rank, "wrong": wrong_shape, "dtypes": other_dtypes}[how](draw, case), "reference"
        if how == "special" and NOT_FINITE_FREELY & {*case.ops, *(f.partition(".")[0] for f in case.functions), *case.functions}:
            how = "sizes"
    assume(all(np.prod(s.shape, dtype=np.int64) <= LARGEST for s in case.inputs))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    arrays = []
    with np.errstate(all="ignore"):
        for s in case.inputs:
            try:
                a = s.make(rng)
            except (ValueError, IndexError):  # values that are made for one shape only
                assume(False)
            if s.dtype == "int64" and how == "sizes" and draw(st.integers(0, 3)):  # an index that still fits
                a = a % min((n for t in case.inputs if is_float(t.dtype) for n in t.shape if n), default=1 << 40)
            if case.inputs and how == "special" and is_float(s.dtype) and a.size:
                judge = "reference"
                a = a.copy()
                a.reshape(-1)[rng.integers(0, a.size, 2)] = round_to(rng.choice(SPECIAL, 2), s.dtype)
            arrays.append(a)
    return Changed(case, arrays, "itself" if case.own_values else judge)


# ---------------------------------------------------------------- memory
def lay_out(draw, array, dtype, device):
    """A tensor of these values somewhere in a larger one: dims in another order, steps, offsets, and one dim that is a single element,
    repeated. Returns (how to make it, the array, which a repeated dim changes)."""
    if array.ndim == 0 or array.ndim > 5 or draw(st.booleans()):
        return (lambda d: harness._plain(array, dtype, d)), array
    order = draw(st.permutations(range(array.ndim)))
    lead = [draw(st.integers(0, 2)) for _ in order]
    step = [draw(st.sampled_from((1, 1, 2, 3))) for _ in order]
    repeated = draw(st.integers(0, 4 * array.ndim))
    if repeated < array.ndim and array.shape[repeated] > 1:
        array = np.broadcast_to(np.take(array, [0], repeated), array.shape)
        small = np.take(array, [0], repeated)
    else:
        small = array
    turned = small.transpose(order)
    wide = np.resize(harness._junk((1,), dtype), [b + s * n for b, s, n in zip(lead, step, turned.shape)]).astype(array.dtype)
    inside = tuple(slice(b, b + s * n, s) for b, s, n in zip(lead, step, turned.shape))
    wide[inside] = turned

    def make(d):
        view = pf.permute(harness._plain(wide, dtype, d)[inside], tuple(int(i) for i in np.argsort(order)))
        return view.expand(*array.shape) if small is not array else view

    return make, array


def same(x):
    return x


def negated(x):
    return pf.neg(pf.neg(x)) if harness.dtype_name(x) not in ("bool", "uint8") else x


def through_memory(x):
    return pf.empty_like(x).copy_(x)


def into_a_part(x):
    z = pf.zeros((2, *x.shape), dtype=x.dtype, device=x.device)
    z[1].copy_(x)
    return z[1]


def picked(x):
    return pf.where(x == x, x, x)


def turned(x):
    return pf.clone(x.transpose(0, -1)).transpose(0, -1) if x.dim() else x


NEIGHBOURS = (same, same, same, negated, negated, through_memory, into_a_part, picked, turned)  # all keep the values


# ---------------------------------------------------------------- outcomes
class Refused:
    """A clean exception."""

    def __init__(self, error):
        self.kind, self.text = type(error), str(error)
        assert re.match(r"^[\w.]+(\(\))?: ", self.text), f"not 'op: what happened; got ...': {self.text}"
        assert "; got " in self.text or "expected" in self.text, f"says neither what it got nor what it expected: {self.text}"
        assert not re.search(r"internal|unexpected failure|std::|nanobind", self.text), f"an internal failure: {self.text}"


@contextlib.contextmanager
def window(ops):
    pf._C._set_window(ops)
    try:
        yield
    finally:
        pf._C._set_window(int(os.environ.get("PYFLAME_WINDOW") or 0))


def outcome(compute):
    try:
        return compute()
    except ERRORS as e:
        refused = Refused(e)
        with contextlib.suppress(RuntimeError, *ERRORS):
            pf.synchronize()  # what has been told need not be told again
        return refused


def values(case, made, around, device, ops):
    """[(array, dtype)] of the outputs, or the exception."""

    def compute():
        xs = [f(m(device)) for f, m in zip(around, made)]
        ys = harness.call(case, xs, device)
        ys = [around[i % len(around)](y) if around else y for i, y in enumerate(ys)]
        outputs = [(harness.to_array(y), harness.dtype_name(y)) for y in ys]
        pf.synchronize()  # a failure that no value depends on, an empty one's say
        return outputs

    with window(ops), pf.no_grad():
        return outcome(compute)


def lengthened(case, original):
    """With the tolerance of longer reductions."""
    growth = max([1.0, *(a.size / max(int(np.prod(s.shape)), 1) for a, s in zip(original.arrays, case.inputs))])
    return dataclasses.replace(original.case, length=original.case.length * growth)


def describe(changed, around):
    inputs = ", ".join(f"{s.dtype}{s.shape}" for s in changed.case.inputs)
    return f"{changed.case.name} of {inputs}, neighbours {[f.__name__ for f in around]}"


def size_of(case, arrays):
    """What errors are relative to, at most."""
    sizes = [np.abs(v).astype(float) for v in arrays]
    sizes = [np.square(np.max(v[np.isfinite(v)], initial=1.0)) for v in sizes]
    with contextlib.suppress(*UNKNOWING):
        table = np.asarray(case.magnitude(*arrays)) if case.magnitude else np.zeros(())
        sizes.append(np.max(table[np.isfinite(table)], initial=1.0))
    return max(sizes, default=1.0)


def alike(a, b, case, arrays, exact):
    """The difference of two outcomes; empty if they agree, either bit for bit or within the case's tolerance."""
    if isinstance(a, Refused) or isinstance(b, Refused):
        if isinstance(a, Refused) and isinstance(b, Refused):
            # Of two things that are wrong an index's value is told first only where the value is at hand.
            return "" if a.kind is b.kind or IndexError in (a.kind, b.kind) else f"{a.kind.__name__} ({a.text}) and {b.kind.__name__} ({b.text})"
        return "one of them raised: " + (a if isinstance(a, Refused) else b).text
    for (x, dtype), (y, other) in zip(a, b):
        if dtype != other or x.shape != y.shape:
            return f"{dtype}{x.shape} and {other}{y.shape}"
        if exact or not is_float(dtype):
            wrong = "" if np.array_equal(x, y, equal_nan=is_float(dtype)) else f"differ: {x} and {y}"
        else:
            if case.c:  # a formula may be arranged in several ways, and give infinity here and NaN there
                finite = np.isfinite(x) | np.isfinite(y)
                x, y = np.where(finite, x, np.nan), np.where(finite, y, np.nan)
            wrong = differences(x, y, dtype, 2 * case.c + 8, size_of(case, arrays), case.length, case.composed)
        if wrong:
            return wrong
    return "" if len(a) == len(b) else f"{len(a)} and {len(b)} outputs"


def one_example(draw, cases, seen):
    case = cases[draw(st.integers(0, len(cases) - 1))]
    changed = change(draw, case)
    layouts = [lay_out(draw, a, s.dtype, DEVICE) if case.layouts else ((lambda d, a=a, s=s: harness._plain(a, s.dtype, d)), a) for a, s in zip(changed.arrays, changed.case.inputs)]
    made, changed.arrays = [m for m, _ in layouts], [a for _, a in layouts]
    changed.case = lengthened(case, changed)
    around = [draw(st.sampled_from(NEIGHBOURS if case.layouts else NEIGHBOURS[:6])) for _ in range(max(len(made), 1))]
    text = describe(changed, around)
    with np.errstate(all="ignore"):
        whole = values(changed.case, made, around, DEVICE, 0)
        # Alone, each op by itself, and windows that are cut anywhere.
        for f, ops in ((around, draw(st.integers(1, 6))), ([same] * len(around), 1)):
            wrong = alike(whole, values(changed.case, made, f, DEVICE, ops), changed.case, changed.arrays, changed.case.fused_exact)
            assert not wrong, f"{text}: with windows of {ops} ops: {wrong}"
        refused = isinstance(whole, Refused)
        wrong = None if refused or changed.judge != "numpy" else numpys(changed, whole)
        if wrong is None and changed.judge != "itself" and not (refused and changed.judge == "numpy"):
            wrong = alike(whole, values(changed.case, made, [same] * len(around), "reference", 0), changed.case, changed.arrays, False)
            wrong = wrong and f"on the reference device: {wrong}"
        assert not wrong, f"{text}: {wrong}"
        seen["refused" if refused else changed.judge] += 1
    after = pf.arange(4, device=DEVICE) * 2  # the engine goes on
    assert after.tolist() == [0, 2, 4, 6]
    return changed


def numpys(changed, got):
    """How these outputs differ from NumPy's; None if the function of the table cannot compute these sizes."""
    case, arrays = changed.case, changed.arrays
    try:
        expected = harness.as_tuple(case.reference(*arrays))
        magnitude = case.magnitude(*arrays) if case.magnitude else None
    except UNKNOWING:
        return None
    if len(expected) != len(got):
        return f"{len(got)} outputs instead of {len(expected)}"
    for (y, dtype), r, right in zip(got, expected, case.out_dtypes(len(got))):
        if dtype != right:
            return f"dtype {dtype} instead of {right}"
        wrong = differences(y, np.asarray(r), dtype, case.c, harness._fitting(magnitude, r), case.length, case.composed)
        if wrong:
            return wrong
    return ""


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_values(name):
    seen = collections.Counter()

    @some_examples
    @given(st.data())
    def examples(data):
        one_example(data.draw, SUBJECTS[name], seen)

    examples()
    assert seen["numpy"] * 8 >= EXAMPLES or any(c.own_values for c in SUBJECTS[name]), f"too few of the changed cases could be computed: {dict(seen)}"


STEP = 1e-5  # of the central differences


def close(a, b, what):
    for x, y in zip(a, b):
        limit = 1e-9 * (1 + np.abs(y[np.isfinite(y)]).max(initial=0))
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=limit, err_msg=what)


def one_gradient(draw, cases, seen):
    case = harness.in_float64(cases[draw(st.integers(0, len(cases) - 1))])
    changed = change(draw, case, ("sizes", "sizes", "rank"))
    layout = draw(st.sampled_from(("contiguous", *harness.LAYOUTS))) if case.layouts else "contiguous"
    case = dataclasses.replace(changed.case, inputs=tuple(dataclasses.replace(s, layout=layout) for s in changed.case.inputs))
    text = f"{describe(changed, [])}, {layout}"

    def gradients(device, ops):
        f = harness.Differentiated(case, changed.arrays, device)
        with window(ops):
            return f, f.gradient_arrays(changed.arrays)

    with np.errstate(all="ignore"):
        whole = outcome(lambda: gradients(DEVICE, 0))
        cut = outcome(lambda: gradients(DEVICE, draw(st.integers(1, 6))))
        seen["refused" if isinstance(whole, Refused) else "computed"] += 1
        if isinstance(whole, Refused) or isinstance(cut, Refused):
            assert isinstance(whole, Refused) and isinstance(cut, Refused), f"{text}: refused in some windows only: {(whole if isinstance(whole, Refused) else cut).text}"
            return
        f, gradient = whole
        close(cut[1], gradient, f"{text}: in smaller windows")
        if changed.judge != "itself":
            close(gradients("reference", 0)[1], gradient, f"{text}: on the reference device")
        v = f.direction()
        ahead, behind, here = (f.value(f.at(v, s)) for s in (STEP, -STEP, 0))
        if changed.judge == "numpy" and all(np.isfinite(x).all() for x in (*gradient, ahead, behind)):
            slope = (ahead - behind) / (2 * STEP)
            limit = 1e-5 * harness.absolute_dot(gradient, v) + 1e-7 * (1 + abs(here))
            error = abs(slope - harness.dot(gradient, v))
            kink = abs(ahead - 2 * here + behind) / STEP >= error  # one of the elements crossed one: the slopes of the two sides differ by twice the error
            assert error <= limit or kink, f"{text}: got {harness.dot(gradient, v)}, differences say {slope}, allowed {limit}"


@pytest.mark.parametrize("name", sorted(n for n, cases in SUBJECTS.items() if any(c.grad for c in cases)))
def test_gradients(name):
    seen = collections.Counter()

    @settings(some_examples, max_examples=max(1, some_examples.max_examples // 4))
    @given(st.data())
    def examples(data):
        one_gradient(data.draw, [c for c in SUBJECTS[name] if c.grad], seen)

    examples()
    assert seen["computed"], f"no gradient could be computed: {dict(seen)}"


def test_every_op_is_covered():
    missing = set(pf._C.op_names()) - {op for c in all_cases() for op in c.ops} - {OF_PROGRAMS}
    assert not missing, f"ops that no case names: {sorted(missing)}"
