"""What a training step costs the thread that calls it: the two small MLPs of compare_torch.py, from Python.

    python benchmarks/overhead/step.py [--device null] [--repeat 60] [--json FILE]

On the device 'null' (the default) nothing is computed: what remains is the host's work, the same for every device (modules, recording,
the walk over the tape, the optimizer, the windows' look-up). Of each part the fastest of many short blocks counts, because everything
that disturbs a measurement of the host makes it slower.
"""
import argparse
import json
import platform
import time

import pyflame as pf
from pyflame import nn
from pyflame.nn import functional as F

CALLS = 50  # a block


def classifier():
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    x, y = pf.randn(32, 784), pf.randint(0, 10, (32,))
    return model, lambda: F.cross_entropy(model(x), y)


def regression():
    model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.LayerNorm(128), nn.Linear(128, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 1))
    x, y = pf.randn(64, 64), pf.randn(64, 1)
    return model, lambda: F.mse_loss(model(x), y)


MODELS = {"mlp_classifier": classifier, "mlp_regression": regression}


def measure(make, repeat):
    """Microseconds of each part of a step, and of the whole."""
    model, loss_of = make()
    opt = pf.optim.Adam(model.parameters(), lr=1e-3)
    clock = time.perf_counter_ns
    best = dict.fromkeys(("zero_grad", "forward", "backward", "optimizer", "step"), float("inf"))

    def step():
        opt.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        opt.step()
        return loss

    for _ in range(200):
        loss = step()
    for _ in range(repeat):
        pf.synchronize()
        parts = [0, 0, 0, 0]
        for _ in range(CALLS):
            t0 = clock()
            opt.zero_grad(set_to_none=True)
            t1 = clock()
            loss = loss_of()
            t2 = clock()
            loss.backward()
            t3 = clock()
            opt.step()
            t4 = clock()
            parts = [p + t for p, t in zip(parts, (t1 - t0, t2 - t1, t3 - t2, t4 - t3))]
        pf.synchronize()
        start = clock()
        for _ in range(CALLS):
            loss = step()
        whole = clock() - start
        for name, t in zip(best, (*parts, whole)):
            best[name] = min(best[name], t / CALLS * 1e-3)
    del loss
    return {name: round(us, 2) for name, us in best.items()}


def recorded_op(repeat):
    """Microseconds of one elementwise op with gradients on, its share of the window's cut, look-up and run included: 100 of them on 8 elements."""
    ops, a = 100, pf.ones(8, requires_grad=True)
    best = float("inf")
    for _ in range(20 + repeat):
        start = time.perf_counter_ns()
        for _ in range(10):
            x = a
            for _ in range(ops):
                x = x + 1.0
            pf.synchronize()
        best = min(best, (time.perf_counter_ns() - start) / (10 * ops) * 1e-3)
    return round(best, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="null")
    parser.add_argument("--repeat", type=int, default=60, help="blocks of each kind")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    one_op = recorded_op(args.repeat)  # on the CPU
    print(f"{'one op with gradients':26} {one_op:10.3f}")
    pf.set_device(args.device)
    results = {}
    print(f"{'us of the calling thread':26} " + " ".join(f"{n:>10}" for n in ("zero_grad", "forward", "backward", "optimizer", "step")))
    for name, make in MODELS.items():
        results[name] = measure(make, args.repeat)
        print(f"{name:26} " + " ".join(f"{us:10.2f}" for us in results[name].values()), flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"device": args.device, "python": platform.python_version(), "us_per_recorded_op": one_op, "us": results}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
