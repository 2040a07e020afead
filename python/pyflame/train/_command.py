"""The command line of `pyflame train`: which model, which data, and the settings of the Trainer. A script brings model and data itself."""
import argparse
import contextlib
import csv
import json
import os
import re
import runpy
import sys
import textwrap
import time

import numpy as np

from .. import _C, models, nn
from .._command_help import HelpWithDefaults, Parser, examples
from .._entry import command
from ..data import Subset, TensorDataset
from ..nn import functional as F
from . import _gpt
from ._trainer import Trainer

_MODELS = ("mlp", "cnn", "resnet")


class Standardize(nn.Module):
    """(x - mean) / deviation for each feature. Both are buffers, so the weights' file has them."""

    def __init__(self, x):
        super().__init__()
        deviation = x.std(0)
        self.register_buffer("mean", _C.tensor(x.mean(0).astype(np.float32), device="cpu"))
        self.register_buffer("deviation", _C.tensor(np.where(deviation > 0, deviation, 1).astype(np.float32), device="cpu"))

    def forward(self, x):
        return (x - self.mean) / self.deviation


class Restore(Standardize):
    """x * deviation + mean: predictions in the units of the targets."""

    def forward(self, x):
        return x * self.deviation + self.mean


class RelativeError:
    """The mean squared error over the variance of the targets: 1 is what their mean alone reaches, in any units."""

    def __init__(self, restore):
        self.deviation = restore.deviation.item()

    def __call__(self, predictions, targets):
        return F.mse_loss(predictions / self.deviation, targets / self.deviation)


def read_table(path, target):
    """(x, y) of a CSV file with a header: y is the column `target` (default: the last one), x are all others, float32."""
    with open(path, encoding="utf-8-sig") as file:
        names = [name.strip() for name in next(csv.reader(file), [])]
    if target is not None and target not in names:
        raise ValueError(f"train: there is no column '{target}' in '{path}'; got the columns {', '.join(names)}")
    at = len(names) - 1 if target is None else names.index(target)
    try:
        with open(path, encoding="utf-8-sig") as file:
            rows = np.loadtxt((line.replace('"', "") for line in file), np.float64, delimiter=",", skiprows=1, ndmin=2, comments=None)  # numbers may stand in quotes
    except ValueError as error:
        refuse_words(path, names)
        raise ValueError(f"train: '{path}' cannot be read: {error}; expected rows of numbers under a line of names") from None
    if rows.shape[1] != len(names) or len(names) < 2:
        raise ValueError(f"train: '{path}' does not fit; got {rows.shape[1]} numbers in a row and {len(names)} names; expected as many, and at least 2")
    return np.delete(rows, at, 1).astype(np.float32), rows[:, at]


