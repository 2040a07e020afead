"""Runs the code blocks of README.md and docs/**/*.md, so that what they show is true.

    ```python            runs. The python blocks of one page run one after the other in one process, like a notebook;
                         a block whose first line is `# fresh` begins a new one.
    ```python no-run     is shown only
    ```bash run          runs with `set -e` in an empty folder with the built `pyflame` and python on PATH, and this repository's folder
                         in PYFLAME_SOURCE; plain ```bash is shown only
    ```cpp run           is compiled against the library of build/release and run; plain ```cpp is shown only

A page passes when every block exits with 0. Output is shown only of blocks that fail.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^(\s*)```(\w+)?(.*)$")
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(blocks LANGUAGES CXX)
find_package(pyflame REQUIRED)
add_executable(block block.cpp)
target_link_libraries(block PRIVATE pyflame::pyflame)
"""


def blocks(text):
    """(line number, language, words after it, code) of each fenced block."""
    found, current = [], None
    for number, line in enumerate(text.split("\n"), 1):
        match = FENCE.match(line)
        if current is None and match and match.group(2):
            current = (number, match.group(2), match.group(3).split(), match.group(1), [])
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


def runnable(text):
    """(line, language, code): consecutive python blocks are joined, with lines kept in place for tracebacks."""
    tasks, python = [], None
    for line, language, words, code in blocks(text):
        if language == "python" and "no-run" not in words:
            if python is None or code.startswith("# fresh"):
                python = [line, "python", ""]
                tasks.append(python)
            python[2] += "\n" * (line - python[2].count("\n")) + code
        elif language in ("bash", "cpp") and "run" in words:
            tasks.append([line, language, code])
    return tasks


def install_library(build, prefix):
    subprocess.run(["cmake", "--install", str(build), "--component", "cpp", "--prefix", str(prefix)], check=True, capture_output=True)


def run_block(page, language, code, build, folder, timeout):
    environment = dict(os.environ, PYFLAME_SOURCE=str(ROOT), PATH=os.pathsep.join([str(build / "bin"), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))
    if language == "python":
        script = folder / (pathlib.Path(page).name + ".py")
        script.write_text(code)
        command = [sys.executable, str(script)]
    elif language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", code]
    else:
        source = folder / "cpp"
        source.mkdir()
        (source / "block.cpp").write_text(code)
        (source / "CMakeLists.txt").write_text(CMAKE)
        install_library(build, folder / "prefix")
        command = ["bash", "-ec", f"cmake -S {source} -B {source}/build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH={folder}/prefix && "
                   f"cmake --build {source}/build && {source}/build/block"]
    return subprocess.run(command, cwd=folder, env=environment, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=pathlib.Path, help="default: README.md and docs/**/*.md")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a block may take")
    arguments = parser.parse_args()
    pages = arguments.pages or [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if p.is_file()]
    failed = count = 0
    for page in pages:
        for line, language, code in runnable(page.read_text(encoding="utf-8")):
            count += 1
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    run = run_block(page, language, code, arguments.build.resolve(), pathlib.Path(folder), arguments.timeout)
                    code_, output = run.returncode, run.stdout
                except subprocess.TimeoutExpired:
                    code_, output = -1, f"took longer than {arguments.timeout} s"
            print(f"{'ok  ' if code_ == 0 else 'FAIL'} {page.name}:{line} ({language}, {time.monotonic() - start:.1f} s)")
            if code_ != 0:
                failed += 1
                print(output)
    print(f"doc blocks: {count} run, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
