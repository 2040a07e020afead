"""`pyflame optimize`: changes that need figures of the program's loaders, memory and accumulation. Clocks and figures are injected; no test measures time."""
import json
import os
import re
import subprocess
import sys

import pytest

import pyflame as pf
from pyflame import _configuration
from pyflame.optimizing import __main__ as commands
from pyflame.optimizing import candidates, gate, machine, page, resources, suggestions
from pyflame.optimizing.journal import Journal
from pyflame.train import _trainer

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_TEST_DEVICE", "cpu") != "cpu", reason="programs on the CPU")


def names(found):
    return [c.name for c in found]


def proposed(facts, name, tmp_path, level=2):
    """The candidate of this name, or None."""
    found = [c for c in candidates.candidates(level, facts, tmp_path) if c.name == name]
    for c in found:
        _configuration.write_settings(tmp_path / "s.toml", c.changes, c.name)
        assert {k: v for k, v in _configuration.read_settings(tmp_path / "s.toml").items() if v} == c.changes  # a settings file can say it
    return found[0] if found else None


# One process imports PyFlame, and each program runs in a copy of it, because the import takes longer than the programs. A line on stdin: folder and arguments.
SERVER = """
import json, os, sys, traceback
import pyflame as pf
from pyflame.optimizing import observe
from pyflame.tuning import child
for line in sys.stdin:
    folder, words = json.loads(line)
    copy = os.fork()
    if copy == 0:
        os.chdir(folder)
        with open("log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code, sys.argv = 1, ["child", *words]
        try:
            pf.load_settings("run.toml")
            code = child.main()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitpid(copy, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def run():
    """run(folder, text, tables, plan): a run of a program with settings, as the machine makes it: (head, records), or what it printed if it failed."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(tmp_path, text, tables, plan=False):
        (tmp_path / "t.py").write_text(text)
        _configuration.write_settings(tmp_path / "run.toml", tables, "A trial.")
        server.stdin.write(json.dumps([str(tmp_path), ["--report", "steps", "--observe", "observed", *(["--plan"] if plan else []), "--", "t.py"]]) + "\n")
        server.stdin.flush()
        return gate.read(tmp_path / "observed") if server.stdout.readline() == "0\n" else (tmp_path / "log").read_text()

    yield run
    server.stdin.close()
    assert server.wait() == 0


class Trial(machine.Machine):
    """Tries one candidate. The runs that are given stand for real ones: `without` it and `with_it`."""

    def __init__(self, tmp_path, candidate, without, with_it):
        self.said, self._runs = [], (without, with_it)
        super().__init__((__file__, None, []), str(tmp_path), Journal(str(tmp_path / "optimize.jsonl")), "step time", 1e6, 5, 3, 60.0, self.said.append, None)
        self._found = candidate

    def run(self, kept, what):
        return self._runs[self._found in kept]

    def profile(self):
        return candidates.Facts()

    def play(self, monkeypatch):
        """(the verdict in the journal, the settings that are kept, the page)."""
        monkeypatch.setattr(candidates, "candidates", lambda *_: [self._found])
        self.cycle(set())
        [entry] = self.journal.of("candidate")
        return entry["verdict"], {k: v for k, v in _configuration.read_settings(self.result).items() if v}, page.render(self.journal, "t.py", "")


def tried(tmp_path, monkeypatch, candidate, without, with_it, speed=2.0):
    """What the machine makes of a candidate, from what two real runs computed and a speed that is given."""
    runs = [machine.Run(1.0 / s, "" if isinstance(r, tuple) else r, *reversed(r if isinstance(r, tuple) else ({}, [])), 1.0, 9) for r, s in ((without, 1.0), (with_it, speed))]
    return Trial(tmp_path, candidate, *runs).play(monkeypatch)


