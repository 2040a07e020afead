"""The cache of programs is bounded: in programs (PYFLAME_CACHE_SIZE) and in ops (PYFLAME_CACHE_OPS), because a program's memory grows with its ops."""
import json
import os
import subprocess
import sys

PROGRAM = """
import json
import pyflame as pf

def run(size, ops):
    x = pf.ones(size)
    for _ in range(ops):
        x = x.sin()
    x.numpy()
    return pf.program_cache_stats()

pf.clear_program_cache()
rows = [run(n, 10) for n in range(1, 41)]
rows += [run(40, 10), run(1, 10), run(50, 200)]
pf.clear_program_cache()
print(json.dumps([*rows, pf.program_cache_stats()]))
"""


def stats_with(**variables):
    env = {**os.environ, "PYFLAME_WINDOW": "0", **variables}
    return json.loads(subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True, timeout=100).stdout)


def test_programs_are_kept_up_to_a_number_of_ops():
    *rows, newest, oldest, large, cleared = stats_with(PYFLAME_CACHE_OPS="100")
    each = rows[0]["ops"]
    assert 10 <= each <= 20
    assert [r["ops"] for r in rows] == [each * min(n, 100 // each) for n in range(1, 41)]
    assert rows[-1]["programs"] == 100 // each and rows[-1]["evictions"] == 40 - 100 // each
    assert newest["misses"] == rows[-1]["misses"] and oldest["misses"] == newest["misses"] + 1  # those that were used last are kept
    assert large["programs"] == 1 and large["ops"] >= 200  # the newest is kept in any case
    assert cleared["programs"] == cleared["ops"] == 0


def test_programs_are_kept_up_to_a_number_of_programs():
    *rows, _, _, _, cleared = stats_with(PYFLAME_CACHE_SIZE="5")
    assert [r["programs"] for r in rows] == [min(n, 5) for n in range(1, 41)]
    assert [r["ops"] for r in rows] == [rows[0]["ops"] * min(n, 5) for n in range(1, 41)]
    assert cleared["ops"] == 0
