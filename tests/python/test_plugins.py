"""Entries of plug-ins: compiled functions that stand in the list of implementations. They are measured, checked, forced and removed."""
import ctypes
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

import pyflame as pf

CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")

# Products of matrices without batches in float32. FACTOR: what the result is multiplied by. `context` points to a counter of calls.
SOURCE = """
#include <string.h>
#include "plugin.h"
static int refuse(pyflame_plugin_call* c, const char* why) { strncpy(c->why, why, c->why_size - 1); return 1; }
int product(pyflame_plugin_call* c) {
  const pyflame_plugin_tensor *a = c->inputs, *b = c->inputs + 1, *r = c->outputs;
  if (c->version != PYFLAME_PLUGIN_VERSION || strcmp(c->op, "matmul") || c->input_count != 2 || c->output_count != 1) return refuse(c, "not a product");
  if (!strstr(c->attributes, "precision=")) return refuse(c, "no attributes");
  if (r->rank != 2 || r->type_code != 2 || r->bits != 32 || r->device_type != 1) return refuse(c, "takes float32 matrices of the CPU");
  if (c->asks) { c->workspace_bytes = 64; return 0; }
  ++*(long*)c->context;
  if (FAILS) return refuse(c, "the moon is full");
  if (!c->workspace || (size_t)c->workspace % 64) return refuse(c, "no workspace");
  for (long i = 0; i < r->shape[0]; ++i) for (long j = 0; j < r->shape[1]; ++j) {
    double sum = 0;
    for (long k = 0; k < a->shape[1]; ++k)
      sum += (double)((float*)a->data)[i * a->strides[0] + k * a->strides[1]] * ((float*)b->data)[k * b->strides[0] + j * b->strides[1]];
    ((float*)r->data)[i * r->strides[0] + j * r->strides[1]] = (float)(sum * FACTOR);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Compiles a variant once."""
    folder, known = tmp_path_factory.mktemp("plugin"), {}

    def of(factor=1, fails=0):
        if (factor, fails) not in known:
            source, path = folder / "product.c", folder / f"product{len(known)}.so"
            source.write_text(SOURCE)
            subprocess.run([CC, "-O2", f"-DFACTOR={factor}", f"-DFAILS={fails}", f"-I{os.path.dirname(pf.tuning.plugin_header())}", "-shared", "-fPIC", "-o", path, source], check=True)
            known[factor, fails] = ctypes.CDLL(str(path)).product
            known[factor, fails]._lib = str(path)
        return known[factor, fails]
    return of


@pytest.fixture
def calls():
    return ctypes.c_long(0)


@pytest.fixture
def file(tmp_path):
    before = pf.tuning.path()
    pf._C._set_choices_file(str(tmp_path / "choices.sqlite"))
    pf.clear_program_cache()
    yield
    pf._C._set_choices_file(before)
    pf.clear_program_cache()


@pytest.fixture
def registered(calls):
    """Registers entries that are removed after the test."""
    entries = []

    def register(function, name="theirs", **more):
        entries.append(pf.tuning.register("matmul", name, function, context=ctypes.addressof(calls), **more))
        return entries[-1]
    yield register
    for entry in entries:
        if any(e == entry for _, e in pf.tuning.plugins()):
            pf.tuning.unregister(entry)


def operands():
    pf.manual_seed(5)
    return pf.randn(24, 40), pf.randn(56, 40).t()


def test_a_plugin_computes_only_if_it_is_forced_or_was_measured(library, registered, calls, file):
    a, b = operands()
    want = (a @ b).tolist()
    entry = registered(library(), version="2.1")
    assert entry == "cpu.plugin.theirs@2.1" and pf.tuning.plugins() == [("matmul", entry)]
    assert (a @ b).tolist() == want and calls.value == 0
    with pf.tuning.force("matmul", entry):
        text = str(pf.explain(lambda: a @ b))  # runs it, too
        got = a @ b
    assert entry in text
    used = calls.value
    assert used == 2 and (got - pf.tensor(want)).abs().max().item() < 1e-4
    pf.tuning.unregister(entry)
    assert (a @ b).tolist() == want and calls.value == used and pf.tuning.plugins() == []


