"""Places in the cells of notebooks are named by the cell, not by the file name that IPython makes up for it."""
import concurrent.futures
import linecache
import sys
import types

import pytest

import pyflame as pf
from pyflame import _cells

TEXT = "def f(x):\n    y = pf.exp(x)\n    return (y @ y).sum()\n"
PROMPT, KERNEL = "<ipython-input-3-0a1b2c3d4e5f>", "/tmp/ipykernel_123/4567891.py"


def run_cell(monkeypatch, name, text=TEXT):
    """The names that a cell defines, compiled and kept as IPython does it."""
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(True), name))
    names = {"pf": pf}
    exec(compile(text, name, "exec"), names)
    return names


@pytest.fixture
def shell(monkeypatch):
    """IPython with three cells; the second and the third are the same."""
    made = types.SimpleNamespace(user_ns={"In": ["", "import pyflame as pf", TEXT.rstrip("\n"), TEXT.rstrip("\n")]})
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: made
    monkeypatch.setitem(sys.modules, "IPython", module)
    return made


def test_names_of_cells(monkeypatch, shell):
    run_cell(monkeypatch, KERNEL)
    assert _cells.shown(PROMPT) == "cell 3" and _cells.shown(KERNEL) == "cell 3"
    assert _cells.shown("/tmp/ipykernel_123/99.py") == "cell"
    for other in ("runs/train.py", "runs/ipykernel_1/train.py", "4567891.py", "<stdin>", "<ipython-input-x>"):
        assert _cells.shown(other) == other


def test_the_number_is_not_known_without_ipython(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    run_cell(monkeypatch, KERNEL)
    assert _cells.shown(KERNEL) == "cell" and _cells.in_text("4567891.py:2 in f") == "cell:2 in f"


def test_only_places_are_replaced(monkeypatch, shell):
    run_cell(monkeypatch, KERNEL)
    assert _cells.in_text(["at 4567891.py:2 in f", {"a": ("x4567891.py:2", 7)}, "4567891.py"]) == ["at cell 3:2 in f", {"a": ("x4567891.py:2", 7)}, "4567891.py"]


@pytest.mark.parametrize("name", [PROMPT, KERNEL])
def test_reports_name_the_cell(monkeypatch, shell, name):
    f, x = run_cell(monkeypatch, name)["f"], pf.ones(len(name), len(name))  # sizes of its own: a program that was kept has the places of its first recording
    text = pf.explain(f, x)
    assert "cell 3:2 in f" in text and "cell 3:3 in f" in text
    with pf.profiler.profile() as profile:
        f(x).item()
    assert ["cell 3:3 in f"] in [row.stack for row in profile.key_averages(group_by_stack_n=1)]
    with pf.memory.record():
        kept = f(x)
        kept.item()
        snapshot = pf.memory.snapshot("cpu")
    assert "cell 3:3 in f" in str(snapshot)
    for report in (text, profile.key_averages(group_by_stack_n=1).table(), str(snapshot)):
        assert "ipython" not in report and "4567891" not in report


def test_sampled_stacks_name_the_cell(monkeypatch, shell):
    f = run_cell(monkeypatch, PROMPT)["f"]
    assert pf.profiler.stacks.name_of(f.__code__) == "cell 3(1): f"


@pytest.mark.parametrize("name", [PROMPT, KERNEL])
def test_errors_name_the_cell(monkeypatch, shell, name):
    f = run_cell(monkeypatch, name)["f"]
    loss = f(pf.ones(3, 3).requires_grad_())
    loss.backward()
    with pytest.raises(RuntimeError, match=r"backward a second time .*; recorded at cell 3:\d in f; hint: "):
        loss.backward()


def test_errors_of_several_threads(monkeypatch, shell):
    """Python code runs for an error's message. Other threads record and compute meanwhile, and wait for each other's tensors."""
    f, shared = run_cell(monkeypatch, KERNEL)["f"], pf.ones(3, 3).requires_grad_()

    def twice(_):
        loss = f(shared)
        loss.backward(inputs=[shared])
        with pytest.raises(RuntimeError, match=r"recorded at cell 3:\d in f"):
            loss.backward()
        return loss.item()

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(twice, range(40), timeout=120))) == 1


def test_an_error_survives_an_ipython_that_fails(monkeypatch, shell):
    f, said = run_cell(monkeypatch, KERNEL)["f"], []
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: 1 / 0)
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    loss = f(pf.ones(3, 3).requires_grad_())
    loss.backward()
    with pytest.raises(RuntimeError, match=r"recorded at 4567891.py:\d in f; hint: "):
        loss.backward()
    assert [u.exc_type for u in said] == [ZeroDivisionError]
