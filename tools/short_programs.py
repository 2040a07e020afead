"""Starts short programs on a device and checks that each of them ends in time, with its result and its exit code.

Kernels are compiled in the background, so a program that ends at once ends in the middle of that. The wave emulator shows the order of
events (tests/faults/test_exit.py); only a real device shows what its own libraries do then.

    python tools/short_programs.py --device cuda --count 50 [--program build/release/bin/pyflame_exit_program]
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

HEAD = "import os, sys, time\nimport pyflame as pf\nx = pf.ones(3, device='{device}')\nprint((x + 1).tolist(), flush=True)\n"
RESULT = "[2.0, 2.0, 2.0]"
# Name: text, exit code, whether a cache of kernels is kept from the programs before.
PYTHON = {
    "at once, empty cache": ("", 0, False),
    "at once": ("", 0, True),
    "by sys.exit": ("sys.exit(3)", 3, False),
    "by an exception": ("raise ValueError", 1, False),
    "in a thread": ("import threading\nt = threading.Thread(target=sys.exit)\nt.start(); t.join()", 0, False),
    "while a thread computes": ("import threading\nthreading.Thread(target=lambda: (x * 3 - 1).exp().tolist(), daemon=True).start()", 0, False),
    "with work recorded": ("y = (x * 2 + 1).softmax(0)", 0, False),
    "after a product": ("y = pf.randn(64, 64, device=x.device) @ pf.randn(64, 64, device=x.device); y.sum().item()", 0, False),
    "by SIGINT": ("os.kill(os.getpid(), 2); time.sleep(60)", -signal.SIGINT, False),
    "by SIGTERM": ("os.kill(os.getpid(), 15); time.sleep(60)", -signal.SIGTERM, False),
    "after a fork": ("p = os.fork()\nif p == 0: sys.exit(5)\nsys.exit(os.WEXITSTATUS(os.waitpid(p, 0)[1]))", 5, False),
    "without waiting": ("", 0, False),
}
CPP = {"return": 0, "exit": 7, "exit-in-thread": 8, "static": 0, "quick_exit": 9}


def programs(device, binary):
    """Yields endlessly: name, command, exit code, expected output, environment."""
    with tempfile.TemporaryDirectory() as kept:
        while True:
            for name, (text, code, warm) in PYTHON.items():
                extra = {"PYFLAME_EXIT_WAIT": "0"} if name == "without waiting" else {}
                if warm:
                    extra["PYFLAME_CACHE_DIR"] = kept
                yield f"python: {name}", [sys.executable, "-c", HEAD.format(device=device) + text], code, RESULT, extra
            for how, code in CPP.items() if binary else ():
                yield f"c++: {how}", [binary, device, how], code, "tensor([2., 2., 2.]", {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--program", help="pyflame_exit_program, for endings of a C++ program; default: those of Python only")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one program")
    options = parser.parse_args()
    failed, started = 0, 0
    for name, command, code, result, extra in programs(options.device, options.program):
        if started == options.count:
            break
        started += 1
        with tempfile.TemporaryDirectory() as empty:
            begin = time.monotonic()
            try:
                done = subprocess.run(command, env={**os.environ, "PYFLAME_CACHE_DIR": empty, **extra}, capture_output=True, text=True, timeout=options.limit)
                good = done.returncode == code and result in done.stdout
                said = f"exit code {done.returncode}, expected {code}"
                output = done.stdout + done.stderr
            except subprocess.TimeoutExpired as e:
                good, said, output = False, f"still running after {options.limit:.0f} s", f"{e.stdout}{e.stderr}"
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {time.monotonic() - begin:6.2f} s  {name}" + ("" if good else f": {said}\n{output}"), flush=True)
    print(f"{started - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
