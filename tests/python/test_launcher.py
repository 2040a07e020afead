"""`pyflame run --nproc N script.py`: the launcher of python/pyflame/distributed/run.py."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from pyflame.benchmarking import Records

WORDS = [sys.executable, "-m", "pyflame.distributed.run"]


def launch(folder, program, *options, arguments=(), words=WORDS, code=0):
    (folder / "program.py").write_text(program)
    r = subprocess.run([*words, *options, str(folder / "program.py"), *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, "PYFLAME_NUM_THREADS": "1"})
    assert r.returncode == code, (r.returncode, r.stdout, r.stderr)
    return r


TRAIN = """
import sys
import pyflame as pf
import pyflame.distributed as dist
from pyflame.nn.parallel import DistributedDataParallel
dist.init_process_group()
model = DistributedDataParallel(pf.nn.Linear(3, 1))
optimizer = pf.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = (model(pf.ones(2, 3) * (dist.get_rank() + 1)) - 1).square().mean()
    loss.backward()
    optimizer.step()
everyone = [None] * dist.get_world_size()
dist.all_gather_object(everyone, model.module.weight.tolist())
print(dist.get_rank(), dist.get_node_local_rank(), everyone[0] == everyone[-1], *sys.argv[1:])
"""


def test_training(tmp_path):
    r = launch(tmp_path, TRAIN, "--nproc", "2", arguments=["--nproc", "7", "a b"])  # what follows the program is its own
    assert sorted(r.stdout.splitlines()) == ["[0] 0 0 True --nproc 7 a b", "[1] 1 1 True --nproc 7 a b"]


def test_the_program_of_the_package(tmp_path):
    """The `pyflame` program tells a Python program from a model, and leaves the program's options alone."""
    pyflame = os.environ.get("PYFLAME_BIN") or os.path.join(os.path.dirname(sys.executable), "pyflame")
    r = launch(tmp_path, TRAIN, "--python", sys.executable, "--nproc", "2", arguments=["--device", "x"], words=[pyflame, "run"])
    assert sorted(r.stdout.splitlines()) == ["[0] 0 0 True --device x", "[1] 1 1 True --device x"]
    r = launch(tmp_path, "import os, sys\nprint(os.environ['RANK'], sys.argv[1:])", "--python", sys.executable, arguments=["--seed", "3"], words=[pyflame, "run"])
    assert r.stdout == "[0] 0 ['--seed', '3']\n"
    r = launch(tmp_path, "print('one host')", "--python", sys.executable, "--nnodes", "1", words=[pyflame, "run"])
    assert r.stdout == "[0] one host\n"


FAILS = """
import os, signal, time
import pyflame as pf
import pyflame.distributed as dist
dist.init_process_group()
dist.barrier()
if dist.get_rank() == 1:
    {how}
dist.barrier()
"""


def test_a_failure_ends_all(tmp_path):
    r = launch(tmp_path, FAILS.format(how="raise ValueError('there is no data')"), "--nproc", "3", code=1)
    assert "pyflame run: rank 1 failed with exit code 1; the others were ended\npyflame run: the last lines of rank 1:\n  Traceback (most recent call last):" in r.stderr
    assert r.stderr.endswith("  ValueError: there is no data\n") and "[1] ValueError: there is no data" in r.stderr


def test_a_kill_ends_all(tmp_path):
    r = launch(tmp_path, "import os, signal, time\nos.kill(os.getpid(), signal.SIGKILL) if os.environ['RANK'] == '1' else time.sleep(3600)\n", "--nproc", "2", code=128 + 9)
    assert "pyflame run: rank 1 failed with signal 9 (SIGKILL); the others were ended" in r.stderr


def test_restarts(tmp_path):
    program = "import os, sys, time\nprint('start', os.environ['RESTART_COUNT'], flush=True)\nif os.environ['RESTART_COUNT'] != '2': sys.exit(3) if os.environ['RANK'] == '0' else time.sleep(3600)\n"
    r = launch(tmp_path, program, "--nproc", "2", "--max-restarts", "2")
    assert r.stdout.count("[0] start 0") == r.stdout.count("[1] start 2") == 1 and "rank 0 failed with exit code 3; the others were ended; start 2 of 3" in r.stderr
    r = launch(tmp_path, program, "--nproc", "2", "--max-restarts", "1", code=3)
    assert "start 3" not in r.stderr


