"""Runs the code blocks of README.md, ARCHITECTURE.md, CONTRIBUTING.md, SECURITY.md and docs/**/*.md, so that what they show is true.

    ```python            runs. The python blocks of one page run one after the other in one process, like a notebook;
                         a block whose first line is `# fresh`, or with the word fresh behind `python`, begins a new one.
    ```python with=onnx_model
                         begins a new one, behind these functions of tools/doc_blocks.sh, which make what the block needs
    ```python no-run     is shown only
    ```bash run          runs with `set -e` in an empty folder with the built `pyflame` and python on PATH, this repository's folder
                         in PYFLAME_SOURCE, and nothing to read from standard input
    ```bash run with=train,serve
                         runs behind such functions
    ```cpp run           is compiled against the library of build/release and run, behind the functions that with=... names; plain ```cpp is shown only

Every block of a shell says how it runs. One that says nothing, or two things, fails. Readers of a page do not see these words.

    ```bash step=install       a step of .ci/run runs it: `run_doc_blocks.py --step install`, or its commands stand in the step's function
    ```bash test=tests/a.py    a test reads it from the page and runs it
    ```bash same=docs/a.md     a block of that page has the same commands, and runs
    ```bash no-run="why"       nothing can run it; the words say what is missing

A page passes when every block exits with 0. Output is shown only of blocks that fail. One that exits with 77 needs a program that is not installed: it is named and does not fail.
"""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PREPARATIONS = ROOT / "tools" / "doc_blocks.sh"
SHELLS = ("bash", "sh", "console", "shell", "zsh", "fish")
SKIPPED = 77
WAYS = ("run", "step", "test", "same", "no-run")
FENCE = re.compile(r"^(\s*)```(\w+)?(.*)$")
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(blocks LANGUAGES CXX)
find_package(pyflame REQUIRED)
add_executable(block block.cpp)
target_link_libraries(block PRIVATE pyflame::pyflame)
"""


def pages():
    """The pages that have examples."""
    return [*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")), *sorted((ROOT / "docs").rglob("*.md"))]


def todays(found):
    """README, and of the other pages the day's half (PYFLAME_TEST_ROTATION); without a day all of them."""
    rotation = os.environ.get("PYFLAME_TEST_ROTATION")
    return [p for p in found if p.name == "README.md" or (zlib.crc32(p.name.encode()) + int(rotation)) % 2 == 0] if rotation else found


def blocks(text):
    """(line number, language, words after it, code) of each fenced block."""
    found, current = [], None
    for number, line in enumerate(text.split("\n"), 1):
        match = FENCE.match(line)
        if current is None and match and match.group(2):
            try:
                current = (number, match.group(2), shlex.split(match.group(3)), match.group(1), [])
            except ValueError as error:
                raise SystemExit(f"the words of the block that begins in line {number} cannot be read: {error}") from None
        elif current is None and match:
            current = (number, "", [], match.group(1), [])
        elif current is not None and line.strip() == "```":
            indent = len(current[3])
            code = "\n".join(text_line[indent:] for text_line in current[4]) + "\n"
            found.append((current[0], current[1], current[2], code))
            current = None
        elif current is not None:
            current[4].append(line)
    if current is not None:
        raise SystemExit(f"a block that begins in line {current[0]} has no end")
    return found


def way_of(words):
    """How a block of a shell runs, from the words after its language: ("run", ""), ("step", NAME), ("test", FILE), ("same", PAGE) or ("no-run", why).
    ValueError where the words say nothing, two things, or something unknown."""
    pairs = [(name, value) for name, _, value in (word.partition("=") for word in words)]
    ways = [pair for pair in pairs if pair[0] in WAYS]
    expected = "run, step=NAME, test=FILE, same=PAGE or no-run=\"why\""
    if len(ways) != 1:
        raise ValueError(f"a block of a shell must say how it runs; got '{' '.join(words)}'; expected one of {expected}")
    way, value = ways[0]
    if bool(value) == (way == "run"):
        raise ValueError(f"the word '{way}' of a block of a shell has {'a' if value else 'no'} value; expected {expected}")
    for name, value_ in pairs:
        if name not in (*WAYS, "with") or name == "with" and (way not in ("run", "step") or not value_):
            raise ValueError(f"a block of a shell has the word '{name}'; expected {expected}, and with=FUNCTION,... beside the first two")
    return way, value


def unclear(text):
    """(line, what is wrong) of the blocks of a shell that do not say how they run."""
    for line, language, words, _ in blocks(text):
        if language in SHELLS:
            try:
                way, _ = way_of(words)
            except ValueError as error:
                yield line, str(error)
                continue
            if way in ("run", "step") and language != "bash":
                yield line, f"only blocks of bash can run; got {language}; hint: write bash, or test=FILE"


