"""Tuning on a device, from the search at a program's first run to the runs of the program with the winner. The emulator makes the kernels
of one implementation slow, so the winner does not depend on this machine's speed."""
import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

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
    steps = re.findall(r"^ +step \d+: (\S+)\n(?:[^\n]*expected[^\n]*\n)? +matmul\(", text, re.MULTILINE)
    assert len(steps) == 1, text
    return steps[0]


def test_the_faster_implementation_takes_over(program):
    slow = {"PYFLAME_EMULATOR_SLOW_KERNEL": "gemv:50"}
    assert chosen(program.run(PRODUCT, **slow)) == "gpu.gemv"  # no search without a budget
    text = program.run(PRODUCT, PYFLAME_TUNE_BUDGET_MS="60000", **slow)
    times = measured(program.cache / "choices.sqlite")
    assert times["gpu.gemv"] >= 50_000 > times["gpu.matmul"]
    assert chosen(text).startswith("gpu.matmul")
    assert chosen(program.run(PRODUCT, **slow)).startswith("gpu.matmul")  # another process reads the measurement


def test_the_first_implementation_stays_where_it_is_faster(program):
    text = program.run(PRODUCT, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_EMULATOR_SLOW_KERNEL="matmul:50")
    times = measured(program.cache / "choices.sqlite")
    assert times["gpu.matmul"] >= 50_000 > times["gpu.gemv"]
    assert chosen(text) == "gpu.gemv"


# The emulator's hipBLASLt recommends three kernels, of which the last one computes twice the product.
LIBRARY = """
a, b = (((pf.arange(0, 65536) * step) % 7 - 3).reshape(*shape).to(pf.bfloat16).to('rocm') for step, shape in ((3, (16, 4096)), (5, (4096, 16))))
pf.synchronize()
expected = pf.matmul(a.to('cpu'), b.to('cpu')).to(pf.float32)
def product():
    assert (pf.matmul(a, b).to('cpu').to(pf.float32) - expected).abs().max().item() <= expected.abs().max().item() / 100
for run in range(3):
    product()
print(pf.explain(product))
"""


def with_libraries(program):
    """Folders with the emulated run time and with libraries that work."""
    return f"{program.libraries}:{program.libraries}/working"


def test_a_kernel_of_a_library_that_computes_something_else_never_wins(program):
    program.libraries = with_libraries(program)
    text = program.run(LIBRARY, PYFLAME_TUNE_BUDGET_MS="60000")
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = {entry: (sound, note) for entry, sound, note in db.execute("select entry, sound, note from measurements")}
    assert found["gpu.blas"][0] == 1 and found["gpu.blas:solution=102"][0] == 1
    sound, note = found["gpu.blas:solution=103"]
    assert sound == 0 and "its result differs" in note
    assert any(entry.startswith("gpu.matmul_units:tile=") for entry in found)
    assert "solution=103" not in chosen(text)


def test_kernels_that_a_library_does_not_recommend_come_last(program):
    """Of the emulator's hipBLASLt: 101 to 103 are recommended, and the enumeration goes up to 108."""
    program.libraries = with_libraries(program)
    program.run(LIBRARY, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_TUNE_ENTRIES="gpu.blas")
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = {entry: (sound, note) for entry, sound, note in db.execute("select entry, sound, note from measurements")}
    kernels = {int(entry.split("=")[1]) for entry in found if ":solution=" in entry}
    assert kernels == {102, 103, 104, 107, 108}  # 101 is the first choice; 105 needs too much workspace, 106 computes other products
    assert found["gpu.blas:solution=104"][0] == found["gpu.blas:solution=108"][0] == 1
    assert found["gpu.blas:solution=107"] == (0, "matmul: hipblaslt refused the product; got status 7 for 16 x 4096 x 16 of bfloat16")


# After its own choice and two recommended kernels, eight of the budget's candidates are left, of which a quarter goes to the three others.
SHARE = LIBRARY.partition("def product")[0] + """
pf._C._count_candidates_as_milliseconds(True)
with pf.tuning.measure(budget=11 / 1000, entries=['gpu.blas']) as done:
    (a @ b).tolist()
assert done()['spent_ms'] == 5, done()
with pf.tuning.measure(budget=2 / 1000, entries=['gpu.blas']) as done:  # what was not tried is tried later
    (a @ b).tolist()
print(done()['entries'], *(row.entry for row in pf.tuning.rows()))
"""


