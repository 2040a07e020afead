"""Which blocks of a page are run, and that one that fails is reported."""
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "run_doc_blocks.py"
sys.path.insert(0, str(ROOT / "tools"))

import gen_cli_docs  # noqa: E402
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
```bash no-run="exits with 1"
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


def run(tmp_path, text, *options):
    page = tmp_path / "page.md"
    page.write_text(text)
    return subprocess.run([sys.executable, str(TOOL), str(page), *map(str, options)], capture_output=True, text=True)


def test_choice_of_blocks():
    tasks = run_doc_blocks.runnable(PAGE)
    assert [(line, language) for line, language, *_ in tasks] == [(2, "python"), (15, "bash"), (18, "python")]
    # Line numbers in a traceback are those of the page.
    assert tasks[0][2].split("\n")[2] == "x = 1"


@pytest.mark.parametrize("words, why", [
    ("", "must say how it runs; got ''; expected one of run, step=NAME, test=FILE, same=PAGE or no-run="),
    ("run no-run=two", "must say how it runs; got 'run no-run=two'"),
    ("no-run", "the word 'no-run' of a block of a shell has no value"),
    ("run=1", "the word 'run' of a block of a shell has a value"),
    ("run wiht=train", "has the word 'wiht'; expected run"),
    ("test=a.py with=train", "has the word 'with'"),
    ("run with=", "has the word 'with'"),
])
def test_a_block_that_does_not_say_how_it_runs_fails(tmp_path, words, why):
    result = run(tmp_path, f"text\n```bash {words}\ntrue\n```\n")
    assert result.returncode == 1 and "FAIL page.md:2: " in result.stdout and why in result.stdout


def test_only_bash_runs(tmp_path):
    result = run(tmp_path, "```sh run\ntrue\n```\n")
    assert result.returncode == 1 and "only blocks of bash can run; got sh" in result.stdout


def test_words_that_cannot_be_read(tmp_path):
    result = run(tmp_path, '```bash no-run="why\ntrue\n```\n')
    assert result.returncode == 1 and "the words of the block that begins in line 1 cannot be read" in result.stderr


def test_functions_run_in_front(tmp_path):
    assert run(tmp_path, "```bash run with=settings,own_cache\ngrep -q HSA setup.sh && test $PYFLAME_CACHE_DIR = $PWD/cache\n```\n").returncode == 0
    result = run(tmp_path, "```bash run with=no_such_function\ntrue\n```\n")
    assert result.returncode == 1 and "no_such_function" in result.stdout


def test_functions_run_in_front_of_python(tmp_path):
    text = """```python
x = 1
```
```python with=settings
import pathlib
assert "x" not in globals() and "HSA" in pathlib.Path("setup.sh").read_text()
```
```python fresh
assert "pathlib" not in globals()
```
"""
    result = run(tmp_path, text)
    assert result.returncode == 0 and "3 run, 0 failed" in result.stdout, result.stdout
    assert "no_such_function" in run(tmp_path, "```python with=no_such_function\npass\n```\n").stdout
    skipped = run(tmp_path, "```python with=own_cache\nprint('no program')\nraise SystemExit(77)\n```\n").stdout
    assert "!!! not run: no program" in skipped and "0 run, 0 failed, 1 skipped" in skipped


def test_a_block_without_its_program_is_named(tmp_path):
    result = run(tmp_path, "```bash run with=own_cache\nneeds no-such-program\nexit 1\n```\n")
    assert result.returncode == 0 and "skip page.md:1 " in result.stdout and "!!! not run: no-such-program is not installed" in result.stdout
    assert "0 run, 0 failed, 1 skipped" in result.stdout


def test_a_step_runs_its_blocks_in_one_folder(tmp_path):
    text = "```bash step=one\ntouch here\n```\n```bash run\nexit 1\n```\n```bash step=one\ntest -e here\n```\n```bash step=two\nexit 1\n```\n"
    result = run(tmp_path, text, "--step", "one", "--folder", tmp_path / "folder")
    assert result.returncode == 0 and "2 run, 0 failed" in result.stdout and (tmp_path / "folder" / "here").exists()
    assert run(tmp_path, text, "--step", "three").returncode == 1  # a step without blocks


def test_what_a_block_leaves_behind_ends_with_it(tmp_path):
    result = run(tmp_path, "```bash run\nsleep 600 & echo $! > " + str(tmp_path / "pid") + "\n```\n")
    assert result.returncode == 0
    process = pathlib.Path("/proc") / (tmp_path / "pid").read_text().strip()
    until = time.monotonic() + 60
    while process.exists() and ") Z " not in (process / "stat").read_text():  # the signal was sent; the kernel takes its time
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_block_that_takes_too_long(tmp_path):
    result = run(tmp_path, "```bash run\necho begun\nsleep 600\n```\n", "--timeout", "1")
    assert result.returncode == 1 and "begun" in result.stdout and "took longer than 1.0 s" in result.stdout


