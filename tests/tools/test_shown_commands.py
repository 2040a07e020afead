"""What pages show: each block of a shell says how it runs, and that is so. Of what `docs` does not run, each `pyflame` command and each option exists, each target of make, each
file that is started, each name of pf."""
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "site"), str(ROOT / "tests" / "python")]

import names  # noqa: E402
import run_doc_blocks  # noqa: E402
import uses  # noqa: E402
from test_cli_shells import commands_of, options_of  # noqa: E402

import pyflame  # noqa: E402

PAGES = run_doc_blocks.pages()
SHELLS = run_doc_blocks.SHELLS


def shown(language):
    """(page, line, code) of the blocks that the step docs does not run."""
    for page in PAGES:
        for line, kind, words, code in run_doc_blocks.blocks(page.read_text(encoding="utf-8")):
            if kind in language and ("no-run" in words if kind == "python" else "run" not in words):
                yield page.relative_to(ROOT), line, code


def blocks_of_shells():
    """(page, line, way, value, functions in front, code) of each block of a shell."""
    for page in PAGES:
        for line, kind, words, code in run_doc_blocks.blocks(page.read_text(encoding="utf-8")):
            if kind in SHELLS:
                before = [name for word in words if word.startswith("with=") for name in word[len("with="):].split(",")]
                yield page.relative_to(ROOT).as_posix(), line, *run_doc_blocks.way_of(words), before, code


def commands(code):
    """The words of each command: lines that are continued are joined, pipes and lists divided, assignments before a command left out."""
    for line in code.replace("\\\n", " ").split("\n"):
        try:
            words = split_words(line)
        except ValueError:  # a text in quotes over several lines
            continue
        command = []
        for word in [*words, ";"]:
            if set(word) <= set(";|&()<>"):
                while command and re.match(r"\w+=", command[0]):
                    command.pop(0)
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def split_words(line):
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>")
    lexer.whitespace_split = True
    return list(lexer)


@pytest.fixture(scope="module")
def help_of(program):
    kept = {}

    def text(path):
        if path not in kept:
            kept[path] = subprocess.run([program, *path, "--help"], capture_output=True, text=True, check=True).stdout
        return kept[path]

    return text


def problem_of(words, help_of):
    """What is wrong with a command of a page; None if nothing is."""
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))
        return next((f"make has no target {w}" for w in words[1:] if re.fullmatch(r"[a-z-]+", w) and w not in targets), None)
    if words[0] in ("python", "python3") and len(words) > 1 and words[1].startswith(("benchmarks/", "examples/", "tools/")) or words[0].startswith("tools/"):
        file = words[0] if words[0].startswith("tools/") else words[1]
        return None if (ROOT / file).exists() else f"there is no {file}"
    if words[0] != "pyflame":
        return None
    path, rest = (), words[1:]
    while rest and rest[0] in commands_of(help_of(path)):
        path, rest = (*path, rest[0]), rest[1:]
    if rest and path in ((), ("memory",), ("debug",)) and not rest[0].startswith("-"):
        return f"pyflame has no command {' '.join((*path, rest[0]))}"
    if path == ("run",) and "--nproc" in rest or path == ("train",):
        return None  # Python reads these options
    if path in (("bench", "llm"),):
        known = set(re.findall(r"--[a-z_]+", help_of(path)))
    else:
        known = options_of(help_of(path)) | {"--version"} | (options_of(help_of(path[:1])) if path else set())
    for word in rest:
        if word.endswith(".py") or word == "-m" and path != ():
            break  # what follows belongs to the program
        name = word.split("=")[0]
        if name.startswith("--") and name != "--" and name not in known:
            return f"pyflame {' '.join(path)} has no option {name}"
    return None