def test_kernels_that_are_not_recommended_get_a_share_of_the_budget(program):
    program.libraries = with_libraries(program)
    entries, *found = program.run(SHARE).split()
    assert entries == "2"
    assert {int(name.split("=")[1]) for name in found if "=" in name} == {102, 103, 104, 107, 108}


# Three of the kernels are recommended, and of the other ones 105 needs too much workspace, 106 computes other products, and 107 fails.
MANY = """
a, b = (pf.ones(*shape, device='rocm').bfloat16() for shape in ((8, 896), (896, 8)))
pf.synchronize()
pf._C._count_candidates_as_milliseconds(True)
def search(budget, **options):
    with pf.tuning.measure(budget=budget / 1000, entries=['gpu.blas'], **options) as done:
        (a @ b).tolist()
    numbers = [int(row.entry.partition('=')[2]) for row in pf.tuning.rows() if '=' in row.entry]
    assert len(set(numbers)) == len(numbers)
    print(done()['entries'], len(numbers), done()['algorithms_left'], max(numbers))
"""


def searches(program, kernels, text):
    """What MANY printed of each search: the candidates, including the step's own; the numbered kernels that were measured so far; how many were not looked at; the largest number."""
    program.libraries = with_libraries(program)
    lines = program.run(MANY + text, PYFLAME_EMULATOR_KERNELS=str(kernels), PYFLAME_EMULATOR_MEMORY="64M").splitlines()
    return [[int(word) for word in line.split()] for line in lines if line[:1].isdigit()], lines[-1]


def test_a_long_budget_goes_on_behind_the_usual_number_of_algorithms(program):
    """Beyond 256, one problem gets a sixteenth of the budget that is left."""
    found, said = searches(program, 320, "search(2000)\nsearch(1)\nsearch(321)\nsearch(100000)\nsearch(100)\nprint(pf.tuning.table().splitlines()[-1])")
    usual, none, some, rest, nothing = found
    assert usual[:2] == [1 + 2 + 256, 2 + 256] and 0 < usual[2] <= 317 - 256 and usual[3] > 400, usual
    assert none[:3] == [1, *usual[1:3]]  # the step's own entry alone
    assert some[:2] == [1 + 20, 258 + 20] and some[2] < usual[2], some
    assert rest[1:] == [320 - 3, 0, 420], rest  # all but the first choice and two that compute something else
    assert nothing[:3] == [0, 317, 0], nothing
    assert said == "of 317 algorithms that gpu.blas enumerates for 1 problem, 315 were tried, 2 do not compute the problem"


def test_all_algorithms_of_a_library_can_be_tried(program):
    found, said = searches(program, 300, "search(280, all_algorithms=True)\nprint(pf.tuning.table().splitlines()[-1])")
    assert found[0][:2] == [280, 279] and found[0][2] > 0, found
    left = found[0][2]
    assert said == f"of 297 algorithms that gpu.blas enumerates for 1 problem, 277 were tried, {297 - 277 - left} do not compute the problem, and {left} are left; hint: --all-algorithms tries all"
    program.libraries = with_libraries(program)
    again, _ = searches(program, 300, "search(280, all_algorithms=True)")  # another process goes on
    assert again[0][1:] == [297, 0, 400], again


def test_what_was_measured_before_a_kernel_that_ends_the_process_is_kept(program):
    program.libraries = with_libraries(program)
    process = program.start(LIBRARY, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_TUNE_ENTRIES="gpu.blas", PYFLAME_EMULATOR_LAST_SOLUTION="104")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 3, out + err
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = {entry: (sound, us < 1e29, note) for entry, sound, us, note in db.execute("select entry, sound, us, note from measurements")}
    assert found["gpu.blas"][:2] == found["gpu.blas:solution=102"][:2] == (1, True)
    assert found["gpu.blas:solution=104"] == (0, False, "the process ended while this was measured")


def test_a_kernel_that_is_not_recommended_can_be_forced(program):
    program.libraries = with_libraries(program)
    name = "gpu.blas:solution=108"
    assert chosen(program.run(LIBRARY, PYFLAME_FORCE=f"matmul:{name}")) == name
    text = program.run("""
a, b = (pf.ones(*shape, device='rocm').bfloat16() for shape in ((16, 4096), (4096, 16)))
pf.synchronize()
for number in (105, 106, 109):
    with pf.tuning.force('matmul', f'gpu.blas:solution={number}'):
        print(refused(ValueError, lambda: pf.matmul(a, b).tolist()))
""")
    for number in (105, 106, 109):
        assert f"hipblaslt has no such algorithm for this product; got 'solution={number}'" in text


