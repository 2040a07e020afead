"""Runs a program in several processes, each of which is a rank."""
import os
import socket
import subprocess
import sys


def _place():
    """An address of this host that no other test uses: the process has one of its own below 127.0.0.0/8."""
    pid = os.getpid()
    address = f"127.{1 + (pid >> 16) % 200}.{pid >> 8 & 255}.{1 + pid % 254}"
    with socket.socket() as s:
        s.bind((address, 0))
        return address, s.getsockname()[1]


# How processes of one host exchange bytes, and the variables that choose it.
WAYS = {"direct": {}, "shared memory": {"PYFLAME_DIRECT_MEMORY": "0"}, "TCP": {"PYFLAME_SHARED_MEMORY": "0"}}

HEAD = """
import os, sys, time
import pyflame as pf
import pyflame.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""


def start(n, program, folder, ranks=None, **env):
    """The processes of a program, by rank; of these ranks only, or of all n."""
    address, port = _place()
    path = folder / "program.py"
    path.write_text(HEAD + program)
    common = {**os.environ, "WORLD_SIZE": str(n), "MASTER_ADDR": address, "MASTER_PORT": str(port), "PYFLAME_NUM_THREADS": "1", **env}
    return [subprocess.Popen([sys.executable, str(path)], env={**common, "RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in (range(n) if ranks is None else ranks)]


def finish(processes):
    """(exit code, output, errors) of each process; all are ended after two minutes."""
    found = []
    try:
        for p in processes:
            out, err = p.communicate(timeout=120)
            found.append((p.returncode, out, err))
    finally:
        for p in processes:
            p.kill()
    return found


def run(n, program, folder, **env):
    """The output of each process, all of which must end well."""
    found = finish(start(n, program, folder, **env))
    assert all(code == 0 for code, _, _ in found), "\n".join(f"rank {r}: {code}\n{out}{err}" for r, (code, out, err) in enumerate(found))
    return [out for _, out, _ in found]
