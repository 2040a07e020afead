"""pf.tuning and `pyflame tune`: candidates are measured and must compute the right result, one can be forced, a program is tuned as a whole, and an entry that
ends the process is left out."""
import builtins
import contextlib
import errno
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import types

import pytest

import pyflame as pf
from pyflame.tuning import watch

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_TEST_DEVICE", "cpu") != "cpu", reason="the CPU's products; tests/faults/test_tuning.py has those of a GPU")


@pytest.fixture
def file(tmp_path):
    before = pf.tuning.path()
    pf._C._set_choices_file(str(tmp_path / "choices.sqlite"))
    yield tmp_path / "choices.sqlite"
    pf._C._set_choices_file(before)
    pf._C.clear_program_cache()


def step(text):
    found = re.findall(r"^ +step \d+: ([^,\n]+(?:,splits=\d+)?)[^\n]*\n(?:[^\n]*expected[^\n]*\n)? +matmul\(", text, re.MULTILINE)
    assert len(found) == 1, text
    return found[0]


def test_measured_entries_are_sound_and_in_the_file(file):
    a, b, r = pf.randn(70, 130), pf.randn(90, 130), pf.randn(70, 90)
    expected, fused = (a @ b.t()).numpy(), (a @ b.t() + r).numpy()
    with pf.tuning.measure(budget=60) as done:
        for _ in range(2):
            assert abs((a @ b.t()).numpy() - expected).max() < 1e-4
            assert abs((a @ b.t() + r).numpy() - fused).max() < 1e-4
    assert done()["problems"] >= (1 if os.environ.get("PYFLAME_WINDOW") == "1" else 2) and done()["unsound"] == 0
    rows = pf.tuning.rows()
    assert all(row.sound and row.us > 0 and row.error <= 1 for row in rows), rows
    assert sum(row.own for row in rows) == len({row.problem for row in rows})
    assert any(":blocks=" in row.entry for row in rows)
    assert "problems" in pf.tuning.table()
    for t in pf.tuning.problems():
        assert t.best.us <= t.own.us and t.gain >= 1
    with pf.tuning.measure(budget=60) as done:  # nothing is measured twice
        (a @ b.t()).numpy()
    assert done()["entries"] == 0


@pytest.mark.parametrize("place", ["slice", "stack", "pad"])
def test_bytes_that_a_measured_step_leaves_as_they_are_stay(file, place):
    """The step's output is a part of a tensor whose other part was computed before."""
    a, b = pf.randn(40, 64), pf.randn(64, 48)

    def compute():
        if place == "stack":
            return pf.stack([a @ b, (a + 1) @ b], 1)
        if place == "pad":
            return pf.nn.functional.pad(a @ b, (1, 2, 3, 4))
        y = pf.ones(100, 48)
        y[20:60] = a @ b
        return y

    expected = compute().numpy()
    with pf.tuning.measure(budget=20) as done:
        assert abs(compute().numpy() - expected).max() < 1e-4
    assert done()["problems"] > 0


@pytest.mark.parametrize("left, right", [((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0))])
def test_products_without_elements_are_not_measured(file, left, right):
    with pf.tuning.measure(budget=20) as done:
        assert pf.matmul(pf.ones(*left), pf.ones(*right)).tolist() == [[0.0] * right[1]] * left[0]
    assert done()["problems"] == 0


def test_named_entries_alone_are_measured(file):
    a, b = pf.randn(70, 130), pf.randn(130, 90)
    products = {"bfloat16": (a.bfloat16(), b.bfloat16()), "float64": (a.double(), b.double())}

    def compute():
        for x, y in products.values():
            (x @ y).sum().item()

    with pf.tuning.measure(budget=60, entries=["onednn.sgemm"]) as done:
        compute()
    found = pf.tuning.rows()
    assert done()["problems"] == 1 and all("bfloat16" in r.problem for r in found)
    assert {r.entry.partition(":")[0] for r in found if not r.own} == {"onednn.sgemm"} and len(found) > 2
    assert pf._C._tune_entries() == []
    with pf.tuning.measure(budget=60) as done:  # what was left out then is measured now, the rest not again
        compute()
    assert done()["problems"] == 1 and {r.entry.partition(":")[0] for r in pf.tuning.rows()[len(found):]} == {"openblas.dgemm"}


@pytest.mark.parametrize("entries", ["gpu.blas", [], ["gpu.matmul:tile=16x16"], ["a,b"], [""], [3]])
def test_entries_that_are_no_names(entries):
    with pytest.raises(ValueError, match="measure: not names of entries; got .*; expected a list such as"):
        with pf.tuning.measure(entries=entries):
            pass


def test_what_won_for_similar_problems_decides(file):
    """Two products of a bucket were measured, and one entry was faster for both (the times are written by hand). A third product takes it."""
    def product(m, dtype=pf.float32):
        a, b = pf.randn(m, 130, dtype=dtype), pf.randn(130, 90, dtype=dtype)
        return lambda: a @ b
    with pf.tuning.measure(budget=60):
        for m in (72, 88):
            product(m)().sum().item()
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE measurements SET us = 100, warm_us = 0, spread = 0")
        db.execute("UPDATE measurements SET us = 50 WHERE entry = 'onednn.sgemm:blocks=1x2'")
    pf._C.clear_program_cache()
    assert step(str(pf.explain(product(104)))) == "onednn.sgemm:blocks=1x2"
    assert step(str(pf.explain(product(104, pf.float64)))) == "openblas.dgemm"
    with contextlib.closing(sqlite3.connect(file)) as db, db:  # for one of them it was not
        db.execute("UPDATE measurements SET us = 99 WHERE entry = 'onednn.sgemm:blocks=1x2' AND problem LIKE '%(88, 130)%'")
    pf._C.clear_program_cache()
    assert step(str(pf.explain(product(104)))) == "onednn.sgemm"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_block_computes_the_same(file, dtype):
    kind = getattr(pf, dtype)
    a, b, r = pf.randn(33, 65, dtype=kind), pf.randn(65, 100, dtype=kind), pf.randn(33, 100, dtype=kind)
    name = {"float32": "onednn.sgemm", "float64": "openblas.dgemm"}[dtype]
    expected = (pf.relu(a @ b + r)).numpy()
    for blocks in ("blocks=1x1", "blocks=2x2", "blocks=5x1", "blocks=3x3"):
        with pf.tuning.force("matmul", f"{name}:{blocks}"):
            assert abs(pf.relu(a @ b + r).numpy() - expected).max() < 1e-4
            assert step(pf.explain(lambda: pf.relu(a @ b + r))) == f"{name}:{blocks}"
    assert ":" not in step(pf.explain(lambda: pf.relu(a @ b + r)))