def test_it_is_measured_beside_all_others(library, registered, calls, file):
    a, b = operands()
    entry = registered(library())
    with pf.tuning.measure(budget=20):
        (a @ b).sum().item()
    row, = [r for r in pf.tuning.rows() if r.entry == entry]
    assert row.sound and row.us > 0 and row.workspace == 64 and calls.value > 1


SESSION = """
import ctypes, os, sys
import pyflame as pf
pf.manual_seed(0)
a, b = pf.randn(24, 40), pf.randn(40, 56)
for _ in range(12):
    print((a @ b).sum().item())
"""
ENTRIES = """
import ctypes
import pyflame as pf
count = ctypes.c_long(0)
pf.tuning.register("matmul", "theirs", ctypes.CDLL({path!r}).product, context=ctypes.addressof(count))
"""


def test_optimize_measures_entries_of_modules(library, tmp_path):
    """The fifth level of `pyflame optimize`: the entries are timed in a file of the session, and the program is compared with and without them."""
    (tmp_path / "t.py").write_text(SESSION)
    (tmp_path / "their_entries.py").write_text(ENTRIES.format(path=library()._lib))
    from pyflame.optimizing import candidates
    from pyflame.optimizing.machine import Machine

    class Journal:
        def __init__(self):
            self.events = []

        def add(self, what, **more):
            self.events.append((what, more))

    class Silent:
        def show(self, *_):
            pass

        clear = show
    os.environ["PYTHONPATH"], before = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]), os.environ.get("PYTHONPATH")
    try:
        folder = str(tmp_path / "o")
        os.makedirs(folder)
        machine = Machine((str(tmp_path / "t.py"), None, []), folder, Journal(), "step time", 120, 5, 3, 60, lambda _: None, Silent(), plugins="their_entries")
        candidate, = [c for c in candidates.candidates(5, candidates.Facts(), folder, plugins="their_entries") if c.level == 5]
        assert machine.prepare(candidate) == ""
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    found = pf.tuning.rows(candidate.changes["engine"]["tuning_file"])
    assert [r.sound for r in found if r.entry == "cpu.plugin.theirs"] == [True] and len(found) > 1


def test_a_wrong_one_never_computes(library, registered, file):
    a, b = operands()
    want = pf.tensor((a @ b).tolist())
    entry = registered(library(factor=2), "wrong")
    with pf.tuning.measure(budget=20):
        assert pf.allclose(pf.tensor((a @ b).tolist()), want, atol=1e-4)
    row, = [r for r in pf.tuning.rows() if r.entry == entry]
    assert not row.sound and "its result differs" in row.note
    assert pf.allclose(pf.tensor((a @ b).tolist()), want, atol=1e-4)  # by another entry, perhaps, which adds in another order


def test_a_wrong_one_that_computes_already_is_replaced_and_reported(library, registered, file, capfd):
    """Entries are compared with the reference implementation, so that a wrong one is found even if it is the one that a program takes."""
    a, b = operands()
    want = pf.tensor((a @ b).tolist())
    entry = registered(library(factor=2), "wrong")
    with pf.tuning.measure(budget=20):
        (a @ b).tolist()
    with sqlite3.connect(pf.tuning.path()) as db:  # as if it had been found to be right and the fastest, and nothing else had been measured
        db.execute("DELETE FROM measurements WHERE entry != ?", (entry,))
        assert db.execute("UPDATE measurements SET sound = 1, us = 0.001, note = ''").rowcount == 1
    db.close()
    pf.clear_program_cache()
    capfd.readouterr()
    with pf.tuning.measure(budget=20):
        (a @ b).tolist()
        assert pf.allclose(pf.tensor((a @ b).tolist()), want, atol=1e-4)
    said = capfd.readouterr().err
    assert said.count(f"pyflame: {entry} computes something else than the reference implementation; got ") == 1
    assert "matmul(float32(24, 40), float32(40, 56)" in said and "another implementation computes it from now on; hint: " in said
    found = {r.entry: r for r in pf.tuning.rows()}
    assert not found[entry].sound and "its result differs" in found[entry].note
    assert len(found) > 1 and any(r.sound and r.us < 1e9 for r in found.values())
    pf.clear_program_cache()
    assert pf.allclose(pf.tensor((a @ b).tolist()), want, atol=1e-4)  # without a budget as well


