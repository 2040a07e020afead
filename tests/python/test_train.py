"""pf.train.Trainer: the updates of a loop written by hand, resumed runs with the same bits, the smoke run, and each error."""
import json
import os

import numpy as np
import pytest
from processes import run

import pyflame as pf
from pyflame import nn
from pyflame.data import DataLoader, TensorDataset
from pyflame.models import MLP
from pyflame.nn import functional as F
from pyflame.train import Trainer


def data(n=48, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4)).astype(np.float32)
    return TensorDataset(pf.tensor(x), pf.tensor(np.tanh(x[:, 0] - x[:, 1] * x[:, 2])))


def make(dropout=0.0):
    pf.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1), nn.Flatten(0))


def trainer(model=None, train=None, validation=None, cls=Trainer, **settings):
    settings = {"loss": F.mse_loss, "batch_size": 8, "log": None, "lr": 1e-2, **settings}
    return cls(model or make(), data() if train is None else train, validation, **settings)


def same(a, b):
    b = b.state_dict()
    return all(pf.equal(value, b[name]) for name, value in a.state_dict().items())


def test_mlp():
    pf.manual_seed(0)
    model = MLP(5, [6, 3])
    assert [n for n, _ in model.named_parameters()] == [f"{kind}.{i}.{what}" for kind, n in (("layers", 3), ("layer_norms", 2)) for i in range(n) for what in ("weight", "bias")]
    w = {k: v.numpy().astype(np.float64) for k, v in model.state_dict().items()}
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    h = x.astype(np.float64)
    for i in range(2):
        h = h @ w[f"layers.{i}.weight"].T + w[f"layers.{i}.bias"]
        h = h / (1 + np.exp(-h))
        h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5) * w[f"layer_norms.{i}.weight"] + w[f"layer_norms.{i}.bias"]
    expected = (h @ w["layers.2.weight"].T + w["layers.2.bias"])[:, 0]
    assert model(pf.tensor(x)).shape == (7,)
    np.testing.assert_allclose(model(pf.tensor(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert MLP(5, (), 2)(pf.tensor(x)).shape == (7, 2)
    for sizes in ((0,), (5, [2.5]), (5, [True])):
        with pytest.raises(ValueError, match="MLP: a size does not fit; got .*; expected integers of 1 or more"):
            MLP(*sizes)
    with pytest.raises(TypeError, match=r"MLP: hidden_sizes does not fit; got 4; expected a list of integers; hint: hidden_sizes=\[4\]"):
        MLP(8, 4)


def test_the_updates_are_those_of_a_loop_by_hand():
    model, epochs, accumulate = make(), 2, 4
    optimizer = pf.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(data(), 8, shuffle=True, seed=7)
    losses = []
    for _ in range(epochs):
        batches, of_epoch = list(loader), []
        for group in (batches[:accumulate], batches[accumulate:]):  # the second one has the two batches that are left
            optimizer.zero_grad()
            total = sum(F.mse_loss(model(x), y) / len(group) for x, y in group)
            total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            of_epoch.append(total.item())
        losses.append(np.mean(of_epoch))
    t = trainer(epochs=epochs, gradient_accumulation_steps=accumulate, clip=0.1, seed=7)
    history = t.fit()
    assert [h["step"] for h in history] == [2, 4]
    np.testing.assert_allclose([h["loss"] for h in history], losses, rtol=1e-6)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(t.model.state_dict()[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-7)


def test_validation_is_a_mean_over_samples():
    held = data(21, seed=1)  # batches of 8, 8 and 5
    t = trainer(validation=held, epochs=1, metrics={"mae": lambda p, y: (p - y).abs().mean()})
    t.fit()
    x, y = held.tensors
    t.model.eval()
    difference = (t.model(x) - y).detach().numpy()
    assert set(t.history[0]) == {"epoch", "step", "loss", "val_loss", "val_mae"}
    np.testing.assert_allclose([t.history[0]["val_loss"], t.history[0]["val_mae"]], [np.mean(difference**2), np.mean(np.abs(difference))], rtol=1e-5)
    assert t.validate() == {k: t.history[0][k] for k in ("val_loss", "val_mae")}


class Scheduled(Trainer):
    def configure_optimizers(self):
        optimizer = pf.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        return optimizer, pf.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)


class Interrupted(Exception):
    pass


class Stopping(Scheduled):
    stop = 0

    def on_step_end(self, loss):
        if self.step == self.stop:
            raise Interrupted


@pytest.mark.parametrize("precision", [False, True, "float16"])
@pytest.mark.parametrize("stop", [1, 5, 6, 7, 9])  # in an epoch, at its end, in the next one; 6 steps each
def test_a_resumed_run_has_the_same_bits(tmp_path, stop, precision):
    def settings(name):
        return dict(validation=data(16, 5), epochs=3, out=tmp_path / name, checkpoint_interval=1, mixed_precision=precision, log_interval=2)

    whole = trainer(make(0.3), cls=Scheduled, **settings("whole"))
    whole.fit()
    first = trainer(make(0.3), cls=Stopping, **settings("parts"))
    first.stop = stop + 1  # the checkpoint of this step is not written
    with pytest.raises(Interrupted):
        first.fit()
    pf.manual_seed(99)  # all comes from the file
    second = trainer(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1), nn.Flatten(0)), cls=Scheduled, resume=True, **settings("parts"))
    assert second.fit() == whole.history
    assert second.step == 18 and same(whole.model, second.model) and whole.best == second.best
    assert second.scheduler.get_last_lr() == whole.scheduler.get_last_lr() == [0.1 * 0.5**6]
    files = [pf.load(tmp_path / name / "best.safetensors") for name in ("whole", "parts")]
    assert all(pf.equal(files[0][k], files[1][k]) for k in files[0])
    lines = [[(r["step"], r["epoch"], r["loss"]) for r in map(json.loads, open(tmp_path / n / "metrics.jsonl"))] for n in ("whole", "parts")]
    assert lines[0] == lines[1] and len(lines[0]) == 9 + 3


def test_lines_after_the_checkpoint_are_lost(tmp_path):
    trainer(epochs=1, out=tmp_path, log_interval=3).fit()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 2, "step": 9, "loss": 1.0}\n{"epoch": 2, "st')
    trainer(epochs=2, out=tmp_path, log_interval=3, resume=True).fit()
    assert [json.loads(line)["step"] for line in open(tmp_path / "metrics.jsonl")] == [3, 6, 6, 9, 12, 12]


def test_resume_goes_on_with_more_epochs_and_begins_where_there_is_no_file(tmp_path):
    trainer(epochs=1, out=tmp_path, resume=True).fit()
    longer = trainer(epochs=2, out=tmp_path, resume=True)
    longer.fit()
    whole = trainer(epochs=2)
    whole.fit()
    assert same(whole.model, longer.model) and longer.history == whole.history
    assert trainer(epochs=2, out=tmp_path, resume=True).fit() == whole.history  # nothing is left to do


class Counting(Trainer):
    def extra_state(self):
        return {"seen": self.seen}

    def load_extra_state(self, state):
        self.seen = state["seen"]

    def training_step(self, batch):
        self.seen = getattr(self, "seen", 0) + 1
        return (self.module(batch["x"]) - batch["y"]).square().mean()

    def validation_step(self, batch):
        return {"mae": (self.model(batch["x"]) - batch["y"]).abs().mean()}

    def on_epoch_end(self, numbers):
        return self.epoch < 2


class Dicts(pf.data.Dataset):
    def __init__(self):
        self.tensors = data().tensors

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, i):
        return {"x": self.tensors[0][i], "y": self.tensors[1][i]}