DIVIDED = {
    "elementwise": ("add", "cpu.tile", lambda x: pf.exp(x + 1) * x),
    "sums of rows": ("mul", "cpu.tile", lambda x: (x * x).sum(1)),
    "sums of columns": ("mul", "cpu.tile", lambda x: (x * x).sum(0)),
    "product": ("matmul", "onednn.sgemm", lambda x: x @ x.t()),
    "order": ("sort", "cpu.sort", lambda x: x.sort(dim=1)[0]),
}


@pytest.mark.parametrize("case", DIVIDED)
def test_divisions_among_threads_change_no_bit(file, case):
    op, entry, compute = DIVIDED[case]
    threads = pf.get_num_threads()
    pf.set_num_threads(4)
    try:
        x = pf.randn(300, 1000)
        expected = compute(x).numpy()
        for division in ("threads=1", "threads=2", "threads=3", "grain=0.25", "grain=2", "grain=4", "threads=2,grain=8"):
            with pf.tuning.force(op, f"{entry}:{division}"):
                assert compute(x).numpy().tobytes() == expected.tobytes(), division
                assert f"{entry}:{division}" in str(pf.explain(lambda: compute(x)))
        with pytest.raises(ValueError, match="no such configuration; got 'threads=4'"):
            with pf.tuning.force(op, f"{entry}:threads=4"):
                compute(x).numpy()
    finally:
        pf.set_num_threads(threads)


def test_what_is_near_the_fastest_entry_is_measured_too(file):
    """The second stage: whichever entry is the fastest after the first, some that differ in one part are in no list."""
    a, b = pf.randn(256, 256), pf.randn(256, 256)
    threads = pf.get_num_threads()
    pf.set_num_threads(1)  # so that there are blocks alone
    try:
        with pf.tuning.measure(budget=60, entries=["onednn.sgemm"]) as done:
            (a @ b).numpy()
    finally:
        pf.set_num_threads(threads)
    rows = pf.tuning.rows()
    assert 0 < done()["neighbours"] < len(rows) and done()["unsound"] == 0
    assert len({r.entry for r in rows}) == len(rows), "no entry is measured twice"


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("cancels", [False, True])
def test_sums_of_products_of_other_types_are_right(file, capfd, dtype, cancels):
    """Products and convolutions are compared with the reference implementation, element by element. All entries pass, also where the terms of a sum cancel."""
    pf.manual_seed(3)
    x, y = pf.randn(24, 1000).to(dtype), pf.randn(1000, 56).to(dtype)
    a, b = (pf.cat([x, -x], 1), pf.cat([y, y])) if cancels else (x, y)
    image, weight = pf.randn(4, 16, 40, 40).to(dtype), pf.randn(32, 16, 3, 3).to(dtype)
    image, weight = (pf.cat([image, -image], 1), pf.cat([weight, weight], 1)) if cancels else (image, weight)
    image.requires_grad = weight.requires_grad = True
    pf.synchronize()
    with pf.tuning.measure(budget=40):
        (a @ b).tolist()
        result = pf.conv2d(image, weight, stride=2, padding=1)
        pf.synchronize()
        for asked in (image, weight):
            pf.autograd.grad(result, asked, result.detach(), retain_graph=True)
            pf.synchronize()
    found = pf.tuning.rows()
    assert {r.op for r in found} >= {"matmul", "conv2d"} and all(r.sound for r in found), [r for r in found if not r.sound]
    assert "computes something else" not in capfd.readouterr().err


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_convolutions_by_transforms_are_right_beside_zeros(file, capfd, dtype):
    """Winograd's transforms put roundings of one element into others, whose terms may all be 0."""
    pf.manual_seed(3)
    image, weight = pf.randn(2, 32, 48, 48).to(dtype), pf.randn(32, 32, 3, 3).to(dtype)
    image[:, :, 7:21, 5:30] = 0
    image, weight = image.to(memory_format=pf.channels_last), weight.to(memory_format=pf.channels_last)
    pf.synchronize()
    with pf.tuning.measure(budget=40):
        pf.conv2d(image, weight, padding=1).tolist()
    found = pf.tuning.rows()
    assert any("winograd" in r.entry for r in found) and all(r.sound for r in found), [r for r in found if not r.sound]
    assert "computes something else" not in capfd.readouterr().err


def test_divisions_are_measured_for_loops_that_are_long_enough(file):
    threads = pf.get_num_threads()
    pf.set_num_threads(2)
    try:
        short, long = pf.randn(100), pf.randn(1 << 16)
        with pf.tuning.measure(budget=60):
            pf.exp(short + 1).numpy()
            assert not pf.tuning.rows()
            pf.exp(long + 1).numpy()
    finally:
        pf.set_num_threads(threads)
    assert {r.entry for r in pf.tuning.rows()} >= {"cpu.tile", "cpu.tile:threads=1", "cpu.tile:grain=0.25", "cpu.tile:grain=2", "cpu.tile:grain=4"}
    assert all(r.sound for r in pf.tuning.rows())
    errors = {(r.problem, r.error) for r in pf.tuning.rows()}
    assert len(errors) == len({problem for problem, _ in errors}), "a division changes no bit"


def test_forced_entries_that_do_not_exist():
    a = pf.randn(8, 8)
    with pytest.raises(ValueError, match="an implementation is forced that does not exist; got 'onednn.gemm'; expected one of onednn.bf16, cpu.gemv, onednn.sgemm"):
        with pf.tuning.force("matmul", "onednn.gemm"):
            a @ a
    with pf.tuning.force("matmul", "gpu.blas"):  # for another device
        assert (a @ a).numpy().shape == (8, 8)
    with pytest.raises(ValueError, match="no such configuration; got 'blocks=99x99'"):
        with pf.tuning.force("matmul", "onednn.sgemm:blocks=99x99"):
            a @ a
    with pytest.raises(ValueError, match="no such op; got 'matmull'"):
        with pf.tuning.force("matmull", "onednn.sgemm"):
            pass
    with pytest.raises(NotImplementedError, match="another implementation is forced"):
        with pf.tuning.force("matmul", "openblas.dgemm"):
            a @ a
    assert (a @ a).numpy().shape == (8, 8)


def test_budgets_that_mean_nothing():
    with pytest.raises(ValueError, match="the budget is not positive; got 0"):
        with pf.tuning.measure(budget=0):
            pass


@pytest.mark.parametrize("value, message", [("matmul", "not a valid item; got 'matmul'; expected op:entry"), ("mat:x", "no such op; got 'mat'")])
def test_a_variable_that_cannot_be_read(value, message):
    ran = subprocess.run([sys.executable, "-c", "import pyflame as pf; a = pf.ones(2, 2); print((a @ a).tolist())"], env={**os.environ, "PYFLAME_FORCE": value},
                         capture_output=True, text=True)
    assert ran.returncode != 0 and message in ran.stderr


# ---- the command