def test_several_hosts(tmp_path):
    """Two launchers make one job; here both are on one host."""
    from processes import _place

    address, port = _place()
    (tmp_path / "program.py").write_text("import pyflame as pf, pyflame.distributed as dist\ndist.init_process_group()\nx = pf.ones(1)\ndist.all_reduce(x)\nprint(dist.get_rank(), dist.get_node_local_rank(), x.item())\n")
    hosts = [subprocess.Popen([*WORDS, "--nproc", "2", "--nnodes", "2", "--node-rank", str(k), "--master-addr", address, "--master-port", str(port), str(tmp_path / "program.py")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYFLAME_NUM_THREADS": "1"}) for k in range(2)]
    found = [h.communicate(timeout=120) for h in hosts]
    assert [sorted(out.splitlines()) for out, _ in found] == [["[0] 0 0 4.0", "[1] 1 1 4.0"], ["[2] 2 0 4.0", "[3] 3 1 4.0"]], found


@pytest.mark.parametrize("options, message", [
    (["--nproc", "0", "x.py"], "--nproc: not a number of processes; got 0; expected at least 1, or gpu"),
    (["--nproc", "2", "missing.py"], "there is no such program; got missing.py"),
    (["--nproc", "2", "--nnodes", "2", "x.py"], "--nnodes: the hosts do not know each other; expected --rdzv HOST:PORT with the address of host 0 and a free port there"),
    (["--nnodes", "1", "--node-rank", "1", "x.py"], "--node-rank: out of range; got 1; expected 0 to 0"),
    (["--max-restarts", "-1", "x.py"], "--max-restarts: below 0; got -1"),
    (["--nnodes", "0", "x.py"], "--nnodes: out of range; got 0; expected at least 1"),
    (["--threads", "0", "x.py"], "--threads: out of range; got 0; expected at least 1"),
    (["--master-port", "65536", "x.py"], "--master-port: out of range; got 65536; expected at least 1 and at most 65535"),
])
def test_options(options, message):
    r = subprocess.run([*WORDS, *options], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and message in r.stderr


WAITS = """
import os, time
print(os.getpid(), flush=True)
time.sleep(3600)
"""


def as_in_a_terminal():
    """Tests in the background, or under nohup, ignore these signals, and so would the launcher."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number, code", [(signal.SIGKILL, -9), (signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_no_process_outlives_the_launcher(number, code, tmp_path):
    (tmp_path / "program.py").write_text(WAITS)
    launcher = subprocess.Popen([*WORDS, "--no-prefix", "--nproc", "2", str(tmp_path / "program.py")], stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal)
    ranks = [int(launcher.stdout.readline()) for _ in range(2)]
    launcher.send_signal(number)
    assert launcher.wait(60) == code
    until = time.monotonic() + 60
    for pid in ranks:
        while lives(pid):
            assert time.monotonic() < until, f"process {pid} goes on"
            time.sleep(0.01)


def lives(pid):
    """Whether a process is there, and has not ended. One whose parent is gone may wait for its new parent to see its end."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the second, where it ends between open and read
        return False


def test_a_closed_pipe_ends_all(tmp_path):
    """As in `pyflame run ... | head -1`: the processes do not wait in print() for a reader that is gone."""
    (tmp_path / "program.py").write_text("while True:\n    print('x' * 100)\n")
    launcher = subprocess.Popen([*WORDS, "--nproc", "2", str(tmp_path / "program.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    launcher.stdout.readline()
    launcher.stdout.close()
    assert launcher.wait(60) == 128 + signal.SIGPIPE and launcher.stderr.read() == b""
    launcher.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_ends_all(tmp_path):
    (tmp_path / "program.py").write_text("while True:\n    print('x' * 100)\n")
    with open("/dev/full", "w") as full:
        r = subprocess.run([*WORDS, "--nproc", "2", str(tmp_path / "program.py")], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert r.returncode == 1 and r.stderr == "pyflame run: the output cannot be written; got No space left on device; the processes were ended\n"


def test_a_progress_bar(tmp_path):
    """What a carriage return ends is shown when it is there, and only the last of it among the last lines."""
    program = "import sys\nfor i in range(100):\n    sys.stderr.write(f'{i} of 100\\r')\n    sys.stderr.flush()\nprint(file=sys.stderr)\nsys.stdin.read() or sys.exit('no data')\n"
    r = launch(tmp_path, program, code=1)
    assert "[0] 7 of 100\n[0] 8 of 100\n" in r.stderr and r.stderr.endswith("[0] 99 of 100\n[0] no data\npyflame run: rank 0 failed with exit code 1; the others were ended\npyflame run: the last lines of rank 0:\n  99 of 100\n  no data\n")
    (tmp_path / "program.py").write_text("import sys, time\nsys.stdout.write('1 of 2\\r')\nsys.stdout.flush()\ntime.sleep(3600)\n")
    launcher = subprocess.Popen([*WORDS, str(tmp_path / "program.py")], stdout=subprocess.PIPE)
    assert launcher.stdout.read(11) == b"[0] 1 of 2\r"
    launcher.terminate()
    assert launcher.wait(60) == 143
    launcher.stdout.close()


def test_a_line_without_its_end(tmp_path):
    """A prompt, or the dots of a progress, are shown while the program goes on; another rank does not write into the line."""
    program = """
import os, sys, time
rank, folder = os.environ["RANK"], sys.argv[1]
if rank == "0":
    sys.stdout.write("no end"); sys.stdout.flush()
    while not os.path.exists(folder + "/shown"): time.sleep(0.02)
    print("one"); open(folder + "/one", "w").close()
else:
    while not os.path.exists(folder + "/one"): time.sleep(0.02)
    sys.stdout.write("last")
"""
    (tmp_path / "program.py").write_text(program)
    launcher = subprocess.Popen([*WORDS, "--nproc", "2", str(tmp_path / "program.py"), str(tmp_path)], stdout=subprocess.PIPE)
    assert launcher.stdout.read(10) == b"[0] no end"
    (tmp_path / "shown").touch()
    out, _ = launcher.communicate(timeout=60)
    assert out == b"one\n[1] last" and launcher.returncode == 0
    r = launch(tmp_path, "import sys\nsys.stderr.write('no end')\nsys.exit(3)\n", code=3)
    assert r.stderr == "[0] no end\npyflame run: rank 0 failed with exit code 3; the others were ended\npyflame run: the last lines of rank 0:\n  no end\n"


def test_bytes_and_long_lines(tmp_path):
    """What is no text goes through as it is. A line of many bytes comes whole, and is cut among the last lines."""
    (tmp_path / "program.py").write_text("import sys\nsys.stdout.buffer.write(bytes(range(256)))\n")
    r = subprocess.run([*WORDS, "--no-prefix", str(tmp_path / "program.py")], capture_output=True, timeout=60)
    assert r.stdout == bytes(range(256))
    r = launch(tmp_path, "import sys\nsys.stderr.write('z' * 20_000_000 + '\\n')\nsys.exit('end')\n", code=1)
    assert r.stderr.startswith("[0] zzz") and r.stderr.count("z") == 20_000_000 + 4096 and r.stderr.count("[0] ") == 2 and r.stderr.endswith("  end\n")


def test_output_in_a_plain_locale(tmp_path):
    """Letters that the locale cannot write do not stop the launcher."""
    (tmp_path / "program.py").write_text("print('\u00e9\u4e2d')\n")
    r = subprocess.run([*WORDS, str(tmp_path / "program.py")], capture_output=True, timeout=60, env={**os.environ, "PYTHONIOENCODING": "utf-8", "LC_ALL": "C"})
    assert r.stdout == "[0] \u00e9\u4e2d\n".encode() and r.returncode == 0


def test_threads(tmp_path):
    """The option comes before the environment, and the environment before the processors divided by the processes."""
    (tmp_path / "program.py").write_text("import os\nprint(os.environ['OMP_NUM_THREADS'], os.environ['PYFLAME_NUM_THREADS'])\n")
    for options, want in (["--threads", "3"], "3 3"), ([], "7 5"):
        r = subprocess.run([*WORDS, "--no-prefix", *options, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=60, env={**os.environ, "OMP_NUM_THREADS": "7", "PYFLAME_NUM_THREADS": "5"})
        assert r.stdout == want + "\n", r


def test_who_fails_for_another_is_not_the_cause(tmp_path):
    """Rank 0 ends because rank 1 is gone, and the launcher hears of it first."""
    program = """
import os, sys, time
if os.environ["RANK"] == "0":
    sys.exit("RuntimeError: barrier at a.py:1: rank 1 is gone; its process ended or destroyed its group; expected 2 ranks")
time.sleep(0.3)
sys.exit("ValueError: the cause")
"""
    r = launch(tmp_path, program, "--nproc", "2", code=1)
    assert r.stderr.endswith("pyflame run: rank 1 failed with exit code 1; the others were ended\npyflame run: the last lines of rank 1:\n  ValueError: the cause\n")


def test_bench(tmp_path):
    """The columns of rccl-tests, with no wrong element."""
    r = subprocess.run([*WORDS, "--nproc", "3", "--no-prefix", "-m", "pyflame.distributed.bench", "-b", "3072", "-e", "12288", "-n", "2", "--records", str(tmp_path)], capture_output=True, text=True, timeout=120, check=True)
    rows = [line.split() for line in r.stdout.splitlines() if not line.startswith("#")]
    assert [row[:5] for row in rows] == [[str(size), str(size // 4), "float", redop, root] for redop, root in (("sum", "-1"), ("none", "-1"), ("sum", "-1"), ("none", "0"), ("none", "-1")) for size in (3072, 12288)]
    assert all(float(row[5]) > 0 and row[8] == "0" for row in rows) and re.search(r"# all_reduce: 3 ranks, transport host \((direct|shared memory)\), tensors on cpu", r.stdout)
    kept = Records(tmp_path).find()
    assert [(r.kind, r.device, r.figures["size"], r.figures["ranks"], f"{r.figures['time_us']:.1f}", f"{r.figures['busbw_gbs']:.2f}") for r in kept] == [("collective", "cpu", int(row[0]), 3, row[5], row[7]) for row in rows]
    assert kept[0].name == "all_reduce 3072 bytes, 3 ranks" and "busbw" in str(kept[0]) and {"device", "settings", "state"} <= set(kept[0].environment)
    size, _, _, _, _, us, speed, bus, _ = rows[0]
    assert abs(float(speed) - int(size) / float(us) / 1e3) <= 0.01 and abs(float(bus) - 4 / 3 * float(speed)) <= 0.02


def test_bench_comm_in_one_of_several_processes(monkeypatch):
    from pyflame.benchmarking import __main__ as bench

    called = []
    monkeypatch.setattr(bench, "measure_collectives", lambda words: called.append(words) or 0)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert bench.main(["comm", "--device", "cpu"]) == 0 and called == [["--device", "cpu"]]
    assert bench.main(["comm", "--records", "here", "--no-record"]) == 0 and called[1] == ["--device", "cpu", "--records", "here", "--no-record"]
    assert bench.main(["comm", "--json"]) == 0 and called[2] == ["--device", "cpu", "--json"]


def test_bench_prints_json_alone(tmp_path):
    """With --json each line of the output is a record, whether it is kept or not."""
    words = ["-m", "pyflame.distributed.bench", "--collective", "all_reduce", "-b", "3072", "-e", "12288", "-n", "2", "--json"]
    for kept in (["--no-record"], ["--records", str(tmp_path)]):
        r = subprocess.run([*WORDS, "--nproc", "2", "--no-prefix", *words, *kept], capture_output=True, text=True, timeout=120, check=True)
        rows = [json.loads(line) for line in r.stdout.splitlines()]
        assert [(row["kind"], row["name"], row["figures"]["wrong"]) for row in rows] == [("collective", f"all_reduce {size} bytes, 2 ranks", 0) for size in (3072, 12288)]
    assert [r.figures for r in Records(tmp_path).find()] == [row["figures"] for row in rows]
