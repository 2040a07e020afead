"""Kernels that fail on purpose (pyflame.testing.inject), on the cpu and on the null device, which plans and poisons without computing:
what depends on the failed kernel raises its error, everything else has the values of a run without failure, and the next step runs.

The random programs are lines of Python, so that the error's list of lines says which ops were in the failed kernel; a model of a few lines
says what must be poisoned then. PYFLAME_SOAK=n runs n times as many programs, other ones each time."""
import contextlib
import os
import re
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pyflame as pf
import pyflame.nn.functional as F
from pyflame.testing.inject import failing

SOAK = int(os.environ.get("PYFLAME_SOAK", "0"))
WINDOW = int(os.environ.get("PYFLAME_WINDOW") or 0)
FUSES = WINDOW == 0 and os.environ.get("PYFLAME_FUSE") != "0"
FILE = "random_program.py"
OPS = ("", "", "add", "mul", "tanh", "sum", "matmul", "softmax", "topk", "cast", "full")
some_programs = settings(max_examples=150 * max(SOAK, 1), derandomize=not SOAK, deadline=None, database=None, suppress_health_check=list(HealthCheck),
                         phases=[Phase.generate], report_multiple_bugs=False)


@pytest.fixture(autouse=True)
def _device():
    reads = pf._C._set_reads_of_null(True)  # values of the null device are zeros here, and not an error
    yield
    with contextlib.suppress(RuntimeError):
        pf.synchronize()
    pf._C._set_reads_of_null(reads)
    pf.set_device("cpu")
    window(WINDOW)


def settle():
    with contextlib.suppress(RuntimeError):
        pf.synchronize()


def cut():
    with contextlib.suppress(RuntimeError):
        pf.cut()


def window(ops):
    settle()
    pf._C._set_window(ops)


def read(t):
    """(values, None) or (None, the error's text)."""
    try:
        return np.array(t.tolist()), None
    except RuntimeError as e:
        return None, str(e)


# ---------------------------------------------------------------- random programs
class Var:
    def __init__(self, storage, shape, whole, index=False):
        self.storage, self.shape, self.whole, self.index = storage, shape, whole, index  # whole: its elements are all of its storage's


class Line:
    """What one line reads and writes, in storages. covers: it writes all of what it writes, and reads nothing of it."""

    def __init__(self, text, reads=(), writes=(), covers=True):
        self.text, self.reads, self.writes, self.covers = text, set(reads), tuple(writes), covers