TRAIN = """
import sys
import pyflame as pf
model = pf.nn.Sequential(pf.nn.Linear(64, 96), pf.nn.ReLU(), pf.nn.Linear(96, 10))
opt = pf.optim.SGD(model.parameters(), lr=0.1)
x, y = pf.randn(32, 64), pf.randint(0, 10, (32,))
for i in range(12):
    opt.zero_grad()
    pf.nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
print("trained", sys.argv[1:])
"""


def test_half_of_a_transaction_of_a_process_that_was_ended(file, tmp_path):
    """The file is copied in the middle of a transaction, with the journal from which the next reader takes the half back."""
    a, b = pf.randn(70, 130), pf.randn(130, 90)
    with pf.tuning.measure(budget=60):
        (a @ b).numpy()
    known = len(pf.tuning.rows())
    pf._C._set_choices_file(str(tmp_path / "other"))
    ended = tmp_path / "ended.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA cache_size = 1")
        for size in range(100):
            db.execute("UPDATE measurements SET note = ?", ("x" * 1000 * size,))
        shutil.copy(file, ended)
        shutil.copy(f"{file}-journal", f"{ended}-journal")
        db.rollback()
    assert len(pf.tuning.rows(ended)) == known > 0 and not any(row.note.startswith("xx") for row in pf.tuning.rows(ended))


def test_the_file_of_a_folder_with_marks_of_addresses(file, tmp_path):
    """SQLite takes the file's name as an address, in which '#', '?' and '%' mean something else."""
    with pf.tuning.measure(budget=60):
        (pf.randn(70, 130) @ pf.randn(130, 90)).numpy()
    (tmp_path / "a#b?c%20d").mkdir()
    copy = shutil.copy(file, tmp_path / "a#b?c%20d")
    assert len(pf.tuning.rows(copy)) == len(pf.tuning.rows()) > 0