# ---- workers of loaders


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def waiting(batch, work, count=20, busy=1.0):
    """What is found for a program whose batches take `batch` seconds, the part `busy` of them on a core, and its work on each `work` seconds."""
    clock, processor = Clock(), Clock()
    loaders = resources.Loaders(clock, processor)

    def batches():
        for k in range(count):
            clock.now += batch
            processor.now += busy * batch
            yield k

    for k in loaders.timed(batches()):
        clock.now += 100.0 if k < 3 else work  # the first steps compile
    return loaders.found()


def test_the_time_that_a_program_waits_for_its_loader():
    assert waiting(0.03, 0.01) == pytest.approx((0.75, 1.0)) and waiting(0.01, 0.0) == pytest.approx((1.0, 1.0)) and waiting(0.01, 0.03, busy=0.2) == pytest.approx((0.25, 0.2))
    assert waiting(0.0, 0.01) == waiting(1.0, 1.0, count=1) == resources.Loaders().found() == (0.0, 1.0)  # one batch says nothing


def test_workers_are_proposed_when_the_program_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "_cores", lambda: 8)
    found = proposed(candidates.Facts(waiting=0.75, shares={"idle": 0.75}), "loader_workers", tmp_path)
    assert found.changes == {"engine": {"loader_workers": 3}} and abs(found.gain - 4.0) < 1e-9 and found.precision is None and "75%" in found.reason
    few = proposed(candidates.Facts(waiting=0.5, shares={"GEMM": 0.5}), "loader_workers", tmp_path)
    assert few.changes == {"engine": {"loader_workers": 1}} and abs(few.gain - 2.0) < 1e-9
    monkeypatch.setattr(candidates, "_cores", lambda: 3)
    slow = proposed(candidates.Facts(waiting=0.9), "loader_workers", tmp_path)
    assert slow.changes == {"engine": {"loader_workers": 2}} and abs(slow.gain - 1 / 0.45) < 1e-9  # the two workers are what it waits for
    disk = proposed(candidates.Facts(waiting=0.9, busy=0.25), "loader_workers", tmp_path)
    assert disk.changes == {"engine": {"loader_workers": 8}} and abs(disk.gain - 1 / 0.1125) < 1e-9  # eight that work a quarter of their time keep two cores busy
    monkeypatch.setattr(candidates, "_cores", lambda: 2)
    assert proposed(candidates.Facts(waiting=0.97, busy=0.0), "loader_workers", tmp_path).changes == {"engine": {"loader_workers": 8}}  # four a core


def test_workers_are_not_proposed_when_they_cannot_help(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "_cores", lambda: 8)
    for facts in (candidates.Facts(), candidates.Facts(waiting=0.001), candidates.Facts("cuda:0", waiting=0.5, idle=0.0, shares={"GEMM": 1.0})):
        assert proposed(facts, "loader_workers", tmp_path) is None
    assert abs(proposed(candidates.Facts("cuda:0", waiting=0.5, idle=0.2, shares={"GEMM": 0.8}), "loader_workers", tmp_path).gain - 1.25) < 1e-9
    monkeypatch.setattr(candidates, "_cores", lambda: 1)
    assert proposed(candidates.Facts(waiting=0.5), "loader_workers", tmp_path) is None  # one core has no time for workers


LOADED = """
import numpy as np
import pyflame as pf

class Squares(pf.data.BASE):
    BODY

if __name__ == "__main__":
    pf.data.loader.start_method = "fork"
    total = 0.0
    for batch in pf.data.DataLoader(Squares(), batch_size=2):
        total += batch.sum().item()
    print(total)
"""
MAP = LOADED.replace("BASE", "Dataset").replace("BODY", "__len__ = lambda self: 12\n    __getitem__ = lambda self, i: np.float32(i * i) + np.float32(np.random.rand())")
STREAM = LOADED.replace("BASE", "IterableDataset").replace("BODY", "__iter__ = lambda self: iter(np.arange(12, dtype=np.float32))")  # each worker gives all of it
WORKERS = candidates.Candidate("loader_workers", 2, {"engine": {"loader_workers": 2}}, "why", None, 2.0)


