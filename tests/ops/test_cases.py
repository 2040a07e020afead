"""Every op of the table against NumPy in float64: values on a device (PYFLAME_TEST_DEVICE, otherwise the cpu) and on the reference
device, layouts, gradients of first and second order by finite differences, and the same bits fused or not."""

import os
import pathlib
import re
import sys

import numpy as np
import pytest
from not_in_the_cases import MODULES, NOT_IN_THE_CASES

import pyflame as pf
from pyflame.testing import harness
from pyflame.testing.cases import OF_PROGRAMS, all_cases
from pyflame.testing.tolerance import EPS, LARGEST, differences, growth, is_float

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
ALL = all_cases()
CASES = [c for c in ALL if DEVICE in ("cpu", "reference") or not c.cpu_only]
OPS = pathlib.Path(__file__).resolve().parents[2] / "src" / "pyflame" / "ops"
sys.path.insert(0, str(OPS.parents[2] / "tools" / "site"))

import names as public_names  # noqa: E402

STEP = 1e-5  # of the central differences: their error is about STEP^2 relative to the third derivative


def named(cases):
    return [pytest.param(c, id=c.name) for c in cases]


def differentiable(dtype):
    return [c for c in CASES if c.grad and c.inputs[c.grad[0]].dtype == dtype]


@pytest.mark.parametrize("case", named(CASES))
def test_values(case):
    arrays = case.arrays()
    with np.errstate(all="ignore"):
        for device in (DEVICE, "reference"):
            outputs = harness.run(case, arrays, device)
            wrong = harness.check_outputs(case, outputs, arrays)
            assert not wrong, f"on {device}: {wrong}"
    if case.check:
        case.check(pf, outputs, arrays)


@pytest.mark.parametrize("case", named(c for c in CASES if c.inputs and c.layouts))
def test_layouts(case):
    arrays = case.arrays()
    for layout in harness.LAYOUTS:
        bases = []
        with np.errstate(all="ignore"):
            wrong = harness.check_outputs(case, harness.run(case, arrays, DEVICE, layout, bases), arrays)
        assert not wrong, f"{layout} inputs: {wrong}"
        for base, before in bases:
            np.testing.assert_array_equal(harness.to_array(base), before, err_msg=f"{layout} inputs: the op wrote to what lies around its input")


@pytest.mark.parametrize("case", named(differentiable("float32")))
def test_gradient(case):
    f = harness.Differentiated(harness.in_float64(case), harness.in_float64(case).arrays(), DEVICE)
    x = f.arrays
    gradient = f.gradient_arrays(x)
    for g, i in zip(gradient, case.grad):
        assert g.shape == x[i].shape
        assert np.isfinite(g).all()
    for _ in range(2):
        v = f.direction()
        slope = (f.value(f.at(v, STEP)) - f.value(f.at(v, -STEP))) / (2 * STEP)
        limit = 1e-6 * harness.absolute_dot(gradient, v) + 1e-9 * (1 + abs(f.value(x)))
        assert abs(slope - harness.dot(gradient, v)) <= limit, f"along a direction: got {harness.dot(gradient, v)}, finite differences say {slope}, allowed {limit}"
    try:
        recorded = f.gradient_arrays(x, create_graph=True)
    except RuntimeError as error:
        assert not case.twice and "its gradient has no gradient" in str(error)
        return
    for a, b in zip(gradient, recorded):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9 * (1 + np.abs(a).max(initial=0)), err_msg="with create_graph")


@pytest.mark.parametrize("case", named(c for c in differentiable("float32") if c.twice))
def test_second_gradient(case):
    f = harness.Differentiated(harness.in_float64(case), harness.in_float64(case).arrays(), DEVICE)
    u, v = f.direction(), f.direction()
    second = f.second(f.arrays, u)
    ahead, behind = (harness.dot(f.gradient_arrays(f.at(v, s)), u) for s in (STEP, -STEP))
    slope = (ahead - behind) / (2 * STEP)
    limit = 1e-5 * harness.absolute_dot(second, v) + 1e-8 * (1 + abs(ahead))
    assert abs(slope - harness.dot(second, v)) <= limit, f"got {harness.dot(second, v)}, finite differences say {slope}, allowed {limit}"