class Programs:
    def __init__(self, draw):
        self.draw, self.vars, self.lines, self.storages = draw, {}, [], 0
        for _ in range(2):
            self.new("pf.tensor(next(data))", (4, 4))
        for _ in range(draw(st.integers(2, 14))):
            self.step()

    def new(self, text, shape, reads=()):
        name, self.storages = f"t{len(self.vars)}", self.storages + 1
        self.vars[name] = Var(self.storages, shape, True)
        self.lines.append(Line(f"{name} = {text}", reads, [self.storages]))

    def view(self, name, text, shape):
        v = self.vars[name]
        self.vars[f"t{len(self.vars)}"] = Var(v.storage, shape, v.whole and np.prod(shape) == np.prod(v.shape))
        self.lines.append(Line(f"t{len(self.vars) - 1} = {name}{text}"))

    def pick(self, fits=lambda v: True):
        return self.draw(st.sampled_from([n for n, v in self.vars.items() if fits(v) and not v.index]))

    def step(self):
        kind = self.draw(st.sampled_from(("unary", "unary", "binary", "binary", "sum", "matmul", "softmax", "topk", "cat", "full", "view", "view", "write", "write", "write", "fill", "settle", "cut", "window")))
        a = self.pick()
        v = self.vars[a]
        if kind == "unary":
            self.new(self.draw(st.sampled_from(("pf.tanh({})", "pf.neg({})", "{} * 2", "pf.sigmoid({})"))).format(a), v.shape, [v.storage])
        elif kind == "binary":
            b = self.pick(lambda w: w.shape == v.shape)
            self.new(f"{a} {self.draw(st.sampled_from('+*'))} {b}", v.shape, [v.storage, self.vars[b].storage])
        elif kind == "sum":
            self.new(f"{a}.sum(0, keepdim=True)", (1, *v.shape[1:]), [v.storage])
        elif kind == "matmul":
            a, b = (self.pick(lambda w: w.shape == (4, 4)) for _ in range(2))
            self.new(f"{a} @ {b}", (4, 4), [self.vars[a].storage, self.vars[b].storage])
        elif kind == "softmax":
            self.new(f"F.softmax({a}, -1)", v.shape, [v.storage])
        elif kind == "topk":  # one kernel, two results
            k = v.shape[-1] // 2
            shape = (*v.shape[:-1], k)
            names = f"t{len(self.vars)}", f"t{len(self.vars) + 1}"
            for n in names:
                self.storages += 1
                self.vars[n] = Var(self.storages, shape, True, index=n == names[1])
            self.lines.append(Line(f"{', '.join(names)} = pf.topk({a}, {k})", [v.storage], [self.storages - 1, self.storages]))
        elif kind == "cat" and v.shape[0] < 8:
            b = self.pick(lambda w: w.shape == v.shape)
            self.new(f"pf.cat([{a}, {b}])", (2 * v.shape[0], *v.shape[1:]), [v.storage, self.vars[b].storage])
        elif kind == "full":
            self.new("pf.full((4, 4), 3.0)", (4, 4))
        elif kind == "view" and len(v.shape) == 2 and v.shape[0] > 1:
            if self.draw(st.booleans()):
                self.view(a, ".transpose(0, 1)", v.shape[::-1])
            else:
                self.view(a, "[:2]", (2, v.shape[1]))
        elif kind in ("write", "fill"):
            others = [n for n, w in self.vars.items() if w.shape == v.shape and w.storage != v.storage and not w.index]
            if kind == "fill":
                self.lines.append(Line(f"{a}.fill_(2.0)", [], [v.storage], v.whole))
            elif others:
                b = self.draw(st.sampled_from(others))
                name = self.draw(st.sampled_from(("copy_", "add_", "mul_")))
                reads = [self.vars[b].storage] + ([v.storage] if name != "copy_" else [])
                self.lines.append(Line(f"{a}.{name}({b})", reads, [v.storage], name == "copy_" and v.whole))
        elif kind in ("settle", "cut"):
            self.lines.append(Line(f"{kind}()"))
        elif kind == "window" and not WINDOW:
            self.lines.append(Line(f"window({self.draw(st.integers(0, 5))})"))

    def poisoned(self, failed):
        """The poisoned storages if the kernel with the ops of these lines fails."""
        bad = set()
        for number, line in enumerate(self.lines, 2):
            if number in failed or line.reads & bad:
                bad |= set(line.writes)
            elif line.covers:
                bad -= set(line.writes)
        return bad

    def run(self):
        text = "def program(pf, F, data, settle, cut, window):\n" + "".join(f"  {l.text}\n" for l in self.lines) + "  return locals()\n"
        space = {}
        exec(compile(text, FILE, "exec"), space)
        data = iter(np.random.default_rng(1).standard_normal((2, 4, 4)).astype(np.float32))
        made = space["program"](pf, F, data, settle, cut, window)
        return {n: made[n] for n in self.vars}

    def __str__(self):
        return "\n".join(f"{i}  {l.text}" for i, l in enumerate(self.lines, 2))


