"""Pages that say which functions there are, or are not, and what the levels of PYFLAME_DEBUG do. (tools/lint/mentions.py holds them to what
needs no PyFlame: files, links, commands, variables.)"""
import ast
import pathlib
import re

import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F
from pyflame.backend import rocm

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACES = [pf, pf.Tensor, nn, nn.Module, F, rocm, pf.optim, pf.data]
NOT_PYTHON = {"doctor", "report", "rocm", "cuda"}  # commands and devices, in code spans too


TEST = re.compile(r"[A-Z]\w+\.[A-Z]\w+")  # of GoogleTest: suite and name


def spans(text):
    return re.findall(r"`([^`\n]+)`", text)


def rows(page, heading):
    """The cells of each row of the tables below a heading."""
    text = (ROOT / "docs" / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in text.split("\n") if line.startswith("| ")]
    assert len(found) > 5
    return found[1:]


def has(place, dotted):
    for name in dotted.split("."):
        if not hasattr(place, name):
            return False
        place = getattr(place, name)
    return True


def name_of(span):
    """`x.to(device)`, `(x * mask).sum()`, `get_pinned_pool().warmup`, `pf.amp.GradScaler`: the name that they use. None where it is no such thing."""
    span = re.sub(r"^get_(\w+)\(\)\.", lambda m: m[1].title().replace("_", "") + ".", span)  # what it returns
    match = re.fullmatch(r"(?:(?:pf|x|model|\([^()]*\))\.)?([A-Za-z_][\w.]*)(?:\(.*\))?", span)
    return match[1] if match else None


def is_there(name):
    return any(has(place, name) for place in PLACES)