def test_a_subclass_with_steps_and_state_of_its_own(tmp_path):
    t = trainer(train=Dicts(), validation=Dicts(), cls=Counting, loss=None, epochs=5, out=tmp_path)
    history = t.fit()
    assert len(history) == 2 and t.seen == 12 and list(history[0]) == ["epoch", "step", "loss", "val_mae"]  # on_epoch_end ended it
    again = trainer(train=Dicts(), validation=Dicts(), cls=Counting, loss=None, epochs=2, out=tmp_path, resume=True)
    again.fit()
    assert again.seen == 12


def test_smoke_leaves_everything_as_it_was(tmp_path):
    model, lines = make(), []
    before = {k: v.clone() for k, v in model.state_dict().items()}
    random = pf.get_rng_state()
    random = random.tolist() if hasattr(random, "tolist") else random
    t = trainer(model, data(800), data(24), epochs=50, smoke=True, out=tmp_path, gradient_accumulation_steps=3, log=lines.append)
    found = t.fit()
    now = pf.get_rng_state()
    assert [f["step"] for f in found] == [2, 4] and all(np.isfinite(f["val_loss"]) for f in found)
    assert all(pf.equal(v, before[k]) for k, v in model.state_dict().items()) and (now.tolist() if hasattr(now, "tolist") else now) == random
    assert os.listdir(tmp_path) == []
    assert "smoke: passed; 4 steps" in lines[-1] and "50 epochs of 34 steps take about" in lines[-1]
    t.smoke = False
    t.epochs = 1
    t.fit()
    plain = trainer(train=data(800), validation=data(24), epochs=1, gradient_accumulation_steps=3)
    plain.fit()
    assert same(t.model, plain.model)


