"""`pyflame optimize`: settings, deferred reads, the gate, the state machine with a program that is played, and whole sessions whose figures are printed numbers."""
import dataclasses
import fcntl
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import pyflame as pf
from pyflame import _configuration, _deferred
from pyflame.optimizing import candidates, gate, machine, observe, page, suggestions
from pyflame.optimizing.journal import Journal
from pyflame.tuning import child

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_TEST_DEVICE", "cpu") != "cpu", reason="programs on the CPU")
ROOT = pathlib.Path(__file__).resolve().parents[2]


# ---- settings


def test_settings_hold_within_the_context_and_the_function():
    before = pf.get_float32_matmul_precision(), pf.are_deterministic_algorithms_enabled(), pf.get_num_threads()
    with pf.settings(float32_matmul_precision="high", deterministic=False, num_threads=1):
        assert (pf.get_float32_matmul_precision(), pf.are_deterministic_algorithms_enabled(), pf.get_num_threads()) == ("high", False, 1)
        with pf.settings(float32_matmul_precision="medium"):
            assert pf.get_float32_matmul_precision() == "medium"
        assert pf.get_float32_matmul_precision() == "high"
    assert (pf.get_float32_matmul_precision(), pf.are_deterministic_algorithms_enabled(), pf.get_num_threads()) == before

    @pf.settings(float32_matmul_precision="high")
    def inner(depth):
        return pf.get_float32_matmul_precision() if depth == 0 else inner(depth - 1)

    assert inner(2) == "high" and pf.get_float32_matmul_precision() == before[0]


def test_settings_restore_after_an_exception():
    before = pf.get_float32_matmul_precision()
    with pytest.raises(KeyError), pf.settings(float32_matmul_precision="medium"):
        raise KeyError
    assert pf.get_float32_matmul_precision() == before


@pytest.mark.parametrize("values, text", [({"speed": 1}, "there is no such setting; got 'speed'; expected channels_last, defer_reads, "), ({"num_threads": 0}, "not a value of num_threads; got 0; expected a positive"),
                                          ({"float32_matmul_precision": "low"}, "not a value of float32_matmul_precision; got 'low'"), ({"fuse": 1}, "not a value of fuse; got 1; expected true or false")])
def test_settings_refuse(values, text):
    with pytest.raises(ValueError, match=text):
        pf.settings(**values)


def test_an_unknown_rewrite_changes_nothing():
    before = pf.get_float32_matmul_precision()
    with pytest.raises(ValueError, match="no such rewrite; got nothing_of_this_name|has no rewrites; got"), pf.settings(float32_matmul_precision="medium", rewrites=["nothing_of_this_name"]):
        pass
    assert pf.get_float32_matmul_precision() == before


def _steps(fn):
    return pf.explain(fn).count("  step ")


def test_no_fuse():
    x = pf.randn(64, 64)
    x.sum().item()
    ops = lambda: pf.relu(x * 2 + 1)  # noqa: E731
    alone = pf.no_fuse(ops)
    if os.environ.get("PYFLAME_WINDOW") != "1":
        assert _steps(ops) < _steps(alone) == 3
        assert _steps(ops) == 1  # it does not last
    assert (ops().numpy() == alone().numpy()).all()
    with pf.settings(fuse=False):
        assert (pf.relu(x * 2 + 1).numpy() == ops().numpy()).all()


def test_no_fuse_refuses():
    with pytest.raises(TypeError, match="no_fuse: not a function; got int; .*hint: with pf.settings"):
        pf.no_fuse(3)


# ---- files


def _file(tmp_path, text):
    path = tmp_path / "pyflame.toml"
    path.write_text(text)
    return path


def test_a_file_that_was_written_is_read(tmp_path):
    tables = {"environment": {"PYFLAME_GPU_GRAPHS": "1"}, "engine": {"float32_matmul_precision": "high", "num_threads": 2, "defer_reads": True, "rewrites": ["a", "b"]}, "force": {"matmul": "x:y=1,z=\"2\""}}
    path = tmp_path / "s.toml"
    _configuration.write_settings(path, tables, "A title.\nMore.")
    assert _configuration.read_settings(path) == tables
    assert _configuration._parse_simple(path.read_text(), path) == tables  # what Pythons before 3.11 use


@pytest.mark.parametrize("text, message", [
    ("[engine\n", "is not TOML"), ("[motor]\nx = 1\n", r"something that is no setting; got 'motor'; expected the tables \[environment\]"), ("speed = 1\n", "something that is no setting; got 'speed'"),
    ("[engine]\nspeed = 1\n", "there is no such setting; got 'speed'"), ("[engine]\nnum_threads = 'two'\n", "not a value of num_threads; got 'two'"),
    ("[engine]\nfuse = false\n", "there is no such setting; got 'fuse'; .*PYFLAME_FUSE=0"), ("[environment]\nPYFLAME_FUSE = 0\n", "the value of PYFLAME_FUSE is no text; got 0"),
    ("[force]\nmatmul = 1\n", "the value of matmul is no text"), ("[force]\nno_such_op = 'x'\n", "no_such_op")])
def test_files_that_are_refused(tmp_path, text, message):
    before = pf.get_float32_matmul_precision(), dict(os.environ)
    with pytest.raises(ValueError, match=message):
        pf.load_settings(_file(tmp_path, text))
    assert (pf.get_float32_matmul_precision(), dict(os.environ)) == before


