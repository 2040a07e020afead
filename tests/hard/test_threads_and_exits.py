"""From Python: threads that share tensors, and processes that fork or end while work is running."""
import subprocess
import sys
import threading

import numpy as np
import pytest
from sanitized import forks

import pyflame as pf


def together(*functions):
    """Runs the functions at the same time. Raises the first exception."""
    errors, gate = [], threading.Barrier(len(functions))

    def guarded(f):
        try:
            gate.wait()
            f()
        except BaseException as e:  # noqa: BLE001  (reported below)
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_tensors_pass_between_threads():
    """A chain through four threads. Each adds its share to what the thread before it is still recording."""
    boxes = [[] for _ in range(5)]
    ready = [threading.Semaphore(0) for _ in range(5)]
    for _ in range(200):
        boxes[0].append(pf.zeros(64))
        ready[0].release()

    def work(k):
        def run():
            for i in range(200):
                ready[k].acquire()
                boxes[k + 1].append(boxes[k][i] * 2 + k)
                ready[k + 1].release()

        return run

    together(*(work(k) for k in range(4)))
    assert all((t.numpy() == 11).all() for t in boxes[4])  # (((0*2+0)*2+1)*2+2)*2+3


def test_one_writes_while_others_read():
    """A reader sees one whole write, never parts of two: ops use the values that their inputs have when they are recorded."""
    x, stop = pf.zeros(4096), threading.Event()

    def write():
        for i in range(1, 400):
            x.fill_(i)
        stop.set()

    def read():
        last = 0
        while not stop.is_set():
            values = (x + 0).numpy()
            assert values.min() == values.max() and values[0] >= last
            last = values[0]

    together(write, read, read)
    assert (x.numpy() == 399).all()


def test_models_train_in_threads_as_alone():
    def train(seed):
        rng = np.random.default_rng(seed)
        w = pf.tensor(rng.standard_normal((16, 4)).astype(np.float32), requires_grad=True)
        x = pf.tensor(rng.standard_normal((32, 16)).astype(np.float32))
        opt = pf.optim.Adam([w], lr=0.01)
        for _ in range(60):
            opt.zero_grad()
            (x @ w).square().mean().backward()
            opt.step()
        return w.detach().numpy().copy()

    alone, results = [train(s) for s in range(4)], {}
    together(*(lambda s=s: results.update({s: train(s)}) for s in range(4)))
    for s in range(4):
        np.testing.assert_array_equal(results[s], alone[s])


HEAD = "import os, sys, threading\nimport pyflame as pf\nx = pf.randn(512, 512)\ndef work(n=50):\n    y = x\n    for _ in range(n):\n        y = (y @ x).tanh()\n    return y\n"
ENDINGS = {
    "with work recorded": "y = work()",
    "with work under way": "t = threading.Thread(target=lambda: work(400).sum().item(), daemon=True); t.start(); y = work()",
    "by an exception": "y = work(); raise SystemExit(0)",
    "in a thread's hands": "def f():\n    global y\n    y = work()\nt = threading.Thread(target=f); t.start(); t.join()",
    "with gradients pending": "w = x.clone().requires_grad_(); (w @ x).sum().backward(); g = w.grad",
    "with a generator suspended": "def g():\n    yield work()\n    yield work()\ni = g(); y = next(i)",
    "with a loader's workers": "d = pf.data.TensorDataset(x); it = iter(pf.data.DataLoader(d, batch_size=8, num_workers=1)); b = next(it)",
}


def python(program, seconds=120):
    r = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds)
    assert r.returncode == 0, f"exit code {r.returncode}\n{r.stdout}{r.stderr}"
    return r.stdout


@pytest.mark.parametrize("how", ENDINGS)
def test_the_interpreter_ends(how):
    python(HEAD + ENDINGS[how])


@forks
def test_a_fork_after_use_computes():
    """The child has none of the pool's threads. What was pending at the fork is complete in both processes."""
    out = python(HEAD + """
y = work(5)
pid = os.fork()
value = y.sum().item() + (x * 2).sum().item()
if pid == 0:
    os._exit(0 if value == value else 1)
assert os.waitpid(pid, 0)[1] == 0
print(value == y.sum().item() + (x * 2).sum().item())
""")
    assert out.strip() == "True"


BUSY = HEAD + """
import signal
x = pf.randn(128, 128)
stop = threading.Event()
def compute():
    while not stop.is_set():
        work(20).sum().item()
threads = [threading.Thread(target=compute) for _ in range(2)]
for t in threads: t.start()
def forked(found):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # ends a child that hangs
        try:
            os._exit(0 if found() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1]
try:
"""


@forks
def test_forks_while_other_threads_compute():
    """If the fork did not take the locks, a child could find one that nobody releases."""
    out = python(BUSY + """
    mine = pf.ones(100) * 2
    print([forked(lambda: mine.sum().item() == 200 and (x @ x).isfinite().all().item()) for _ in range(20)])
finally:
    stop.set()
""")
    assert out.strip() == str([0] * 20)


@forks
def test_a_child_completes_what_another_thread_has_recorded():
    out = python(BUSY + """
    box, done = [], threading.Event()
    def record():
        box.append(pf.arange(1000) * 3)
        done.wait()
    t = threading.Thread(target=record); t.start()
    while not box: pass
    status = forked(lambda: box[0].sum().item() == 3 * 999 * 500)
    done.set(); t.join()
    print(status, box[0].sum().item() == 3 * 999 * 500)
finally:
    stop.set()
""")
    assert out.strip() == "0 True"


@forks
def test_forked_loader_workers_start_while_other_threads_compute():
    out = python(BUSY + """
    data = pf.data.TensorDataset(pf.arange(64) * 1)
    for epoch in range(3):
        loader = pf.data.DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork", timeout=60)
        print(sum(b[0].sum().item() for b in loader))
finally:
    stop.set()
""")
    assert out.split() == ["2016"] * 3
