"""The memory of a training run: what lines, files, events and the page say, and the warnings before memory runs out."""
import json
import os
import re

import pytest
from test_train import data, make, trainer

import pyflame as pf
from pyflame.train import Trainer
from pyflame.train._memory import MemoryMonitor

GIB = 1 << 30


@pytest.fixture
def limit():
    """Sets the limit of the CPU's memory, and takes it back."""
    yield lambda nbytes: pf.memory.configure(limit=nbytes, device="cpu")
    pf.memory.configure(limit=0, device="cpu")


def found(**changed):
    """What look() says of a GPU that is half full."""
    return {"allocated": 20 * GIB, "peak": 30 * GIB, "reserved": 30 * GIB, "total": 80 * GIB, "left": 60 * GIB, "host": GIB, "host_peak": 2 * GIB, "host_total": 64 * GIB, "host_left": 50 * GIB, **changed}


def test_lines_files_and_the_page_have_the_bytes(tmp_path):
    lines, out = [], tmp_path / "run"
    trainer(validation=data(8), epochs=2, log_interval=3, out=out, log=lines.append).fit()
    steps = [line for line in lines if " step " in line]
    assert len(steps) == 4 and all(re.search(r" samples/s, memory [\d.]+ \w+$", line) for line in steps)
    records = [r["memory"] for r in map(json.loads, open(out / "metrics.jsonl")) if "memory" in r]
    assert len(records) == 4
    weights = 4 * sum(p.numel() for p in make().parameters())
    for r in records:
        assert 3 * weights <= r["allocated"] <= r["peak"] <= r["total"]  # weights and both moments of AdamW
        assert 0 < r["left"] <= r["total"] and 0 < r["host"] <= r["host_peak"] <= r["host_total"] and 0 < r["host_left"] < r["host_total"]
    page = (out / "report.html").read_text()
    for text in ("<h2>Memory</h2>", "bytes of the device", "bytes of the process on the host", "loss of a step", "val_loss", "2 epochs, loss "):
        assert text in page
    assert "<h2>Warnings</h2>" not in page and not os.path.exists(out / "report.html.new")


def test_the_peak_is_that_of_the_run():
    before = pf.memory_stats()["allocated"]  # tests of this process may hold some
    held = pf.zeros(5 << 20)
    held.sum().item()
    del held
    t = trainer(epochs=1, log_interval=1)
    seen = []
    t.on_step_end = lambda loss: seen.append(t._memory.look())
    t.fit()
    assert max(s["peak"] for s in seen) < before + 4 * (5 << 20)


def test_events(tmp_path):
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    trainer(epochs=1, out=tmp_path, tensorboard=True, log_interval=1).fit()
    (file,) = os.listdir(tmp_path / "tensorboard")
    written = (tmp_path / "tensorboard" / file).read_bytes()
    assert all(name in written for name in (b"memory/allocated", b"memory/peak", b"memory/host", b"memory/host_peak"))


def test_a_run_near_the_limit_warns_once(tmp_path, limit):
    pf.memory.trim()
    held = pf.zeros(25 << 20)  # 100 MiB
    held.sum().item()
    limit(pf.memory.stats("cpu")["allocated"] + (3 << 20))
    lines = []
    trainer(epochs=1, log_interval=1, out=tmp_path, log=lines.append).fit()
    (said,) = [line for line in lines if line.startswith("warning: memory of cpu is nearly full; got ")]
    assert re.search(r"left at the peak of a step, of \d+\.\d MiB", said) and "hint: a smaller batch_size with as many more gradient_accumulation_steps" in said
    assert [r["step"] for r in map(json.loads, open(tmp_path / "metrics.jsonl")) if "warning" in r] == [1]
    assert "<h2>Warnings</h2>" in (tmp_path / "report.html").read_text()
    del held


class Leaking(Trainer):
    def on_step_end(self, loss):
        self.kept = [*getattr(self, "kept", []), pf.ones(1 << 19)]  # 2 MiB

    def on_epoch_end(self, numbers):
        return numbers["epoch"] < 2


def test_a_run_whose_memory_grows_warns_before_it_is_full(limit):
    pf.memory.trim()  # what other tests left
    limit(pf.memory.stats("cpu")["allocated"] + GIB)
    for epochs, warns in ((1000, True), (50, False)):  # 6000 steps of 2 MiB do not fit into 1 GiB, 300 do
        lines = []
        trainer(cls=Leaking, epochs=epochs, log_interval=1, log=lines.append).fit()
        said = [line for line in lines if re.match(r"warning: memory of cpu grows by 2\.0 MiB a step; got \S+ \S+ at step 6,", line)]
        assert len(said) == warns
        assert not warns or (re.search("which will be all at about step 51.;", said[0]) and "keep loss.item() or loss.detach()" in said[0])


def test_what_is_left_counts_the_peak_of_a_step():
    monitor = MemoryMonitor("cpu", 1000)
    monitor.device, monitor.on_host = "cuda:0", False
    assert monitor.warnings(found(), 1) == []
    assert monitor.warnings(found(left=13.5 * GIB), 2)[0].startswith("memory of cuda:0 is nearly full; got 3.50 GiB left at the peak of a step, of 80.00 GiB; hint: a smaller batch_size")
    assert monitor.warnings(found(left=11 * GIB), 3) == []  # once
    (said,) = monitor.warnings(found(host_left=GIB), 4)
    assert said.startswith("memory of the host is nearly full; got 1.00 GiB left") and "hint: fewer num_workers" in said


def test_growth_of_the_process_on_the_host():
    monitor = MemoryMonitor("cpu", None)
    monitor.device, monitor.on_host = "cuda:0", False
    said = [monitor.warnings(found(host=(1 + k) * GIB), 10 * k) for k in range(6)]
    assert said[:5] == [[]] * 5
    assert said[5] == ["memory of the host grows by 102.4 MiB a step; got 6.00 GiB at step 50, which will be all at about step 550; hint: what training_step, on_step_end or the dataset keep of each step"]
    monitor = MemoryMonitor("cpu", None)
    used = (1, 1, 2, 3, 4, 4, 5, 6, 7, 7)  # it stops in between
    assert [monitor.warnings(found(host=k * GIB), k) for k in used] == [[]] * len(used)


def test_each_process_says_its_own(capsys):
    from pyflame.train._logs import Logs

    with Logs(print, None, False, False, None) as logs:
        logs.line("nothing of rank 3")
        logs.warning(1, 5, "memory of cuda:3 is nearly full", 3)
    assert capsys.readouterr().out == "warning: rank 3: memory of cuda:3 is nearly full\n"