def refuse_words(path, names):
    """ValueError with the name of the first column that has an empty cell or a word in it."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            for name, cell in zip(names, row):
                try:
                    float(cell)
                except ValueError:
                    hint = "leave the column out, or write a column of 0 and 1 for each of its words, as pandas.get_dummies does" if cell.strip() else "fill the cell, or leave the line out"
                    raise ValueError(f"train: '{path}' cannot be read: the column '{name}' is not of numbers; got {cell!r} in line {rows.line_num}; expected a number; hint: {hint}") from None


def read_arrays(path, target):
    """(x, y) of an npz file: its arrays x (samples first; bytes become 0 to 1) and y."""
    if target is not None:
        raise ValueError(f"train: --target is for CSV files; got '{path}'; expected the arrays x and y")
    with np.load(path) as file:
        if "x" not in file or "y" not in file:
            raise ValueError(f"train: '{path}' does not fit; got the arrays {', '.join(file.files)}; expected x and y")
        x, y = file["x"], file["y"]
    x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x.astype(np.float32)
    if y.ndim != 1 or len(x) != len(y):
        raise ValueError(f"train: '{path}' does not fit; got x of shape {x.shape} and y of shape {y.shape}; expected one number of y for each sample")
    return x, y


def read(path, target):
    if not os.path.exists(path):
        raise FileNotFoundError(f"train: no such file; got '{path}'; expected a CSV or npz file")
    x, y = read_arrays(path, target) if path.lower().endswith(".npz") else read_table(path, target)
    if len(y) < 2 or not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        raise ValueError(f"train: '{path}' cannot be used; got {len(y)} samples, {int(np.sum(~np.isfinite(x)) + np.sum(~np.isfinite(y)))} numbers that are not finite; expected 2 samples or more, and finite numbers")
    return x, y


def make_cnn(channels, height, width, classes):
    """Two convolutions with pools, two linear layers."""
    if height < 4 or width < 4:
        raise ValueError(f"train: the images are too small; got {height} x {width}; expected 4 x 4 or more")
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (height // 4) * (width // 4), 64), nn.ReLU(), nn.Linear(64, classes),
    )  # fmt: skip


def make_resnet(depth, channels, classes):
    model = getattr(models, f"resnet{depth}")(num_classes=classes)
    if channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
    return model


def make_model(a, x, y, classes):
    """The model for samples x and targets y; classes is 0 for regression."""
    if a.model == "mlp":
        flat = x.reshape(len(x), -1)
        layers = [nn.Flatten(), Standardize(flat), models.MLP(flat.shape[1], a.hidden_sizes, classes or 1)]
        return nn.Sequential(*layers, *[] if classes else [Restore(y)])
    if x.ndim not in (3, 4):
        raise ValueError(f"train: the samples are not images; got shape {x.shape[1:]}; expected (height, width) or (channels, height, width)")
    channels = 1 if x.ndim == 3 else x.shape[1]
    return make_cnn(channels, *x.shape[-2:], classes) if a.model == "cnn" else make_resnet(a.depth, channels, classes)


def accuracy(predictions, targets):
    return (predictions.argmax(1) == targets).float().mean()


def of_data(a, settings):
    """The Trainer of a built-in model on a.data."""
    x, y = read(a.data, a.target)
    classify = a.task == "classification" or (a.task is None and a.model != "mlp")
    if classify and (np.any(y != np.floor(y)) or np.any(y < 0)):
        raise ValueError("train: the targets are not classes; got numbers that are negative or not whole; expected 0, 1, ...; hint: --task regression")
    if not classify and a.model != "mlp":
        raise ValueError(f"train: {a.model} classifies; got --task regression; expected classification")
    order = np.random.default_rng(a.seed).permutation(len(y))
    held = min(max(1, int(a.validation_share * len(y))), len(y) - 1) if a.validation_share else 0
    chosen = order[held:][:max(1, int(a.data_fraction * (len(y) - held)))]
    model = make_model(a, x[chosen], y[chosen], int(y.max()) + 1 if classify else 0)
    images = x if a.model == "mlp" or x.ndim == 4 else x[:, None]
    everything = TensorDataset(_C.tensor(images, device="cpu"), _C.tensor(y.astype(np.int64 if classify else np.float32), device="cpu"))
    return Trainer(model, Subset(everything, chosen.tolist()), Subset(everything, order[:held].tolist()) if held else None,
                   loss=F.cross_entropy if classify else RelativeError(model[-1]), metrics={"accuracy": accuracy} if classify else {"mse": F.mse_loss}, **settings)


def of_script(a, settings):
    """The Trainer that a script's function trainer(**settings) makes."""
    if not os.path.exists(a.model):
        raise FileNotFoundError(f"train: no such file; got '{a.model}'; expected a script, or one of {', '.join(_MODELS)} and gpt")
    sys.path.insert(0, os.path.dirname(os.path.abspath(a.model)))
    made = runpy.run_path(a.model).get("trainer")
    if not callable(made):
        raise ValueError(f"train: '{a.model}' has no function trainer; expected `def trainer(**settings): return pf.train.Trainer(model, data, loss=..., **settings)`")
    trainer = made(**settings)
    if not isinstance(trainer, Trainer):
        raise TypeError(f"train: trainer() of '{a.model}' returned no Trainer; got {type(trainer).__name__}")
    return trainer


def share(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"not a share; got {text!r}; expected a number from 0 to 1")
    return value


def widths(text):
    try:
        found = [int(n) for n in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"not widths of layers; got {text!r}; expected integers of 1 or more with commas between them, such as 32,16")
    return found