@pytest.mark.parametrize("device", ["cpu", "null"])
def test_random_programs_are_poisoned_where_they_must_be(device):
    counts = {"failed": 0, "healed": 0, "sound beside": 0, "fused": 0}

    @some_programs
    @given(st.data())
    def programs(data):
        draw = data.draw
        pf.set_device(device)
        window(0)
        p = Programs(draw)
        expected = {n: read(t)[0] for n, t in p.run().items()}
        window(WINDOW or draw(st.sampled_from((0, 0, 1, 3))))
        op, run, after = draw(st.sampled_from(OPS)), draw(st.integers(0, 5)), draw(st.booleans())
        with failing(op, run, after) as injection:
            found = {n: read(t) for n, t in draw(st.permutations(sorted(p.run().items(), key=lambda x: x[0])))}
            told = {e for _, e in found.values() if e}
        window(WINDOW)
        text = f"{p}\nfailing {op!r} number {run}, {'after' if after else 'before'} it wrote; {injection.runs} counted"
        assert len(told) <= 1, f"{text}\none failure, several errors: {told}"
        bad = set()
        if told:
            error = told.pop()
            failed = {int(n) for n in re.findall(rf"{FILE}:(\d+) in program", error)}
            assert failed and re.search(rf"^{op or '[a-z_]+'}: the kernel failed on purpose", error) and "float32(" in error, f"{text}\n{error}"
            at = int(re.search(rf"recorded at {FILE}:(\d+)", error)[1])
            assert at in failed and f"on {device}" in error
            text += "\n" + error
            if "    ..." in error:
                return  # not all of its ops are told
            bad = p.poisoned(failed)
            counts["failed"] += 1
            counts["fused"] += len(failed) > 1
            counts["healed"] += any(set(p.lines[n - 2].writes) - bad for n in failed)
        for name, (values, e) in found.items():
            must = p.vars[name].storage in bad
            assert (e is not None) == must, f"{text}\n{name} {'reads although it depends on' if must else 'raises although it does not depend on'} what failed"
            if not must and device == "cpu":
                np.testing.assert_array_equal(values, expected[name], err_msg=f"{text}\n{name}")
                counts["sound beside"] += bool(bad)
        # The next time nothing fails.
        again = {n: read(t) for n, t in p.run().items()}
        window(WINDOW)
        assert all(e is None for _, e in again.values()), text
        if device == "cpu":
            for name, (values, _) in again.items():
                np.testing.assert_array_equal(values, expected[name], err_msg=f"{text}\nagain: {name}")

    programs()
    assert counts["failed"] > 50 and (device == "null" or counts["sound beside"] > 50) and (not FUSES or counts["fused"] > 20), counts


# ---------------------------------------------------------------- what must be exact
def raises(t, *parts):
    with pytest.raises(RuntimeError) as e:
        t.tolist()
    for part in parts:
        assert part in str(e.value), str(e.value)


@pytest.mark.parametrize("device", ["cpu", "null"])
@pytest.mark.parametrize("after", [False, True])
def test_the_error_names_op_shape_and_line(device, after):
    pf.set_device(device)
    with failing("matmul", after=after) as injection:
        x = pf.ones(3, 5)
        beside = x + 1
        y = x @ pf.ones(5, 7)
        z = y.relu()
        raises(z, "matmul: the kernel failed on purpose", "matmul(float32(3, 5), float32(5, 7))", f"on {device}", "test_failing_kernels.py:", "in test_the_error_names_op_shape_and_line")
        raises(y.sum(), "matmul(float32(3, 5)")
        read_beside = beside.tolist()
        pf.synchronize()  # it was told
        if device == "cpu":
            assert read_beside == [[2.0] * 5] * 3
            assert (x @ pf.ones(5, 7)).tolist() == [[5.0] * 7] * 3  # the next run
    assert injection.runs >= 1


@pytest.mark.parametrize("device", ["cpu", "null"])
def test_every_view_knows(device):
    pf.set_device(device)
    with failing("tanh"):
        base = pf.zeros(4, 4)
        early, other = base[1], pf.zeros(4)
        pf.synchronize()  # or its kernel is the one that fails
        base[2].copy_(pf.tanh(other))
        late = base.transpose(0, 1)
        for t in (base, early, late, base[0], late.sum(0)):
            raises(t, "tanh: the kernel failed on purpose")
        assert read(other)[1] is None
        base.fill_(3.0)  # written as a whole: sound again
        assert all(read(t)[1] is None for t in (base, early, late))
        if device == "cpu":
            assert late.tolist() == [[3.0] * 4] * 4


