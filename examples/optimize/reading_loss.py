"""An MLP that is trained on NumPy's float64 arrays, and whose loss is read in each step: two habits that make a GPU wait.

    python examples/optimize/reading_loss.py --small
    pyflame optimize examples/optimize/reading_loss.py --small
"""
import argparse

import numpy as np

import pyflame as pf
from pyflame import nn


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--small", action="store_true", help="sizes for a CPU: seconds")
    p.add_argument("--device", default="cpu")
    p.add_argument("--steps", type=int, default=0)
    args = p.parse_args()
    features, width, layers, batch, steps = (32, 32, 2, 64, 60) if args.small else (256, 2048, 6, 2048, 200)
    pf.set_device(args.device)
    pf.manual_seed(0)
    random = np.random.default_rng(0)
    weights = random.standard_normal((features, 1)) / features**0.5
    inputs = [random.standard_normal((batch, features)) for _ in range(16)]
    batches = [(x, np.tanh(x @ weights) + 0.5 * random.standard_normal((batch, 1))) for x in inputs]
    model = nn.Sequential(*(layer for i in range(layers) for layer in (nn.Linear(width if i else features, width), nn.GELU())), nn.Linear(width, 1))
    optimizer = pf.optim.AdamW(model.parameters(), lr=1e-4)
    total, history = 0.0, []
    for step in range(args.steps or steps):
        x, y = batches[step % len(batches)]
        x = pf.from_numpy(x).to(args.device).float()
        y = pf.from_numpy(y).to(args.device).float()
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        history.append(loss.item())
    print(f"mean loss {total / len(history):.6f}, last {history[-1]:.6f}")


if __name__ == "__main__":
    main()