def preparation(words):
    """What runs in front of a block, in the same shell."""
    functions = [name for word in words if word.startswith("with=") for name in word[len("with="):].split(",")]
    return "".join([f". {shlex.quote(str(PREPARATIONS))}\n", *(f"{name}\n" for name in functions)]) if functions else ""


def runnable(text, step=None):
    """(line, language, code, what runs in front of it): consecutive python blocks are joined, with lines kept in place for tracebacks. With a step, its blocks alone."""
    tasks, python = [], None
    for line, language, words, code in blocks(text):
        if step is not None:
            if language == "bash" and f"step={step}" in words:
                tasks.append([line, language, code, preparation(words)])
        elif language == "python" and "no-run" not in words:
            before = preparation(words)
            if python is None or before or "fresh" in words or code.startswith("# fresh"):
                python = [line, "python", "", before]
                tasks.append(python)
            python[2] += "\n" * (line - python[2].count("\n")) + code
        elif language in ("bash", "cpp") and "run" in words:
            tasks.append([line, language, code, preparation(words)])
    return tasks


def install_library(build, prefix):
    subprocess.run(["cmake", "--install", str(build), "--component", "cpp", "--prefix", str(prefix)], check=True, capture_output=True)


def run_block(page, language, code, before, build, folder, timeout):
    """(exit code, output); `before` is bash. What the block has started and left behind ends with it."""
    environment = dict(os.environ, PYFLAME_SOURCE=str(ROOT), PATH=os.pathsep.join([str(build / "bin"), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))
    if language == "python":
        script = folder / (pathlib.Path(page).name + ".py")
        script.write_text(code)
        command = ["bash", "-euo", "pipefail", "-c", f"{before}python {shlex.quote(str(script))}"]
    elif language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", before + code]
    else:
        source = folder / "cpp"
        source.mkdir()
        (source / "block.cpp").write_text(code)
        (source / "CMakeLists.txt").write_text(CMAKE)
        install_library(build, folder / "prefix")
        command = ["bash", "-ec", f"{before}cmake -S {source} -B {source}/build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH={folder}/prefix && "
                   f"cmake --build {source}/build && {source}/build/block"]
    with tempfile.TemporaryFile("w+", errors="replace") as log:  # a pipe would stay open as long as what the block leaves behind
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status, more = process.wait(timeout), ""
        except subprocess.TimeoutExpired:
            status, more = -1, f"took longer than {timeout} s\n"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        return status, log.read() + more


def run_page(page, arguments, say=lambda line: print(line, flush=True)):
    """(number of blocks that ran, of those that failed, of those that were skipped). say() gets each line about them."""
    text = page.read_text(encoding="utf-8")
    count = failed = skipped = 0
    for line, why in unclear(text):
        failed += 1
        say(f"FAIL {page.name}:{line}: {why}")
    for line, language, code, before in runnable(text, arguments.step):
        count += 1
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as empty:
            folder = arguments.folder or pathlib.Path(empty)
            folder.mkdir(parents=True, exist_ok=True)
            status, output = run_block(page, language, code, before, arguments.build.resolve(), folder.resolve(), arguments.timeout)
        result = {0: "ok  ", SKIPPED: "skip"}.get(status, "FAIL")
        say(f"{result} {page.name}:{line} ({language}, {time.monotonic() - start:.1f} s)")
        if status == SKIPPED:
            skipped += 1
            say(f"!!! not run: {output.strip().splitlines()[-1]}")
        elif status != 0:
            failed += 1
            say(output)
    return count - skipped, failed, skipped


def run_pages(chosen, arguments):
    """The same of each page, in their order. Several pages run at the same time, so the lines about one are printed together, at its end."""
    if arguments.jobs == 1:
        return [run_page(page, arguments) for page in chosen]

    def one(page):
        lines = []
        counts = run_page(page, arguments, lines.append)
        print("\n".join(lines), flush=True)
        return counts

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        return list(pool.map(one, chosen))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=pathlib.Path, help="default: all pages that have examples, or the day's half of them (PYFLAME_TEST_ROTATION)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a block may take")
    parser.add_argument("--jobs", type=int, default=1, help="pages that run at the same time; the blocks of one page run one after the other")
    parser.add_argument("--step", help="runs the blocks of this step of .ci/run alone")
    parser.add_argument("--folder", type=pathlib.Path, help="all blocks run in this folder; default: each in an empty one")
    arguments = parser.parse_args()
    chosen = arguments.pages or todays([p for p in pages() if p.is_file()])
    if arguments.jobs > 1 and arguments.folder:
        parser.error("--folder: pages that share a folder run one after the other; got --jobs above 1; expected one of both")
    counts = run_pages(chosen, arguments)
    count, failed, skipped = (sum(n) for n in zip(*counts))
    print(f"doc blocks: {count} run, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or arguments.step and not count else 0


if __name__ == "__main__":
    sys.exit(main())