def test_a_library_without_an_enumeration_says_so_once(program):
    program.libraries = f"{program.libraries}:{program.libraries}/old"
    again = LIBRARY.replace("4096", "2048").replace("65536", "32768")  # another product
    process = program.start(LIBRARY + again, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_TUNE_ENTRIES="gpu.blas")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert err.count("hipblaslt lacks hipblaslt_ext::") == 1 and err.count("are measured that its heuristic recommends") == 1, err
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = sorted(entry for entry, in db.execute("select entry from measurements where entry like '%solution=%'"))
    assert found == ["gpu.blas:solution=102", "gpu.blas:solution=102", "gpu.blas:solution=103", "gpu.blas:solution=103"]


def test_a_wrong_kernel_of_bfloat16_that_computes_already_is_found(program):
    """What the reference implementation computes is what counts, not what the chosen kernel does: it alone is refused, and the others stay."""
    program.libraries = with_libraries(program)
    program.run(LIBRARY, PYFLAME_TUNE_BUDGET_MS="60000")
    wrong = "gpu.blas:solution=103"
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db, db:  # as if it had been found to be right and the fastest, and nothing else had been measured
        db.execute("delete from measurements where entry != ?", (wrong,))
        assert db.execute("update measurements set sound = 1, us = 0.001, note = ''").rowcount == 1
    _, said = program.start(LIBRARY, PYFLAME_TUNE_BUDGET_MS="60000").communicate(timeout=300)
    assert f"pyflame: {wrong} computes something else than the reference implementation" in said and "matmul(bfloat16(16, 4096)" in said
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = {entry: (sound, note) for entry, sound, note in db.execute("select entry, sound, note from measurements")}
    assert len(found) > 2 and [entry for entry, (sound, note) in found.items() if not sound and "refused" not in note] == [wrong]


# The same product with a bias, in one kernel.
EPILOGUE = LIBRARY.partition("expected =")[0] + """
bias = pf.arange(-8, 8).to(pf.bfloat16).to('rocm') * 4
expected = (pf.matmul(a.to('cpu'), b.to('cpu')) + bias.to('cpu')).to(pf.float32)
pf.synchronize()
def product():
    assert ((pf.matmul(a, b) + bias).to('cpu').to(pf.float32) - expected).abs().max().item() <= expected.abs().max().item() / 100
for run in range(3):
    product()
"""


def test_a_wrong_kernel_with_an_epilogue_that_computes_already_is_found(program):
    """A sample of elements in double precision says what is right where the reference implementation has no bound."""
    program.libraries = with_libraries(program)
    program.run(EPILOGUE, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_TUNE_ENTRIES="gpu.blas")
    wrong = "gpu.blas:solution=103"
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db, db:
        sound, note = db.execute("select sound, note from measurements where entry = ? and problem like '%| add(%'", (wrong,)).fetchone()
        assert sound == 0 and re.search(r"its result differs by .* times what is allowed: got \S+ at \(\d+, \d+\); expected \S+ to within", note), note
        db.execute("delete from measurements where entry != ?", (wrong,))
        db.execute("update measurements set sound = 1, us = 0.001, note = ''")
    _, said = program.start(EPILOGUE, PYFLAME_TUNE_BUDGET_MS="60000", PYFLAME_TUNE_ENTRIES="gpu.blas").communicate(timeout=300)
    assert re.search(rf"pyflame: {wrong} is wrong in matmul\(.*\| add\(.*: got \S+ at \(\d+, \d+\); expected \S+ to within \S+ \(computed in double precision\); another implementation computes it", said), said
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db:
        found = {entry: (sound, note) for entry, sound, note in db.execute("select entry, sound, note from measurements where problem like '%| add(%'")}
    assert len(found) > 1 and [entry for entry, (sound, note) in found.items() if not sound and "refused" not in note] == [wrong], found


def test_an_implementation_can_be_forced(program):
    program.libraries = with_libraries(program)
    name = "gpu.matmul_units:tile=64x64,splits=2"
    assert chosen(program.run(LIBRARY, PYFLAME_FORCE=f"matmul:{name}")) == name
    assert chosen(program.run(LIBRARY, PYFLAME_FORCE="matmul:gpu.matmul_units")) == "gpu.matmul_units"