def test_page_that_works(tmp_path):
    result = run(tmp_path, PAGE)
    assert result.returncode == 0, result.stdout
    assert "3 run, 0 failed" in result.stdout


def test_page_that_fails(tmp_path):
    result = run(tmp_path, "```python\nraise ValueError('told')\n```\n```bash run\nfalse; true\n```\n")
    assert result.returncode == 1
    assert "told" in result.stdout
    assert "2 run, 2 failed" in result.stdout


def test_pages_at_the_same_time(tmp_path):
    """Each page waits for the other one. What is said about a page stays together."""
    pages = []
    for mine, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{mine}.md").write_text(f"```bash run\ntouch {tmp_path}/{mine}; until [ -e {tmp_path}/{other} ]; do sleep 0.01; done\n```\n```bash run\necho told by {mine}; false\n```\n")
        pages.append(tmp_path / f"{mine}.md")
    result = subprocess.run([sys.executable, str(TOOL), "--jobs", "2", "--timeout", "60", *map(str, pages)], capture_output=True, text=True)
    assert result.returncode == 1 and "4 run, 2 failed" in result.stdout
    said = [line[:9] for line in result.stdout.splitlines() if ".md:" in line]
    assert said in (["ok   a.md", "FAIL a.md", "ok   b.md", "FAIL b.md"], ["ok   b.md", "FAIL b.md", "ok   a.md", "FAIL a.md"])


def test_pages_at_the_same_time_share_no_folder(tmp_path):
    result = run(tmp_path, PAGE, "--jobs", "2", "--folder", str(tmp_path))
    assert result.returncode == 2 and "--folder: pages that share a folder run one after the other" in result.stderr


def test_block_without_end(tmp_path):
    assert run(tmp_path, "```python\nx = 1\n").returncode != 0


def test_env_page():
    text = gen_env_docs.page('// comment\nENV_INT(PYFLAME_A, a, 3, 0, 9, "Sets a.")\nENV_BOOL(PYFLAME_B, b, true, "Sets b.")\n')
    assert "| `PYFLAME_A` | whole number, 0 to 9 | `3` | Sets a. |" in text
    assert "| `PYFLAME_B` | 0 or 1 | `1` | Sets b. |" in text


def test_env_page_is_up_to_date():
    result = subprocess.run([sys.executable, str(ROOT / "tools" / "gen_env_docs.py"), "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_examples_of_a_command():
    text = "Usage: x\n\nOptions:\n  --a  b\n\nExamples:\n  pyflame x | y\n      does it\n  pyflame x --a\n      more of it\n\n"
    assert gen_cli_docs.examples(text) == [("pyflame x | y", "does it"), ("pyflame x --a", "more of it")]
    assert gen_cli_docs.examples("Usage: x\n\nOptions:\n  --a  b\n") == []


def test_each_command_has_examples_in_its_page():
    tables = gen_cli_docs.PLACE.finditer((ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))
    without = {m[2] for m in tables if "\n| example | what it does |\n|---|---|\n| `" not in m[0]}
    assert not without, f"these commands have no example in docs/cli.md; run `make docs`; got {', '.join(sorted(without))}"


@pytest.mark.parametrize("page", run_doc_blocks.pages(), ids=lambda p: p.stem)
def test_each_page_has_an_example_that_runs(page):
    blocks = [f.groups() for f in map(run_doc_blocks.FENCE.match, page.read_text(encoding="utf-8").splitlines()) if f and f[2]]
    assert [words for _, language, words in blocks if "no-run" not in words and (language in ("python", "bash") or language == "cpp" and "run" in words)], f"{page.name} has no block that runs"


def test_a_page_says_what_PYFLAME_SOURCE_is_before_it_is_used():
    """CI sets it; a reader who copies the block has to."""
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
    used = [(page, text) for page in docs.rglob("*.md") if "PYFLAME_SOURCE" in (text := page.read_text(encoding="utf-8"))]
    assert len(used) > 4
    for page, text in used:
        uses = [text.find(use) for use in ("${PYFLAME_SOURCE:?", 'os.environ["PYFLAME_SOURCE"]')]
        assert text.index("`PYFLAME_SOURCE` is the folder of your clone") < min(at for at in uses if at >= 0), page


def test_two_days_have_all_pages(monkeypatch):
    days = []
    for day in ("20786", "20787"):
        monkeypatch.setenv("PYFLAME_TEST_ROTATION", day)
        days.append(set(run_doc_blocks.todays(run_doc_blocks.pages())))
    assert days[0] | days[1] == set(run_doc_blocks.pages()) and {p.name for p in days[0] & days[1]} == {"README.md"}
    assert min(map(len, days)) > len(run_doc_blocks.pages()) // 3