def test_smoke_names_parameters_without_gradient_and_losses_that_are_not_finite():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x):
            return self.used(x).flatten()

    lines = []
    trainer(Idle(), smoke=True, log=lines.append).fit()
    assert "smoke: no gradient reached idle.weight, idle.bias" in lines
    with pytest.raises(FloatingPointError, match=r"Trainer.fit: the loss is not finite; got nan at step 2 of epoch 1; hint"):
        trainer(smoke=True, loss=lambda p, y: F.mse_loss(p, y) * float("nan")).fit()


def test_lines_and_metrics(tmp_path):
    lines = []
    trainer(validation=data(8), epochs=2, log_interval=3, out=tmp_path, log=lines.append).fit()
    assert [line.split(":")[0] for line in lines] == ["epoch 1/2 step 3", "epoch 1/2 step 6", "epoch 1/2 done", "epoch 2/2 step 9", "epoch 2/2 step 12", "epoch 2/2 done"]
    records = [json.loads(line) for line in open(tmp_path / "metrics.jsonl")]
    assert [r["step"] for r in records] == [3, 6, 6, 9, 12, 12] and {"loss", "val_loss", "samples_per_second"} < set(records[2])


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    trainer(epochs=1, out=tmp_path, tensorboard=True, log_interval=1).fit()
    (file,) = os.listdir(tmp_path / "tensorboard")
    assert b"train/loss" in (tmp_path / "tensorboard" / file).read_bytes()


@pytest.mark.parametrize("settings, message", [
    (dict(epochs=0), "Trainer: epochs does not fit; got 0; expected an integer of 1 or more"),
    (dict(batch_size=2.5), "Trainer: batch_size does not fit; got 2.5"),
    (dict(gradient_accumulation_steps=True), "Trainer: gradient_accumulation_steps does not fit; got True"),
    (dict(checkpoint_interval=0, out="x"), "Trainer: checkpoint_interval does not fit; got 0"),
    (dict(num_workers=-1), "Trainer: num_workers does not fit; got -1; expected an integer of 0 or more"),
    (dict(mixed_precision="half"), "Trainer: mixed_precision does not fit; got 'half'; expected True, False, 'bfloat16' or 'float16'"),
    (dict(mixed_precision="float8"), "Trainer: mixed_precision does not fit; got 'float8'; .*; hint: pf.float8.convert_to_float8_training"),
    (dict(clip=0), "Trainer: clip does not fit; got 0; expected a number above 0, or None"),
    (dict(loss=None), "Trainer: there is no loss; got loss=None; expected a function of"),
    (dict(resume=True), "Trainer: there is no folder for the run; got out=None with resume, checkpoint_interval or tensorboard"),
])
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        trainer(**settings)


