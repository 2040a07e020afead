"""Runs pytest on the folders given, in as many processes as --jobs says (default: one for each core, at most four), and keeps its closing
line in build/pytest-summary.txt. A folder without tests is no failure, but a run that collects no test at all says so.

Every process collects all tests and takes blocks of them. A process takes a block by creating the block's file, so the processes need not talk
to each other, and a long block delays no other one. A file of tests with IN_ONE_PROCESS (the reason) is one block. At the end, the tests that
ran must be those that were collected, each of them once. The first process prints while it runs; the output of the others follows."""
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

BLOCK = 4  # tests


class Worker:
    """The part of one process; the folder is that of all."""

    def __init__(self, folder, number):
        self.folder, self.number, self.collected, self.ran, self.parts = pathlib.Path(folder), number, [], [], []

    def mine(self, items):
        """The tests of the blocks that this process comes to first."""
        for file, tests in itertools.groupby(items, key=lambda item: item.path):
            tests = list(tests)
            size = len(tests) if hasattr(getattr(tests[0], "module", None), "IN_ONE_PROCESS") else BLOCK
            for first in range(0, len(tests), size):
                name = re.sub(r"\W", "_", f"{file}_{first}")
                try:
                    os.close(os.open(self.folder / name, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                yield from tests[first:first + size]

    def pytest_runtestloop(self, session):
        self.collected = [item.nodeid for item in session.items]
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        if session.config.option.collectonly:
            return True
        queue = self.mine(session.items)
        item = next(queue, None)
        while item is not None:
            following = next(queue, None)
            self.ran.append(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def pytest_terminal_summary(self, terminalreporter):
        parts, _ = terminalreporter.build_summary_stats_line()
        self.parts = [text for text, _ in parts]


def work(folder, number, arguments):
    worker = Worker(folder, number)
    code = int(pytest.main(["-q", *arguments], plugins=[worker]))
    document = {"code": code, "collected": worker.collected, "ran": worker.ran, "parts": worker.parts}
    (worker.folder / f"worker-{number}.json").write_text(json.dumps(document))
    return code


def summary(parts):
    """One closing line from those of all processes. Counts of what ran are added; counts that every process has in common are not."""
    counts = {}
    for text in parts:
        number, _, word = text.partition(" ")
        if not number.isdigit():  # "no tests ran": the others ran them
            continue
        word = word if word.endswith("s") or word not in ("error", "warning") else word + "s"
        counts[word] = max(counts.get(word, 0), int(number)) if word == "deselected" else counts.get(word, 0) + int(number)
    order = ("failed", "passed", "skipped", "deselected")
    return ", ".join(f"{counts[word]} {word}" for word in sorted(counts, key=lambda w: (order + (w,)).index(w)))


def together(folder, processes):
    """The exit code and the closing line of all."""
    results = []
    for number, process in enumerate(processes):
        code = process.wait()
        log, document = folder / f"log-{number}", folder / f"worker-{number}.json"
        if number > 0:
            print(f"--- process {number + 1} of {len(processes)}\n{log.read_text(errors='replace')}", flush=True)
        if not document.is_file():
            print(f"run_pytest: process {number + 1} ended with {code} and left no result", file=sys.stderr)
            return 1, "a process died"
        results.append(json.loads(document.read_text()))
    bad = [r["code"] for r in results if r["code"] not in (0, 5)]
    if bad:
        return max(bad), summary(itertools.chain(*(r["parts"] for r in results)))
    ran, collected = sorted(itertools.chain(*(r["ran"] for r in results))), sorted(results[0]["collected"])
    listing = not ran and "--collect-only" in sys.argv
    if ran != collected and not listing:
        difference = sorted(set(ran) ^ set(collected)) or "a test ran twice"
        print(f"run_pytest: {len(collected)} tests were collected and {len(ran)} ran: {difference}", file=sys.stderr)
        return 1, "not all tests ran"
    return (0 if collected else 5), summary(itertools.chain(*(r["parts"] for r in results))) or "no tests were found"


def main(arguments):
    jobs = min(os.cpu_count() or 1, 4)
    for a in [a for a in arguments if a.startswith("--jobs=")]:
        jobs = int(a.partition("=")[2])
        arguments.remove(a)
    if not any(not a.startswith("-") for a in arguments):
        code, line = 5, "no tests were found"
    else:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            processes = []
            for number in range(jobs):
                # What only one process can keep, the first keeps: the terminal and pytest's own cache.
                own = [] if number == 0 else ["-p", "no:cacheprovider"]
                out = None if number == 0 else open(folder / f"log-{number}", "w")
                percent = [] if jobs == 1 else ["-o", "console_output_style=count"]
                command = [sys.executable, __file__, f"--worker={name}:{number}", *own, *percent, *arguments]
                processes.append(subprocess.Popen(command, stdout=out, stderr=out and subprocess.STDOUT, stdin=None if jobs == 1 else subprocess.DEVNULL))
            code, line = together(folder, processes)
    if jobs > 1 and code != 5:
        print(f"{line} (by {jobs} processes)")
    out = pathlib.Path("build") / "pytest-summary.txt"
    out.parent.mkdir(exist_ok=True)
    out.write_text(line + "\n")
    if code == 5:
        print("run_pytest: no tests were found", file=sys.stderr)
        return 0
    return code


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("--worker="):
        at, _, which = sys.argv[1].partition("=")[2].rpartition(":")
        sys.exit(work(at, int(which), sys.argv[2:]))
    sys.exit(main(sys.argv[1:]))