@pytest.mark.parametrize("case", named(c for d in ("float32", "float16", "bfloat16") for c in differentiable(d)))
def test_gradient_in_own_dtype(case):
    """Against the reference device in float64, at the same (rounded) inputs."""
    arrays = case.arrays()
    exact = harness.Differentiated(harness.in_float64(case), arrays, "reference")
    own = harness.Differentiated(case, arrays, DEVICE)
    weights = [w if w is None else np.round(w * 8) / 8 for w in own.weights]  # numbers of every dtype
    own.weights = exact.weights = weights
    overflows = any(np.isinf(harness.to_array(y)).any() for y in harness.run(case, arrays, DEVICE))
    for i, (g, r) in enumerate(zip(own.gradient_arrays(arrays), exact.gradient_arrays(arrays))):
        dtype = case.inputs[case.grad[i]].dtype
        # Where the op overflows its dtype there is nothing to compare.
        comparable = (np.abs(r) < LARGEST[dtype] / 16) & (np.isfinite(g) | (not overflows))
        g, r = np.where(comparable, g, 0.0), np.where(comparable, r, 0.0)
        # A gradient passes the op's own roundings on the way there and back, each with its factor c.
        limit = (8 + 8 * case.c) * (EPS[dtype] + EPS["float32"] * growth(case.length)) * max(np.abs(r).max(initial=0), 1.0)
        np.testing.assert_allclose(g, r, rtol=0, atol=limit, err_msg=f"input {case.grad[i]}")


@pytest.mark.parametrize("case", named(c for c in CASES if any(is_float(s.dtype) for s in c.inputs)))
def test_fused_in_context(case):
    """x * 2 -> op -> + 1 in one window, and with a synchronisation after every step."""
    arrays = case.arrays()

    def context(pause):
        xs = harness.tensors(case, arrays, DEVICE)
        pause()
        xs = [x * 2 if is_float(s.dtype) else x for x, s in zip(xs, case.inputs)]
        pause()
        ys = harness.call(case, xs, DEVICE)
        pause()
        ys = [y if harness.dtype_name(y) == "bool" else y + 1 for y in ys]
        pause()
        return [(harness.to_array(y), harness.dtype_name(y)) for y in ys]

    with pf.no_grad(), np.errstate(all="ignore"):
        pf.synchronize()
        fused, single = context(lambda: None), context(pf.synchronize)
        magnitude = case.magnitude(*[a * 2 if is_float(s.dtype) else a for a, s in zip(arrays, case.inputs)]) if case.magnitude and not case.fused_exact else None
    for (a, dtype), (b, _) in zip(fused, single):
        if case.fused_exact or not is_float(dtype):
            np.testing.assert_array_equal(a, b)
        else:
            # Two results of the op, each within its tolerance, and the addition's own rounding.
            size = None if magnitude is None else harness._fitting(magnitude, b) + 1
            wrong = differences(a, b, dtype, 2 * case.c + 1, size, case.length, case.composed)
            assert not wrong, wrong


def test_every_primitive_has_a_case():
    covered = {op for c in ALL for op in c.ops}
    names = set(pf._C.op_names()) - {OF_PROGRAMS}
    assert not names - covered, f"primitives without a case: {sorted(names - covered)}"
    assert not covered - names, f"cases name primitives that do not exist: {sorted(covered - names)}"


