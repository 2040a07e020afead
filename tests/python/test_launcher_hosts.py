"""`pyflame run --nnodes` on several hosts, which are network namespaces: they share the processors and files of this one, and talk over TCP."""
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from hosts import hosts

WORDS = [sys.executable, "-m", "pyflame.distributed.run"]
# Processes of one machine would share memory, although hosts have none in common.
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if k != "TORCHELASTIC_RUN_ID"}, "PYFLAME_NUM_THREADS": "1", "PYFLAME_SHARED_MEMORY": "0"}
PORT = 29500

TRAIN = """
import os, signal, sys, time
import pyflame as pf
import pyflame.distributed as dist
import pyflame.distributed.checkpoint as dcp
from pyflame.nn.parallel import DistributedDataParallel

folder, steps = sys.argv[1], 4
dist.init_process_group(timeout=60)
rank, world = dist.get_rank(), dist.get_world_size()
pf.manual_seed(0)
model = DistributedDataParallel(pf.nn.Linear(3, 2))
optimizer = pf.optim.SGD(model.parameters(), lr=0.1)
x = (pf.arange(24.0) / 24).reshape(8, 3)
part = x[rank * 8 // world:(rank + 1) * 8 // world]
state = {"model": model.module.state_dict(), "step": 0}
if os.path.exists(os.path.join(folder, "checkpoint.json")):
    dcp.load(state, checkpoint_id=folder)
    model.module.load_state_dict(state["model"])
    if rank == 0:
        print("goes on at step", state["step"], flush=True)
while state["step"] < steps:
    optimizer.zero_grad()
    loss = (model(part) - 1).square().mean()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    state = {"model": model.module.state_dict(), "step": state["step"] + 1}
    dcp.save(state, checkpoint_id=folder)
    if rank == 0:
        print(f"step {state['step']} loss {mean.item():.6f}", flush=True)
    AFTER
"""


