"""Random programs of ops, views and in-place writes: the same values as NumPy, bit for bit, and the same when nothing waits in a window.

Every value stays where its arithmetic is exact in its dtype (quarters of small whole numbers where something is summed; IEEE 754 asks for the
rounded result of + - * / and sqrt), so that nothing needs a tolerance. PYFLAME_SOAK=n runs n times as many programs, other ones each time."""
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyflame as pf

SOAK = int(os.environ.get("PYFLAME_SOAK", "0"))
DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
STEPS = 24
some_programs = settings(max_examples=250 * max(SOAK, 1), derandomize=not SOAK, deadline=None, database=None,
                         suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])


class Pair:
    """One value in PyFlame and in NumPy. Views share memory in both."""

    def __init__(self, tensor, array, writable=True):
        self.tensor, self.array, self.writable = tensor, array, writable and array.flags.writeable

    def check(self, program):
        got = self.tensor.numpy()
        assert got.shape == self.array.shape and got.dtype == self.array.dtype, f"{got.shape} {got.dtype} instead of {self.array.shape} {self.array.dtype}\n{program}"
        np.testing.assert_array_equal(got, self.array, err_msg="\n".join(program))


def fresh(draw):
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 5, 8, 0)), min_size=0, max_size=4)))
    dtype = draw(st.sampled_from(DTYPES))
    numbers = np.random.default_rng(draw(st.integers(0, 1 << 16))).integers(0 if dtype == "uint8" else -40, 40, shape)
    array = (numbers > 0) if dtype == "bool" else (numbers / 4).astype(dtype) if dtype.startswith("f") else numbers.astype(dtype)
    array = np.ascontiguousarray(array).reshape(shape)
    return Pair(pf.tensor(array, device=DEVICE), array.copy())


# ---------------------------------------------------------------- views: (draw, pair) -> (text, on tensor, on array, writable)
def transposed(draw, p):
    order = draw(st.permutations(range(p.array.ndim)))
    return f"permute({order})", lambda t: t.permute(*order), lambda a: a.transpose(order), True


def sliced(draw, p):
    index = tuple(slice(draw(st.integers(0, n)), draw(st.integers(0, n)), draw(st.integers(1, 3))) for n in p.array.shape)
    return f"[{index}]", lambda t: t[index], lambda a: a[(*index, ...)], True


def picked(draw, p):
    if p.array.ndim == 0 or p.array.shape[0] == 0:
        return None
    i = draw(st.integers(-p.array.shape[0], p.array.shape[0] - 1))
    return f"[{i}]", lambda t: t[i], lambda a: a[i, ...], True


def widened(draw, p):
    d = draw(st.integers(0, p.array.ndim))
    return (f"unsqueeze({d})", lambda t: t.unsqueeze(d), lambda a: np.expand_dims(a, d), True) if p.array.ndim < 5 else None


def expanded(draw, p):
    shape = tuple(draw(st.sampled_from((2, 3))) if n == 1 else n for n in p.array.shape)
    return f"expand{shape}", lambda t: t.expand(*shape), lambda a: np.broadcast_to(a, shape), shape == p.array.shape


VIEWS = (transposed, sliced, picked, widened, expanded)


# ---------------------------------------------------------------- values
def is_float(a):
    return a.dtype.kind == "f"


def unary(draw, p):
    names = {"neg": np.negative, "abs": np.abs, "square": np.square, "sign": np.sign}
    if is_float(p.array):
        names |= {"floor": np.floor, "ceil": np.ceil, "relu": lambda a: np.maximum(a, a.dtype.type(0))}
    if p.array.dtype == bool:
        names = {"logical_not": np.logical_not}
    name = draw(st.sampled_from(sorted(names)))
    return f"{name}", getattr(pf.nn.functional if name == "relu" else pf, name), names[name]


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
COMPARE = {"eq": np.equal, "lt": np.less, "ge": np.greater_equal}


def exact_sum(a):
    """Whether sums of the values of `a` are exact in any order."""
    if not is_float(a) or a.size == 0:
        return True
    bits = {"float16": 11, "float32": 24, "float64": 53}[a.dtype.name]
    values = a.astype(np.float64) * 64
    return bool(np.isfinite(values).all() and (values == np.round(values)).all() and np.abs(values).sum() < 2.0**bits)


