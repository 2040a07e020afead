"""Trainer: epochs of optimizer steps over a loader, validation, logging and checkpoints.

A checkpoint is written only between two optimizer steps, where no gradients are left over, so a resumed run makes the same updates as one that was never
interrupted. Losses stay on the device and are read only where a line is logged, because each read is a sync point."""
import contextlib
import itertools
import math
import numbers
import os
import tempfile
import time

from .. import _C, _tree, amp, distributed, optim
from .._C import Tensor
from ..data import DataLoader
from ..io import load_checkpoint, save, save_checkpoint
from ..nn import Module
from ..nn.parallel import DistributedDataParallel
from ..nn.utils import clip_grad_norm_
from . import _page
from ._logs import Logs
from ._memory import MemoryMonitor

_SMOKE_EPOCHS, _SMOKE_SHARE = 2, 0.01
_FILES = ("checkpoint.safetensors", "best.safetensors", "metrics.jsonl", "report.html")  # of a run, in its folder
merged_batches = 1  # the setting: of the batches of an optimizer step, so many are computed as one


def _joined(batches):
    """One batch with the samples of several; None if they cannot be joined: a tensor without dims, other shapes or dtypes, other values beside the tensors."""
    parts = [_tree.flatten(batch) for batch in batches]
    leaves, rebuild = parts[0]
    if len({len(found) for found, _ in parts}) > 1 or not any(isinstance(leaf, Tensor) for leaf in leaves):
        return None
    made = []
    for same in zip(*(found for found, _ in parts)):
        if all(isinstance(leaf, Tensor) for leaf in same):
            if same[0].ndim == 0 or any(leaf.shape != same[0].shape or leaf.dtype != same[0].dtype for leaf in same):
                return None
            made.append(_C.cat(list(same), 0))
        elif any(isinstance(leaf, Tensor) for leaf in same) or any(type(leaf) is not type(same[0]) or leaf != same[0] for leaf in same):
            return None
        else:
            made.append(same[0])
    return rebuild(made)


def _merged(batches, most):
    """[(batch, of how many batches)]: up to `most` that follow each other are one, where they can be joined."""
    found = []
    for at in range(0, len(batches), most):
        part = batches[at : at + most]
        joined = _joined(part) if len(part) > 1 else None
        found += [(batch, 1) for batch in part] if joined is None else [(joined, len(part))]
    return found


def _count(name, value, least=1):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"Trainer: {name} does not fit; got {value!r}; expected an integer of {least} or more")
    return int(value)