def test_workers_that_help_are_kept(run, tmp_path, monkeypatch):
    without, with_it = run(tmp_path, MAP, {}), run(tmp_path, MAP, WORKERS.changes)
    assert 0 < without[0]["waiting"] <= 1 and with_it[0]["waiting"] == 0  # what has workers is not waited for here
    verdict, kept, text = tried(tmp_path, monkeypatch, WORKERS, without, with_it)
    assert verdict == "kept" and kept == WORKERS.changes and "2.00 times as fast" in text


READS = MAP.replace("np.float32(i * i)", "np.float32(pf.tensor(i * i).item())")


def test_what_a_dataset_reads_is_not_compared(run, tmp_path, monkeypatch):
    """With workers it reads in another process."""
    without, with_it = run(tmp_path, READS, {}), run(tmp_path, READS, WORKERS.changes)
    assert len(without[1]) == len(with_it[1]) == 6  # the totals of the batches
    assert tried(tmp_path, monkeypatch, WORKERS, without, with_it)[0] == "kept"


def test_the_gate_reverts_workers_that_repeat_a_stream(run, tmp_path, monkeypatch):
    verdict, kept, text = tried(tmp_path, monkeypatch, WORKERS, run(tmp_path, STREAM, {}), run(tmp_path, STREAM, WORKERS.changes))
    assert verdict == "wrong" and kept == {} and "instead of" in text


# ---- recomputation

MIB = 2**20
OFF = {"off": {"saves": 30 * MIB, "flops": 1.25}}
ON = {"on": {"modules": ["0", "2"], "saves": 20 * MIB, "flops": 1.1}}


def test_recomputation_is_switched_off_where_all_fits(tmp_path):
    facts = candidates.Facts(capacity=100 * MIB, peak=50 * MIB, recomputation=OFF, shares={"GEMM": 0.5, "elementwise": 0.5})
    found = proposed(facts, "no_recomputation", tmp_path)
    assert found.changes == {"engine": {"gradient_checkpointing": False}} and abs(found.gain - 1 / (1 - 0.5 * 0.2)) < 1e-9
    assert "adds 25% to the FLOPs" in found.reason and "80.00 MiB of 100.00 MiB" in found.reason
    facts.shares = {}
    assert abs(proposed(facts, "no_recomputation", tmp_path).gain - 1.25) < 1e-9


def test_recomputation_stays_where_it_must(tmp_path):
    for change in ({"peak": 61 * MIB}, {"recomputation": {}}, {"recomputation": {"why": "no plan"}}, {"recomputation": {"off": {"saves": 0, "flops": 1.0}}}, {"shares": {"idle": 1.0}}):
        facts = candidates.Facts(**{"capacity": 100 * MIB, "peak": 50 * MIB, "recomputation": OFF, **change})
        assert proposed(facts, "no_recomputation", tmp_path) is None, change


def test_recomputation_is_proposed_when_memory_is_short(tmp_path):
    facts = candidates.Facts("rocm:0", capacity=100 * MIB, peak=99 * MIB, retries=7, recomputation=ON, idle=0.4, shares={"GEMM": 0.6, "idle": 0.4})
    found = proposed(facts, "recomputation", tmp_path)
    assert found.changes == {"engine": {"gradient_checkpointing": ["0", "2"]}} and abs(found.gain - 1 / (0.6 + 0.06)) < 1e-9
    assert "freed its caches 7 times" in found.reason and "10% more FLOPs" in found.reason
    for change in ({"retries": 0}, {"peak": 80 * MIB}, {"idle": 0.0}, {"recomputation": {}}):
        assert proposed(candidates.Facts(**{**vars(facts), **change}), "recomputation", tmp_path) is None, change


BLOCKS = """
import pyflame as pf
from pyflame import nn
pf.memory.configure(limit=LIMIT)
pf.manual_seed(3)
block = lambda: nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 32), nn.Tanh())
model = nn.Sequential(*[block() for _ in range(4)])
RECOMPUTED
optimizer = pf.optim.SGD(model.parameters(), lr=0.01)
x = pf.randn(256, 32)
for step in range(3):
    loss = (model(x) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item())
"""
RECOMPUTED = BLOCKS.replace("RECOMPUTED", "model.enable_gradient_checkpointing()")