def parse(argv):
    model = next((word for word in (sys.argv[1:] if argv is None else argv) if word in _MODELS), "mlp")
    shown = examples(("pyflame train mlp --data table.csv --target goal --smoke", "try it for some seconds"),
                     ("pyflame train resnet --data images.npz --out run", "images; the checkpoints are in run"),
                     ("pyflame train script.py --epochs 3", "the Trainer of a script"))
    p = Parser(prog="pyflame train", help_of=f"pyflame train {model}", formatter_class=HelpWithDefaults, epilog=shown,
               description="Trains a model on a file of data, or the trainer of a script. `pyflame train gpt` is a program of its own.")
    p.add_argument("model", metavar="mlp|cnn|resnet|SCRIPT.py", help="a built-in model, or a Python file with a function trainer(**settings) that returns a pf.train.Trainer")

    def option(name, **settings):
        p.add_argument(*dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")), dest=name, **settings)

    option("data", help="CSV with a line of names, or npz with arrays x (samples first) and y; needed by built-in models")
    option("target", help="the CSV's column that is predicted; the last one unless given")
    option("task", choices=("regression", "classification"), help="what y is; mlp: regression, others: classification, unless given")
    option("hidden_sizes", type=widths, default=[128, 64], help="mlp: widths of the hidden layers, such as 32,16")
    option("depth", type=int, choices=(18, 34, 50), default=18, help="resnet: its depth")
    option("validation_share", type=share, default=0.1, help="share of the samples, chosen by the seed, that is not trained on; 0: none")
    option("data_fraction", type=share, default=1.0, help="share of the training samples that is used, at least one sample")
    option("out", help="folder of the run: checkpoint.safetensors, best.safetensors, metrics.jsonl, report.html")
    option("epochs", type=int, default=10, help="passes over the training samples")
    option("batch_size", type=int, default=32, help="samples in a batch of each process")
    option("lr", type=float, default=1e-3, help="learning rate of AdamW")
    option("gradient_accumulation_steps", type=int, metavar="N", default=1, help="batches in an optimizer step")
    option("use_mixed_precision", metavar="TYPE", nargs="?", const="bfloat16", default=False, choices=("bfloat16", "float16"), help="compute in this type, bfloat16 or float16; bfloat16 if none is named")
    option("clip", type=float, help="largest norm of the gradients")
    option("num_workers", type=int, default=0, help="processes that make batches")
    option("pin_memory", action="store_true", help="accepted: copies to a GPU go through pinned memory anyway")
    option("resume_from_checkpoint", metavar="FILE", nargs="?", const=True, default=False, help="continue from this file, or from the checkpoint in --out; without one, begin")
    option("overwrite", action="store_true", help="replace a run that --out already holds")
    option("checkpoint_interval", type=int, metavar="N", help="optimizer steps between checkpoints; there is one at the end of each epoch anyway")
    option("smoke", action="store_true", help="a short run that tests the long one, and writes nothing")
    option("distributed", action="store_true", help="data-parallel: pyflame run --nproc N -m pyflame.train ...")
    option("device", help="cpu, rocm, cuda, cuda:1 and so on; the default device unless given")
    option("log_interval", type=int, default=50, help="optimizer steps between two lines")
    option("tensorboard", action="store_true", help="write event files to OUT/tensorboard")
    option("seed", type=int, default=0, help="of initial values, order of the data, dropout")
    option("json", action="store_true", help="print one JSON object for each record of metrics.jsonl, then one with the result; all else goes to standard error")
    a = p.parse_args(argv)
    if a.model not in _MODELS and not a.model.endswith(".py"):
        p.error(f"there is no model '{a.model}'; expected {', '.join(_MODELS)}, gpt, or the path of a Python file")
    if a.model in _MODELS and a.data is None:
        p.error(f"{a.model} needs --data")
    return a


def _tell(error, argv=None):
    if parse(argv).model not in _MODELS and not str(error).startswith(("train:", "Trainer")):
        raise error  # the script's own: its traceback says where
    print(f"pyflame train: {str(error).removeprefix('train: ')}", file=sys.stderr)


@command((ValueError, TypeError, RuntimeError, OSError, ImportError, FloatingPointError), _tell)
def main(argv=None):
    """Runs the command; returns the exit code: 0, or 1 after a line on stderr."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["gpt"]:
        return _gpt.start(words[1:])
    a = parse(argv)
    settings = dict(epochs=a.epochs, batch_size=a.batch_size, lr=a.lr, gradient_accumulation_steps=a.gradient_accumulation_steps, mixed_precision=a.use_mixed_precision,
                    clip=a.clip, num_workers=a.num_workers, device=a.device, out=a.out, checkpoint_interval=a.checkpoint_interval, resume=a.resume_from_checkpoint, overwrite=a.overwrite,
                    smoke=a.smoke, log_interval=a.log_interval, tensorboard=a.tensorboard, distributed=a.distributed, seed=a.seed, log=_say)
    try:
        _C.manual_seed(a.seed)
        if a.json:
            _train_as_json(a, settings)
        else:
            _trainer(a, settings).fit()
    except KeyboardInterrupt:
        print("pyflame train: interrupted" + ("" if a.out is None else f"; the last checkpoint is in {a.out}"), file=sys.stderr)
        return 130
    return 0


def _trainer(a, settings):
    return (of_data if a.model in _MODELS else of_script)(a, settings)


def _train_as_json(a, settings):
    """Trains; standard output has the records of metrics.jsonl and then the result, an object a line. What else is printed, also by a script, goes to standard error."""
    output, begin = sys.stdout, time.perf_counter()

    def write(record):
        print(json.dumps(record), file=output, flush=True)

    with contextlib.redirect_stdout(sys.stderr):
        trainer = _trainer(a, settings)
        trainer._records = write
        epochs = trainer.fit() or [{}]
    if trainer._rank == 0:
        write({"end_of_training": True, "epoch": trainer.epoch, "step": trainer.step, **epochs[-1], "smoke": a.smoke, "out": a.out, "total_seconds": time.perf_counter() - begin})


def _say(line):
    """Prints a line; one that is too long for a terminal goes on in the next, indented."""
    print(textwrap.fill(line, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False), flush=True)
