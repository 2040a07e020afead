"""`pyflame diagnose PID`: real processes that compute, sleep, wait for input and take memory; and decisions on what was observed elsewhere."""
import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from pyflame.profiler import diagnose
from pyflame.profiler.process import Observation, Watcher

SECONDS = "1.5"


@pytest.fixture
def child():
    """child(program): a Python process that has printed a line."""
    started = []

    def start(program, **options):
        p = subprocess.Popen([sys.executable, "-c", f"print('ready', flush=True)\n{program}"], stdout=subprocess.PIPE, text=True, start_new_session=True, **options)
        started.append(p)
        assert p.stdout.readline() == "ready\n"
        return p

    yield start
    for p in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGKILL)  # its own children, too
        p.wait()
        p.stdout.close()
        if p.stdin:
            p.stdin.close()


@pytest.fixture
def diagnosed(run):
    return lambda p, *more: json.loads(run("diagnose", p.pid, "--seconds", SECONDS, "--json", "--python", sys.executable, *more).stdout)


def test_a_process_that_computes(child, diagnosed):
    p = child("while True: pass")
    d = diagnosed(p)
    assert d["verdict"] == "host-bound" and d["schema"] == "pyflame.diagnose/1" and d["pid"] == p.pid and "while True" in d["command"]
    assert any("py-spy" in step for step in d["next"]) and d["observed"]["states"]["run"] > 0


def test_a_process_that_sleeps(child, diagnosed):
    d = diagnosed(child("import time; time.sleep(1000)"))
    assert d["verdict"] == "idle" and d["sentence"].startswith("It does nothing: its main thread sleeps"), d


def test_a_process_whose_input_comes_slowly(child, diagnosed):
    p = child("import sys\nfor line in sys.stdin: sum(range(1000))", stdin=subprocess.PIPE)
    done = threading.Event()

    def feed():
        while not done.wait(0.02):
            p.stdin.write("a line of input\n" * 50)
            p.stdin.flush()

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        d = diagnosed(p)
    finally:
        done.set()
        feeder.join()
    assert d["verdict"] == "input-bound" and "pipe:[" in d["sentence"], d
    assert d["observed"]["bytes_read"] > 1000


def test_a_process_to_whom_nothing_comes_is_idle(child, diagnosed):
    d = diagnosed(child("import sys; sys.stdin.read()", stdin=subprocess.PIPE))
    assert d["verdict"] == "idle" and "nothing comes" in d["sentence"] and "pipe:[" in d["sentence"], d


def test_a_process_that_takes_new_memory_all_the_time(child, diagnosed):
    d = diagnosed(child("import mmap\nwhile True:\n    m = mmap.mmap(-1, 64 << 20)\n    for i in range(0, 64 << 20, 4096): m[i] = 1\n    m.close()"))
    assert d["observed"]["minor_faults"] > 1000
    if d["observed"]["kernel"] > 0.3 * d["observed"]["cpu"]:  # how much a page costs is the machine's
        assert d["verdict"] == "memory-bound" and "new pages" in d["sentence"], d
    else:
        assert d["verdict"] == "host-bound", d


def test_workers_that_are_waited_for(child, diagnosed):
    d = diagnosed(child("import subprocess, sys; subprocess.run([sys.executable, '-c', 'import os\\nif os.fork(): os.wait()\\nwhile True: pass'])"))
    observed = Observation(1, "x", seconds=1, children=d["observed"]["children"])
    assert d["verdict"] == "input-bound" and "worker processes" in d["sentence"] or sum(observed.children.values()) < diagnose.BUSY * d["seconds"], d


def test_a_stopped_process(child, diagnosed):
    p = child("import time; time.sleep(1000)")
    p.send_signal(signal.SIGSTOP)
    d = diagnosed(p)
    assert d["verdict"] == "stopped" and f"kill -CONT {p.pid}" in d["next"][0]


def test_text(child, run):
    p = child("import time; time.sleep(1000)")
    out = run("diagnose", p.pid, "--seconds", "0.2", "--python", sys.executable).stdout
    assert out.startswith("idle: It does nothing") and f"process    {p.pid}: " in out and "Evidence\n- CPU: 0.00 cores" in out and f"py-spy dump --pid {p.pid}" in out


def test_a_process_that_ends_meanwhile(child):
    p = child("import time; time.sleep(0.3)")
    threading.Thread(target=p.wait).start()
    o = Watcher(p.pid).watch(600)
    assert o.seconds < 500 and sum(o.states.values()) >= 1 and diagnose.decide(o)[1] and diagnose.evidence(o)


def test_errors(run, child):
    p = child("")
    p.wait()
    assert f"there is no such process; got {p.pid}" in run("diagnose", p.pid, "--python", sys.executable, code=1).stderr
    for wrong in (["abc"], [], ["0"], ["1", "--seconds", "0"]):
        assert run("diagnose", *wrong, code=2).stderr
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError, match="diagnose: the process has ended; got"):
        Watcher(zombie.pid)
    zombie.wait()


def test_a_process_of_another_user(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text("7 (daemon) S " + "0 " * 50)
    with pytest.raises(PermissionError, match="diagnose: the process may not be read; got 7; expected one of this user"):
        Watcher(7, proc=tmp_path)


def test_interrupted(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Watcher, "watch", interrupt)
    monkeypatch.setattr(sys, "argv", ["diagnose", str(os.getpid())])
    assert diagnose.main() == 130 and capsys.readouterr() == ("", "")


# ---- decisions on machines that are not here


def seen(**values):
    states = values.pop("states", {"run": 100})
    return Observation(5, "train", **{"seconds": 10.0, "cpu": 10.0, "kernel": 0.5, "threads": {5: ("train", 10.0)}, "states": collections.Counter(states)} | values)


@pytest.mark.parametrize("observation,verdict,words", [
    (seen(gpus={"AMD card0": [(95, 30), (99, 34)]}), "device-bound", "busy for 97 %"),
    (seen(gpus={"AMD card0": [(95, 90)]}), "memory-bound", "its memory for 90 %"),
    (seen(gpus={"AMD card0": [(20, None)], "AMD card1": [(30, None)]}), "host-bound", "GPU is busy for 30 %"),
    (seen(counters={"cycles": 1000, "instructions": 300, "misses": 9}), "memory-bound", "0.30 instructions in a cycle, and 30 misses"),
    (seen(counters={"cycles": 1000, "instructions": 2000, "misses": 1}), "host-bound", "1.00 cores"),
    (seen(kernel=5.0, minor_faults=100_000), "memory-bound", "10000 new pages"),
    (seen(cpu=0.5, states={"disk": 90, "run": 10}, major_faults=5000), "input-bound", "the disk in 90 %"),
    (seen(cpu=3.0, states={"lock": 60, "run": 40}, major_faults=5000), "memory-bound", "500 pages a second"),
    (seen(cpu=1.0, children={"worker (6)": 20.0}, states={"poll": 90, "run": 10}), "input-bound", "2.0 cores while it waits"),
    (seen(cpu=1.0, states={"poll": 90, "run": 10}, bytes_read=10_000_000), "input-bound", "waits for events"),
    (seen(cpu=3.0, states={"lock": 70, "run": 30}), "mixed", "0.30 cores"),
    (seen(cpu=0.0, states={"lock": 100}), "idle", "waits for other threads"),
])
def test_decisions(observation, verdict, words):
    got, sentence, steps = diagnose.decide(observation)
    assert got == verdict and words in sentence and steps and diagnose.evidence(observation), sentence
