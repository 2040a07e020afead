"""The part of the case tables that a run takes: every kind of test, op and dtype each time, every case within five days, the same again for the
same number."""
import importlib.util
import pathlib
import subprocess
import sys
import types

import pytest

CONFTEST = pathlib.Path(__file__).resolve().parents[1] / "ops" / "conftest.py"
spec = importlib.util.spec_from_file_location("rotation", CONFTEST)
rotation = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rotation)


class Item:
    def __init__(self, test, case=None):
        self.nodeid, self.kind = test, (test,)
        if case:
            op, number, dtype = case
            name = f"{op}-{number}-{dtype}"
            self.nodeid, self.kind = f"{test}[{name}]", (test, op, dtype)
            self.function = types.SimpleNamespace(__name__=test)
            case = types.SimpleNamespace(name=name, functions=[op], ops=[op], inputs=[types.SimpleNamespace(dtype=dtype)])
            self.callspec = types.SimpleNamespace(params={"case": case})


CASES = [(op, n, dtype) for op in ("exp", "mul") for dtype in ("float32", "int64") for n in range(40)]
ITEMS = [Item("test_values", c) for c in CASES] + [Item("test_gradient", c) for c in CASES if c[2] == "float32"] + [Item("test_the_table")]
KINDS = {item.kind for item in ITEMS}


def test_without_a_number_all_run():
    assert rotation.chosen(ITEMS, 0, None) == set(ITEMS)


def test_five_days_are_all_cases_and_each_day_has_every_kind():
    days = [rotation.chosen(ITEMS, 0, day) for day in range(20000, 20005)]
    assert set.union(*days) == set(ITEMS)
    assert all({item.kind for item in day} == KINDS for day in days)
    core = set.intersection(*days)
    assert len(core) == len(KINDS) and {item.kind for item in core} == KINDS
    assert all(len(ITEMS) / 5 * 0.6 < len(day) < len(ITEMS) / 5 * 1.6 for day in days)


def test_the_same_number_is_the_same_run():
    assert rotation.chosen(ITEMS, 0, 7) == rotation.chosen(ITEMS, 0, 12) != rotation.chosen(ITEMS, 0, 8)


def test_some_of_each_kind():
    names = rotation.chosen(ITEMS, 3, None)
    assert len(names) == 3 * (len(KINDS) - 1) + 1
    assert rotation.spread(["a"], 3) == ["a"] and rotation.spread(list("abcdef"), 2) == ["b", "e"]


def test_a_part_of_them():
    some = rotation.chosen(ITEMS, 1, None)
    first, second = (rotation.chosen(ITEMS, 1, None, (day, 2)) for day in (20781, 20782))
    assert first | second == some and not first & second
    assert rotation.part_of("3/2") == (3, 2)
    for text in ("2", "1/0", "a/b"):
        with pytest.raises(ValueError, match=f"PYFLAME_TEST_PART: this is no part; got '{text}'; expected k/m"):
            rotation.part_of(text)


def test_the_run_says_its_number(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n):\n    pass\n")
    r = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path], capture_output=True, text=True,
                       env={"PYFLAME_TEST_ROTATION": "20000"})
    assert r.returncode == 0 and "cases of ops: 3 of 3, PYFLAME_TEST_ROTATION=20000 (make test-full: all)" in r.stdout, r.stdout + r.stderr