def test_a_model_and_data_that_do_not_fit():
    for made, message in ((lambda: Trainer(3, data(), loss=F.mse_loss), "Trainer: the model does not fit; got int; expected an nn.Module"),
                          (lambda: Trainer(make(), 3, loss=F.mse_loss), "Trainer: train does not fit; got int; expected a dataset or a DataLoader"),
                          (lambda: Trainer(make(), data(), 3, loss=F.mse_loss), "Trainer: validation does not fit; got int; expected a dataset or a DataLoader")):
        with pytest.raises(TypeError, match=message):
            made()


def test_a_folder_with_a_run_is_resumed_or_replaced_on_request_only(tmp_path):
    first = trainer(epochs=1, out=tmp_path, validation=data(8))
    first.fit()
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"Trainer: '.*' already holds a run; expected a folder without one; hint: resume=True \(--resume_from_checkpoint\) .*overwrite=True \(--overwrite\)"):
        trainer(out=tmp_path).fit()
    assert kept == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    trainer(epochs=1, out=tmp_path, smoke=True).fit()  # writes nothing
    first.epochs = 2
    assert len(first.fit()) == 2, "its own folder"
    trainer(epochs=1, out=tmp_path, overwrite=True).fit()
    assert not (tmp_path / "best.safetensors").exists(), "that of the run before is gone"
    assert [json.loads(line)["epoch"] for line in open(tmp_path / "metrics.jsonl")] == [1]
    with pytest.raises(ValueError, match="Trainer: resume and overwrite exclude each other"):
        trainer(out=tmp_path, resume=True, overwrite=True)


class NoLoss(Trainer):
    def training_step(self, batch):
        return self.module(batch[0])


class NoOptimizer(Trainer):
    def configure_optimizers(self):
        return self.model


def test_steps_that_return_something_else():
    with pytest.raises(TypeError, match=r"Trainer: training_step returned no loss; got shape \(8,\); expected a tensor of one element"):
        trainer(cls=NoLoss).fit()
    with pytest.raises(TypeError, match="Trainer: configure_optimizers returned no optimizer; got Sequential"):
        trainer(cls=NoOptimizer).fit()


def test_data_and_losses_that_cannot_be_used():
    with pytest.raises(ValueError, match="Trainer.fit: there are no batches; got an empty training set"):
        trainer(train=data(0)).fit()
    with pytest.raises(ValueError, match="Trainer.validate: there are no batches; got an empty validation set"):
        trainer(validation=data(0)).fit()
    with pytest.raises(FloatingPointError, match="Trainer.fit: the loss is not finite; got nan at step 6 of epoch 1; hint: a smaller learning rate"):
        trainer(loss=lambda p, y: F.mse_loss(p, y) * float("nan")).fit()


