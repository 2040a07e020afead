"""PyFlame's kernels under NVIDIA's compute-sanitizer, on a machine with an NVIDIA GPU: small cases of every op, dtype and kind of kernel,
with values and gradients, and the C++ device tests. Nothing is left to libraries.

    python tools/cuda_sanitizer.py --program build/release/tests/cpp/pyflame_backends_test
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SKIPPED = 77
TOOLS = ("memcheck", "racecheck", "initcheck")
FOUND = 99  # exit code that says that something was found
# Every launch by itself, every kernel the one that stays: neither replayed as a graph nor interpreted nor a library's.
SETTINGS = {"PYFLAME_TEST_DEVICE": "cuda", "PYFLAME_GPU_GRAPHS": "0", "PYFLAME_INTERPRET": "0", "PYFLAME_GPU_LIBRARIES": "0"}

Result = collections.namedtuple("Result", "name outcome seconds kernels text")


def collect_cases(python, choice, each):
    """Tests of the case tables in order, a kind at a time, so that neighbours share kernels."""
    r = subprocess.run([python, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/ops/test_cases.py", "-k", choice],
                       cwd=ROOT, env=dict(os.environ, PYFLAME_TEST_CASES=str(each), **SETTINGS), capture_output=True, text=True)
    nodes = [line for line in r.stdout.split("\n") if "::" in line]
    if not nodes:
        sys.exit(f"no tests were collected for -k '{choice}':\n{r.stdout}{r.stderr}")
    return nodes


def collect_program(program, pattern):
    r = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True, check=True)
    suite, names = "", []
    for line in r.stdout.split("\n"):
        if line.startswith("  "):
            names.append(suite + line.split()[0])
        elif line.endswith("."):
            suite = line.strip()
    return names


def check(name, command, a, tool):
    """One process under one tool."""
    options = [a.sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", str(FOUND), "--print-limit", "20"]
    start = time.monotonic()
    try:
        r = subprocess.run([*options, *map(str, command)], cwd=ROOT, env=dict(os.environ, **SETTINGS), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           errors="replace", timeout=a.timeout)
        code, text = r.returncode, r.stdout
    except subprocess.TimeoutExpired as e:
        code, text = None, (e.stdout or b"").decode(errors="replace")
    kernels = collections.Counter(re.findall(r"(?:\bat|in) (pf_\w+)", text))
    summaries = [int(n) for n in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)]
    outcome = "time-out" if code is None else "found" if any(summaries) or code == FOUND else "failed" if code or not summaries else "clean"
    return Result(name, outcome, time.monotonic() - start, kernels, text)


def main(arguments):
    parser = argparse.ArgumentParser(description="PyFlame's kernels under compute-sanitizer")
    parser.add_argument("--sanitizer", default=shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--python", default=sys.executable, help="a Python that has the pyflame module and pytest")
    parser.add_argument("--cases", default="test_values or test_gradient_in_own_dtype", help="which of tests/ops/test_cases.py, as pytest's -k")
    parser.add_argument("--each", type=int, default=1, help="cases of each op, dtype and kind of test; 0: all")
    parser.add_argument("--program", type=os.path.abspath, help="the C++ test program pyflame_backends_test")
    parser.add_argument("--filter", default="*OnGpu*:*IndexOn*:*OrderOn*:*RowsOn*:GpuLoopOnDevice*", help="its tests, as --gtest_filter")
    parser.add_argument("--chunk", type=int, default=40, help="cases of one process")
    parser.add_argument("--timeout", type=int, default=900, help="seconds of a process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--log", default="build/cuda-sanitizer", help="folder for the output of each process that was not clean")
    a = parser.parse_args(arguments)
    if not pathlib.Path(a.sanitizer).is_file():
        print(f"!!! SKIPPED: there is no {a.sanitizer}; nothing was checked", file=sys.stderr)
        return SKIPPED
    log = pathlib.Path(a.log)
    log.mkdir(parents=True, exist_ok=True)
    work = []
    if a.program:
        work += [(name, [a.program, f"--gtest_filter={name}"]) for name in collect_program(a.program, a.filter)]
    nodes = collect_cases(a.python, a.cases, a.each)
    work += [(f"cases-{i}-{i + a.chunk}", [a.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *nodes[i:i + a.chunk]]) for i in range(0, len(nodes), a.chunk)]
    print(f"{len(nodes)} cases in {len(work)} processes under each tool", flush=True)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for tool in a.tools.split(","):
            counts, kernels, start = collections.Counter(), collections.Counter(), time.monotonic()
            for done in concurrent.futures.as_completed([pool.submit(check, *w, a, tool) for w in work]):
                r = done.result()
                counts[r.outcome] += 1
                kernels += r.kernels
                if r.outcome != "clean":
                    bad += 1
                    (log / f"{tool}-{r.name}.txt").write_text(r.text)
                    print(f"  {tool}: {r.outcome} in {r.name} ({r.seconds:.0f} s) {dict(r.kernels)}\n    | " + "\n    | ".join(r.text.strip().split("\n")[-4:]), flush=True)
            print(f"{tool}: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))} of {len(work)} processes in {time.monotonic() - start:.0f} s; kernels named: {dict(kernels) or 'none'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