class Training:
    def __init__(self, device):
        pf.manual_seed(3)
        pf.set_device(device)
        self.model = pf.nn.Sequential(pf.nn.Linear(6, 5), pf.nn.Tanh(), pf.nn.Linear(5, 3))
        self.optimizer = pf.optim.Adam(self.model.parameters(), lr=0.1)
        self.x, self.target = pf.randn(4, 6), pf.randint(0, 3, (4,))
        pf.synchronize()

    def step(self):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(self.x), self.target).backward()
        self.optimizer.step()
        pf.synchronize()

    def state(self):
        moments = [s[k] for s in self.optimizer.state_dict()["state"].values() for k in ("exp_avg", "exp_avg_sq")]
        return [read(t) for t in (*self.model.parameters(), *moments)]


@pytest.mark.parametrize("device", ["cpu", "null"])
@pytest.mark.parametrize("op,run", [("matmul", 0), ("matmul", 1), ("matmul", 2), ("cross_entropy", 0), ("cross_entropy_grad", 0), ("sum", 0)])
def test_a_step_that_fails_before_the_update_changes_nothing(device, op, run):
    whole, broken = Training(device), Training(device)
    for t in (whole, broken):
        t.step()
    with failing(op, run), pytest.raises(RuntimeError, match=f"(?s){op}: the kernel failed on purpose.*recorded at .*py"):
        broken.step()
    for t in (whole, broken):
        t.step()
        t.step()
    for (a, error), (b, _) in zip(broken.state(), whole.state()):
        assert error is None
        if device == "cpu":
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("device", ["cpu", "null"])
def test_a_failed_update_poisons_parameters_and_moments_until_they_are_loaded(device):
    t = Training(device)
    t.step()
    saved = {k: v.clone() for k, v in t.model.state_dict().items()}
    logits = t.model(t.x)
    with failing("adam_step"):
        with pytest.raises(RuntimeError, match="adam_step: the kernel failed on purpose"):
            t.step()
        assert all("adam_step" in e for _, e in t.state())
        assert read(logits)[1] is None and all(read(v)[1] is None for v in saved.values())
        t.step()  # the failure was told: it comes back with every value that it reaches
        raises(t.model(t.x).sum(), "adam_step: the kernel failed on purpose")
        assert all("adam_step" in e for _, e in t.state())
        t.model.load_state_dict(saved)
        assert [read(p)[1] for p in t.model.parameters()] == [None] * 4
        t.optimizer = pf.optim.Adam(t.model.parameters(), lr=0.1)
        t.step()
        assert [e for _, e in t.state()] == [None] * 12


@pytest.mark.parametrize("device", ["cpu", "null"])
def test_other_threads(device):
    pf.set_device(device)
    with failing("softmax"):
        bad = F.softmax(pf.ones(2, 3), 1)
        good = pf.ones(2, 3) * 2
        found = {}

        def use():
            pf._C._set_reads_of_null(True)  # of this thread
            found["bad"], found["good"] = read(bad + 1), read(good + 1)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert "softmax: the kernel failed on purpose" in found["bad"][1] and found["good"][1] is None
        raises(bad, "softmax")
        if device == "cpu":
            assert found["good"][0].tolist() == good.add(1).tolist() == [[3.0] * 3] * 2


def test_gradients():
    """If a gradient's kernel fails, the values of the forward pass stay readable, and the gradient of the other leaf is right."""
    a, b = (pf.ones(3, 4, requires_grad=True) for _ in range(2))
    y = pf.tanh(a).sum() + F.layer_norm(b, (4,)).sum()
    pf.synchronize()
    with failing("layer_norm_grad"), pytest.raises(RuntimeError, match="layer_norm_grad: the kernel failed on purpose"):
        y.backward()
    assert np.isfinite(y.item()) and b.tolist() == [[1.0] * 4] * 3
    raises(b.grad, "layer_norm_grad")
    np.testing.assert_allclose(a.grad.numpy(), 1 - np.tanh(np.ones((3, 4))) ** 2, rtol=1e-6)
    a.grad = b.grad = None
    (pf.tanh(a).sum() + F.layer_norm(b, (4,)).sum()).backward()
    assert np.isfinite(b.grad.numpy()).all()