def test_what_the_programs_own_recomputation_costs_and_its_gate(run, tmp_path, monkeypatch):
    without = run(tmp_path, RECOMPUTED.replace("LIMIT", str(64 * MIB)), {}, plan=True)
    head = without[0]
    assert head["memory"]["capacity"] == 64 * MIB and 0 < head["memory"]["peak"] < 32 * MIB
    off = head["recomputation"]["off"]
    assert abs(off["flops"] - 4 / 3) < 0.05  # forward, backward (twice as much), and forward again; the first layer has no gradient of its input
    assert off["saves"] > 256 * 128 * 4
    facts = candidates.facts_of(None, head)
    change = proposed(facts, "no_recomputation", tmp_path)
    with_it = run(tmp_path, RECOMPUTED.replace("LIMIT", str(64 * MIB)), change.changes)
    assert with_it[0]["memory"]["peak"] > head["memory"]["peak"]  # it is off
    verdict, kept, text = tried(tmp_path, monkeypatch, change, without, with_it, 1.25)
    assert verdict == "kept" and kept == change.changes and "gradient_checkpointing = False" in text


def test_a_program_near_its_limit_has_a_plan_of_recomputation(run, tmp_path, monkeypatch):
    text = BLOCKS.replace("RECOMPUTED", "").replace("LIMIT", "0") + "pf.memory.configure(limit=int(1.05 * pf.memory.stats()['peak_allocated']))\n"
    without = run(tmp_path, text, {}, plan=True)
    on = without[0]["recomputation"]["on"]
    assert on["modules"] and set(on["modules"]) < {"0", "1", "2", "3"} and on["saves"] > 0 and 1 < on["flops"] < 4 / 3
    facts = candidates.facts_of(None, {**without[0], "memory": {**without[0]["memory"], "retries": 3}})
    facts.idle = 0.5
    change = proposed(facts, "recomputation", tmp_path)
    with_it = run(tmp_path, text, change.changes)
    assert with_it[0]["memory"]["peak"] < without[0]["memory"]["peak"]
    verdict, kept, _ = tried(tmp_path, monkeypatch, change, without, with_it)
    assert verdict == "kept" and kept == change.changes


COUNTING = BLOCKS.replace("RECOMPUTED", """
class Counting(nn.Module):  # its second call computes something else
    calls = 0
    def forward(self, x):
        self.calls += 1
        return x * self.calls
model.append(nn.Sequential(nn.Linear(32, 32), Counting()))
""").replace("LIMIT", "0")


def test_the_gate_reverts_recomputation_of_a_block_that_counts_its_calls(run, tmp_path, monkeypatch):
    change = candidates.Candidate("recomputation", 2, {"engine": {"gradient_checkpointing": ["4"]}}, "why", "float32", 2.0)
    verdict, kept, text = tried(tmp_path, monkeypatch, change, run(tmp_path, COUNTING, {}), run(tmp_path, COUNTING, change.changes))
    assert verdict == "wrong" and kept == {} and "gradient" in text


def test_a_step_that_cannot_be_planned_says_why(monkeypatch):
    monkeypatch.setattr(resources.functions, "used", False)  # other tests of this process may have recomputed something

    class Branches(pf.nn.Module):
        def forward(self, x):
            raise KeyError("values")

    found = {"capacity": 100, "peak": 95, "retries": 0}
    assert resources.recomputation(None, {**found, "peak": 85}) == {}  # nothing to decide
    assert resources.recomputation(None, found) == {"why": "the program does not call its module twice in training"}
    assert resources.recomputation(resources.Call(Branches(), (pf.ones(2),), {}), found)["why"] == "a step cannot be planned: KeyError: 'values'"
    assert pf.autograd.recompute.enabled and pf.get_device() == "cpu"  # all is as it was