# Integers whose sums are exact in bfloat16. Every configuration that is no mere split computes the product in several layouts; the
# last columns and the last terms fill no tile.
CONFIGURATIONS = """
import numpy as np
numbers = np.random.default_rng(0)
rows, columns, depth = 300, 200, 328
def matrix(shape, transposed):
    values = numbers.integers(-1, 2, shape).astype(np.float32)
    x = pf.tensor(values).to(pf.bfloat16).to('rocm')
    return values, pf.tensor(values.T.copy()).to(pf.bfloat16).to('rocm').t() if transposed else x
names = set()
for a_turned, b_turned in ((False, True), (True, False)):
    (a, da), (b, db) = matrix((rows, depth), a_turned), matrix((depth, columns), b_turned)
    expected = np.maximum(a @ b, 0)
    def product():
        return pf.relu(pf.matmul(da, db)).to(pf.float32).numpy(force=True)
    try:
        with pf.tuning.force('matmul', 'gpu.matmul_units:none'):
            product()
        raise AssertionError('no error')
    except pf.ArgumentError as e:
        known = [word for word in str(e).split('expected one of ')[1].split() if word.startswith('tile=')]
    for name in known:
        if 'splits=1,' in name:
            with pf.tuning.force('matmul', 'gpu.matmul_units:' + name):
                assert (product() == expected).all(), name
            names.add(name)
print(*sorted(names))
"""


@pytest.mark.parametrize("architecture, with_dies, streams, large", (("gfx942", True, 4, True), ("gfx1100", False, 8, False)))
def test_every_configuration_of_the_matrix_cores_is_right(program, architecture, with_dies, streams, large):
    """The emulated Instinct has four compute units on two dies; on Radeon HIP counts pairs of compute units. Waves of 32 on RDNA have too
    few registers for blocks of 64 x 64."""
    names = program.run(CONFIGURATIONS, PYFLAME_EMULATOR_ARCH=architecture).split()
    assert any("stages=2" in n for n in names) and any("waves=4" in n for n in names)
    assert any(f"streams={streams}" in n for n in names)
    assert any("dies=2" in n for n in names) == with_dies
    assert any(n.startswith("tile=256x128") for n in names) == large


NEAR = """
a, b = (((pf.arange(0, 65536) * step) % 7 - 3).reshape(*shape).to(pf.float32).to('rocm') for step, shape in ((3, (16, 4096)), (5, (4096, 16))))
pf.synchronize()
expected = pf.matmul(a.to('cpu'), b.to('cpu')).tolist()
for splits in (1, 3, 6):
    with pf.tuning.force('matmul', f'gpu.matmul:tile=16x16,splits={splits}'):
        assert pf.matmul(a, b).tolist() == expected
        assert f'splits={splits}' in str(pf.explain(lambda: pf.matmul(a, b)))
with pf.tuning.measure(budget=120, entries=['gpu.matmul']) as done:
    assert pf.matmul(a, b).tolist() == expected
assert done()['unsound'] == 0 and done()['neighbours'] > 0, done()
print(*sorted(row.entry for row in pf.tuning.rows()))
"""


def test_splits_near_the_fastest_are_measured(program):
    """The list has powers of two. Whichever is the fastest, some numbers near it are not in the list."""
    splits = {int(name.rpartition("splits=")[2]) for name in program.run(NEAR).split() if "splits=" in name}
    assert splits - {1, 2, 4, 8, 16}, splits


# With a budget for its own choice and three candidates, which are counted instead of timed.
FEW = """
pf._C._count_candidates_as_milliseconds(True)
tried = {}
for rows, depth, columns in ((16, 4096, 16), (192, 32, 160)):
    a, b = (pf.ones(*shape, device='rocm') for shape in ((rows, depth), (depth, columns)))
    pf.synchronize()
    before = {row.entry for row in pf.tuning.rows()}
    try:
        with pf.tuning.force('matmul', 'gpu.matmul:none'):
            (a @ b).tolist()
        raise AssertionError('no error')
    except pf.ArgumentError as e:
        known = [word.rstrip(';') for word in str(e).split('expected one of ')[1].split() if word.startswith('tile=')]
    with pf.tuning.measure(budget=4 / 1000, entries=['gpu.matmul']) as done:
        (a @ b).tolist()
    assert done()['entries'] == 4, done()
    print(*known[:3])
    print(*sorted(row.entry.partition(':')[2] for row in pf.tuning.rows() if row.problem.startswith(f'matmul(float32({rows},') and ':' in row.entry))
"""