class Trainer:
    """Trains a model.

    model: an nn.Module; the trainer moves it to the device. train, validation: datasets, from which loaders are made, or DataLoaders; batches
    are tuples (inputs, targets), unless training_step and validation_step are overridden. loss: a function of (predictions, targets) that returns a
    mean, such as nn.functional.mse_loss. metrics: a dict of names and functions of (predictions, targets), means over a batch, that are
    computed in validation.

    - epochs; batch_size and num_workers of the loaders that are made; lr of the AdamW that configure_optimizers makes.
    - gradient_accumulation_steps=n: an optimizer step takes the mean of the gradients of n batches; the last step of an epoch takes those that are left.
      With pf.settings(merged_batches=k), k of them are computed as one batch, where they have the same shapes.
    - mixed_precision: True or 'bfloat16', or 'float16' with a GradScaler. Steps run under autocast; parameters stay float32.
    - clip: the largest norm of the gradients (nn.utils.clip_grad_norm_).
    - out: a folder for checkpoint.safetensors (the whole run, replaced atomically at the end of each epoch and each checkpoint_interval optimizer
      steps), best.safetensors (the weights with the least validation loss), metrics.jsonl, and report.html, a page of it that each epoch replaces. Without it
      nothing is written.
    - resume=True: continues from out/checkpoint.safetensors, or begins if there is none; a path: from this file. The updates are, bit for
      bit, those of a run that was never interrupted.
    - overwrite=True: replaces a run that out already holds; without it and without resume, fit() refuses such a folder.
    - smoke=True: a short run before a long one. fit() trains two epochs of a hundredth of the batches (at least two steps), validates,
      checks that losses are finite and that a checkpoint gives back the same state, says how long the real run will take, and puts the model
      back. It writes nothing to out.
    - log_interval: optimizer steps between two lines. log: where lines go (default: print); tensorboard=True writes event files to out/tensorboard,
      which needs the package tensorboard. Lines, files and events have the bytes of the device and of this process. A warning comes before memory runs out:
      if less than 5 % of it is left at the peak of a step, or if it grows with each line so that it will not last until the end.
    - distributed=True: data-parallel over the processes of `pyflame run --nproc N`; each has its part of the samples, batch_size
      of them a batch; rank 0 logs and saves. A run is resumed with any number of processes that can share the samples of an optimizer step: these stay the
      same, as gradient_accumulation_steps is adapted.
    - device: default the current one. seed: of the order of the batches. The rest of what is random in fit(), such as dropout, follows pf.manual_seed.

    To change what a step does, override training_step, validation_step or configure_optimizers; on_step_end and on_epoch_end are called with
    the numbers of the step or epoch. ValueError or TypeError if a setting does not fit."""

    def __init__(self, model, train, validation=None, *, loss=None, metrics=None, epochs=1, batch_size=32, lr=1e-3, gradient_accumulation_steps=1,
                 mixed_precision=False, clip=None, num_workers=0, device=None, out=None, checkpoint_interval=None, resume=False, overwrite=False, smoke=False,
                 log_interval=50, log=print, tensorboard=False, distributed=False, seed=0):
        if not isinstance(model, Module):
            raise TypeError(f"Trainer: the model does not fit; got {type(model).__name__}; expected an nn.Module")
        for name, data in (("train", train), ("validation", validation)):
            if not isinstance(data, DataLoader) and not hasattr(data, "__getitem__") and not hasattr(data, "__iter__") and (name == "train" or data is not None):
                raise TypeError(f"Trainer: {name} does not fit; got {type(data).__name__}; expected a dataset or a DataLoader")
        self.epochs, self.batch_size = _count("epochs", epochs), _count("batch_size", batch_size)
        self.gradient_accumulation_steps = _count("gradient_accumulation_steps", gradient_accumulation_steps)
        self.checkpoint_interval = None if checkpoint_interval is None else _count("checkpoint_interval", checkpoint_interval)
        self.log_interval, self.num_workers, self.seed = _count("log_interval", log_interval), _count("num_workers", num_workers, 0), _count("seed", seed, 0)
        names = {False: None, True: _C.bfloat16, "bfloat16": _C.bfloat16, "float16": _C.float16}
        if not isinstance(mixed_precision, (bool, str)) or mixed_precision not in names:
            hint = "; hint: pf.float8.convert_to_float8_training(model) before the Trainer, with mixed_precision=True" if "8" in str(mixed_precision) else ""
            raise ValueError(f"Trainer: mixed_precision does not fit; got {mixed_precision!r}; expected True, False, 'bfloat16' or 'float16'{hint}")
        if out is None and (resume is True or checkpoint_interval or tensorboard):
            raise ValueError("Trainer: there is no folder for the run; got out=None with resume, checkpoint_interval or tensorboard; expected out=")
        if overwrite and resume:
            raise ValueError("Trainer: resume and overwrite exclude each other; got both; expected one of them")
        if clip is not None and not clip > 0:
            raise ValueError(f"Trainer: clip does not fit; got {clip!r}; expected a number above 0, or None")
        if loss is None and type(self).training_step is Trainer.training_step:
            raise ValueError("Trainer: there is no loss; got loss=None; expected a function of (predictions, targets), or a subclass with training_step")
        self.dtype, self.clip, self.lr, self.loss, self.metrics = names[mixed_precision], clip, lr, loss, dict(metrics or {})
        self.device = _C.get_device() if device is None else str(device)
        self.out, self.resume, self.smoke, self.tensorboard = None if out is None else os.fspath(out), resume, bool(smoke), bool(tensorboard)
        self._overwrite, self._owns_out = bool(overwrite), False
        self._distributed = bool(distributed)
        self._begin_processes()
        self.model, self._log = model.to(self.device), log
        self._records = None  # of `pyflame train --json`: a function that takes each record of metrics.jsonl
        self._made_loader = not isinstance(train, DataLoader)
        self.train_loader = self._loader(train, shuffle=True)
        self.validation_loader = None if validation is None else self._loader(validation, shuffle=False)
        self.epoch = self.step = 0
        self.best = math.inf
        self.history = []

    # ---- what a subclass may change

    def training_step(self, batch):
        """The loss of a batch, a tensor of one element, under autocast if precision is mixed. `batch` is on the device. Call self.module and not
        self.model: with several processes it is the one that adds the gradients up."""
        inputs, targets = batch
        return self.loss(self.module(inputs), targets)

    def validation_step(self, batch):
        """A dict of numbers for a batch, means over its samples, without gradients: `loss` and the metrics."""
        inputs, targets = batch
        predictions = self.model(inputs)
        found = {} if self.loss is None else {"loss": self.loss(predictions, targets)}
        return {**found, **{name: metric(predictions, targets) for name, metric in self.metrics.items()}}

    def configure_optimizers(self):
        """The optimizer, or a pair (optimizer, scheduler); the scheduler's step() is called after each optimizer step."""
        return optim.AdamW(self.model.parameters(), lr=self.lr)

    def on_step_end(self, loss):
        """Called after each optimizer step with its mean loss, a tensor. Reading it waits for the device."""

    def on_epoch_end(self, numbers):
        """Called after each epoch, before its checkpoint, with a dict: epoch, step, loss, val_loss and so on. `return False` ends the training."""

    # ---- the loop

    def fit(self):
        """Trains, and returns a list with a dict for each epoch: epoch, step, loss, and val_ of each number of validation_step.
        FloatingPointError if a loss that is logged is not finite; the errors of load_checkpoint, and ValueError if the run in a checkpoint had
        other settings, or if out already holds another run."""
        if not self.smoke:
            self._take_folder()
        self._prepare()
        if self.smoke:
            return self._smoke()
        self._empty_folder()
        with Logs(self._log, self.out, self.tensorboard, self._rank == 0, (self.step, self.epoch) if self._resumed else None, self._records) as logs:
            self._watch_memory()
            while self.epoch < self.epochs:
                numbers = self._epoch(logs, None)
                go_on = self.on_epoch_end(numbers) is not False
                self._save()
                if self.out is not None and self._rank == 0:
                    _page.write(self.out)
                if not go_on:
                    break
        return self.history

    def _take_folder(self):
        """Refuses a folder that holds a run, unless it is this one's, or is to be resumed or replaced."""
        if self.out is None or self.resume or self._overwrite or self._owns_out:
            return
        if any(os.path.exists(os.path.join(self.out, name)) for name in ("checkpoint.safetensors", "metrics.jsonl")):
            raise ValueError(f"Trainer: '{self.out}' already holds a run; expected a folder without one; hint: resume=True (--resume_from_checkpoint) goes on with it, overwrite=True (--overwrite) replaces it")

    def _empty_folder(self):
        """Removes the files of a run that is replaced, so that files of two runs are not taken for one. Each process has looked at the folder by now."""
        if self._overwrite and not self._owns_out and self.out is not None and self._rank == 0:
            for name in _FILES:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.out, name))
        self._owns_out = True

    def _begin_processes(self):
        if self._distributed and not distributed.is_initialized():
            on_gpu = self.device in ("cuda", "rocm")  # each process takes its own
            distributed.init_process_group(device=self.device if on_gpu else None)
            self.device = _C.get_device() if on_gpu else self.device
        ready = self._distributed and distributed.is_initialized()
        self._rank, self._world = (distributed.get_rank(), distributed.get_world_size()) if ready else (0, 1)

    def _loader(self, data, shuffle):
        if isinstance(data, DataLoader):
            return data
        if self._world > 1:
            return DataLoader(data, self.batch_size, sampler=_part_of(data, self._world, self._rank, shuffle, self.seed), num_workers=self.num_workers, seed=self.seed)
        return DataLoader(data, self.batch_size, shuffle=shuffle, num_workers=self.num_workers, seed=self.seed)

    def _prepare(self):
        made = self.configure_optimizers()
        self.optimizer, self.scheduler = made if isinstance(made, tuple) else (made, None)
        if not isinstance(self.optimizer, optim.Optimizer):
            raise TypeError(f"Trainer: configure_optimizers returned no optimizer; got {type(self.optimizer).__name__}; expected an optimizer, or a pair (optimizer, scheduler)")
        self.scaler = amp.GradScaler(enabled=self.dtype == _C.float16)
        self.module = DistributedDataParallel(self.model) if self._world > 1 else self.model
        self._loss_sum, self._steps_in_epoch, self._resumed = None, 0, False
        path = os.path.join(self.out, "checkpoint.safetensors") if self.resume is True else self.resume
        if path and (self.resume is not True or os.path.exists(path)):
            self._load(path)
        elif self._world > 1:
            state = [_C.get_rng_state()]
            distributed.broadcast_object_list(state, 0)
            self._take_random_state(state[0])

    def _take_random_state(self, of_rank_0):
        """The random state of rank 0, but other dropout masks in each process."""
        seed, offset = of_rank_0
        _C.set_rng_state(((seed + self._rank) % 2**64, offset))

    def _autocast(self):
        return amp.autocast(self.device, dtype=self.dtype) if self.dtype is not None else contextlib.nullcontext()

    def _on_device(self, value):
        if isinstance(value, Tensor):
            return value.to(self.device)
        if isinstance(value, (list, tuple)):
            return type(value)(self._on_device(v) for v in value) if type(value) in (list, tuple) else type(value)(*(self._on_device(v) for v in value))
        return {k: self._on_device(v) for k, v in value.items()} if isinstance(value, dict) else value

    def _optimizer_step(self, batches):
        """One update from the mean gradient of these batches; the mean of their losses."""
        total = None
        self.optimizer.zero_grad()
        merged = _merged(batches, merged_batches)
        for number, (batch, count) in enumerate(merged, 1):
            last = number == len(merged)
            with contextlib.nullcontext() if last or self._world == 1 else self.module.no_sync():
                with self._autocast():
                    loss = self.training_step(self._on_device(batch))
                if not isinstance(loss, Tensor) or loss.numel() != 1:
                    got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                    raise TypeError(f"Trainer: training_step returned no loss; got {got}; expected a tensor of one element")
                loss = loss if len(merged) == 1 else loss * (count / len(batches)) if count > 1 else loss / len(batches)
                self.scaler.scale(loss).backward()
            total = loss.detach() if total is None else total + loss.detach()
        if self.clip is not None:
            self.scaler.unscale_(self.optimizer) if self.scaler.is_enabled() else None
            clip_grad_norm_(self.model.parameters(), self.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()
        return total.float().reshape(())

    def _epoch(self, logs, most_steps):
        """One epoch, or what is left of it after a resume; at most `most_steps` steps. Returns its numbers."""
        self.model.train()
        begin, samples, seen = time.perf_counter(), 0, 0
        batches = iter(self.train_loader)
        while (most_steps is None or seen < most_steps) and (group := list(itertools.islice(batches, self.gradient_accumulation_steps))):
            loss = self._optimizer_step(group)
            self.step, self._steps_in_epoch, seen = self.step + 1, self._steps_in_epoch + 1, seen + 1
            samples += sum(_samples(b) for b in group)
            self._loss_sum = loss if self._loss_sum is None else self._loss_sum + loss
            self.on_step_end(loss)
            if self.step % self.log_interval == 0 or seen == most_steps:
                value = self._finite(loss.item())
                rate = samples * self._world / (time.perf_counter() - begin)
                memory = self._memory.look()
                logs.step(self.epoch + 1, self.epochs, self.step, value, self.optimizer.param_groups[0]["lr"], rate, memory, self._memory.short(memory))
                for text in self._memory.warnings(memory, self.step):
                    logs.warning(self.epoch + 1, self.step, text, self._rank)
            if most_steps is None and self.checkpoint_interval and self.step % self.checkpoint_interval == 0:
                self._save()
        if self._steps_in_epoch == 0:
            raise ValueError("Trainer.fit: there are no batches; got an empty training set; expected at least one sample")
        numbers = {"epoch": self.epoch + 1, "step": self.step, "loss": self._finite(self._of_all_ranks(self._loss_sum) / self._steps_in_epoch)}
        seconds = time.perf_counter() - begin
        numbers.update(self._validate(most_steps))
        self.epoch, self._loss_sum, self._steps_in_epoch = self.epoch + 1, None, 0
        if numbers.get("val_loss", math.inf) < self.best and most_steps is None:
            self.best = numbers["val_loss"]
            if self.out is not None and self._rank == 0:
                save(self.model.state_dict(), os.path.join(self.out, "best.safetensors"))
        self.history.append(dict(numbers))  # what a checkpoint keeps: no times, which differ between runs
        timed = {**numbers, "seconds": seconds, "samples_per_second": samples * self._world / seconds}
        logs.epoch(timed, self.epochs)
        return timed

    def _watch_memory(self):
        batches = _length(self.train_loader)
        self._memory = MemoryMonitor(self.device, None if batches is None else self.epochs * -(-batches // self.gradient_accumulation_steps))

    def _of_all_ranks(self, value):
        if self._world > 1:
            value = value.cpu().clone()
            distributed.all_reduce(value, distributed.ReduceOp.AVG)
        return value.item()

    def _finite(self, loss):
        if not math.isfinite(loss):
            raise FloatingPointError(f"Trainer.fit: the loss is not finite; got {loss} at step {self.step} of epoch {self.epoch + 1}; hint: a smaller learning rate, clip=1.0, or mixed_precision=False")
        return loss

    def validate(self):
        """The means of what validation_step returns over the validation set, as a dict of val_ names; an empty one without a validation set."""
        return self._validate(None)

    def _validate(self, most):
        if self.validation_loader is None:
            return {}
        training, sums, samples = self.model.training, {}, 0
        self.model.eval()
        with _C_no_grad():
            for batch in itertools.islice(self.validation_loader, most):
                size = _samples(batch)
                with self._autocast():
                    found = self.validation_step(self._on_device(batch))
                for name, value in (found if isinstance(found, dict) else {"loss": found}).items():
                    value = value.detach().double().reshape(()) if isinstance(value, Tensor) else _C.tensor(float(value), dtype=_C.float64, device=self.device)
                    sums[name] = sums[name] + value * size if name in sums else value * size
                samples += size
        self.model.train(training)
        if samples == 0:
            raise ValueError("Trainer.validate: there are no batches; got an empty validation set; expected at least one sample, or validation=None")
        if self._world > 1:
            everything = _C.stack([*sums.values(), _C.tensor(float(samples), dtype=_C.float64, device=self.device)]).cpu()
            distributed.all_reduce(everything)
            *values, samples = everything.tolist()
            return {f"val_{name}": value / samples for name, value in zip(sums, values)}
        return {f"val_{name}": value.item() / samples for name, value in sums.items()}

    # ---- checkpoints

    def _settings(self):
        return {"batch_size": self.train_loader.batch_size, "gradient_accumulation_steps": self.gradient_accumulation_steps, "samples": _length(self.train_loader.dataset),
                "mixed_precision": None if self.dtype is None else self.dtype.name, "processes": self._world}

    def _parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "dataloader": self.train_loader}

    def _write(self, path):
        extra = {"trainer": 1, "settings": self._settings(), "epoch": self.epoch, "step": self.step, "best": self.best, "history": self.history,
                 "scaler": self.scaler.state_dict(), "loss_sum": self._loss_sum, "steps_in_epoch": self._steps_in_epoch, "user": self.extra_state()}
        save_checkpoint(path, **self._parts(), extra=extra)

    def extra_state(self):
        """What a subclass wants to keep in a checkpoint: tensors, numbers, text, dicts and lists of them. load_extra_state gets it back."""
        return None

    def load_extra_state(self, state):
        """Called when a run is resumed, with state, the value that extra_state() returned when the checkpoint was written. A subclass defines it; by default
        it does nothing.
        """

    def _save(self):
        if self.out is None:
            return
        if self._rank == 0:
            os.makedirs(self.out, exist_ok=True)
            self._write(os.path.join(self.out, "checkpoint.safetensors"))
        if self._world > 1:
            distributed.barrier()  # no process goes on before the file is there

    def _load(self, path):
        from ..io import load

        found = load(path)
        extra = found.get("extra") if isinstance(found, dict) else None
        if not isinstance(extra, dict) or extra.get("trainer") != 1:
            raise ValueError(f"Trainer: '{path}' is not a checkpoint of a Trainer; expected checkpoint.safetensors in the folder of a run")
        was = extra["settings"]
        shared = self._share_steps(path, was)
        other = [f"{name} {was.get(name)}, now {value}" for name, value in self._settings().items() if was.get(name) != value and name not in shared]
        if other:
            raise ValueError(f"Trainer: the run in '{path}' had other settings; got {'; '.join(other)}; expected the same, so that the updates are the same")
        load_checkpoint(path, **{name: part for name, part in self._parts().items() if part is not None})
        if shared:
            place = self.train_loader.state_dict()
            samples = place["position"] * was["batch_size"] * was["processes"]
            self.train_loader.load_state_dict({**place, "position": samples // (self.train_loader.batch_size * self._world)})
        self._take_random_state(_C.get_rng_state())
        self.epoch, self.step, self.best, self.history = extra["epoch"], extra["step"], extra["best"], extra["history"]
        self.scaler.load_state_dict(extra["scaler"])
        self._loss_sum = None if extra["loss_sum"] is None else extra["loss_sum"].to(self.device)
        self._steps_in_epoch, self._resumed = extra["steps_in_epoch"], True
        self.load_extra_state(extra["user"])

    def _share_steps(self, path, was):
        """The settings that may differ from those of the checkpoint, because another number of processes shares the samples of an optimizer step."""
        if was.get("processes") == self._world or not self._made_loader:
            return ()
        batch, all_of_step = self.batch_size * self._world, was["batch_size"] * was["gradient_accumulation_steps"] * was["processes"]
        if self.gradient_accumulation_steps == was["gradient_accumulation_steps"] and all_of_step % batch == 0:
            self.gradient_accumulation_steps = all_of_step // batch
        if batch * self.gradient_accumulation_steps != all_of_step:
            raise ValueError(f"Trainer: the run in '{path}' had {all_of_step} samples in an optimizer step; got batch_size {self.batch_size} x {self.gradient_accumulation_steps} batches x {self._world} processes; "
                             f"expected {all_of_step}; hint: a batch_size of which the processes together take a divisor of {all_of_step}")
        return ("processes", "batch_size", "gradient_accumulation_steps")

    # ---- a short run before a long one

    def _smoke(self):
        begun = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        loader, random = self.train_loader.state_dict(), _C.get_rng_state()
        steps = -(-len(self.train_loader) // self.gradient_accumulation_steps) if _length(self.train_loader) is not None else None
        short = 2 if steps is None else max(2, int(_SMOKE_SHARE * steps))
        epochs, self.epochs = self.epochs, min(self.epochs, _SMOKE_EPOCHS)
        found = []
        try:
            with Logs(self._log, None, False, self._rank == 0, None, self._records) as logs:
                self._watch_memory()
                while self.epoch < self.epochs:
                    found.append(self._epoch(logs, short))
                without = [name for name, p in self.model.named_parameters() if p.requires_grad and p.grad is None]
                if without:
                    logs.line(f"smoke: no gradient reached {', '.join(without[:5])}{' and others' * (len(without) > 5)}")
                self._check_checkpoint()
                line = f"smoke: passed; {self.step} steps, finite losses, and a checkpoint that gives back the same state"
                if steps is not None:
                    line += f"; {epochs} epochs of {steps} steps take about {epochs * steps * found[-1]['seconds'] / min(short, steps):.3g} s without validation"
                logs.line(f"{line}; {self._memory.text(self._memory.look())}")
        finally:
            self.epochs, self.epoch, self.step, self.history, self.best = epochs, 0, 0, [], math.inf
            self.model.load_state_dict(begun)
            self.train_loader.load_state_dict(loader)
            _C.set_rng_state(random)
        return found

    def _check_checkpoint(self):
        """A checkpoint of now, loaded again, has the same bits."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint.safetensors")
            self._write(path)
            before = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            load_checkpoint(path, **{name: part for name, part in self._parts().items() if part is not None})
        changed = [name for name, value in self.model.state_dict().items() if not _C.eq(value, before[name]).all().item()]
        if changed:
            raise RuntimeError(f"Trainer: a checkpoint gives back other weights; got other values of {', '.join(changed)}; expected the same")


def _part_of(data, world, rank, shuffle, seed):
    """A DistributedSampler with the order that a DataLoader of one process has, so that any number of processes takes the same samples in each optimizer step."""
    from ..data.dataset import _permutation
    from ..utils.data.distributed import DistributedSampler

    class Part(DistributedSampler):
        def _shuffled(self, n):
            return _permutation(n, self.seed, self.epoch)

    return Part(data, world, rank, shuffle=shuffle, seed=seed)


def _C_no_grad():
    from .. import no_grad

    return no_grad()


def _length(something):
    try:
        return len(something)
    except TypeError:
        return None


def _samples(batch):
    """How many samples a batch has: the first dim of the first tensor in it; 1 if there is none."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 1
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return next((_samples(part) for part in parts if isinstance(part, (Tensor, dict, list, tuple))), 1)
