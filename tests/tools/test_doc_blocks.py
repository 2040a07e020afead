"""Which blocks of a page are run, and that one that fails is reported."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "run_doc_blocks.py"
sys.path.insert(0, str(ROOT / "tools"))

import gen_env_docs  # noqa: E402
import run_doc_blocks  # noqa: E402

PAGE = """# A page
```python
x = 1
```
text
```python
assert x == 1, "blocks share their names"
```
```python no-run
raise SystemExit(1)
```
```bash
exit 1
```
```bash run
test "$(python -c 'print(3)')" = 3
```
```python
# fresh
assert "x" not in globals()
```
"""


def run(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return subprocess.run([sys.executable, str(TOOL), str(page)], capture_output=True, text=True)


def test_choice_of_blocks():
    tasks = run_doc_blocks.runnable(PAGE)
    assert [(line, language) for line, language, _ in tasks] == [(2, "python"), (15, "bash"), (18, "python")]
    # Line numbers in a traceback are those of the page.
    assert tasks[0][2].split("\n")[2] == "x = 1"


def test_page_that_works(tmp_path):
    result = run(tmp_path, PAGE)
    assert result.returncode == 0, result.stdout
    assert "3 run, 0 failed" in result.stdout


def test_page_that_fails(tmp_path):
    result = run(tmp_path, "```python\nraise ValueError('told')\n```\n```bash run\nfalse; true\n```\n")
    assert result.returncode == 1
    assert "told" in result.stdout
    assert "2 run, 2 failed" in result.stdout


def test_block_without_end(tmp_path):
    assert run(tmp_path, "```python\nx = 1\n").returncode != 0


def test_env_page():
    text = gen_env_docs.page('// comment\nENV_INT(PYFLAME_A, a, 3, 0, 9, "Sets a.")\nENV_BOOL(PYFLAME_B, b, true, "Sets b.")\n')
    assert "| `PYFLAME_A` | whole number, 0 to 9 | `3` | Sets a. |" in text
    assert "| `PYFLAME_B` | 0 or 1 | `1` | Sets b. |" in text


def test_env_page_is_up_to_date():
    result = subprocess.run([sys.executable, str(ROOT / "tools" / "gen_env_docs.py"), "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