def test_names_with_their_module():
    wrong = []
    for page in PAGES:
        for span in spans(re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
            match = re.match(r"(pf|nn|F)\.([A-Za-z_][\w.]*)", span)
            if match and not has({"pf": pf, "nn": nn, "F": F}[match[1]], match[2]):
                wrong.append((page.name, span))
    assert not wrong


def test_what_differences_says_is_missing():
    missing, instead = [], []
    for what, error, other in rows("differences.md", "Not available"):
        if error == "`AttributeError`":
            missing += spans(what)
        instead += [s for s in spans(other) if "=" not in s]
    assert missing and instead  # the table was found
    assert [s for s in missing if is_there(name_of(s))] == []
    assert [s for s in instead if not is_there(name_of(s))] == []


def test_what_coverage_says_of_the_guides_functions():
    there, missing = [], ["bce_loss"]
    for _, asked, here in rows("coverage.md", "PyFlame's GPU backend"):
        (missing if here.startswith("not yet") else there).extend(spans(asked))
        there += spans(here)
    names = {name_of(s) for s in there if re.fullmatch(r"[\w.]+(\(\)(\.\w+(\(\))?)?)?", s) and not s.isupper() and not s.startswith("test_") and not TEST.fullmatch(s)} - NOT_PYTHON - {"bce_loss"}
    assert len(names) > 25 and "conv3d" in names
    assert [n for n in names if not is_there(n)] == []
    assert [s for s in missing if is_there(name_of(s))] == []


def test_tests_that_coverage_names_are_there():
    """Functions of pytest, tests of GoogleTest as Suite.Name, and files. A file without its folder is one of the folder tests/python or beside."""
    page = (ROOT / "docs/coverage.md").read_text()
    sources = {p: p.read_text(encoding="utf-8") for pattern in ("*.py", "*.cpp") for p in (ROOT / "tests").rglob(pattern)}
    functions = {p: set(re.findall(r"^def (test_\w+)", text, re.M)) for p, text in sources.items()}
    everywhere = set().union(*functions.values())
    cpp = {f"{suite}.{name}" for text in sources.values() for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", text, re.M)}
    files = {p.name for p in sources}
    wrong = []
    for span in sorted({s for s in spans(page) if re.search(r"(^|/)test_|^tests/", s)}):
        file, _, function = span.rpartition("::")
        if file:
            there = function in functions.get(ROOT / file, ())
        elif "/" in span:
            there = (ROOT / span).exists()
        else:
            there = span in everywhere or span in files
        if not there:
            wrong.append(span)
    suites = {name.split(".")[0] for name in cpp}
    wrong += [s for s in spans(page) if TEST.fullmatch(s) and s.split(".")[0] in suites and s not in cpp]
    assert not wrong


def test_levels_of_debug():
    (most, meaning), = re.findall(r'ENV_INT\(PYFLAME_DEBUG, debug, 0, 0, (\d+), "(.*)"\)', (ROOT / "src/pyflame/base/env.def").read_text())
    levels = [str(n) for n in range(1, int(most) + 1)]
    assert re.findall(r"\b(\d) ", meaning) == levels
    assert re.findall(r"^\| `PYFLAME_DEBUG=(\d)` \| .{20,} \|$", (ROOT / "docs/execution.md").read_text(), re.M) == levels


@pytest.mark.parametrize("span,name", [("x.index_select(dim, indices)", "index_select"), ("(x * mask).sum()", "sum"), ("get_pinned_pool().warmup", "PinnedPool.warmup"),
                                       ("pf.amp.GradScaler", "amp.GradScaler"), ("pf.synchronize()", "synchronize"), ("-DROCM_PATH", None)])
def test_names_of_spans(span, name):
    assert name_of(span) == name


# The files of the package that write files: with what docs/file-formats.md says of it in its first table, or with why a program never meets what is written.
WRITERS = {
    "_configuration.py": "`pyflame.toml`",
    "_debug/__main__.py": "`pyflame debug run`",
    "_explain/__main__.py": "`pyflame explain`",
    "_torch_file.py": "`*.pt`",
    "distributed/checkpoint/__init__.py": "`pf.distributed.checkpoint.save`",
    "hub.py": None,  # the file that was fetched
    "io.py": "`pf.save`",
    "llm/conversion/__init__.py": "`pf.llm.convert`",
    "memory/_as_pytorch.py": "`_dump_snapshot`",
    "memory/_monitor.py": "`pf.memory.monitor`",
    "memory/_snapshot.py": "`pf.memory.snapshot().save`",
    "onnx/run.py": None,  # the program reads it and removes it
    "optimizing/observe.py": None,  # the same
    "optimizing/__main__.py": "`optimize.jsonl`",
    "profiler/__init__.py": "`pf.profiler`",
    "profiler/__main__.py": "`pyflame profile`",
    "profiler/ceilings.py": "below `PYFLAME_CACHE_DIR`",
    "profiler/memory.py": "`export_memory_timeline`",
    "testing/language_models.py": None,  # models for tests
    "train/_logs.py": "`pf.train.Trainer`",
    "train/_page.py": "`pf.train.Trainer`",
    "tuning/__main__.py": "`tune.lock`",
    "tuning/child.py": None,  # read by the process that began it
    "tuning/exchange.py": "`pyflame tune --export`",
    "tuning/watch.py": None,  # the same
    "utils/cpp_extension.py": "below `PYFLAME_CACHE_DIR`",
}


def writes_files(text):
    """Whether a module opens a file to write, or writes one by its path."""
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        mode = call.args[1].value if name == "open" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else ""
        if name in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "_Writer") or isinstance(mode, str) and set(mode) & set("wax"):
            return True
    return False


def test_files_that_are_written_have_a_page():
    package = ROOT / "python" / "pyflame"
    found = {p.relative_to(package).as_posix() for p in package.rglob("*.py") if writes_files(p.read_text(encoding="utf-8"))}
    assert not found - set(WRITERS), "add a row to docs/file-formats.md, and these files to WRITERS: " + ", ".join(sorted(found - set(WRITERS)))
    assert not set(WRITERS) - found, "these write no file any more; remove them from WRITERS: " + ", ".join(sorted(set(WRITERS) - found))
    table = (ROOT / "docs" / "file-formats.md").read_text(encoding="utf-8").partition("## Written by PyFlame")[2].partition("\n## ")[0]
    missing = sorted({words for words in WRITERS.values() if words and words not in table})
    assert not missing, "docs/file-formats.md does not have " + ", ".join(missing)


@pytest.mark.parametrize("text, writes", [("open(p, 'wb')", True), ("gzip.open(p, 'at')", True), ("path.write_text('')", True), ("open(p)", False), ("open(p, 'rb')", False), ("f(p, 'w')", False)])
def test_modules_that_write_are_found(text, writes):
    assert writes_files(text) == writes
