"""docs/footguns.md and test_footguns.py say the same: an entry for each test, a test for each entry, and in each entry a block that
`make docs-check` runs and that claims something."""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import run_doc_blocks  # noqa: E402

PAGE = (ROOT / "docs" / "footguns.md").read_text(encoding="utf-8")


def test_name(title):
    return "test_" + "_".join(re.findall(r"[a-z0-9_]+", title.lower().replace("'", "")))


test_name.__test__ = False


def entries(page):
    """(title, text) of each entry."""
    return [tuple(part.split("\n", 1)) for part in re.split(r"^### ", page, flags=re.M)[1:]]


def differences(page, tests):
    """The differences between a page and the source of its tests."""
    named = [n.name for n in ast.parse(tests).body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    wanted = [test_name(title) for title, _ in entries(page)]
    wrong = [f"no test: {name}" for name in wanted if name not in named] + [f"no entry: {name}" for name in named if name not in wanted]
    wrong += [f"twice: {name}" for name in set(wanted) | set(named) if wanted.count(name) > 1 or named.count(name) > 1]
    for title, text in entries(page):
        code = "".join(block for _, language, words, block in run_doc_blocks.blocks(text) if language == "python" and "no-run" not in words)
        if "assert " not in code and "raises(" not in code:
            wrong.append(f"no block that claims something: {title}")
    return wrong


def test_every_entry_has_a_test_and_every_test_an_entry():
    assert differences(PAGE, (ROOT / "tests" / "footguns" / "test_footguns.py").read_text(encoding="utf-8")) == []
    assert len(entries(PAGE)) > 40


def test_a_missing_one_is_noticed():
    page = "# P\n### One thing\n```python\nassert True\n```\n### Another's thing\n```python no-run\nassert True\n```\n"
    assert differences(page, "def test_one_thing(): pass\ndef test_anothers_thing(): pass\n") == ["no block that claims something: Another's thing"]
    assert differences(page.replace(" no-run", ""), "def test_one_thing(): pass\ndef test_more(): pass\n") == ["no test: test_anothers_thing", "no entry: test_more"]