def test_a_simple_file_that_is_refused(tmp_path):
    for text, message in (("[engine]\nx\n", "line 2: neither"), ("[engine]\nx = 1 2\n", "follows the value"), ("[engine]\nx = y\n", "line 2")):
        with pytest.raises(ValueError, match=message):
            _configuration._parse_simple(text, "f.toml")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="load_settings: the file cannot be read; got .*none.toml.*No such file"):
        pf.load_settings(tmp_path / "none.toml")


def test_a_variable_that_was_read_is_refused(tmp_path, monkeypatch):
    (pf.randn(2) + 1).numpy()
    monkeypatch.delenv("PYFLAME_FUSE", raising=False)
    with pytest.raises(RuntimeError, match="too late for PYFLAME_FUSE, which was read already; .*PYFLAME_SETTINGS="):
        pf.load_settings(_file(tmp_path, '[environment]\nPYFLAME_FUSE = "0"\n'))


def _python(text, **environment):
    return subprocess.run([sys.executable, "-c", text], env={**{k: v for k, v in os.environ.items() if k != "PYFLAME_NUM_THREADS"}, **environment}, capture_output=True, text=True)


def test_the_environment_names_a_file(tmp_path):
    path = _file(tmp_path, '[environment]\nPYFLAME_NUM_THREADS = "1"\n[engine]\nfloat32_matmul_precision = "high"\n')
    show = "import pyflame as pf; print(pf.get_num_threads(), pf.get_float32_matmul_precision())"
    assert _python(show, PYFLAME_SETTINGS=str(path)).stdout == "1 high\n"
    assert _python(show, PYFLAME_SETTINGS=str(path), PYFLAME_NUM_THREADS="2").stdout == "2 high\n"  # the environment counts more
    assert _python(f"import pyflame as pf; pf.load_settings({str(path)!r}); print(pf.get_num_threads())").stdout == "1\n"
    assert "the file cannot be read" in _python(show, PYFLAME_SETTINGS=str(tmp_path / "none")).stderr


def test_loader_workers_is_the_number_of_loaders_without():
    data = pf.data.TensorDataset(pf.arange(8))
    with pf.settings(loader_workers=2):
        assert pf.data.DataLoader(data).num_workers == 2 and pf.data.DataLoader(data, num_workers=1).num_workers == 1
    assert pf.data.DataLoader(data).num_workers == 0


# ---- deferred reads