def stack():
    made = pf.nn.Sequential(pf.nn.Sequential(pf.nn.Linear(4, 4)), pf.nn.Sequential(pf.nn.Linear(4, 4)))
    calls = []
    for block in made:
        block[0].register_forward_hook(lambda *_: calls.append(1))
    return made, calls


def step(model, calls):
    calls.clear()
    model(pf.ones(2, 4)).sum().backward()
    return len(calls)


def test_the_setting_gradient_checkpointing():
    model, calls = stack()
    with pf.settings(gradient_checkpointing=["1"]):
        with pf.no_grad():
            stack()[0](pf.ones(2, 4))  # not in training
        assert step(model, calls) == 3 and step(model, calls) == 3
        assert step(*stack()) == 2  # of the first module alone
    assert step(model, calls) == 2
    model.enable_gradient_checkpointing()
    with pf.settings(gradient_checkpointing=False):
        assert step(model, calls) == 2
        assert pf.utils.checkpoint.checkpoint(lambda x: x * 2, pf.ones(2)).tolist() == [2.0, 2.0]
        with pytest.raises(TypeError, match="checkpoint: the function returned int; expected a tensor"):
            pf.utils.checkpoint.checkpoint(lambda x: 3, pf.ones(2))
    assert step(model, calls) == 4
    with pf.settings(gradient_checkpointing=["1"]):
        assert step(model, calls) == 4
    assert step(model, calls) == 4  # what the program recomputes itself stays


def test_the_setting_gradient_checkpointing_refuses(tmp_path):
    for value in (True, 0, "1", [1]):
        with pytest.raises(ValueError, match=r"settings: not a value of gradient_checkpointing; got .*; expected false, or a list of names of modules"):
            pf.settings(gradient_checkpointing=value)
    model, calls = stack()
    with pf.settings(gradient_checkpointing=["1", "h.7"]):
        with pytest.raises(ValueError, match=r"settings: gradient_checkpointing names modules that are not there; got h.7; expected names of modules in Sequential"):
            model(pf.ones(2, 4))
    assert step(model, calls) == 2


# ---- batches of an optimizer step


def test_batches_are_merged_where_they_fit(tmp_path):
    facts = candidates.Facts("cuda:0", capacity=100 * MIB, peak=20 * MIB, accumulation={"batches": 8, "file": "t.py", "trainer": True}, idle=0.6, shares={"idle": 0.6, "GEMM": 0.4})
    found = proposed(facts, "merged_batches", tmp_path)
    assert found.changes == {"engine": {"merged_batches": 4}} and abs(found.gain - 1 / (0.4 + 0.6 / 4)) < 1e-9 and found.precision == "float32"
    assert "80.00 MiB of 100.00 MiB" in found.reason
    for change in ({"peak": 46 * MIB}, {"idle": 0.0}, {"waiting": 0.6}, {"accumulation": {}}, {"accumulation": {**facts.accumulation, "trainer": False}}, {"capacity": 0}):
        assert proposed(candidates.Facts(**{**vars(facts), **change}), "merged_batches", tmp_path) is None, change


def test_how_many_backward_passes_a_step_has():
    def found(counts, paths=("/t.py",)):
        accumulation = resources.Accumulation()
        for n in counts:
            for k in range(n):
                accumulation.backward(paths[k % len(paths)])
            accumulation.step()
        return accumulation.found()

    assert found([4, 4, 4]) == found([4, 4, 2, 4, 4, 2]) == {"batches": 4, "file": "/t.py", "trainer": False}
    assert found([1, 1]) == found([2, 1, 2, 1]) == found([]) == found([2, 2], ("/a.py", "/b.py")) == {}


TRAINED = """
import pyflame as pf
from pyflame import nn
from pyflame.train import Trainer
pf.manual_seed(3)
model = nn.Sequential(nn.Linear(8, 16), NORM, nn.Tanh(), nn.Linear(16, 1))
data = pf.data.TensorDataset(pf.randn(36, 8), pf.randn(36, 1))
Trainer(model, data, loss=nn.functional.mse_loss, epochs=2, batch_size=4, gradient_accumulation_steps=4, log=None).fit()
with pf.no_grad():
    print(model.eval()(data[0][0][None]).item())
"""
MERGED = candidates.Candidate("merged_batches", 2, {"engine": {"merged_batches": 4}}, "why", "float32", 2.0, incomparable=("output",))