def test_terms_that_cancel_make_no_entry_wrong(file, capfd):
    pf.manual_seed(5)
    x, y = pf.randn(24, 1000), pf.randn(1000, 56)
    a, b = pf.cat([x, -x], 1), pf.cat([y, y])
    pf.synchronize()
    with pf.tuning.measure(budget=20):
        assert (a @ b).abs().max().item() < 1e-2
    found = [r for r in pf.tuning.rows() if r.op == "matmul"]
    assert len(found) > 1 and all(r.sound for r in found), found
    assert "computes something else" not in capfd.readouterr().err


def test_what_it_refuses_is_computed_by_others(library, registered, calls):
    entry = registered(library())
    a = pf.randn(2, 3, 4)
    with pf.tuning.force("matmul", entry), pytest.raises(RuntimeError, match="takes float32 matrices of the CPU"):
        (a @ a.mT).sum().item()
    assert calls.value == 0 and (a @ a.mT).shape == (2, 3, 3)


def test_one_that_fails_names_itself(library, registered):
    entry = registered(library(fails=1), "failing")
    a, b = operands()
    with pf.tuning.force("matmul", entry), pytest.raises(RuntimeError, match=r"matmul: the plug-in cpu.plugin.failing failed; got status 1: the moon is full; expected 0"):
        (a @ b).tolist()
    assert (a @ b).shape == (24, 56)


@pytest.mark.parametrize("change, message", [
    ({"op": "product"}, "register: no such op; got 'product'; expected a name that pf.explain prints"),
    ({"device": "tpu"}, "register: no such kind of device; got 'tpu'; expected cpu, rocm or cuda"),
    ({"name": "a b"}, "register: not a name for an entry; got 'a b'"),
    ({"function": 0}, "register: no function; got a null pointer"),
])
def test_what_cannot_be_registered(library, change, message):
    arguments = {"op": "matmul", "name": "x", "function": library(), **change}
    with pytest.raises(ValueError, match=message):
        pf.tuning.register(**arguments)
    assert pf.tuning.plugins() == []


def test_names_and_functions_that_do_not_fit(library, registered):
    entry = registered(library())
    with pytest.raises(ValueError, match=f"register: there is an entry of this name; got '{entry}' for matmul"):
        registered(library())
    with pytest.raises(TypeError, match="register: not a compiled function; got function; expected a function of a ctypes library or an address"):
        pf.tuning.register("matmul", "python", lambda: 0)
    with pytest.raises(ValueError, match="unregister: no such entry; got 'cpu.plugin.other'"):
        pf.tuning.unregister("cpu.plugin.other")


def test_modules_of_the_environment_are_imported(tmp_path):
    (tmp_path / "their_entries.py").write_text("import pyflame as pf\nprint('entries of', pf.__name__)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}

    def start(names):
        return subprocess.run([sys.executable, "-c", "import pyflame"], env={**environment, "PYFLAME_PLUGINS": names}, capture_output=True, text=True)
    assert start("their_entries").stdout == "entries of pyflame\n"
    failed = start("no_such_entries")
    assert failed.returncode != 0 and "PYFLAME_PLUGINS: a module cannot be imported; got 'no_such_entries'" in failed.stderr