def function_of_step(name):
    """What a step of .ci/run executes: the text of its function."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    if name == "test":
        assert "bounded tests" in text
        function = "tests"
    else:
        function = re.search(rf"^(?:if turn .*; then )?step {name} (\w+)(?:; fi)?$", text, re.M).group(1)
    one_line = re.search(rf"^{function}\(\) \{{ (.*) \}}$", text, re.M)
    return (one_line or re.search(rf"^{function}\(\) \{{\n(.*?)^\}}$", text, re.M | re.S)).group(1)


def runs_in_step(page, code, step):
    """Whether a step runs a block: by its name, through tools/run_doc_blocks.py, or command by command."""
    function = function_of_step(step)
    if f"tools/run_doc_blocks.py --step {step} " in function:
        return f" {page}" in function
    executed = [words for line in function.splitlines() for words in commands(line)]
    return all(any(covers(found, words) for found in executed) for words in commands(code))


def covers(executed, words):
    """Whether this is the command, with no more than variables set beside it."""
    more = list(executed)
    return all(w in more and not more.remove(w) for w in words) and all(w == "--no-print-directory" or re.match("[A-Z_]+=", w) for w in more)


def same_commands(code, page):
    """Whether some block of the page that runs has these commands, one behind the other."""
    wanted = list(commands(code))
    for other, _, way, _, _, text in blocks_of_shells():
        have = list(commands(text))
        if other == page and way in ("run", "step") and any(have[i:i + len(wanted)] == wanted for i in range(len(have))):
            return True
    return False


def test_each_block_runs_where_it_says():
    functions = set(re.findall(r"^(\w+)\(\) \{", run_doc_blocks.PREPARATIONS.read_text(encoding="utf-8"), re.M))
    wrong = []
    for page, line, way, value, before, code in blocks_of_shells():
        right = {
            "run": lambda: True,
            "step": lambda: runs_in_step(page, code, value),
            "test": lambda: pathlib.Path(value).name in {p.name for p in (ROOT / "tests").rglob("test_*.py")} and pathlib.Path(page).name in (ROOT / value).read_text(encoding="utf-8"),
            "same": lambda: same_commands(code, value),
            "no-run": lambda: len(value.split()) > 2,
        }[way]()
        wrong += [] if right else [f"{page}:{line}: not so: {way}={value}"]
        wrong += [f"{page}:{line}: tools/doc_blocks.sh has no function {name}" for name in set(before) - functions]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code, step, runs", [("make test   # all\n", "test", True), ("make test\nmake other\n", "test", False), ("make test-emulator\n", "emulator", True), ("make\n", "emulator", False), ("anything\n", "install", True)])
def test_commands_of_a_step_are_found(code, step, runs):
    assert runs_in_step("docs/install.md", code, step) is runs


def test_a_page_that_a_step_does_not_name_is_found():
    assert not runs_in_step("docs/tuning.md", "anything\n", "install")


def test_same_commands_are_found():
    assert same_commands("tools/bootstrap.sh && . .venv/bin/activate && pip install .    # builds\n", "docs/install.md")
    assert not same_commands("tools/bootstrap.sh && pip install .\n", "docs/install.md")


def test_commands(help_of):
    wrong, looked_at = [], 0
    for page, line, code in shown(SHELLS):
        for words in commands(code):
            looked_at += words[0] in ("pyflame", "make")
            why = problem_of(words, help_of)
            if why:
                wrong.append(f"{page}:{line}: {why}: {' '.join(words)}")
    assert not wrong, "\n".join(wrong)
    assert looked_at > 10


def commands_beside_blocks(text):
    """Those in a page's sentences and tables, and those whose output a block shows: lines that begin with `$ `."""
    for _, kind, _, code in run_doc_blocks.blocks(text):
        if kind == "text":
            yield from (words for line in code.split("\n") if line.startswith("$ ") for words in commands(line[2:]))
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"^\s*```.*?^\s*```$", "", text, flags=re.M | re.S)):
        if span.startswith(("pyflame ", "make ", "python ", "tools/")) and "COMMAND" not in span:
            yield from commands(span.replace("\\|", "|"))


def test_commands_beside_blocks(help_of):
    """Nothing runs them; their commands, options and files exist."""
    found = [(page.name, words) for page in PAGES for words in commands_beside_blocks(page.read_text(encoding="utf-8"))]
    wrong = [f"{page}: {why}: {' '.join(words)}" for page, words in found if (why := problem_of(words, help_of))]
    assert not wrong, "\n".join(wrong)
    assert len(found) > 200


def test_a_wrong_command_beside_blocks_is_found(help_of):
    text = "Text with `pyflame doctr`.\n\n| `pyflame doctor \\| pyflame reprot` |\n\n```text\n$ pyflame inspect --keepp x\nmore\n```\n\n```bash run\npyflame none\n```\n"
    assert [problem_of(words, help_of) for words in commands_beside_blocks(text)] == ["pyflame inspect has no option --keepp", "pyflame has no command doctr", None, "pyflame has no command reprot"]


@pytest.mark.parametrize("command, why", [
    ("pyflame doctr", "no command doctr"),
    ("pyflame doctor --recrod x", "no option --recrod"),
    ("A=1 pyflame report diff a b --sideways | less", "no option --sideways"),
    ("make demoo", "no target demoo"),
    ("tools/none.sh && make build", "no tools/none.sh"),
    ("python benchmarks/none.py --all", "no benchmarks/none.py"),
])
def test_a_wrong_command_is_found(help_of, command, why):
    assert any(why in (problem_of(words, help_of) or "") for words in commands(command))


def missing_names(code):
    entries = names.inventory(pyflame)
    every = {a for e in entries.values() for a in (e.path, *e.aliases)}
    owners = {p: e.value for p, e in entries.items() if e.kind != "function"}
    for path in uses.paths_in(code):
        first, value = path, None
        while first not in every and first not in names.modules(pyflame) and "." in first:
            first = first.rpartition(".")[0]
        if first == "pyflame" and path != "pyflame" and not hasattr(pyflame, path.split(".")[1]):
            yield path
        value = owners.get(first)
        if value is not None and first != path and not hasattr(value, path[len(first) + 1:].split(".")[0]):
            yield path


def test_python():
    wrong = []
    for page, line, code in shown(("python",)):
        compile(code, f"{page}:{line}", "exec")
        code = code if "import pyflame" in code else "import pyflame as pf\n" + code
        wrong += [f"{page}:{line}: {path}" for path in missing_names(code)]
    assert not wrong, "\n".join(wrong)
    assert list(missing_names("import pyflame as pf\npf.no_such_name(1)\npf.Tensor.no_such_method(1)\npf.relu(1)")) == ["pyflame.no_such_name", "pyflame.Tensor.no_such_method"]