@pytest.mark.parametrize("op", sorted(set(pf._C.op_names()) - {OF_PROGRAMS}))
def test_cases_run_the_primitives_that_they_name(op):
    """A case that names an op but never records it would cover nothing. The explanation of a forward and backward pass shows what was recorded."""
    seen = ""
    for case in [c for c in ALL if op in c.ops and (not c.inputs or any(np.prod(s.shape) for s in c.inputs))]:
        # A few ops are recorded where the CPU's compositions are not the best: the reference device has them all.
        for device in dict.fromkeys(("cpu" if case.cpu_only else DEVICE, "reference")):
            seen = pf.explain(forward_and_backward, case, device)
            if re.search(rf"\b{op}\b", seen):
                return
    pytest.fail(f"no case that names {op} records it; the last explanation:\n{seen}")


def forward_and_backward(case, device):
    arrays = case.arrays()
    harness.run(case, arrays, device)
    if case.grad:
        harness.Differentiated(case, arrays, device).gradients(arrays)


def public_functions():
    text = re.sub(r"//.*", "", (OPS / "ops.h").read_text())
    names = set(re.findall(r"^(?:Tensors?|void|RngState|std::pair<Tensor, Tensor>) (\w+)\(", text, re.M))
    names |= set(re.findall(r"^(?:UNARY|BINARY|SPECIAL|ALONG)\((\w+),", (OPS / "ops.def").read_text(), re.M))
    # Settings: tests/ops/test_matmul.py, test_deterministic.py. Orders of dims in memory: tests/python/test_layout.py.
    return names - {"name", "clone_preserving", "lying_as", "set_float32_matmul_precision", "set_float32_conv_precision", "use_deterministic_algorithms"}


def exists(name):
    def found(value):
        for part in name.split("."):
            value = getattr(value, part, None)
        return value is not None

    return found(pf) or found(pf.special) or found(pf.Tensor)


def test_every_public_function_has_a_case():
    python_names = {"std_dev": "std", "sum_to": "sum_to_size", "fft": "fft.fft", "fft_of_real": "fft.rfft", "fft_to_real": "fft.irfft", "put_slices": "index_copy",
                    "put_slices_": "index_copy_", "true_positions": "nonzero", "sorted_values": "msort", "bin_sums": "finance.VolumeProfileAnalyzer", "scaled_mm": "nn.functional.scaled_mm"}
    covered = {f for c in ALL for f in c.functions}
    names = {python_names.get(n, n) for n in public_functions()}
    assert len(names) > 120
    assert not names - covered, f"public functions without a case: {sorted(names - covered)}"
    unknown = {n for n in covered - names if not exists(n)}  # compositions in Python are functions too
    assert not unknown, f"cases name functions that do not exist: {sorted(unknown)}"


def functions_of(module):
    """{name: its names in any module} of the public functions that belong to a module of MODULES."""
    found = {}
    for entry in public_names.inventory(pf).values():
        called = [path.removeprefix("pyflame.") for path in (entry.path, *entry.aliases)]
        homes = {m: n for n in reversed(called) for m in MODULES if n.rpartition(".")[0] == m}
        if entry.kind == "function" and homes and max(homes, key=MODULES.index) == module:
            found[homes[module].rpartition(".")[2]] = called
    return found


@pytest.mark.parametrize("module", sorted(NOT_IN_THE_CASES))
def test_every_function_of_the_module_has_a_case(module):
    """Also those that Python composes of ops: a wrong formula shows on each device, in each layout, and in the gradients."""
    covered = {f for c in ALL for f in c.functions}
    covered |= {f"{m}.{f}" for f in covered for m in ("special", "nn.functional")}  # the tables call the ops among these by their last names
    excepted = [name for text in NOT_IN_THE_CASES[module].values() for name in text.split()]
    functions = functions_of(module)
    assert len(excepted) == len(set(excepted)), "a name stands in two lists of not_in_the_cases.py"
    assert not set(excepted) - set(functions), f"not_in_the_cases.py names what is no function of the module: {sorted(set(excepted) - set(functions))}"
    without = {name for name, called in functions.items() if not covered & set(called)} - set(excepted)
    assert not without, f"functions without a case: {sorted(without)}; give them one, or a reason in not_in_the_cases.py"
