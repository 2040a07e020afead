"""Where a run's numbers go: lines for people, metrics.jsonl for programs, event files for TensorBoard."""
import json
import os


class Logs:
    """write: a function that takes a line. folder: of metrics.jsonl; None: no file. active: whether this process logs at all. resumed: None, or a
    pair (steps, epochs) of the checkpoint that a run goes on from; what the file has from later on was lost, and is removed. records: None, or a function that
    takes each record of metrics.jsonl, a dict; it is also called without a folder."""

    def __init__(self, write, folder, tensorboard, active, resumed, records=None):
        self.write, self.active, self.file, self.board = write, active, None, None
        self.records = records if active else None
        if not active or folder is None:
            return
        os.makedirs(folder, exist_ok=True)
        if tensorboard:
            from ..utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(os.path.join(folder, "tensorboard"))
        path = os.path.join(folder, "metrics.jsonl")
        kept = _records_until(path, *resumed) if resumed and os.path.exists(path) else []
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.writelines(kept)
        os.replace(path + ".new", path)
        self.file = open(path, "a", encoding="utf-8")

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

    def step(self, epoch, epochs, step, loss, lr, rate, memory, said):
        """memory: a dict of bytes; said: what the line has of them."""
        self.line(f"epoch {epoch}/{epochs} step {step}: loss {loss:.4g}, lr {lr:.3g}, {rate:{'.0f' if rate >= 1000 else '.3g'}} samples/s, {said}")
        self._keep({"epoch": epoch, "step": step, "loss": loss, "lr": lr, "memory": memory}, {"loss": loss, "lr": lr}, step, "train/")
        self._draw(memory, step, "memory/")

    def warning(self, epoch, step, text, rank):
        """Each process says its own; the file has those of this one."""
        if self.write is not None:
            self.write(f"warning: {text}" if self.active else f"warning: rank {rank}: {text}")
        self._keep({"epoch": epoch, "step": step, "warning": text}, {}, step, "")

    def epoch(self, numbers, epochs):
        text = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items() if name not in ("epoch", "step", "seconds", "samples_per_second"))
        self.line(f"epoch {numbers['epoch']}/{epochs} done: {text}, {numbers['seconds']:.3g} s")
        self._keep({"end_of_epoch": True, **numbers}, {k: v for k, v in numbers.items() if k not in ("epoch", "step")}, numbers["step"], "epoch/")

    def _keep(self, record, numbers, step, prefix):
        if self.records is not None:
            self.records(record)
        if self.file:
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()
        self._draw(numbers, step, prefix)

    def _draw(self, numbers, step, prefix):
        if self.board:
            for name, value in numbers.items():
                self.board.add_scalar(prefix + name, value, step)


def _records_until(path, steps, epochs):
    """The lines of a file that a checkpoint of this time knows of. A last line that was cut off is not one of them."""
    kept = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record["step"] <= steps and ("end_of_epoch" not in record or record["epoch"] <= epochs):
                kept.append(line)
    return kept