def test_deferred_numbers_are_floats_of_the_same_bits():
    values = pf.randn(400)
    plain, total = [v.item() for v in values], 0.0
    for v in plain:
        total += v
    with pf.settings(defer_reads=True):
        numbers, deferred = [v.item() for v in values], 0.0
        for n in numbers:
            deferred += n
        assert isinstance(numbers[0], _deferred.Deferred) and len(_deferred._waiting) < _deferred.MOST
        assert float(deferred) == total and [float(n) for n in numbers] == plain
        a, b = values[0].item(), values[1].item()
        x, y = plain[:2]
        assert (a - b, 2 - a, a * b, 3 * a, a / b, a / 2, 1 / a, -a, abs(a), a**2, 2**a, a // b, a % b) == (x - y, 2 - x, x * y, 3 * x, x / y, x / 2, 1 / x, -x, abs(x), x**2, 2**x, x // y, x % y)
        assert (a < b, a >= b, a == x, a != x, bool(a), f"{a:.3f}", str(a), int(a), round(a, 2), hash(a)) == (x < y, x >= y, True, False, bool(x), f"{x:.3f}", str(x), int(x), round(x, 2), hash(x))
        assert np.asarray([float(a)])[0] == x and math.isfinite(a) and max(a, b) == max(x, y) and a.is_integer() == x.is_integer()
        assert isinstance(pf.tensor(3).item(), int)
        with pytest.raises(ValueError, match="item: not one element"):
            values.item()
        with pytest.raises(ZeroDivisionError):
            a / 0
    assert isinstance(values[0].item(), float) and not _deferred._waiting


def test_a_deferred_number_is_the_value_of_its_time():
    with pf.settings(defer_reads=True):
        x = pf.ones(())
        before = x.item()
        x.add_(1)
        assert before == 1.0 and x.item() == 2.0


def test_a_long_sum_keeps_no_chain():
    with pf.settings(defer_reads=True):
        total, x = 0.0, pf.ones(())
        for _ in range(3 * _deferred.MOST):
            total += x.item()
        assert total._depth <= _deferred.MOST and total == 3 * _deferred.MOST


# ---- the gate


def record(values=(1.0, 2.0), kind="read", place="t.py:3", step=0, dtype="float32", shape=None):
    digest, norm, some = observe._sample(np.asarray(values, dtype))
    return {"kind": kind, "place": place, "step": step, "dtype": dtype, "shape": list(np.shape(values)) if shape is None else shape, "digest": digest, "norm": norm, "values": some}


def test_the_gate_of_exact_changes():
    assert gate.difference([record()], [record()]) == ""
    assert gate.difference([record()], [record(dtype="float64")]) == ""  # the same numbers
    assert "read at t.py:3, after 0 steps: 2.000000238418579 instead of 2.0" in gate.difference([record()], [record((1.0, np.nextafter(np.float32(2), 3)))])
    assert "1 values were read instead of 2" in gate.difference([record()] * 2, [record()])
    assert "shape [3] instead of [2]" in gate.difference([record()], [record((1, 2, 3))])
    assert "another way: read at t.py:4 instead of read at t.py:3" in gate.difference([record()], [record(place="t.py:4")])
    many = np.arange(1000.0)
    assert "other bits" in gate.difference([record(many)], [record(np.where(many == 1, 1.5, many))])
    assert gate.difference([record((math.nan,))], [record((math.nan,))]) == ""


def test_the_gate_of_changes_within_a_tolerance():
    near, far = record((1.0, 2.0 + 1e-5)), record((1.0, 2.01))
    assert gate.difference([record()], [near], "tf32") == "" and gate.difference([record()], [near], "float32") != ""
    assert "which is more than" in gate.difference([record()], [record((1.0, 2.3))], "tf32")
    assert gate.difference([record()], [far], "float32") != ""
    assert gate.difference([record(step=9)], [record((1.0, 2.00004), step=9)], "float32") == ""  # errors of ten steps
    assert gate.difference([record()], [record((1.0, math.nan))], "bfloat16") != ""
    assert gate.difference([record(dtype="int64")], [record((1, 3), dtype="int64")], "bfloat16") != ""
    assert gate.tolerance("bfloat16", 10**6) == gate.MOST
    assert gate.coarsest("float32", ["bfloat16", "float32"]) == "bfloat16" and gate.coarsest("tf32", ["float32"]) == "tf32"
    assert gate.coarsest(None, ["bfloat16"]) is None and gate.coarsest("float32", ["int64"]) == "float32"


def test_the_gate_of_gradients_and_parameters():
    noise = [record((100.0,), "gradient", "parameter 0"), record((1e-9,), "gradient", "parameter 1")]
    other = [noise[0], record((-2e-9,), "gradient", "parameter 1")]
    assert gate.difference(noise, other, "float32") == "" and gate.difference(noise, other) != ""
    large = np.linspace(-1, 1, 40)
    assert gate.difference([record(large, "gradient")], [record(large + 0.1 * np.cos(37 * large), "gradient")], "tf32") == ""  # as inputs of ReLUs near 0 make it
    for wrong in (0 * large, 2 * large, -large, large[::-1].copy(), large + np.cos(37 * large)):
        assert "of its size, which is more than 0.35" in gate.difference([record(large, "gradient")], [record(wrong, "gradient")], "tf32")
    assert "more than 0.0039" in gate.difference([record(large, "gradient")], [record(1.01 * large, "gradient")], "float32")
    assert gate.difference([record(large, "gradient")], [record(np.where(large > 0.99, np.nan, large), "gradient")], "tf32").endswith("a value is not finite")
    assert gate.difference([record((1.0,), "parameter", "parameter 0")], [record((2.0,), "parameter", "parameter 0")], "float32") == ""


# ---- steps, figures, journal


def test_blocks_of_steps():
    lines, now = [], [0.0]
    steps = child.Steps(lambda word, value: lines.append((word, value)), lambda: None, lambda: now[0])
    for k in range(14):
        now[0] += 5.0 if k < 5 else 0.02  # the first ones compile
        steps.end_of("optimizer")
        steps.end_of("call")  # does not count beside an optimizer
    steps.finish()
    blocks = [v for w, v in lines if w == "block"]
    assert len(blocks) == 3 and all(abs(b - 0.02) < 1e-9 for b in blocks) and sum(w == "step" for w, _ in lines) == 14


def test_a_host_that_is_far_ahead_of_the_device_has_several_blocks():
    lines, now, queued = [], [0.0], [0.0]

    def synchronize():
        now[0], queued[0] = now[0] + queued[0], 0.0

    steps = child.Steps(lambda word, value: lines.append((word, value)), synchronize, lambda: now[0])
    for _ in range(60):
        now[0] += 1e-4
        queued[0] += 0.0099
        steps.end_of("call")
    steps.finish()
    blocks = [v for w, v in lines if w == "block"]
    assert len(blocks) > 5 and all(abs(b - 0.01) < 1e-9 for b in blocks)


def test_blocks_in_which_something_was_compiled_do_not_count():
    def blocks(compiles):
        lines, now, programs = [], [0.0], [0]
        steps = child.Steps(lambda word, value: lines.append((word, value)), lambda: None, lambda: now[0], lambda: programs[0])
        for k in range(11):
            now[0] += 9.0 if k in compiles else 0.06
            programs[0] += k in compiles
            steps.end_of("call")
        steps.finish()
        return [round(v, 6) for w, v in lines if w == "block"]

    assert blocks({0, 7}) == [0.06] * 5
    assert blocks(set(range(11))) == [9.0] * 6  # there are no others


def test_few_steps_have_no_blocks():
    lines = []
    steps = child.Steps(lambda word, value: lines.append(word), lambda: None)
    for _ in range(7):
        steps.end_of("call")
    steps.finish()
    assert "block" not in lines


def test_outputs_are_recorded_before_the_blocks():
    events = []

    class Observer:
        def output(self, value):
            events.append("output")

        def called(self, module, args, kwargs):
            return False

    class Steps:
        def end_of(self, kind):
            events.append("end")

    layer, x = pf.nn.Linear(4, 4), pf.ones(2, 4)
    child._count_calls(pf, Steps(), Observer())
    for _ in range(child.SKIPPED + 1):
        layer(x)
    layer._forward_hooks.clear()
    assert events[:6] == ["output", "end"] * child.OBSERVED and set(events[6:]) == {"end"} and child.OBSERVED < child.SKIPPED


def test_rates_in_a_text():
    assert machine.rates("tokens/s", "step 3 1,234.5 tokens/s\ntokens/s: 1e3\nmy_tokens/s: 7\n12 tokens/sec\ntokens/s=5") == [1234.5, 1000.0, 5.0]


def test_the_journal_goes_on_after_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.add("a", x=1)
    with open(path, "a") as file:
        file.write('{"event": "b"')
    again = Journal(path)
    assert [e["event"] for e in again.events] == ["a"]
    again.add("c")
    assert [e["event"] for e in Journal(path).events] == ["a", "c"]


# ---- the state machine, with a program that is played


def made(name, changes=None, **values):
    return candidates.Candidate(name, 2, changes or {"environment": {name.upper(): "1"}}, f"why {name}", **values)


class Played(machine.Machine):
    """speeds: of the changes; their factors multiply, unless `together` says otherwise. values: what the program reads with a change."""

    def __init__(self, tmp_path, speeds, values=None, together=None, runs=10**6, **options):
        self.said, self.fired = [], {}
        machine.Machine.__init__(self, (__file__, None, []), str(tmp_path), Journal(str(tmp_path / "optimize.jsonl")), "step time", 1e6, 5, 3, 60.0, self.said.append, None, **options)
        self.speeds, self.values, self.together, self.runs = speeds, values or {}, together or {}, runs

    def run(self, kept, what):
        self.runs -= 1
        if self.runs < 0:
            raise machine.BudgetEnded
        names = tuple(c.name for c in kept)
        factor = self.together.get(frozenset(names)) or math.prod(self.speeds[n] for n in names)
        wrong = next((self.values[n] for n in names if n in self.values), (1.0, 2.0))
        if isinstance(wrong, str):
            return machine.Run(why=wrong)
        if wrong == "interrupt":
            raise machine.Interrupted
        return machine.Run(1 / factor, "", [record(wrong)], {"reads": [], "doubles": [], "devices": ["cpu"], "steps": 9, "fired": self.fired}, 1.0, 9)

    def profile(self):
        return candidates.Facts()

    def play(self, monkeypatch, found, tried=()):
        monkeypatch.setattr(candidates, "candidates", lambda *_: found)
        return self.cycle(set(tried))


def names(kept):
    return [c.name for c in kept]


def test_what_is_faster_and_right_is_kept(tmp_path, monkeypatch):
    m = Played(tmp_path, {"good": 1.5, "better": 2.0, "slow": 0.5, "same": 1.0, "wrong": 9.0, "broken": 9.0}, {"wrong": (1.0, 2.1), "broken": "it failed with exit code 3"})
    total = m.play(monkeypatch, [made(n) for n in m.speeds])
    assert names(m.kept) == ["good", "better"] and abs(total.ratio - 3.0) < 1e-9
    verdicts = {e["name"]: e["verdict"] for e in m.journal.of("candidate")}
    assert verdicts == {"good": "kept", "better": "kept", "slow": "reverted", "same": "reverted", "wrong": "wrong", "broken": "wrong"}
    assert _configuration.read_settings(m.result)["environment"] == {"GOOD": "1", "BETTER": "1"}
    text = page.render(m.journal, "t.py", "--- a\n+++ b\n")
    assert "3.00 times as fast" in text and "2.0999" in text and "exit code 3" in text and "+++ b" in text and "http" not in text


def test_a_rewrite_that_changes_nothing_is_not_measured(tmp_path, monkeypatch):
    m = Played(tmp_path, {"used": 2.0, "unused": 2.0})
    m.fired = {"used": 3, "unused": 0}
    m.play(monkeypatch, [made("unused", rewrite="unused"), made("used", rewrite="used")])
    verdicts = {e["name"]: e["verdict"] for e in m.journal.of("candidate")}
    assert verdicts == {"unused": "unused", "used": "kept"} and "unused: reverted: it changes nothing in this program" in m.said


def test_what_was_faster_by_chance_is_not_kept(tmp_path, monkeypatch):
    m = Played(tmp_path, {"lucky": 1.0})
    original = m.compare
    m.compare = lambda first, second, what, check, **more: original(first, second, what, check, **more) if "again" in what[1] else machine.Comparison(*what, 1.1, 1.05, 1.2, paired=True)
    assert m.play(monkeypatch, [made("lucky")]) is None and m.kept == []
    [entry] = m.journal.of("candidate")
    assert entry["verdict"] == "reverted" and entry["first_ratio"] == 1.1 and entry["ratio"] == 1.0


def test_a_change_within_its_tolerance_passes(tmp_path, monkeypatch):
    m = Played(tmp_path, {"tf32": 2.0, "exact": 2.0}, {"tf32": (1.0, 2.0001), "exact": (1.0, 2.0002)})
    m.play(monkeypatch, [made("exact"), made("tf32", precision="tf32")])
    assert names(m.kept) == ["tf32"]


def test_a_change_that_gains_nothing_beside_the_others_is_left_out(tmp_path, monkeypatch):
    together = {frozenset(): 1.0, frozenset("a"): 1.5, frozenset("ab"): 2.0, frozenset("b"): 2.0}
    m = Played(tmp_path, {"a": 1, "b": 1}, together=together)
    total = m.play(monkeypatch, [made("a"), made("b")])
    assert names(m.kept) == ["b"] and total.ratio == 2.0
    assert [(e["name"], e["verdict"]) for e in m.journal.of("composition")] == [("a", "left out")]
    assert page._waterfall(m.journal.kept()) in (text := page.render(m.journal, "t.py", "")) and text.count("<td><code>a</code>") == 1  # it is among the trials alone
    assert _configuration.read_settings(m.result)["environment"] == {"B": "1"}


def test_what_does_not_help_as_a_whole_is_reverted(tmp_path, monkeypatch):
    m = Played(tmp_path, {"a": 2.0})
    original = m.compare
    m.compare = lambda first, second, what, check, **more: "it failed" if what[1] == "all together" else original(first, second, what, check, **more)
    assert m.play(monkeypatch, [made("a")]) is None and m.kept == [] and not any(_configuration.read_settings(m.result).values())


@pytest.mark.parametrize("last", ["it failed", machine.Comparison("the program as it was", "all together", 1.0, 0.9, 1.1, paired=True)], ids=["wrong", "no faster"])
def test_a_resumed_session_starts_from_nothing_where_the_whole_was_reverted(tmp_path, monkeypatch, last):
    m = Played(tmp_path, {"a": 2.0})
    original = m.compare
    m.compare = lambda first, second, what, check, **more: last if what[1] == "all together" else original(first, second, what, check, **more)
    assert m.play(monkeypatch, [made("a")]) is None and m.kept == []
    text = page.render(m.journal, "t.py", "")
    assert "nothing helped" in text and "Gains" not in text
    ended = Played(tmp_path, {"a": 2.0, "b": 3.0}, runs=3)  # the budget ends right after the baseline
    tried = ended.resume()
    assert tried == {"a"} and ended.kept == []
    assert ended.play(monkeypatch, [made("a"), made("b")], tried) is None
    assert ended.kept == [] and not any(_configuration.read_settings(ended.result).values())
    again = Played(tmp_path, {"a": 2.0, "b": 3.0})
    total = again.play(monkeypatch, [made("a"), made("b")], again.resume())
    assert names(again.kept) == ["b"] and abs(total.ratio - 3.0) < 1e-9
    assert _configuration.read_settings(again.result)["environment"] == {"B": "1"}
    text = page.render(again.journal, "t.py", "")
    assert "3.00 times as fast" in text and text.count("<td><code>b</code>") == 2 and text.count("<td><code>a</code>") == 1  # only b is among the gains
    later = Played(tmp_path, {})
    assert later.resume() == {"a", "b"} and names(later.kept) == ["b"]


def test_a_resumed_session_leaves_out_what_the_composition_left_out(tmp_path, monkeypatch):
    m = Played(tmp_path, {"a": 1, "b": 1}, together={frozenset(): 1.0, frozenset("a"): 1.5, frozenset("ab"): 2.0, frozenset("b"): 2.0})
    m.play(monkeypatch, [made("a"), made("b")])
    again = Played(tmp_path, {})
    assert again.resume() == {"a", "b"} and names(again.kept) == ["b"]


def test_the_end_of_the_budget_leaves_the_best_settings(tmp_path, monkeypatch):
    m = Played(tmp_path, {"a": 2.0, "b": 3.0}, runs=3 + 6 + 6 + 2)
    assert m.play(monkeypatch, [made("a"), made("b")]) is None
    assert names(m.kept) == ["a"] and m.journal.of("budget") and "the budget of" in m.said[-1]
    again = Played(tmp_path, {"a": 2.0, "b": 3.0})
    tried = again.resume()
    assert tried == {"a"} and names(again.kept) == ["a"]
    total = again.play(monkeypatch, [made("a"), made("b")], tried)
    assert names(again.kept) == ["a", "b"] and abs(total.ratio - 6.0) < 1e-9
    assert [e["name"] for e in again.journal.of("candidate")] == ["a", "b"]  # nothing is measured twice


def test_time_is_kept_for_the_last_comparisons(tmp_path, monkeypatch):
    speeds = {n: 1.5 for n in "abcdefgh"}
    m = Played(tmp_path, speeds)
    m.left = lambda: 100 - (10**6 - m.runs)  # a run takes a second
    total = m.play(monkeypatch, [made(n) for n in speeds])
    assert total is not None and total.verdict == "faster" and m.left() >= 0
    kept = names(m.kept)
    assert kept and kept == list("abcdefgh")[: len(kept)] and m.journal.of("budget")[0]["untried"] == list("abcdefgh")[len(kept):]
    assert any(line.startswith("the rest of the budget of") for line in m.said)


def test_what_is_slower_takes_fewer_turns(tmp_path, monkeypatch):
    m = Played(tmp_path, {"slow": 0.5})
    m.pairs = 5
    m.play(monkeypatch, [made("slow")])
    assert 10**6 - m.runs == machine.BASELINES + 2 * machine.FEWEST_PAIRS


def test_one_slow_run_leaves_the_question_open_until_there_are_more(tmp_path, monkeypatch):
    """Of five runs with the change one is slow, so the interval reaches below 1. The runs that follow decide, and the second comparison has the usual number of turns."""
    m, at = Played(tmp_path, {"good": 1.5}), []
    m.pairs, original = 5, m.run

    def run(kept, what):
        found = original(kept, what)
        if what.startswith("good: "):
            at.append(what)
            if kept and len(at) in (2, 3):
                return dataclasses.replace(found, figure=3.0)
        return found

    m.run = run
    m.play(monkeypatch, [made("good")])
    assert names(m.kept) == ["good"] and at[-1] == f"good: run {len(at)} of {len(at)}" and 10 < len(at) <= 30


def test_what_does_not_seem_to_gain_gets_no_more_turns(tmp_path, monkeypatch):
    m, at = Played(tmp_path, {"bad": 1.0}), []
    with_it = iter((1.1, 0.9, 1.0) * 20)
    m.pairs, original = 5, m.run

    def run(kept, what):
        found = original(kept, what)
        if what.startswith("bad"):
            at.append(what)
            return dataclasses.replace(found, figure=next(with_it) if kept else 1.0)
        return found

    m.run = run
    m.play(monkeypatch, [made("bad")])
    assert m.kept == [] and len(at) == 10


@pytest.mark.parametrize("runs, text", [
    ([machine.Run(why="it failed with exit code 1; its last lines:\nboom")] * 3, "cannot be optimized, because it failed with exit code 1"),
    ([machine.Run(1.0, records=[])] * 3, "computes nothing that can be compared.*hint: print a result"),
    ([machine.Run(1.0, records=[record((float(k),))]) for k in range(3)], "two runs of the program as it is differ.*read at t.py:3.*hint: seed"),
    ([machine.Run(1.0 + k % 2, records=[record()], head={}) for k in range(6)], "figures spread over 67%, also with 3 more runs; got 1 s, 2 s, .*expected at most 10%; hint: .*--allow-noise, which compares a change in up to 24 pairs of runs; .*fewer than 8 steps"),
    ([], "the budget ended within the baseline")])
def test_programs_that_cannot_be_optimized(tmp_path, runs, text):
    m = Played(tmp_path, {})
    left = list(runs)

    def run(kept, what):
        if not left:
            raise machine.BudgetEnded
        return left.pop(0)

    m.run = run
    with pytest.raises(machine.Stopped, match="(?s)" + text):
        m.baseline()


def test_a_noisy_program_gets_more_pairs_of_runs(tmp_path, monkeypatch):
    """A gain is found that is smaller than the spread of the runs, as both runs of a pair meet the same noise."""
    m = Played(tmp_path, {"little": 1.1, "none": 1.0}, allow_noise=True)
    m.pairs, original, random, at = 5, m.run, np.random.default_rng(0), []
    phases = iter(np.repeat(random.choice([1.0, 1.5], 300), 2))  # the machine is slow now and then

    def run(kept, what):
        if not what.startswith("baseline"):
            at.append(what)
            return dataclasses.replace(original(kept, what), figure=original(kept, what).figure * next(phases) * random.normal(1, 0.06))
        return dataclasses.replace(original(kept, what), figure=(1.0, 1.2, 1.4)[int(what[-1]) % 3 - 1])

    m.run = run
    total = m.play(monkeypatch, [made("little"), made("none")])
    assert m.said[0] == "the program's own figures spread over 25% in 6 runs, so a change is compared in up to 40 pairs of runs"
    assert names(m.kept) == ["little"] and total.verdict == "faster" and 1.03 < total.ratio < 1.3
    assert [(e["name"], e["verdict"]) for e in m.journal.of("candidate")] == [("little", "kept"), ("none", "reverted")]
    assert sum(a.startswith("little: ") for a in at) > 30 and m.journal.of("baseline")[0]["pairs"] == 40
    assert "These figures spread over 25%, so a change was compared in up to 40 pairs of runs." in page.render(m.journal, "t.py", "")


def test_a_calm_program_has_the_usual_pairs(tmp_path, monkeypatch):
    m = Played(tmp_path, {"little": 1.02}, allow_noise=True)
    m.play(monkeypatch, [made("little")])
    assert names(m.kept) == ["little"] and m.journal.of("baseline")[0]["pairs"] == 9 and "spread over" not in page.render(m.journal, "t.py", "")


# ---- candidates


def test_candidates_follow_the_facts(tmp_path):
    facts = candidates.Facts("cuda:0", shares={"GEMM": 0.6}, idle=0.5, reads=100, steps=50)
    found = candidates.candidates(4, facts, tmp_path)
    assert found[0].name == "float32_products_high" and found[0].precision == "tf32" and abs(found[0].gain - 1 / (1 - 0.6 * 2 / 3)) < 1e-9
    assert {"defer_reads", "gpu_graphs", "measured_kernels"} <= set(names(found)) and "loader_workers" not in names(found)
    assert not {"convolution_search", "any_order"} & set(names(found)), "no convolution, attention or reduction takes time"
    assert "convolution_search" in names(candidates.candidates(4, candidates.Facts("cuda:0"), tmp_path)), "without a profile all are tried"
    assert "defer_reads" not in names(candidates.candidates(4, candidates.Facts("cuda:0", steps=50), tmp_path))
    assert all(c.level <= 1 for c in candidates.candidates(1, facts, tmp_path))
    assert "plugin_kernels" not in names(candidates.candidates(5, facts, tmp_path)), "no module was named"
    plugin, = [c for c in candidates.candidates(5, facts, tmp_path, plugins="theirs,ours") if c.level == 5]
    assert plugin.changes["environment"] == {"PYFLAME_PLUGINS": "theirs,ours"} and plugin.prepare == "measure"
    assert plugin.changes["engine"]["tuning_file"] not in [c.changes.get("engine", {}).get("tuning_file") for c in found]
    found.append(plugin)
    for c in found:
        path = tmp_path / "s.toml"
        _configuration.write_settings(path, c.changes, c.name)
        _configuration.read_settings(path)  # each is a settings file


def test_rewrites_of_the_registry_are_candidates(monkeypatch, tmp_path):
    class Registry:
        calls = []
        registry = staticmethod(lambda: [type("R", (), {"name": "merge", "exact": True, "describe": "one product"}), type("R", (), {"name": "fold", "exact": False, "describe": "folded"}), type("R", (), {"name": "on", "exact": True, "describe": "", "enabled": True})])
        enable = staticmethod(lambda name: Registry.calls.append(("enable", name)))
        disable = staticmethod(lambda name: Registry.calls.append(("disable", name)))

    monkeypatch.setitem(sys.modules, "pyflame.rewrites", Registry)
    monkeypatch.setattr(pf, "rewrites", Registry, raising=False)
    found = {c.name: c for c in candidates.candidates(3, candidates.Facts(), tmp_path)}
    assert found["rewrite_merge"].precision is None and found["rewrite_fold"].precision == "float32"
    assert "rewrite_on" not in found  # it holds anyway
    both = candidates.merged(candidates.merged({}, found["rewrite_merge"].changes), found["rewrite_fold"].changes)
    assert both == {"engine": {"rewrites": ["merge", "fold"]}}
    with pf.settings(rewrites=["merge"]):
        assert Registry.calls == [("enable", "merge")]
    assert Registry.calls[-1] == ("disable", "merge")


def test_suggestions_are_a_diff(tmp_path):
    path = tmp_path / "t.py"
    path.write_text("for i in n:\n    x = pf.from_numpy(a).to('cuda').float()\n    total += loss.item()\n    print(loss.item())\n")
    head = {"reads": [[str(path), 3, 9], [str(path), 4, 9]], "doubles": [[str(path), 2, 9]]}
    text = suggestions.diff(head, tmp_path)
    assert "+    x = pf.from_numpy(a.astype('float32')).to('cuda')\n" in text and "+    total += loss.detach()\n" in text and "+    print" not in text
    assert suggestions.diff({"reads": [], "doubles": []}, tmp_path) == ""
    assert suggestions.diff(head, tmp_path / "elsewhere") == ""


# ---- whole sessions

PROGRAM = """
import numpy as np
import pyflame as pf
model = pf.nn.Linear(8, 1)
optimizer = pf.optim.SGD(model.parameters(), lr=0.01)
x = pf.randn(16, 8)
losses = []
for step in range(10):
    loss = (model(x) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
deferred = type(losses[0]) is not float
threads = pf.get_num_threads()
print("score/s:", 200 if deferred else 100)
"""


def session(tmp_path, *words, text=PROGRAM, **kwargs):
    (tmp_path / "t.py").write_text(text)
    return subprocess.run([sys.executable, "-m", "pyflame.optimizing", *words], cwd=tmp_path, capture_output=True, text=True, **kwargs)


def test_a_whole_session(tmp_path):
    done = session(tmp_path, "--metric", "score/s", "--pairs", "3", "--level", "2", "--out", "o", "--json", "--", "t.py")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kept"] == ["defer_reads"] and document["total"]["verdict"] == "faster" and abs(document["total"]["ratio"] - 2) < 0.01
    assert document["settings"] == os.path.join("o", "pyflame.toml") and document["folder"] == "o"
    assert _configuration.read_settings(tmp_path / "o" / "pyflame.toml")["engine"] == {"defer_reads": True}
    assert "2.00 times as fast" in (tmp_path / "o" / "optimize.html").read_text()
    events = [json.loads(line)["event"] for line in (tmp_path / "o" / "optimize.jsonl").read_text().splitlines()]
    assert events[:3] == ["session", "baseline", "profile"] and events[-1] == "total"
    assert (tmp_path / "t.py").read_text() == PROGRAM  # nothing of the user's is changed
    used = subprocess.run([sys.executable, "t.py"], cwd=tmp_path, env={**os.environ, "PYFLAME_SETTINGS": "o/pyflame.toml"}, capture_output=True, text=True)
    assert used.stdout == "score/s: 200\n"
    again = session(tmp_path, "--metric", "score/s", "--pairs", "3", "--level", "2", "--out", "o", "--resume", "--", "t.py")
    assert again.returncode == 0 and "kept: defer_reads" in again.stdout and "2.000 times" in again.stdout
    refused = session(tmp_path, "--out", "o", "--", "t.py")
    assert refused.returncode == 1 and "there is a journal already; got o/optimize.jsonl; hint: --resume" in refused.stderr
    changed = session(tmp_path, "--out", "o", "--resume", "--metric", "score/s", "--", "t.py", text=PROGRAM + "\n")
    assert changed.returncode == 1 and "of another session: the text of the program differs" in changed.stderr


@pytest.mark.parametrize("text, words, message", [
    ("import torch\n", [], "this is a program of PyTorch.*pyflame profile"),
    ("import pyflame\nraise SystemExit(3)\n", [], "cannot be optimized, because it failed with exit code 3"),
    ("import pyflame as pf\nfrom pyflame.data import DataLoader, TensorDataset\nfor x, in DataLoader(TensorDataset(pf.ones(8, 2)), batch_size=2, num_workers=1):\n    print(x.sum().item())\n", [],
     "it starts processes while it is imported; got t.py, exit code 1; expected what it runs below `if __name__ == '__main__':`; hint: put .*\n    if __name__ == '__main__':\n        main\\(\\)\n"),
    ("import pyflame\n", [], "computes nothing that can be compared"),
    ("import os, pyflame as pf\nprint(pf.ones(2).sum().item(), flush=True)\nos._exit(0)\n", [], "it ended before Python did, .*; got os._exit\\(0\\), .*its last lines:\n2.0"),
    ("import os, pyflame as pf\nprint(pf.tensor(os.getpid()).item())\n", [], "two runs of the program as it is differ"),
    ("import pyflame as pf\nprint(pf.ones(2).sum().item())\n", ["--metric", "tokens/s"], "printed no number beside 'tokens/s'; expected a line such as"),
    ("import time, pyflame\ntime.sleep(60)\n", ["--hang", "1s"], "it ran for more than 1 s")])
def test_programs_that_are_refused(tmp_path, text, words, message):
    done = session(tmp_path, *words, "--", "t.py", text=text)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(message, done.stderr, re.DOTALL), done.stderr


def test_a_program_that_changes_its_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    done = session(tmp_path, "--metric", "score/s", "--pairs", "3", "--level", "2", "--out", "o", "--json", "--", "t.py", text=PROGRAM + "import os; os.chdir('elsewhere')\n")
    assert done.returncode == 0 and json.loads(done.stdout)["kept"] == ["defer_reads"], done.stderr
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_program_that_was_refused_is_changed_and_optimized(tmp_path):
    """Nothing was tried, so there is nothing to go on with; the hint says to change the program."""
    words = "--metric", "score/s", "--pairs", "3", "--level", "2", "--out", "o", "--", "t.py"
    assert "cannot be optimized" in session(tmp_path, *words, text="raise SystemExit(3)\n").stderr
    done = session(tmp_path, *words)
    assert done.returncode == 0 and "kept: defer_reads" in done.stdout, done.stderr


def test_two_sessions_in_one_folder_are_refused(tmp_path):
    (tmp_path / "o").mkdir()
    folder = os.open(tmp_path / "o", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    refused = session(tmp_path, "--out", "o", "--", "t.py")
    os.close(folder)
    assert refused.returncode == 1 and "another pyflame optimize works in this folder; got 'o'; expected one session at a time; hint: wait" in refused.stderr
    assert not list((tmp_path / "o").iterdir())


def test_command_lines_that_are_refused(tmp_path):
    assert "there is no such file; got 'none.py'" in session(tmp_path, "--", "none.py").stderr
    (tmp_path / "file").write_text("")
    assert "the folder of the journal cannot be made: Not a directory; got 'file/o'; hint: --out FOLDER" in session(tmp_path, "--out", "file/o", "--", "t.py").stderr
    assert "there is no journal to go on with; got o/optimize.jsonl" in session(tmp_path, "--resume", "--out", "o", "--", "t.py").stderr
    assert "not a time; got 'soon'" in session(tmp_path, "--budget", "soon", "--", "t.py").stderr


def test_the_list_of_changes(tmp_path):
    text = session(tmp_path, "--list").stdout
    document = json.loads(session(tmp_path, "--list", "--json").stdout)
    assert {"loader_workers", "plugin_kernels"} <= {c["name"] for c in document} and all(c["when"] and c["level"] for c in document)
    assert "level 2: settings of the engine" in text and "float32_products_high" in text and re.search("level 5: kernels of plug-ins\n  plugin_kernels +within the tolerance of float32 +entries of MODULE", text)


def test_ctrl_c_leaves_the_verified_settings(tmp_path):
    (tmp_path / "t.py").write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, "-m", "pyflame.optimizing", "--metric", "score/s", "--pairs", "1000", "--out", "o", "--", "t.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background job ignores it
    journal, deadline = tmp_path / "o" / "optimize.jsonl", time.monotonic() + 300
    while not (journal.exists() and '"profile"' in journal.read_text()) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 130, errors
    assert "interrupted; --resume goes on" in errors and "nothing was kept" in errors
    assert not any(_configuration.read_settings(tmp_path / "o" / "pyflame.toml").values())


# ---- the examples


@pytest.mark.parametrize("words", [["projections.py"], ["resnet.py"], ["resnet.py", "--eval"], ["reading_loss.py"], ["padded_attention.py"]], ids=" ".join)
def test_examples_run(words):
    done = subprocess.run([sys.executable, str(ROOT / "examples" / "optimize" / words[0]), "--small", *words[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert math.isfinite(float(done.stdout.split()[-1]))


def test_a_number_of_pairs_out_of_range_names_the_range(tmp_path):
    (tmp_path / "t.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "pyflame", "optimize", "--pairs", "2", "t.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "--pairs: Value 2 not in range 3 to 1000" in done.stderr