def test_a_small_budget_goes_to_the_best_by_the_estimate(program):
    first, tried, first_of_large, tried_of_large = (line.split() for line in program.run(FEW).splitlines())
    assert len(first) == 3 and set(first) == set(tried) and set(first_of_large) == set(tried_of_large)
    # Long sums of few results are split, short ones of many are not.
    assert int(first[0].rpartition("splits=")[2]) > 1, first
    assert first_of_large[0].endswith("splits=1"), first_of_large


# With a budget for its own choice and two candidates of each of these. An error names all configurations in the order of the estimate.
TWO = """
pf._C._count_candidates_as_milliseconds(True)
def search(op, entry, compute):
    try:
        with pf.tuning.force(op, entry + ':none'):
            compute()
        raise AssertionError('no error')
    except pf.ArgumentError as e:
        known = [word.rstrip(';') for word in str(e).split('expected one of ')[1].split() if '=' in word]
    with pf.tuning.measure(budget=3 / 1000, entries=[entry]) as done:
        compute()
    assert done()['entries'] == 3, done()
    print(*known)
    print(*(row.entry.partition(':')[2] for row in pf.tuning.rows() if row.entry.startswith(entry + ':')))
x = pf.ones(65536, 16, device='rocm')
q, k = (pf.ones(1, 2, rows, 64, device='rocm').bfloat16() for rows in (64, 2048))
pf.synchronize()
search('sum', 'gpu.loop', lambda: x.sum(0).tolist())
search('attention', 'gpu.attention', lambda: pf.nn.functional.scaled_dot_product_attention(q, k, k).tolist())
"""


def test_a_small_budget_goes_to_the_best_estimates_of_loops_and_attention(program):
    loops, tried_loops, attention, tried_attention = (line.split() for line in program.run(TWO).splitlines())
    assert len(loops) > 2 and set(tried_loops) == set(loops[:2]), (loops, tried_loops)
    assert len(attention) > 2 and set(tried_attention) == set(attention[:2]), (attention, tried_attention)
    splits = [int(name.rpartition("splits=")[2]) for name in attention]
    assert splits[0] > 1 and splits[-1] == 1, attention  # without splits, two workgroups would visit all keys


# A softmax of rows, a sum of columns and a chain of elementwise ops, each large enough to be measured, and a small loop.
LOOPS = """
values = ((pf.arange(0, 300000) % 17 - 8) / 4).to(pf.float32).reshape(300, 1000)
x, small = values.to('rocm'), values[:8].to('rocm')
pf.synchronize()
def softmax(t):
    e = (t - t.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)
def columns(t):
    return t.sum(0)
def chain(t):
    return pf.relu(t * 2 + t)
expected = {f: f(values) for f in (softmax, columns, chain)}
def compute():
    for f, e in expected.items():
        assert (f(x).to('cpu') - e).abs().max().item() < 1e-4
    chain(small).to('cpu')
def show():
    for f in expected:
        print(pf.explain(lambda: f(x)))
"""
MEASURED = LOOPS + """
with pf.tuning.measure(budget=200) as done:
    for run in range(2):
        compute()
assert done()['unsound'] == 0, pf.tuning.table()
for row in pf.tuning.rows():
    if row.entry.startswith('gpu.'):  # the operands are made on the CPU, whose loops are measured, too
        print(row.op, row.entry)
"""


def loops_of(text):
    return re.findall(r"^ +step \d+: (gpu\.loop[:\w=,]*?)(?:, | *$)", text, re.MULTILINE)


