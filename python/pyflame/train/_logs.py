"""Where a run's numbers go: lines for people, metrics.jsonl for programs, event files for TensorBoard."""
import json
import os


class Logs:
    """write: a function that takes a line. folder: of metrics.jsonl; None: no file. active: whether this process logs at all. append: the file of a run that is
    resumed goes on."""

    def __init__(self, write, folder, tensorboard, active, append):
        self.write, self.active, self.file, self.board = write, active, None, None
        if not active or folder is None:
            return
        os.makedirs(folder, exist_ok=True)
        if tensorboard:
            from ..utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(os.path.join(folder, "tensorboard"))
        self.file = open(os.path.join(folder, "metrics.jsonl"), "a" if append else "w", encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.file:
            self.file.close()
        if self.board:
            self.board.close()
        return False

    def line(self, text):
        if self.active and self.write is not None:
            self.write(text)

    def step(self, epoch, epochs, step, loss, lr, rate):
        self.line(f"epoch {epoch}/{epochs} step {step}: loss {loss:.6g}, lr {lr:.3g}, {rate:.4g} samples/s")
        self._keep({"epoch": epoch, "step": step, "loss": loss, "lr": lr}, {"loss": loss, "lr": lr}, step, "train/")

    def epoch(self, numbers, epochs):
        text = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items() if name not in ("epoch", "step", "seconds", "samples_per_second"))
        self.line(f"epoch {numbers['epoch']}/{epochs} done: {text}, {numbers['seconds']:.3g} s, {numbers['samples_per_second']:.4g} samples/s")
        self._keep({"end_of_epoch": True, **numbers}, {k: v for k, v in numbers.items() if k not in ("epoch", "step")}, numbers["step"], "epoch/")

    def _keep(self, record, numbers, step, prefix):
        if self.file:
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()
        if self.board:
            for name, value in numbers.items():
                self.board.add_scalar(prefix + name, value, step)