def test_checkpoints_that_do_not_fit(tmp_path):
    trainer(epochs=1, out=tmp_path).fit()
    model = make()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match="Trainer: the run in '.*' had other settings; got batch_size 8, now 4; expected the same"):
        trainer(model, batch_size=4, out=tmp_path, resume=True).fit()
    with pytest.raises(ValueError, match="got samples 48, now 47; mixed_precision None, now bfloat16"):
        trainer(model, data(47), out=tmp_path, resume=True, mixed_precision=True).fit()
    assert all(pf.equal(v, before[k]) for k, v in model.state_dict().items())
    pf.save({"w": pf.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="Trainer: '.*other.safetensors' is not a checkpoint of a Trainer"):
        trainer(resume=str(tmp_path / "other.safetensors")).fit()
    with pytest.raises(FileNotFoundError, match="no such file"):
        trainer(resume=str(tmp_path / "nothing.safetensors")).fit()


TOGETHER = """
from pyflame import nn
from pyflame.train import Trainer

def make(dropout):
    pf.manual_seed(5 + rank)  # rank 0's weights count
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1), nn.Flatten(0))

g = pf.Generator()
g.manual_seed(1)
x = pf.randn(16, 4, generator=g)
held = pf.data.TensorDataset(x, x.sum(1))

def train(model, batch_size, validation=held, **settings):
    t = Trainer(model, held, validation, loss=nn.functional.mse_loss, batch_size=batch_size, lr=1e-2, log=None, **settings)
    t.fit()
    return t

def check_equal_on_all_ranks(model):
    for p in model.parameters():
        bits = [pf.zeros_like(p) for _ in range(world)]
        dist.all_gather(bits, p.detach())
        assert all(b.equal(p) for b in bits)

# Each step takes all samples, so two processes make the updates of one.
t = train(make(0.0), 8, epochs=4, distributed=True)
check_equal_on_all_ranks(t.model)
pf.manual_seed(5)
alone = train(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.0), nn.Linear(8, 1), nn.Flatten(0)), 16, epochs=4)
for a, b in zip(t.history, alone.history):
    assert a["step"] == b["step"] and all(abs(a[k] - b[k]) < 1e-5 for k in ("loss", "val_loss")), (a, b)

folder = os.environ["FOLDER"]
whole = train(make(0.2), 4, epochs=3, distributed=True)
train(make(0.2), 4, epochs=1, out=folder, distributed=True)
pf.manual_seed(77)
resumed = train(make(0.2), 4, epochs=3, out=folder, resume=True, distributed=True, gradient_accumulation_steps=1)
check_equal_on_all_ranks(resumed.model)
assert resumed.history == whole.history
assert all(a.equal(b) for a, b in zip(resumed.model.parameters(), whole.model.parameters()))
dist.barrier()
print("same")
"""


def test_two_processes(tmp_path):
    (tmp_path / "run").mkdir()
    assert run(2, TOGETHER, tmp_path, FOLDER=str(tmp_path / "run")) == ["same\n"] * 2


TWO = """
from pyflame import nn
from pyflame.train import Trainer

class Stopped(Trainer):
    def on_step_end(self, loss):
        if self.step == int(os.environ["STOP"]):
            raise KeyboardInterrupt

pf.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.0), nn.Linear(8, 1), nn.Flatten(0))
kept = pf.load(os.environ["DATA"])
t = Stopped(model, pf.data.TensorDataset(kept["x"], kept["y"]), loss=nn.functional.mse_loss, batch_size=8, lr=1e-2, log=None, epochs=3,
            checkpoint_interval=1, out=os.environ["FOLDER"], distributed=True, resume=True)
try:
    t.fit()
except KeyboardInterrupt:
    pass
if rank == 0:
    print(t.step, t.gradient_accumulation_steps)
"""


class StopsInEpoch(Trainer):
    def on_step_end(self, loss):
        if self.step == 5:
            raise KeyboardInterrupt


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """In the middle of an epoch, and with the same samples in each optimizer step."""
    known = data()
    pf.save({"x": known.tensors[0], "y": known.tensors[1]}, tmp_path / "data.safetensors")
    whole = trainer(train=known, gradient_accumulation_steps=2, epochs=3)
    whole.fit()

    def two(folder, stop):
        return run(2, TWO, tmp_path, FOLDER=str(tmp_path / folder), DATA=str(tmp_path / "data.safetensors"), STOP=str(stop))

    assert two("fewer", 5)[0] == "5 1\n"
    fewer = trainer(train=known, epochs=3, out=tmp_path / "fewer", resume=True)
    fewer.fit()
    assert fewer.gradient_accumulation_steps == 2 and fewer.step == whole.step == 9
    with pytest.raises(KeyboardInterrupt):
        trainer(train=known, cls=StopsInEpoch, gradient_accumulation_steps=2, epochs=3, checkpoint_interval=1, out=tmp_path / "more").fit()
    assert two("more", 0)[0] == "9 1\n"
    more = pf.load(tmp_path / "more" / "checkpoint.safetensors")["model"]
    for name, value in whole.model.state_dict().items():
        assert pf.allclose(value, more[name], atol=1e-5) and pf.allclose(value, fewer.model.state_dict()[name], atol=1e-5)
    with pytest.raises(ValueError, match="had 16 samples in an optimizer step; got batch_size 5 x 1 batches x 1 processes; expected 16; hint: a batch_size"):
        trainer(train=known, batch_size=5, out=tmp_path / "more", resume=True).fit()
    with pytest.raises(ValueError, match="had other settings; got gradient_accumulation_steps 1, now 2; processes 2, now 1"):
        trainer(train=DataLoader(known, 8, shuffle=True), gradient_accumulation_steps=2, out=tmp_path / "more", resume=True).fit()