def run(draw, eager):
    """Runs a program; `eager`: each op runs at once. Returns the pairs and the text."""
    pairs, program = [fresh(draw), fresh(draw)], []
    for p in pairs:
        program.append(f"t{len(program)} = {p.array.dtype}{p.array.shape}")

    def keep(text, tensor, array, writable=True):
        program.append(f"t{len(pairs)} = {text}")
        pairs.append(Pair(tensor, np.asarray(array), writable))

    for _ in range(draw(st.integers(1, STEPS))):
        kind = draw(st.sampled_from(("view", "view", "unary", "binary", "binary", "compare", "reduce", "matmul", "cast", "where", "write", "write", "assign", "sync", "fresh", "read", "drop")))
        i = draw(st.integers(0, len(pairs) - 1))
        p = pairs[i]
        with np.errstate(all="ignore"):
            if kind == "fresh":
                keep("fresh", *vars(fresh(draw)).values())
            elif kind == "view":
                view = draw(st.sampled_from(VIEWS))(draw, p)
                if view:
                    text, on_tensor, on_array, writable = view
                    keep(f"t{i}.{text}", on_tensor(p.tensor), on_array(p.array), writable and p.writable)
            elif kind == "unary":
                text, on_tensor, on_array = unary(draw, p)
                if p.array.dtype == np.uint8 and text == "neg":
                    continue
                keep(f"{text}(t{i})", on_tensor(p.tensor), on_array(p.array))
            elif kind in ("binary", "compare"):
                table = BINARY if kind == "binary" else COMPARE
                name = draw(st.sampled_from(sorted(table)))
                others = [j for j, q in enumerate(pairs) if q.array.dtype == p.array.dtype and broadcast(p.array.shape, q.array.shape) is not None]
                j = draw(st.sampled_from(others))
                if p.array.dtype == bool and name in ("sub", "add", "mul"):
                    continue  # NumPy's and PyTorch's rules differ
                keep(f"{name}(t{i}, t{j})", getattr(pf, name)(p.tensor, pairs[j].tensor), table[name](p.array, pairs[j].array))
            elif kind == "where":
                masks = [j for j, q in enumerate(pairs) if q.array.dtype == bool and broadcast(p.array.shape, q.array.shape) is not None]
                if masks:
                    j = draw(st.sampled_from(masks))
                    zero = pf.zeros((), dtype=p.tensor.dtype, device=DEVICE)
                    keep(f"where(t{j}, t{i}, 0)", pf.where(pairs[j].tensor, p.tensor, zero), np.where(pairs[j].array, p.array, p.array.dtype.type(0)))
            elif kind == "reduce":
                name = draw(st.sampled_from(("sum", "amax", "any")))
                dims = tuple(draw(st.sets(st.integers(0, p.array.ndim - 1), min_size=1))) if p.array.ndim else ()
                keepdim = draw(st.booleans())
                if not dims or (name == "sum" and not exact_sum(p.array)) or (name == "amax" and (p.array.dtype == bool or 0 in p.array.shape)):
                    continue
                if name == "any":
                    keep(f"(t{i} != 0).any({dims[0]})", (p.tensor != 0).any(dims[0], keepdim), (p.array != 0).any(dims[0], keepdims=keepdim))
                    continue
                array = {"sum": lambda: p.array.sum(dims, keepdims=keepdim, dtype=p.array.dtype if is_float(p.array) else np.int64), "amax": lambda: p.array.max(dims, keepdims=keepdim)}[name]()
                keep(f"{name}(t{i}, {dims})", getattr(p.tensor, name)(dims, keepdim), np.asarray(array))
            elif kind == "matmul":
                others = [j for j, q in enumerate(pairs) if q.array.dtype == p.array.dtype and q.array.ndim == 2 == p.array.ndim and p.array.shape[1] == q.array.shape[0]]
                if others and p.array.dtype in (np.float32, np.float64, np.int64):
                    j = draw(st.sampled_from(others))
                    size = np.abs(p.array.astype(np.float64)) @ np.abs(pairs[j].array.astype(np.float64))
                    quarters = all(np.array_equal(x * 4, np.round(x * 4)) for x in (p.array, pairs[j].array))
                    if quarters and (size * 16 < 2.0**24).all():
                        keep(f"t{i} @ t{j}", p.tensor @ pairs[j].tensor, p.array @ pairs[j].array)
            elif kind == "cast":
                dtype = draw(st.sampled_from(("float32", "float64", "int64", "bool")))
                if p.array.dtype != dtype and np.abs(np.nan_to_num(p.array.astype(np.float64), nan=2.0**40, posinf=2.0**40, neginf=2.0**40)).max(initial=0) < 2.0**30:
                    keep(f"t{i}.to({dtype})", p.tensor.to(getattr(pf, dtype if dtype != "bool" else "bool")), p.array.astype(dtype))
            elif kind == "write" and p.writable:
                name = draw(st.sampled_from(("add_", "mul_", "fill_", "copy_")))
                others = [j for j, q in enumerate(pairs) if q.array.dtype == p.array.dtype and broadcast(p.array.shape, q.array.shape) == p.array.shape]
                j = draw(st.sampled_from(others))
                if p.array.dtype == bool and name in ("add_", "mul_"):
                    continue
                other = pairs[j].array.copy() if np.shares_memory(p.array, pairs[j].array) else pairs[j].array
                if name == "fill_":
                    p.tensor.fill_(1)
                    p.array[...] = 1
                elif np.shares_memory(p.array, pairs[j].array) and j != i:
                    continue  # partly overlapping operands: what NumPy and PyTorch leave open
                else:
                    getattr(p.tensor, name)(pairs[j].tensor)
                    p.array[...] = {"add_": p.array + other, "mul_": p.array * other, "copy_": other}[name]
                program.append(f"t{i}.{name}(t{j})")
            elif kind == "assign" and p.writable and p.array.ndim:
                index = tuple(slice(draw(st.integers(0, n)), draw(st.integers(0, n))) for n in p.array.shape)
                p.tensor[index] = 1
                p.array[index] = 1
                program.append(f"t{i}[{index}] = 1")
            elif kind == "sync" and not eager:
                program.append("synchronize")
                pf.synchronize()
            elif kind == "read" and not eager:
                program.append(f"read t{i}")
                p.check(program)
            elif kind == "drop" and len(pairs) > 2:
                program.append(f"drop t{i}")
                pairs[i] = fresh(draw)
                program.append(f"t{i} = fresh")
        if eager:
            pf.synchronize()
    return pairs, program


def broadcast(a, b):
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


@pytest.mark.parametrize("eager", [False, True], ids=["windows", "one by one"])
def test_programs_are_numpys(eager):
    @some_programs
    @given(st.data())
    def programs(data):
        pairs, program = run(data.draw, eager)
        for p in pairs[::-1]:
            p.check(program)

    programs()