class Job:
    """The launchers of a job, one on each host."""

    def __init__(self, places, program, *options, arguments=(), nproc=2, skip=()):
        self.places, self.program, self.options, self.arguments, self.nproc = places, program, options, arguments, nproc
        self.launchers = [None if k in skip else self.start(k) for k in range(len(places))]

    def start(self, k):
        return subprocess.Popen(self.places[k].words(*WORDS, "--nnodes", str(len(self.places)), "--node-rank", str(k), "--rdzv", f"{self.places[0].address}:{PORT}", "--nproc", str(self.nproc),
                                                     *self.options, str(self.program), *self.arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in filter(None, self.launchers):
            p.kill()  # its ranks end with it
            p.communicate()

    def finish(self):
        """(exit code, output, errors) of each launcher."""
        return [(p.returncode, *found) for p in self.launchers if p for found in [p.communicate(timeout=60)]]


@pytest.fixture(scope="module")
def two():
    with hosts(2) as places:
        yield places


def losses(text):
    return re.findall(r"step (\d) loss (\S+)", text)


def program(folder, after="pass"):
    path = folder / "program.py"
    path.write_text(TRAIN.replace("AFTER", after))
    return path


def test_training_as_on_one_host(two, tmp_path):
    """Two hosts with two processes each have the losses of one host with four."""
    path = program(tmp_path)
    one = subprocess.run([*WORDS, "--nproc", "4", str(path), str(tmp_path / "one")], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    with Job(two, path, arguments=[str(tmp_path / "two")]) as job:
        found = job.finish()
        words = job.launchers[0].args
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "distributed.md").read_text()
    assert f"`pyflame run {' '.join(words[words.index(WORDS[-1]) + 1:-2])} train.py`" in page
    assert one.returncode == 0 and [code for code, _, _ in found] == [0, 0], (one, found)
    assert losses(found[0][1]) == losses(one.stdout) and len(losses(one.stdout)) == 4, (one, found)
    assert found[1][1] == "" and found[0][2] == found[1][2] == ""


def test_a_restart_goes_on_from_the_checkpoint(two, tmp_path):
    """Rank 3 is killed at step 2: both hosts start all processes again, which go on from the checkpoint to the same losses."""
    # The barrier comes after the line of step 2, which would be missing if rank 0 were ended before it.
    path = program(tmp_path, "state['step'] == 2 and os.environ['RESTART_COUNT'] == '0' and (dist.barrier(), rank == 3 and os.kill(os.getpid(), signal.SIGKILL))")
    with Job(two, path, "--max-restarts", "1", arguments=[str(tmp_path / "folder")]) as job:
        found = job.finish()
    assert [code for code, _, _ in found] == [0, 0], found
    assert "goes on at step 2" in found[0][1] and [s for s, _ in losses(found[0][1])] == ["1", "2", "3", "4"], found
    for _, _, err in found:
        assert re.search(r"^pyflame run: rank 3 on host 1 \(\S+\) failed with signal 9 \(SIGKILL\); the others were ended; start 2 of 2$", err, re.M), found


WAITS = """
import os, sys, time
open(os.path.join(sys.argv[1], os.environ["RESTART_COUNT"] + "-" + os.environ["RANK"]), "w").close()
time.sleep(3600 if os.environ["RESTART_COUNT"] == sys.argv[2] else 0)
"""


def waiting(folder, names):
    until = time.monotonic() + 60
    while not all((folder / name).exists() for name in names):
        assert time.monotonic() < until, sorted(p.name for p in folder.iterdir())
        time.sleep(0.02)


def waits(folder):
    path = folder / "program.py"
    path.write_text(WAITS)
    return path


def test_a_host_that_is_gone(two, tmp_path):
    """The launcher of host 1 is killed in the middle of a collective: host 0 names it and its ranks."""
    path = program(tmp_path, "print('at', rank, flush=True); rank > 1 and time.sleep(3600)")
    with Job(two, path, arguments=[str(tmp_path / "folder")]) as job:
        assert {job.launchers[1].stdout.readline() for _ in range(2)} == {"[2] at 2\n", "[3] at 3\n"}
        job.launchers[1].kill()
        found = job.finish()
    assert found[0][0] == 1, found
    assert re.search(r"^pyflame run: host 1 \(\S+\) with ranks 2, 3 is gone: its launcher was killed, or cannot be reached; the others were ended$", found[0][2], re.M), found


def test_host_0_is_gone(two, tmp_path):
    with Job(two, waits(tmp_path), "--max-restarts", "1", arguments=[str(tmp_path), "0"], nproc=1) as job:
        waiting(tmp_path, ["0-0", "0-1"])
        job.launchers[0].kill()
        _, (code, _, err) = job.finish()
    assert code == 1 and err == f"pyflame run: host 0 ({two[0].address}:{PORT}) is gone: its launcher was killed, or cannot be reached; the processes of host 1 were ended\n", err


def test_a_host_that_comes_again(two, tmp_path):
    """With restarts left, host 0 waits for a launcher that takes the place of the one that was killed."""
    with Job(two, waits(tmp_path), "--max-restarts", "1", arguments=[str(tmp_path), "0"], nproc=1) as job:
        waiting(tmp_path, ["0-0", "0-1"])
        job.launchers[1].kill()
        job.launchers[1].communicate()
        job.launchers[1] = job.start(1)
        found = job.finish()
    assert [code for code, _, _ in found] == [0, 0] and "is gone: its launcher was killed, or cannot be reached; the others were ended; start 2 of 2" in found[0][2], found
    assert (tmp_path / "1-0").exists() and (tmp_path / "1-1").exists()


def test_a_host_that_comes_again_before_it_is_missed():
    """Its new launcher is there while the start with the former one still runs: it is part of the next start."""
    from pyflame.distributed._rendezvous import Rendezvous

    outcomes = queue.SimpleQueue()
    first = Rendezvous("127.0.0.1", 0, 2, 0, nproc=1, max_restarts=1, timeout=30)
    former = Rendezvous("127.0.0.1", first.store.port, 2, 1, nproc=2, max_restarts=1, timeout=30)

    def meet(*launchers):
        threads = [threading.Thread(target=r.meet) for r in launchers]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)

    meet(first, former)
    first.watch(outcomes.put)
    new = Rendezvous("127.0.0.1", first.store.port, 2, 1, nproc=1, max_restarts=1, timeout=30)
    assert new.round == first.round == former.round == 0
    former.store.close()
    outcome = outcomes.get(timeout=30)
    assert outcome["again"] and re.fullmatch(r"host 1 \(\S+\) with ranks 1, 2", outcome["failure"]["who"])
    first.end(again=True)
    meet(first, new)
    assert new.round == first.round == 1
    first.store.close()
    new.store.close()


def test_the_traceback_of_another_host(two, tmp_path):
    """All hosts show the end of what the failed rank said, and have its exit code."""
    path = tmp_path / "program.py"
    path.write_text("import os, sys, time\nif os.environ['RANK'] == '2':\n    import nothing_of_that_name\ntime.sleep(3600)\n")
    with Job(two, path) as job:
        found = job.finish()
    for code, _, err in found:
        assert code == 1 and re.search(r"pyflame run: rank 2 on host 1 \(\S+\) failed with exit code 1; the others were ended\npyflame run: the last lines of rank 2 on host 1 \(\S+\):\n  Traceback", err), found
        assert err.endswith("  ModuleNotFoundError: No module named 'nothing_of_that_name'\n"), found


def test_a_launcher_that_is_ended_ends_the_job(two, tmp_path):
    """Also with restarts left: the user wants the job to end."""
    with Job(two, waits(tmp_path), "--max-restarts", "1", arguments=[str(tmp_path), "0"], nproc=1) as job:
        waiting(tmp_path, ["0-0", "0-1"])
        job.launchers[1].send_signal(signal.SIGTERM)
        found = job.finish()
    assert [code for code, _, _ in found] == [143, 143], found
    assert re.fullmatch(r"pyflame run: the launcher of host 1 \(\S+\) was ended by SIGTERM; the others were ended\n", found[0][2]), found


def test_hosts_that_do_not_come(two, tmp_path):
    """All that came name those that did not."""
    with hosts(3, "c") as three, Job(three, waits(tmp_path), "--rdzv-timeout", "2", skip=[1]) as job:
        found = job.finish()
    assert [(code, err) for code, _, err in found] == [(1, f"pyflame run: timed out after 2 s; host 1 did not come; expected 3 hosts with --rdzv {three[0].address}:{PORT}\n")] * 2, found


def test_a_host_that_waits_less_than_host_0(monkeypatch):
    from pyflame.distributed import _rendezvous

    monkeypatch.setattr(_rendezvous, "_FAREWELL", 0.1)
    first = _rendezvous.Rendezvous("127.0.0.1", 0, 3, 0, nproc=1, timeout=30)
    second = _rendezvous.Rendezvous("127.0.0.1", first.store.port, 3, 1, nproc=1, timeout=0.2)
    with pytest.raises(_rendezvous.Gone, match="^pyflame run: timed out after 0.2 s; the hosts did not all come; expected 3 hosts; hint: host 0 says which ones are missing$"):
        second.meet()
    second.store.close()
    first.store.close()


def test_two_hosts_of_one_number(two, tmp_path):
    with Job(two, waits(tmp_path), arguments=[str(tmp_path), "0"], nproc=1) as job:
        waiting(tmp_path, ["0-0", "0-1"])
        job.options = ["--rdzv-timeout", "1"]
        other = job.start(1)
        code, err = other.wait(60), other.stderr.read()
    assert code == 1 and re.fullmatch(r"pyflame run: host 1 is there already; got --node-rank 1 here and on \S+; expected another number on each host\n", err), err


def test_hosts_that_differ(two, tmp_path):
    with Job(two, waits(tmp_path), skip=[1]) as job:
        job.options = ["--rdzv-id", "other"]
        other = job.start(1)
        code, err = other.wait(60), other.stderr.read()
    assert code == 1 and err == f"pyflame run: the hosts differ in --rdzv-id; got 'other' on host 1; expected '', as on host 0 ({two[0].address}:{PORT})\n", err


def test_a_name_that_is_loopback_at_home(two, tmp_path):
    """Debian writes a host's own name into /etc/hosts as 127.0.1.1. Others reach host 0 nevertheless, and the numbers of processes may differ."""
    path = tmp_path / "program.py"
    path.write_text("import pyflame as pf, pyflame.distributed as dist\ndist.init_process_group(timeout=30)\nx = pf.full((1,), dist.get_rank() + 1.0)\ndist.all_reduce(x)\nprint(x.item(), dist.get_node_local_rank())\n")
    launchers = []
    for k, address in enumerate(["127.0.1.1", two[0].address]):
        (tmp_path / f"hosts{k}").write_text(f"127.0.0.1 localhost\n{address} first.example\n")
        words = [*WORDS, "--nnodes", "2", "--node-rank", str(k), "--rdzv", f"first.example:{PORT}", "--rdzv-timeout", "30", "--nproc", str(2 - k), str(path)]
        launchers.append(subprocess.Popen(two[k].words("sh", "-c", f'mount --bind {tmp_path}/hosts{k} /etc/hosts && exec "$@"', "sh", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT))
    try:
        found = [(p.communicate(timeout=60), p.returncode) for p in launchers]
    finally:
        for p in launchers:
            p.kill()
    assert [(sorted(out.splitlines()), code) for (out, _), code in found] == [(["[0] 6.0 0", "[1] 6.0 1"], 0), (["[2] 6.0 0"], 0)], found


def test_a_host_that_is_silent(monkeypatch):
    """Without a word from a launcher for some time, its place is free: a network that fails closes no connection."""
    from pyflame.distributed import _store
    from pyflame.distributed._rendezvous import _Store

    monkeypatch.setattr(_store, "_SILENCE", 0.2)
    server = _Store("127.0.0.1", 0, is_master=True, timeout=30)
    host = _Store("127.0.0.1", server.port, timeout=30)
    assert host.hold("place", "1") and not server.hold("place", "2") and server.check(["place"])
    until = time.monotonic() + 30
    while server.check(["place"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    host.close()
    server.close()


def test_a_notice_of_what_is_waited_for(monkeypatch, capfd):
    from pyflame.distributed import TCPStore, _store

    monkeypatch.setattr(_store, "_NOTICE", 0.1)
    with pytest.raises(RuntimeError, match="TCPStore: rank 0 cannot be reached within 1 s; got name.invalid:29500"):
        TCPStore("name.invalid", 29500, timeout=1)
    err = capfd.readouterr().err
    assert err.endswith("); waits for 1 s; hint: MASTER_ADDR, MASTER_PORT\n") and err.count("\n") == 1 and err.startswith("TCPStore: rank 0 is not there yet; name.invalid:29500 (")


def test_a_notice_of_hosts_that_are_missing(monkeypatch, capfd):
    from pyflame.distributed import _store
    from pyflame.distributed._rendezvous import Gone, Rendezvous

    monkeypatch.setattr(_store, "_NOTICE", 0.1)
    with pytest.raises(Gone, match="hosts 1, 2 did not come; expected 3 hosts"):
        Rendezvous("127.0.0.1", 0, 3, 0, nproc=1, timeout=0.5).meet()
    assert capfd.readouterr().err == "pyflame run: waits up to 0.5 s for hosts 1, 2 at 127.0.0.1:0\n"


@pytest.mark.parametrize("options, code, message", [
    (["--rdzv", "127.0.0.1", "--nnodes", "2"], 2, "--rdzv: not an address; got 127.0.0.1; expected HOST:PORT with a port from 1 to 65535; hint: `pyflame run *"),
    (["--rdzv", "127.0.0.1:1", "--master-port", "2", "--nnodes", "2"], 2, "--rdzv: there are two places to meet; got --rdzv 127.0.0.1:1 with --master-addr or --master-port; expected one of both; hint: `pyflame run *"),
    (["--rdzv-timeout", "0"], 2, "--rdzv-timeout: out of range; got 0; expected more than 0; hint: `pyflame run *"),
    (["--rdzv", "name.invalid:29500", "--nnodes", "2"], 1, "pyflame run: the address is unknown; got name.invalid (*); expected the name or the address of this host, which has host 0; hint: --rdzv\n"),
    (["--rdzv", "127.0.0.1:1", "--nnodes", "2", "--node-rank", "1", "--rdzv-timeout", "0.5"], 1, "pyflame run: host 0 cannot be reached within 0.5 s; got 127.0.0.1:1 (Connection refused); expected the store of host 0; hint: --rdzv\n"),
])
def test_options(options, code, message, tmp_path):
    r = subprocess.run([*WORDS, *options, str(waits(tmp_path))], capture_output=True, text=True, timeout=60)
    assert r.returncode == code and re.search("[^\n]*".join(map(re.escape, message.rstrip().split("*"))) + "\n$", r.stderr), r


def test_a_port_in_use(tmp_path):
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        r = subprocess.run([*WORDS, "--nnodes", "2", "--rdzv", f"127.0.0.1:{port}", str(waits(tmp_path))], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and r.stderr == f"pyflame run: the address cannot be used; got 127.0.0.1:{port} (Address already in use); expected a free port of this host; hint: another port in --rdzv\n", r