def test_merged_batches_that_help_are_kept(run, tmp_path, monkeypatch):
    text = TRAINED.replace("NORM", "nn.LayerNorm(16)")
    without, with_it = run(tmp_path, text, {}), run(tmp_path, text, MERGED.changes)
    assert without[0]["accumulation"]["batches"] == 4 and without[0]["accumulation"]["trainer"] and with_it[0]["accumulation"] == {}
    verdict, kept, _ = tried(tmp_path, monkeypatch, MERGED, without, with_it)
    assert verdict == "kept" and kept == MERGED.changes
    again = Trial(tmp_path, MERGED, None, None)
    assert again.resume() == {"merged_batches"} and again.kept == [MERGED]  # a session that goes on compares the same


def test_the_gate_reverts_merged_batches_of_a_batch_norm(run, tmp_path, monkeypatch):
    text = TRAINED.replace("NORM", "nn.BatchNorm1d(16)")
    verdict, kept, text = tried(tmp_path, monkeypatch, MERGED, run(tmp_path, text, {}), run(tmp_path, text, MERGED.changes))
    assert verdict == "wrong" and kept == {} and "gradient" in text


def test_batches_that_cannot_be_joined_stay_apart():
    x, y = pf.ones(2, 3), pf.zeros(2)
    joined = _trainer._joined([(x, {"y": y, "name": "a"}), (x, {"y": y, "name": "a"})])
    assert joined[0].shape == (4, 3) and joined[1]["y"].shape == (4,) and joined[1]["name"] == "a"
    for other in ((pf.ones(1, 3), y), (x.double(), y), (x, 1), (x,), (x, y, y)):
        assert _trainer._joined([(x, y), other]) is None, other
    assert _trainer._joined([(x, pf.ones(()))] * 2) is None and _trainer._joined([("a",), ("a",)]) is None and _trainer._joined([(x, "a"), (x, "b")]) is None
    assert [(b.shape, n) for b, n in _trainer._merged([x] * 5, 2)] == [((4, 3), 2), ((4, 3), 2), ((2, 3), 1)]
    assert [n for _, n in _trainer._merged([x, x[:1]], 2)] == [1, 1] and _trainer._merged([x], 1)[0][0] is x


def test_the_setting_merged_batches():
    with pf.settings(merged_batches=3):
        assert _trainer.merged_batches == 3
    assert _trainer.merged_batches == 1
    for value in (0, 1.5, True):
        with pytest.raises(ValueError, match="settings: not a value of merged_batches; got .*; expected a positive whole number"):
            pf.settings(merged_batches=value)


def test_batches_of_a_loop_are_a_diff_to_look_at(tmp_path):
    text = "é = 1; batch_size = 8\nparser.add_argument('--accumulation', type=int, default=4)\nloader = DataLoader(data, batch_size=batch_size)\n"
    path = tmp_path / "t.py"

    def diff(text=text, peak=20, **accumulation):
        path.write_text(text)
        head = {"reads": [], "doubles": [], "memory": {"capacity": 100, "peak": peak}, "accumulation": {"batches": 4, "file": str(path), "trainer": False, **accumulation}}
        return suggestions.diff(head, tmp_path)

    assert "+é = 1; batch_size = 32\n" in diff() and "default=1)\n" in diff()
    assert "+é = 1; batch_size = 16\n" in diff(peak=40) and "default=2)\n" in diff(peak=40)
    assert diff(peak=60) == diff(trainer=True) == diff(batches=3) == diff(text + "test_batch_size = 9\n") == diff(text + "(") == diff(file="/none.py") == ""
    assert path.read_text() == text  # the file stays
    line = "total += loss.item()\n"
    path.write_text(text + line)
    head = {"reads": [[str(path), 4, 9]], "doubles": [], "memory": {"capacity": 100, "peak": 20}, "accumulation": {"batches": 4, "file": str(path), "trainer": False}}
    both = suggestions.diff(head, tmp_path)
    assert "+total += loss.detach()" in both and "batch_size = 32" in both