def tune(tmp_path, *words, **variables):
    program = os.environ.get("PYFLAME_BIN") or shutil.which("pyflame", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("the program pyflame is not installed")
    return subprocess.run([program, "tune", "--python", sys.executable, *words], env={**os.environ, "PYFLAME_CACHE_DIR": str(tmp_path / "cache"), **variables},
                          capture_output=True, text=True, cwd=tmp_path, timeout=300)


def test_a_cache_folder_that_cannot_be_written_is_told_before_the_program_runs(tmp_path):
    (tmp_path / "train.py").write_text("open('it_ran', 'w').close()\n")
    (tmp_path / "cache").write_text("")
    for place in (tmp_path / "cache", tmp_path / "cache" / "below"):
        ran = tune(tmp_path, "train.py", PYFLAME_CACHE_DIR=str(place))
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr == f"pyflame tune: the cache folder cannot be written: Not a directory; got '{place}'; hint: PYFLAME_CACHE_DIR\n"
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full")
def test_a_full_disk_has_no_room_for_measurements(tmp_path, monkeypatch):
    from pyflame.tuning import __main__ as command

    monkeypatch.setattr(command.tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb", buffering=0))
    assert command._kept_nowhere(str(tmp_path / "new")) == "No space left on device"
    assert os.listdir(tmp_path / "new") == []
    monkeypatch.undo()
    assert command._kept_nowhere(str(tmp_path / "new")) is None and os.listdir(tmp_path / "new") == []


def test_a_program_is_tuned(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    ran = tune(tmp_path, "--budget", "30", "--compare", "1", "train.py", "--epochs", "1")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"\d+ problems, \d+ entries measured, 0 of them unsound", ran.stdout), ran.stdout
    again = tune(tmp_path, "--budget", "30", "train.py")
    assert again.returncode == 0 and "was measured before" in again.stderr
    known = tune(tmp_path, "--list")
    assert "onednn.sgemm" in known.stdout and "problems" in known.stdout
    document = json.loads(tune(tmp_path, "--list", "--json").stdout)
    assert document and all(t["gain"] >= 1 and t["best"]["us"] > 0 and t["tried"] > 0 for t in document) and "onednn.sgemm" in {t["best"]["entry"] for t in document} | {t["own"]["entry"] for t in document}


def test_the_steps_of_a_language_model_are_tuned(tmp_path):
    for package in ("regex", "aiohttp"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from pyflame.testing import language_models

    model = language_models.write_random_model(tmp_path / "small")
    ran = tune(tmp_path, "--budget", "100", "--entries", "cpu.gemv,onednn.sgemm", "--compare", "0", "--idle", "90", "--json", "-m", "pyflame.llm.bench", model, "--no_record", "--latency", "--batch_sizes", "1", "3", "--input_len", "8", "--output_len", "2", "--iters", "1")
    assert ran.returncode == 0, ran.stderr
    problems = [p["problem"] for p in json.loads(ran.stdout)]
    assert all(any(p.startswith(f"matmul(float32({rows}, 64)") for p in problems) for rows in (1, 3)), problems


def test_a_program_that_computes_nothing(tmp_path):
    (tmp_path / "nothing.py").write_text("print('hello')\n")
    ran = tune(tmp_path, "nothing.py")
    assert ran.returncode == 0 and "pyflame tune: the program computed nothing with PyFlame in its own process" in ran.stderr and "was measured before" not in ran.stderr


def test_a_program_that_fails(tmp_path):
    (tmp_path / "fails.py").write_text("import pyflame as pf\nraise RuntimeError('the data is missing')\n")
    ran = tune(tmp_path, "fails.py")
    assert ran.returncode == 1 and "the data is missing" in ran.stderr and "exit code 1" in ran.stderr


def test_an_entry_that_ends_the_process_is_left_out(tmp_path):
    """The program kills itself while an entry is tried, as a bad kernel would do."""
    (tmp_path / "dies.py").write_text("""
import os, sqlite3, threading, time
import pyflame as pf
path = pf.tuning.path()
def tries():
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        found = db.execute("select tries from measurements where entry like '%blocks=1x2'").fetchone()
        db.close()
    except sqlite3.OperationalError:
        found = None
    return found[0] if found else 0
before = tries()
def kill():
    while before < 2:  # afterwards nothing reads the file, so that nothing keeps the measurements from being written
        if tries() > before:
            os.kill(os.getpid(), 9)
a = pf.randn(1200, 1200)
threading.Thread(target=kill, daemon=True).start()
for _ in range(3):
    (a @ a).sum().item()
""")
    ran = tune(tmp_path, "--budget", "100", "--idle", "100", "--compare", "0", "dies.py")
    with sqlite3.connect(tmp_path / "cache" / "choices.sqlite") as db:
        found = dict(db.execute("select entry, tries from measurements").fetchall())
    if "SIGKILL" not in ran.stderr:
        pytest.skip("the entry was measured faster than anybody could see it")
    assert "blocks=1x2 ended the process (SIGKILL); this entry is left out" in ran.stderr
    assert found["onednn.sgemm:blocks=1x2"] == 2 and found["onednn.sgemm:blocks=1x1"] == 0


def test_slow_candidates_are_no_quiet_program():
    from pyflame.tuning.watch import Limits, Quiet

    q = Quiet(Limits())
    assert [q.stop(t, None, (0, 0)) for t in (0, 20, 21)] == [None, None, "stopped"]
    q = Quiet(Limits())
    assert q.stop(1, (7, 1), (0, 0)) is None  # a candidate runs for the first time
    assert [q.stop(t, None, (0, 0)) for t in (2, 50, 62)] == [None] * 3  # all are timed, and nothing is written
    assert [q.stop(t, None, (1, 4)) for t in (63, 83, 84)] == [None, None, "stopped"]  # the result is there
    q = Quiet(Limits())
    assert [q.stop(t, (7, 1), (0, 0)) for t in (0, 60, 61)] == [None, None, "hung"]


def test_a_program_that_prepares_for_long_is_not_idle():
    from pyflame.tuning.watch import Limits, Quiet

    q = Quiet(Limits())
    assert [q.stop(t, None, (0, 0), computes=False) for t in (0, 50, 300)] == [None] * 3
    assert [q.stop(t, None, (0, 0), computes=True) for t in (301, 320, 321)] == [None, None, "stopped"]


def test_a_program_that_never_computes_is_stopped(tmp_path):
    from pyflame.tuning.watch import Limits, Quiet

    q = Quiet(Limits(idle=20, hang=60, start=100))
    assert [q.stop(t, None, (0, 0), computes=False) for t in (0, 50, 100, 101)] == [None, None, None, "late"]
    q = Quiet(Limits(idle=20, hang=60, start=100))  # a launcher computes nothing itself; its child does
    assert [q.stop(t, None, (2, 9, 0), computes=False) for t in (0, 90)] == [None, None]
    assert q.stop(99, (7, 1), (2, 9, 0), computes=False) is None  # a candidate of the child runs
    assert [q.stop(t, None, (2, 9, 0), computes=False) for t in (101, 150)] == [None] * 2
    assert [q.stop(t, None, (3, 12, 0), computes=False) for t in (151, 171, 172)] == [None, None, "stopped"]
    (tmp_path / "waits.py").write_text("import threading\nthreading.Event().wait()\n")
    ran = tune(tmp_path, "--start", "1", "waits.py")
    assert ran.returncode == 1 and "the program computed nothing within 1 s; hint: --start" in ran.stderr, ran.stderr


def test_what_was_measured_before_a_program_was_late_is_printed(file, tmp_path, monkeypatch, capsys):
    from pyflame.tuning import __main__ as command

    def measure(*_, **__):
        with pf.tuning.measure(budget=20):
            (pf.randn(70, 130) @ pf.randn(130, 90)).tolist()
        return watch.Outcome("late")

    monkeypatch.setattr(command.watch, "measure", measure)
    (tmp_path / "log").write_text("")
    assert command._tune([], types.SimpleNamespace(budget=5, idle=1, hang=1, start=1, entries=[], problems=None, imported=[], json=False, compare=0), str(tmp_path)) == 0
    said = capsys.readouterr()
    assert "matmul(float32(70, 130)" in said.out and "computed nothing" not in said.err


@pytest.mark.parametrize("low, high, expected", [(1.01, 1.2, "kept"), (0.98, 1.02, "kept"), (0.02, 24, "undecided"), (0.96, 1.3, "undecided"), (0.8, 0.9, "slower"), (0.5, 0.999, "undecided")])
def test_a_wide_interval_keeps_nothing(low, high, expected):
    from pyflame.benchmarking.compare import Comparison
    from pyflame.tuning.__main__ import verdict

    comparison = Comparison("without", "with", (low * high) ** 0.5, low, high, True)
    assert verdict(comparison, 5) == expected
    assert verdict(comparison, 4) == ("undecided" if expected == "slower" else expected)  # pairs that are too few


def _stored(path):
    """A dict of problem and entry to whether it is sound, its time and its note."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {(problem, entry): (bool(sound), us, note) for problem, entry, sound, us, note in db.execute("SELECT problem, entry, sound, us, note FROM measurements")}


def _searches(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return sorted(db.execute("SELECT problem, looked FROM enumerations"))


def _write(path, at, rows, searches=()):
    """Stores rows as PyFlame does: (problem, entry, own, sound, us), and (problem, looked) of searches."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for problem, entry, own, sound, us in rows:
            db.execute("INSERT OR REPLACE INTO measurements (environment, op, problem, entry, own, sound, us, error, measured_at) VALUES (1, 'matmul', ?, ?, ?, ?, ?, 0, ?)", (problem, entry, own, sound, us, at))
        for problem, looked in searches:
            db.execute("INSERT OR REPLACE INTO enumerations VALUES (1, 'matmul', ?, 'gpu.blas', 1, ?, 900, ?)", (problem, looked, at))


@pytest.fixture
def sessions(file, tmp_path, monkeypatch):
    """A function that ends a second session with a comparison. The first one kept a winner of the problem p, which the second one measured again; the second one found another one for p, and one for q."""
    from pyflame.tuning import __main__ as command

    with pf.tuning.measure(budget=5, entries=["onednn.sgemm"]):  # makes the file
        (pf.ones(8, 8).bfloat16() @ pf.ones(8, 8).bfloat16()).tolist()
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("DELETE FROM measurements")
        db.execute("CREATE TABLE IF NOT EXISTS enumerations (environment, op, problem, impl, tried, looked, size, stored_at, PRIMARY KEY (environment, op, problem, impl))")
    _write(file, "2025-01-01", [("p", "own", 1, 1, 9), ("p", "winner", 0, 1, 3), ("p", "later wrong", 0, 1, 2), ("p", "wrong", 0, 0, 1)], [("p", 10)])
    before = command._copy(str(file), str(tmp_path))
    _write(file, "2025-01-03", [("p", "own", 1, 1, 8), ("p", "winner", 0, 1, 4), ("p", "later wrong", 0, 0, 2), ("p", "new", 0, 1, 5), ("q", "own", 1, 1, 7), ("q", "new", 0, 1, 6), ("q", "wrong", 0, 0, 1)],
           [("p", 20), ("q", 30)])

    def end(result):
        monkeypatch.setattr(command, "_compare", lambda *_, **__: result)
        assert command._keep_or_revert([], types.SimpleNamespace(compare=3, budget=60, json=False), "", str(file), before, "2025-01-02") == 0
        return _stored(file)

    return end


EARLIER = {("p", "own"): (True, 9, ""), ("p", "winner"): (True, 3, ""), ("p", "later wrong"): (False, 2, ""), ("p", "wrong"): (False, 1, ""), ("q", "own"): (True, 7, ""), ("q", "wrong"): (False, 1, "")}


def test_what_was_not_decided_is_forgotten_and_earlier_winners_stay(sessions, file, capsys):
    from pyflame.benchmarking.compare import Comparison
    from pyflame.tuning.__main__ import Compared

    assert sessions(Compared("undecided", Comparison("without", "with", 1.0, 0.02, 24.0, True))) == EARLIER
    told, _, result = capsys.readouterr().err.partition("\n")
    assert told == ("pyflame tune: now the whole program runs without and with what was found, 6 times, or up to 18 where the times differ too much; the budget was for the measurements, and each run has 60 s; "
                    "Ctrl-C ends the comparison and keeps what was measured, and --compare 0 leaves it out")  # fmt: skip
    assert "nothing of this session is used" in result
    assert _searches(file) == [("p", 10)]


def test_a_slower_program_takes_no_earlier_winner_back(sessions, file):
    from pyflame.benchmarking.compare import Comparison
    from pyflame.tuning.__main__ import Compared

    slower = (False, 5, "the whole program was slower with it")
    assert sessions(Compared("slower", Comparison("without", "with", 0.8, 0.7, 0.9, True))) == {**EARLIER, ("p", "new"): slower, ("q", "new"): (False, 6, slower[2])}
    assert _searches(file) == [("p", 20), ("q", 30)]


def test_a_first_session_that_decides_nothing_is_measured_again(file, tmp_path):
    from pyflame.tuning import __main__ as command

    before = command._copy(str(file), str(tmp_path))
    a, b = pf.randn(70, 130), pf.randn(130, 90)
    with pf.tuning.measure(budget=20):
        (a @ b).tolist()
    own, measured = {r.entry for r in pf.tuning.rows() if r.own}, len(pf.tuning.rows())
    command._revert(str(file), before, "2025-01-01", "slower")
    assert len(pf.tuning.rows()) == measured and {r.entry for r in pf.tuning.rows() if r.sound} == own
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE measurements SET sound = 1")
    command._forget(str(file), before, "2025-01-01")
    assert {r.entry for r in pf.tuning.rows()} == own
    pf._C.clear_program_cache()
    with pf.tuning.measure(budget=20) as done:
        (a @ b).tolist()
    assert done()["problems"] == 1 and len(pf.tuning.rows()) > len(own)


def _of_runs(monkeypatch, tmp_path, without, tuned, pairs=3):
    """What a comparison of runs with these times comes to, and how many runs of either kind there were. A text in the place of a time says why there is none."""
    from pyflame.tuning import __main__ as command

    times, ran = {"0": iter(without), "1": iter(tuned)}, []

    def run_once(words, report, log, environment, stop, held=()):
        ran.append(environment["PYFLAME_TUNED"])
        found = next(times[ran[-1]])
        return types.SimpleNamespace(why=found if isinstance(found, str) else "ended", step_seconds=None if isinstance(found, str) else found)

    monkeypatch.setattr(command.watch, "run_once", run_once)
    (tmp_path / "log").write_text("the last line\n")
    return command._compare([], str(tmp_path), pairs, 60), (ran.count("0"), ran.count("1"))


def test_runs_are_compared_again_until_they_say_something(monkeypatch, tmp_path):
    found, ran = _of_runs(monkeypatch, tmp_path, [1.0] * 9, [0.1, 9.0, *[0.8] * 7])
    assert found.outcome == "kept" and found.comparison.ratio == pytest.approx(1.25) and ran[0] > 3 and ran[0] == ran[1]


def test_few_slower_runs_ask_for_more(monkeypatch, tmp_path):
    found, ran = _of_runs(monkeypatch, tmp_path, [1.0] * 9, [*[1.1] * 3, *[0.9] * 6])
    assert found.outcome == "undecided" and ran == (9, 9)
    found, ran = _of_runs(monkeypatch, tmp_path, [1.0] * 9, [1.1] * 9)
    assert found.outcome == "slower" and ran == (9, 9)
    found, ran = _of_runs(monkeypatch, tmp_path, [1.0] * 3, [1.1] * 3, pairs=1)
    assert found.outcome == "undecided" and ran == (3, 3), "three pairs are too few for it"


@pytest.mark.parametrize("without, tuned, outcome, why", [
    ([1.0] * 9, [0.1, 9.0, 0.8, "interrupted"], "undecided", "the comparison was interrupted"),
    ([*[1.0] * 6, "failed"], [1.1] * 6, "slower", "the program failed:\nthe last line\n"),
    ([*[1.0] * 6, "stopped"], [0.1, 9.0, 9.0, 0.1, 9.0, 0.1], "undecided", "the program did not come to an end within 60 s"),
    ([1.0] * 9, [0.1, 9.0, 0.8, 0.8, "failed"], "fails", "the tuned program failed:\nthe last line\n"),
    ([1.0] * 9, ["failed"], "fails", "the tuned program failed:\nthe last line\n"),
    ([1.0] * 9, [1.0, "stopped"], "undecided", "the tuned program did not come to an end within 60 s"),
    ([1.0] * 9, [1.0, "interrupted"], "not compared", "the comparison was interrupted"),
    (["failed"], [], "not compared", "the program failed:\nthe last line\n")])
def test_runs_that_do_not_come_to_an_end(monkeypatch, tmp_path, without, tuned, outcome, why):
    found, _ = _of_runs(monkeypatch, tmp_path, without, tuned)
    assert (found.outcome, found.why) == (outcome, why)


def test_a_tuned_program_that_fails_is_not_used(sessions):
    from pyflame.tuning.__main__ import Compared

    found = sessions(Compared("fails", None, "the tuned program failed"))
    assert found == {**EARLIER, ("p", "new"): (False, 5, "the whole program failed with it"), ("q", "new"): (False, 6, "the whole program failed with it")}


ALONE = "from pyflame.tuning.__main__ import alone\nwith alone({!r}) as held:\n    print('alone', len(held), flush=True)\n"


def test_two_sessions_with_one_cache_run_one_after_the_other(tmp_path):
    from pyflame.tuning.__main__ import alone

    with alone(str(tmp_path)):
        second = subprocess.Popen([sys.executable, "-c", ALONE.format(str(tmp_path))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert f"another pyflame tune, process {os.getpid()} on {socket.gethostname()}, measures with the cache folder" in second.stderr.readline()
        assert second.poll() is None
    out, err = second.communicate(timeout=60)
    assert out == "alone 1\n" and second.returncode == 0, err


@pytest.mark.parametrize("where", ["open", "flock"])
def test_a_folder_without_locks_is_no_hindrance(tmp_path, monkeypatch, capsys, where):
    from pyflame.tuning import __main__ as command

    def refuses(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")  # a lock of another user

    monkeypatch.setattr(*((builtins, "open") if where == "open" else (command.fcntl, "flock")), refuses)
    with command.alone(str(tmp_path)) as held:
        monkeypatch.undo()
        assert held == ()
    assert capsys.readouterr().err == f"pyflame tune: the folder has no lock for one pyflame tune at a time: Permission denied; got '{tmp_path}'; hint: let no other pyflame tune run with it\n"


@contextlib.contextmanager
def _session(tmp_path):
    """A session whose program waits for good: its process, that of the program, and a pipe that is at its end when the program is gone."""
    os.mkfifo(tmp_path / "runs")
    (tmp_path / "cache").mkdir()
    (tmp_path / "waits.py").write_text("import os, signal\npipe = open('runs', 'w')\npipe.write(f'{os.getpid()}\\n')\npipe.flush()\nsignal.pause()\n")
    session = subprocess.Popen([sys.executable, "-m", "pyflame.tuning", "waits.py"], env={**os.environ, "PYFLAME_CACHE_DIR": str(tmp_path / "cache")}, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(tmp_path / "runs") as pipe:
        program = int(pipe.readline())
        try:
            yield session, program, pipe
        finally:
            for process in (session.pid, program):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            session.wait(60)


def _at_its_end(pipe):
    return select.select([pipe], [], [], 60)[0] == [pipe] and pipe.read() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_ends_with_its_session(tmp_path, number):
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("the signal is ignored here, as with nohup, and stays so")
    with _session(tmp_path) as (session, _, pipe):
        session.send_signal(number)
        assert _at_its_end(pipe) and session.wait(60) == 128 + number


def test_the_cache_is_locked_while_the_program_of_a_killed_session_runs(tmp_path):
    with _session(tmp_path) as (session, program, pipe), open(tmp_path / "cache" / "tune.lock") as lock:
        session.kill()
        session.wait(60)
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(program, signal.SIGKILL)
        assert _at_its_end(pipe)
        fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.mark.parametrize("text, computes", [("", False), ("start 1.0\n", False), ("start 1.0\ncomputes 2.0\n", True), ("start 1.0\nstep 1.1\nstep 1.2\nstep 1.3\ncomputes 1.4\n", True)])
def test_a_program_computes_by_its_report(tmp_path, text, computes):
    from pyflame.tuning.watch import _computes

    assert not _computes(tmp_path / "missing")
    (tmp_path / "report").write_text(text)
    assert _computes(tmp_path / "report") is computes


def test_a_program_that_prepares_for_long_is_measured(tmp_path):
    (tmp_path / "late.py").write_text("import time\ntime.sleep(4)\nimport pyflame as pf\nx = pf.randn(64, 96)\nfor _ in range(4):\n    print((x @ x.T).sum().item())\n")
    ran = tune(tmp_path, "--idle", "1", "--compare", "0", "late.py")
    assert ran.returncode == 0 and "1 problems, 0 entries" not in ran.stdout and "matmul" in ran.stdout, ran.stdout + ran.stderr


def test_programs_of_pytorch_are_told_another_way(tmp_path):
    (tmp_path / "theirs.py").write_text("import torch\n")
    ran = tune(tmp_path, "theirs.py")
    assert ran.returncode == 1 and "PYTORCH_TUNABLEOP_RECORD_UNTUNED" in ran.stderr


def test_lists_of_products(tmp_path):
    (tmp_path / "list.txt").write_text("64,96,32,float32\n64,48,16,float32,NT\n")
    ran = tune(tmp_path, "--problems", "list.txt", "--budget", "30", "--export", "tunableop=out.csv")
    assert ran.returncode == 0, ran.stderr
    assert "2 problems" in ran.stdout and "0 products are in out.csv" in ran.stderr and "no Validator lines" in ran.stderr


def test_all_algorithms_reaches_the_program_and_ends_with_measure(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import pyflame as pf\nprint(pf._C._tune_all_algorithms())\n")
    for flag in (False, True):
        words = watch.command(None, str(path), [], str(tmp_path / "steps"), all_algorithms=flag)
        assert subprocess.run(words, capture_output=True, text=True, timeout=300).stdout == f"{flag}\n"
    ran = tune(tmp_path, "--all-algorithms", "--budget", "5", "--idle", "2", "--compare", "0", str(path))
    assert ran.returncode == 0 and "nothing was measured" in ran.stdout, ran.stderr
    with pf.tuning.measure(budget=1, all_algorithms=True):
        assert pf._C._tune_all_algorithms()
    assert not pf._C._tune_all_algorithms()


def test_the_blocks_of_a_product_are_tried_in_the_order_of_their_estimates():
    """With more than one thread, one block comes behind a block for each thread; the error names all of them in this order."""
    threads = pf.get_num_threads()
    pf.set_num_threads(4)
    try:
        with pytest.raises(ValueError, match="no such configuration") as error, pf.tuning.force("matmul", "onednn.sgemm:none"):
            (pf.ones(512, 512) @ pf.ones(512, 768)).tolist()
    finally:
        pf.set_num_threads(threads)
    blocks = re.findall(r"blocks=(\d+)x(\d+)", str(error.value))
    numbers = [int(rows) * int(columns) for rows, columns in blocks]
    assert len(numbers) > 3 and numbers[0] % 4 == 0 and (1 not in numbers or numbers[-1] == 1), blocks


def test_a_list_is_tuned_with_named_entries(tmp_path):
    (tmp_path / "list.txt").write_text("64,96,32,bfloat16\n64,48,16,float64\n")
    ran = tune(tmp_path, "--problems", "list.txt", "--budget", "30", "--entries", "onednn.sgemm,gpu.blas")
    assert ran.returncode == 0, ran.stderr
    assert "1 problems" in ran.stdout and "there are no measurements of the entry gpu.blas" in ran.stderr and "the entry onednn.sgemm" not in ran.stderr
    with sqlite3.connect(tmp_path / "cache" / "choices.sqlite") as db:
        assert {e.partition(":")[0] for (e,) in db.execute("select entry from measurements where own = 0")} == {"onednn.sgemm"}
    again = tune(tmp_path, "--problems", "list.txt", "--budget", "30", PYFLAME_TUNE_ENTRIES="onednn.sgemm")  # the variable does the same
    assert again.returncode == 0 and "was measured before" in again.stderr


def test_rows_of_a_list_that_are_not_measured_are_told(tmp_path):
    """They cost the others nothing, and each is told once, though the list is read again in each run."""
    (tmp_path / "list.txt").write_text("nonsense,xx\nhipblaslt-bench -m 8 -n 8 -k 16 --a_type f8_r --batch_count 2\n64,96,32,float32\n")
    ran = tune(tmp_path, "--problems", "list.txt", "--budget", "30")
    assert ran.returncode == 0, ran.stderr
    assert "1 problems" in ran.stdout
    told = [line for line in ran.stderr.splitlines() if "left out: " in line]
    assert len(told) == 2 and "list.txt:1: not a product; got 'nonsense,xx'" in told[0], ran.stderr
    assert "gemm 2x8x8x16 float8_e4m3fn NN: products of 8-bit floats have no batches; got 2; expected 1" in told[1]


@pytest.mark.parametrize("words, message", [(["nope.py"], "there is no such file; got 'nope.py'"), ([], "there is no program"), (["--entries", ",", "x.py"], "not names of entries; got ','"), (["--entries", "gpu.matmul:tile=16x16", "x.py"], "expected names without configurations"), (["--budget", "soon", "x.py"], "not a time; got 'soon'"),
                                            (["--export", "cudnn=x"], "no such export; got 'cudnn=x'; expected tunableop=FILE, hipblaslt=FILE, rocblas=FILE, aiter=FILE, miopen=FILE"), (["--problems", "nope.csv"], "there is no such file; got 'nope.csv'")])
def test_words_that_mean_nothing(tmp_path, words, message):
    ran = tune(tmp_path, *words)
    assert ran.returncode != 0 and message in ran.stderr


def test_rows_of_tunableop():
    """PyTorch's names for x @ w.t() of bfloat16: the second operand comes first."""
    from pyflame.tuning.exchange import product_of, tunableop_row

    text = "matmul(bfloat16(512, 4096), bfloat16(4096, 1024) strides (1, 4096)) precision=0 -> bfloat16(512, 1024)"
    assert tunableop_row(product_of(text), 5021, 43.1) == "GemmTunableOp_BFloat16_TN,tn_1024_512_4096_ld_4096_4096_1024,Gemm_Hipblaslt_5021,0.0431"
    batched = "matmul(float16(3, 8, 16), float16(3, 16, 4)) precision=0 -> float16(3, 8, 4)"
    assert tunableop_row(product_of(batched), -7, 1000) == "GemmStridedBatchedTunableOp_Half_NN,nn_4_8_16_B_3_ld_4_16_4,Gemm_Hipblaslt_-7,1"
    assert product_of("matmul(float32(2, 2), float32(2, 2)) precision=0 -> float32(2, 2) | relu(float32(2, 2)) -> float32(2, 2)") is None


RESULTS = """Validator,PT_VERSION,2.5.0
GemmTunableOp_BFloat16_TN,tn_1024_512_4096_ld_4096_4096_1024,Gemm_Hipblaslt_5021,0.0431
GemmTunableOp_float_NN,nn_96_64_32,Gemm_Hipblaslt_NN_7,0.01,ld_x
GemmTunableOp_BFloat16_TN,tn_4096_512_4096,Gemm_Rocblas_-1234,0.0431
GemmTunableOp_float_NN,nn_96_64_16,Gemm_Other_3,0.01
GemmTunableOp_float_NN,nn_96_64_16,Default,0.01
GemmTunableOp_float_NN,nn_96_64_16_ld_128_16_96,Gemm_Hipblaslt_9,0.01
GemmTunableOp_BFloat16_TN,tn_1024_512_4096,Gemm_Hipblaslt_5022,0.0400
"""


def test_measurements_of_other_software(tmp_path):
    from pyflame.benchmarking.gemms import Gemm
    from pyflame.tuning.imports import read

    def of(text):
        (tmp_path / "rows.csv").write_text(text)
        found, left = read(tmp_path / "rows.csv")
        return [(s.problem, s.candidate) for s in found], [line.split("rows.csv:")[1] for line in left]

    linear = Gemm(512, 1024, 4096, "bfloat16", "NT")
    found, left = of(RESULTS)
    assert found == [(linear, "gpu.blas:solution=5021"), (Gemm(64, 96, 32, "float32", "NN"), "gpu.blas:solution=7"), (Gemm(512, 4096, 4096, "bfloat16", "NT"), "rocm.rocblas:solution=-1234"), (linear, "gpu.blas:solution=5022")]
    assert [line.split(":")[0] for line in left] == ["5", "6", "7", "8"]
    for line, what in zip(left, ["Gemm_Other_3 is no kernel of hipBLASLt or rocBLAS", "the library's own choice", "padded rows; got leading dimensions 16 and 128; expected 16 and 96", "another row names gpu.blas:solution=5021"]):
        assert what in line, line
    names = "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,a_type,b_type,c_type,d_type,compute_type,hipblaslt-Gflops,solution_index,solution_name"
    assert of(f"Git Version: 1d2f3a4\n    {names}\n    T,N,0,1,1024,512,4096,1,4096,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,400.1,77,Cijk_name\n") == ([(linear, "gpu.blas:solution=77")], [])
    assert of("1d2f3a4\nT,N,1,1024,512,4096,bf16_r,bf16_r,bf16_r,f32_r,77,Cijk_name\nT,N,1,8,8,8,f16_r,f32_r,f32_r,f32_r,1,x\n") == (
        [(linear, "gpu.blas:solution=77")], ["3: operands of two dtypes; got f16_r and f32_r; expected one"])
    head = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
    found, left = of(head + "gfx942,304,512,1024,4096,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,13,0,9.9,x\n"
                     "gfx942,304,512,1024,4096,False,torch.bfloat16,torch.bfloat16,False,False,asm,13,0,9.9,x\n"
                     "gfx942,304,512,1024,4096,True,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,13,0,9.9,x\n"
                     "gfx942,304,512,1024,4096,False,torch.float8_e4m3fn,torch.bfloat16,False,False,hipblaslt,13,0,9.9,x\n")
    assert found == [(linear, "gpu.blas:solution=13")]
    assert ["a kernel of asm" in left[0], "with a bias" in left[1], "float8_e4m3fn" in left[2]] == [True] * 3
    head = "transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,comput_type,solution_index \n"
    found, left = of(head + "T, N, 1024,512,1,4096,1,0,4096,4096,1024,bf16_r,bf16_r,f32_r,3788 \nT,N,1024,512,1,4096,1,1,4096,4096,1024,bf16_r,bf16_r,f32_r,3788\n"
                     "T,N,1024,512,1,4096,1,0,4100,4096,1024,bf16_r,bf16_r,f32_r,3788\nT,N,1024,512,1,4096,1,0,4096,4096,1024,bf16_r,f32_r,f32_r,3788\n"
                     "T,N,1024,512,1,4096,1,0,4096,4096,1024,bf16_r,bf16_r,f32_r,-7\n")
    assert found == [(linear, "rocm.rocblas:solution=-3798")]
    assert ["with factors; got alpha 1 and beta 1" in left[0], "padded rows; got leading dimensions 4096 and 4100" in left[1], "operands of two dtypes" in left[2], "from 1 upwards; got '-7'" in left[3]] == [True] * 4
    assert "not a row that is understood" in of("1,2,3,4\n")[1][0] and "a row without a solution" in of("GemmTunableOp_float_NN,nn_96_64_16\n")[1][0]


PRODUCTS = [("matmul(bfloat16(512, 4096), bfloat16(4096, 1024) strides (1, 4096)) precision=0 -> bfloat16(512, 1024)", "gpu.blas:solution=5021"),  # x @ w.t()
            ("matmul(float32(3, 8, 16), float32(3, 16, 4)) precision=0 -> float32(3, 8, 4)", "gpu.blas:solution=12"),
            ("matmul(float16(8, 16) strides (32, 1), float16(16, 4) strides (1, 16)) precision=0 -> float16(8, 4)", "gpu.blas:solution=13"),  # padded rows
            ("matmul(float64(8, 16), float64(16, 4) strides (1, 16)) precision=0 -> float64(8, 4)", "gpu.blas:solution=0"),
            ("matmul(float32(8, 16), float32(16, 4)) precision=0 -> float32(8, 4)", "gpu.matmul"),
            ("matmul(float32(8, 16), float32(16, 4)) precision=0 -> float32(8, 4) | relu(float32(8, 4)) -> float32(8, 4)", "gpu.blas:solution=1")]


def exported(tmp_path, monkeypatch, kind, validators=None, products=PRODUCTS):
    """The lines that are written for these products, what is said, and what an import of the same file takes over."""
    from pyflame.tuning import exchange, imports
    from pyflame.tuning.database import Row, Tuned

    def tuned(problem, entry):
        row = Row("rocm", "", "matmul", problem, entry, 43.1, 0.01, 0.2, True, False, 0, 40.0, "", "")
        return Tuned("matmul", problem, None, row, 3, 0)

    monkeypatch.setattr(exchange, "problems", lambda: [tuned(*p) for p in products])
    said = []
    assert exchange.write(f"{kind}={tmp_path / 'out'}", validators, said.append) == 0
    found, left = imports.read(tmp_path / "out")
    assert left == []
    return (tmp_path / "out").read_text().splitlines(), "\n".join(said), [(str(s.problem), s.candidate) for s in found]


LINEAR = ("gemm 512x1024x4096 bfloat16 NT", "gpu.blas:solution=5021")


def test_export_of_hipblaslts_overrides(tmp_path, monkeypatch):
    (tmp_path / "theirs").write_text("Git Version: 1d2f3a4\n")
    lines, said, taken = exported(tmp_path, monkeypatch, "hipblaslt", tmp_path / "theirs")
    assert lines[:3] == ["Git Version: 1d2f3a4", "transA,transB,batch_count,m,n,k,a_type,b_type,c_type,compute_type,solution_index",
                         "T,N,1,1024,512,4096,bf16_r,bf16_r,bf16_r,f32_r,5021"]
    assert lines[4] == "N,N,3,4,8,16,f32_r,f32_r,f32_r,f32_r,12" and len(lines) == 5
    assert taken == [LINEAR, ("gemm 3x8x4x16 float32 NN", "gpu.blas:solution=12")]
    assert "2 products are in" in said and "1 products are not: those whose operands have padded rows" in said
    assert "those whose kernel has no number above 0" in said and "Git Version" not in said
    lines, said, _ = exported(tmp_path, monkeypatch, "hipblaslt")
    assert lines[0].startswith("transA") and "no line 'Git Version: …'" in said


def test_export_of_rocblas(tmp_path, monkeypatch):
    """Its override file counts Tensile's kernels from 1; TunableOp has rocBLAS's own numbers."""
    linear = PRODUCTS[0][0]
    products = [(linear, "rocm.rocblas:solution=-3798"), (PRODUCTS[1][0], "rocm.rocblas:solution=12"), (PRODUCTS[3][0], "rocm.rocblas:solution=-10"), (PRODUCTS[4][0], "gpu.blas:solution=5")]
    lines, said, taken = exported(tmp_path, monkeypatch, "rocblas", products=products)
    assert lines == ["transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index", "T,N,1024,512,1,4096,1,0,4096,4096,1024,bf16_r,bf16_r,f32_r,3788"]
    assert taken == [(LINEAR[0], "rocm.rocblas:solution=-3798")] and "1 products are in" in said
    assert "2 products are not: those whose fastest kernel is one of hipBLASLt" in said and "1 products are not: those whose kernel is none of Tensile" in said
    lines, _, taken = exported(tmp_path, monkeypatch, "tunableop", products=products[:1])
    assert lines[-1].split(",")[2] == "Gemm_Rocblas_-3798" and taken == [(LINEAR[0], "rocm.rocblas:solution=-3798")]
    for kind in ("hipblaslt", "aiter"):
        assert "1 products are not: those whose fastest kernel is one of rocBLAS" in exported(tmp_path, monkeypatch, kind, products=products[:1])[1]


def test_export_of_aiters_table(tmp_path, monkeypatch):
    from pyflame.tuning import exchange

    monkeypatch.setattr(exchange, "_gpu", lambda: ("gfx942", 304))
    lines, said, taken = exported(tmp_path, monkeypatch, "aiter")
    assert lines[0] == "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw"
    assert lines[1:] == ["gfx942,304,512,1024,4096,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,5021,0,43.1000,,0.0,99.65,316.28"]
    assert taken == [LINEAR]
    for what in ("1 products are in", "those that are batched", "those of float64", "those that are not a @ weight.T with rows that are not padded", "those with other ops fused to them"):
        assert what in said
    monkeypatch.setattr(exchange, "_gpu", lambda: None)
    lines, said, _ = exported(tmp_path, monkeypatch, "aiter")
    assert lines[1].startswith(",,512,1024") and "no AMD GPU is here, so the columns gfx and cu_num are empty" in said


@pytest.mark.parametrize("words, message", [
    (["--export", "csv=x"], "no such export; got 'csv=x'; expected tunableop=FILE, "),
    (["--export", "tunableop=none/x"], "the file of --export cannot be written; got 'none/x'; expected a file in a folder that exists and can be written"),
    (["--export", "tunableop=x", "--validators", "none"], "the file of --validators does not exist; got 'none'; expected a file with lines about versions")])
def test_exports_that_cannot_be_written(tmp_path, words, message):
    """They are refused before anything is measured."""
    (tmp_path / "program.py").write_text("raise RuntimeError('the program ran')\n")
    for more in ([], ["--", "program.py"]):
        ran = tune(tmp_path, *words, *more)
        assert ran.returncode == 1 and ran.stderr.startswith("pyflame tune: " + message) and ran.stderr.count("\n") == 1, ran.stderr


def test_an_import_on_a_device_without_the_library(tmp_path):
    (tmp_path / "rows.csv").write_text("GemmTunableOp_float_NN,nn_96_64_32,Gemm_Hipblaslt_7,0.01\n")
    ran = tune(tmp_path, "--import", "rows.csv", "--budget", "20")
    assert ran.returncode == 0, ran.stderr
    assert "rows.csv:1: gemm 64x96x32 float32 NN, solution=7: it was not measured" in ran.stdout and "rows: 1 unknown" in ran.stdout
    missing = tune(tmp_path, "--import", "none.csv")
    assert missing.returncode == 1 and "there is no such file; got 'none.csv'; expected measurements of other software" in missing.stderr
