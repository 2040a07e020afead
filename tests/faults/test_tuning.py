"""Tuning on a device, from the search at a program's first run to the runs of the program with the winner. The emulator makes the kernels
of one implementation slow, so the winner does not depend on this machine's speed."""
import contextlib
import re
import sqlite3

# A matrix times one vector. The list of implementations begins with gpu.gemv, and gpu.matmul accepts the problem as well.
PRODUCT = """
a, x = ((pf.arange(0, n) % 7 - 3).to(pf.float32).reshape(*shape).to('rocm') for n, shape in ((4096, (64, 64)), (64, (64, 1))))
pf.synchronize()
expected = pf.matmul(a.to('cpu'), x.to('cpu')).tolist()
def product():
    assert pf.matmul(a, x).tolist() == expected
for run in range(4):
    product()
print(pf.explain(product))
"""


def measured(path):
    """The implementations in the file of measurements, with their times in microseconds."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return dict(db.execute("select entry, us from measurements").fetchall())


def chosen(text):
    """The implementation of the matmul in what pf.explain printed."""
    steps = re.findall(r"^ +step \d+: (\S+)\n +matmul\(", text, re.MULTILINE)
    assert len(steps) == 1, text
    return steps[0]


def test_the_faster_implementation_takes_over(program):
    slow = {"PYFLAME_EMULATOR_SLOW_KERNEL": "gemv:50"}
    assert chosen(program.run(PRODUCT, **slow)) == "gpu.gemv"  # no search without a budget
    text = program.run(PRODUCT, PYFLAME_TUNE_BUDGET_MS="60000", **slow)
    times = measured(program.cache / "choices.sqlite")
    assert times["gpu.gemv"] >= 50_000 > times["gpu.matmul"]
    assert chosen(text) == "gpu.matmul"
    assert chosen(program.run(PRODUCT, **slow)) == "gpu.matmul"  # another process reads the measurement


def test_the_first_implementation_stays_where_it_is_faster(program):
    text = program.run(PRODUCT, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_EMULATOR_SLOW_KERNEL="matmul:50")
    times = measured(program.cache / "choices.sqlite")
    assert times["gpu.matmul"] >= 50_000 > times["gpu.gemv"]
    assert chosen(text) == "gpu.gemv"