@pytest.mark.parametrize("architecture", ("gfx942", "gfx1100"))
def test_loops_are_measured_and_the_next_process_has_the_fastest(program, architecture):
    """The times are written by hand: those of the emulator say nothing."""
    arch = {"PYFLAME_EMULATOR_ARCH": architecture}
    found = program.run(MEASURED, **arch).splitlines()
    assert {line.split()[0] for line in found} == {"amax", "sum", "mul"}
    assert {"amax gpu.loop", "amax gpu.loop:lanes=16", "amax gpu.loop:lanes=256", "mul gpu.loop", "mul gpu.loop:vector=4,each=2"} <= set(found)
    assert any(line.startswith("sum gpu.loop:across=") for line in found)
    assert set(loops_of(program.run(LOOPS + "show()", PYFLAME_TUNED="0", **arch))) == {"gpu.loop"}
    with contextlib.closing(sqlite3.connect(program.cache / "choices.sqlite")) as db, db:
        db.execute("update measurements set us = 100, warm_us = 0, spread = 0")
        for entry in ("gpu.loop:lanes=16", "gpu.loop:vector=4,each=2"):
            db.execute("update measurements set us = 50 where entry = ?", (entry,))
        columns, = db.execute("select entry from measurements where op = 'sum' and entry like '%:across=16%'").fetchone()
        db.execute("update measurements set us = 50 where entry = ?", (columns,))
    text = program.run(LOOPS + "compute()\nshow()", **arch)
    assert loops_of(text) == ["gpu.loop:lanes=16", columns, "gpu.loop:vector=4,each=2"], text


# The product alone has the configuration vector=8,each=4; what follows it needs registers, too.
FORCED = """
x = pf.ones(300, 1000, device='rocm')
pf.synchronize()
def loop():
    return pf.nn.functional.gelu(x * 2) + x
with pf.tuning.force('mul', 'gpu.loop:vector=8,each=4'):
    print(refused(pf.ArgumentError, lambda: loop().tolist()))
    assert (x * 2).to('cpu')[0, 0].item() == 2
with pf.tuning.force('mul', 'gpu.loop:vector=4,each=1'):
    print(pf.explain(loop))
"""


def test_a_configuration_that_the_fused_loop_has_not_is_an_error(program):
    text = program.run(FORCED)
    assert "mul: no such configuration of a loop that begins with it; got 'vector=8,each=4'; expected one of " in text
    assert loops_of(text) == ["gpu.loop:vector=4,each=1"]


# The interpreter is compiled before the loop that is measured, whose own compilation takes a second more.
STAND_IN = """
import pathlib, time
small = pf.arange(0, 64).to(pf.float32).to('rocm')
(small * 3 - 1).tolist()
while len(list(pathlib.Path(os.environ['PYFLAME_CACHE_DIR']).rglob('*.bin'))) < 2:
    time.sleep(0.01)
x = (pf.arange(0, 140000) % 17).to(pf.float32).to('rocm')
pf.synchronize()
with pf.tuning.measure(budget=100):
    pf.tanh(x).to('cpu')
for row in pf.tuning.rows():
    print(row.entry, row.us)
"""


def test_a_loop_is_timed_without_the_interpreter(program, tmp_path):
    """The emulator makes the interpreter slow, so a time would show that it ran."""
    found = program.run(STAND_IN, PYFLAME_INTERPRET="1", PYFLAME_EMULATOR_SLOW_KERNEL="rounded:2000", PYFLAME_EMULATOR_SLOW_COMPILE=f"pf_loop_tanh:1:{tmp_path / 'begun'}")
    times = dict(line.split() for line in found.splitlines())
    assert len(times) > 1 and all(float(us) < 2_000_000 for us in times.values()), times


def test_measurements_of_other_software_are_checked(program, tmp_path):
    """Of these kernels 102 computes the product, 103 twice the product, and 999 does not exist."""
    command = shutil.which("pyflame", path=os.path.dirname(sys.executable))
    if command is None:
        pytest.skip("the program pyflame is not installed")
    program.libraries = with_libraries(program)
    rows = (f"GemmTunableOp_BFloat16_NN,nn_{n}_16_4096,Gemm_Hipblaslt_{solution},0.01\n" for n, solution in ((16, 102), (32, 103), (48, 999)))
    (tmp_path / "theirs.csv").write_text("".join(rows))
    ran = subprocess.run([command, "tune", "--python", sys.executable, "--import", "theirs.csv", "--device", "rocm", "--budget", "60"], env=program.environment(), cwd=tmp_path,
                         capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    first, second, third = [line for line in ran.stdout.splitlines() if line.startswith("theirs.csv:")]
    assert " us" in first and "refused" not in first
    assert "refused: its result differs" in second
    assert "refused: matmul: " in third and "has no such algorithm" in third
    assert "gpu.matmul" not in ran.stdout, "other candidates are not measured"