def test_the_list_says_when_they_are_tried(monkeypatch, capsys):
    monkeypatch.setattr(candidates, "_cores", lambda: 4)
    assert commands._list() == 0
    text = capsys.readouterr().out
    for name, when in (("loader_workers", "waits for batches"), ("no_recomputation", "although all intermediates fit"), ("recomputation", "free its caches"), ("merged_batches", "Trainer accumulates"), ("channels_last", "convolutions take time")):
        assert re.search(rf"\n  {name} .*tried if .*{when}", text), name
    assert "%" not in text and "MiB" not in text  # there is no program yet, so there are no figures


# ---- the layout of images


def test_channels_last_is_proposed_where_convolutions_take_time(tmp_path):
    facts = candidates.Facts(convolutions=3, shares={"convolution": 0.5})
    found = proposed(facts, "channels_last", tmp_path)
    assert found.changes == {"engine": {"channels_last": True}} and abs(found.gain - 1 / (1 - 0.5 * (1 - 1 / 1.1))) < 1e-9 and found.precision == "float32"
    for change in ({"convolutions": 0}, {"channels_last": True}, {"shares": {"GEMM": 1.0}}):
        assert proposed(candidates.Facts(**{**vars(facts), **change}), "channels_last", tmp_path) is None, change


IMAGES = """
import pyflame as pf
from pyflame import nn
pf.manual_seed(3)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8 * 36, 1)
    def forward(self, x):
        return self.last(self.second(pf.relu(self.first(x))).FLAT)
net = Net()
optimizer = pf.optim.SGD(net.parameters(), lr=0.01)
x = pf.randn(4, 3, 6, 6)
for step in range(2):
    loss = (net(x) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item())
"""
LAST = candidates.Candidate("channels_last", 2, {"engine": {"channels_last": True}}, "why", "float32", 1.1)


def test_channels_last_that_helps_is_kept(run, tmp_path, monkeypatch):
    text = IMAGES.replace("FLAT", "flatten(1)")
    without, with_it = run(tmp_path, text, {}), run(tmp_path, text, LAST.changes)
    assert (without[0]["convolutions"], without[0]["channels_last"], with_it[0]["channels_last"]) == (2, False, True)
    verdict, kept, _ = tried(tmp_path, monkeypatch, LAST, without, with_it)
    assert verdict == "kept" and kept == LAST.changes


def test_the_gate_reverts_channels_last_where_a_view_needs_rows(run, tmp_path, monkeypatch):
    text = IMAGES.replace("FLAT", "view(4, -1)")
    verdict, kept, page_of_it = tried(tmp_path, monkeypatch, LAST, run(tmp_path, text, {}), run(tmp_path, text, LAST.changes))
    assert verdict == "wrong" and kept == {} and "the strides do not allow this shape" in page_of_it


def test_the_setting_channels_last():
    conv, x = pf.nn.Sequential(pf.nn.Conv2d(8, 8, 3)), pf.randn(2, 8, 6, 6)
    expected = conv(x).tolist()
    with pf.settings(channels_last=True):
        pf.nn.Linear(2, 2)(pf.ones(1, 2))  # it has no convolution
        y = conv(x)
        assert y.is_contiguous(memory_format=pf.channels_last) and not y.is_contiguous()
        with pf.settings(channels_last=True):
            pass
        assert not conv(x).is_contiguous()
        assert pf.testing.assert_close(y, pf.tensor(expected)) is None
    assert conv(x).is_contiguous() and conv[0].weight.is_contiguous() and conv(x).tolist() == expected
    with pytest.raises(ValueError, match="settings: not a value of channels_last; got 1; expected true or false"):
        pf.settings(channels_last=1)
