"""Samples a second of pf.train.Trainer by number of parameters: MLPs of three sizes, a batch of 256, one epoch at a time.

    python benchmarks/training_speed.py [--device cpu] [--json FILE]

An epoch is timed as a whole, with its batches from a TensorDataset, after one that is not timed.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

import numpy as np

import pyflame as pf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from machine import slug  # noqa: E402

SIZES = {"small": [128, 64], "medium": [1024, 1024, 1024], "large": [2048, 2048, 2048, 2048]}


class Timed(pf.train.Trainer):
    def on_epoch_end(self, numbers):
        self.rates = [*getattr(self, "rates", []), numbers["samples_per_second"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--mixed_precision", action="store_true")
    parser.add_argument("--json", help="a file for the result")
    a = parser.parse_args()
    rng, rows = np.random.default_rng(0), []
    for name, hidden in SIZES.items():
        samples = 256 * {"small": 64, "medium": 16, "large": 4}[name]
        x = rng.standard_normal((samples, a.features)).astype(np.float32)
        pf.manual_seed(0)
        model = pf.models.MLP(a.features, hidden)
        trainer = Timed(model, pf.data.TensorDataset(pf.tensor(x), pf.tensor(x[:, 0])), loss=pf.nn.functional.mse_loss, epochs=a.epochs + 1, batch_size=256, device=a.device,
                        mixed_precision=a.mixed_precision, log=None)
        trainer.fit()
        rates = trainer.rates[1:]
        parameters = sum(p.numel() for p in model.parameters())
        quarters = statistics.quantiles(rates, n=4)
        rows.append({"parameters": parameters, "samples_per_second": statistics.median(rates), "quartiles": [quarters[0], quarters[2]]})
        print(f"{parameters:>12,} parameters: {statistics.median(rates):>10,.0f} samples/s (quartiles {quarters[0]:,.0f} to {quarters[2]:,.0f})", flush=True)
    if a.json:
        result = {"benchmark": "training_speed", "machine": slug(), "device": a.device, "mixed_precision": a.mixed_precision, "load": os.getloadavg()[0], "rows": rows}
        pathlib.Path(a.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
