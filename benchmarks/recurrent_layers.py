#!/usr/bin/env python3
"""Recurrent layers on a device: step by step, by a library of the device (docs/decisions/0026-recurrent-libraries.md), and in PyTorch.

    python benchmarks/recurrent_layers.py --device cuda --json benchmarks/results/MACHINE/recurrent_layers.json

The three take turns; a time is the median over the turns of the mean of 20 calls. training: forward, the sum of the outputs, and all gradients; inference: forward alone. Where
the device has no such library, the second column is empty and a line says why. PyTorch is left out with --no_torch, and where it is not installed.
"""
import argparse
import json
import statistics
import time

import pyflame as pf

SIZES = ((35, 20, 650, 2), (128, 64, 1024, 1), (128, 1, 512, 1))  # steps, sequences, hidden, layers
CALLS = 20


def program(kind, sizes, dtype, training, device, torch=None):
    """(a function for one call, a function that waits for the device)"""
    steps, batch, hidden, layers = sizes
    lib = torch or pf
    dtype = getattr(lib, dtype)
    lib.manual_seed(0)
    layer = getattr(lib.nn, kind)(hidden, hidden, num_layers=layers).to(device).to(dtype)
    x = lib.randn(steps, batch, hidden, device=device).to(dtype)
    wait = torch.cuda.synchronize if torch else pf.synchronize

    def train():
        for p in layer.parameters():
            p.grad = None
        layer(x)[0].float().sum().backward()

    def infer():
        with lib.no_grad():
            y = layer(x)[0]
        if not torch:
            pf.cut()
        return y

    return train if training else infer, wait


def mean_time(call, wait):
    wait()
    start = time.perf_counter()
    for _ in range(CALLS):
        result = call()
    wait()
    del result
    return (time.perf_counter() - start) / CALLS


def by_library(call):
    with pf.tuning.force("recurrent", "gpu.dnn"), pf.tuning.force("recurrent_grad", "gpu.dnn"):
        pf.use_deterministic_algorithms(False)
        try:
            return call()
        finally:
            pf.use_deterministic_algorithms(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--no_torch", action="store_true")
    parser.add_argument("--small", action="store_true", help="small layers, to try the program")
    parser.add_argument("--json", help="write the results to this file")
    args = parser.parse_args()
    torch = None
    if not args.no_torch and args.device == "cuda":
        try:
            import torch
        except ImportError as e:
            print(f"without PyTorch: {e}")
    rows = []
    for kind in ("LSTM", "GRU"):
        for sizes in ((5, 2, 16, 1),) if args.small else SIZES:
            for dtype in ("float32", "bfloat16"):
                for training in (True, False):
                    steps, _ = program(kind, sizes, dtype, training, args.device)
                    calls = {"steps": (steps, pf.synchronize)}
                    library = by_library(lambda steps=steps: pf.explain(steps))
                    if "recurrent(" in library:
                        calls["library"] = (steps, pf.synchronize)
                    else:
                        reasons = [line.strip() for line in library.splitlines() if "step by step" in line or line.startswith("    1 x  ")]
                        print("no library:", *(reasons or ["this device has none"]))
                    if torch:
                        calls["torch"] = program(kind, sizes, dtype, training, args.device, torch)
                    times = {name: [] for name in calls}
                    for turn in range(args.turns + 1):  # the first one warms up
                        for name, (call, wait) in calls.items():
                            # The mode is set once for a turn: to change it waits for the device.
                            seconds = by_library(lambda: mean_time(call, wait)) if name == "library" else mean_time(call, wait)  # noqa: B023
                            if turn:
                                times[name].append(seconds * 1e3)
                    row = {"kind": kind, "steps": sizes[0], "sequences": sizes[1], "hidden": sizes[2], "layers": sizes[3], "dtype": dtype, "training": training, **{f"{name}_ms": statistics.median(t) for name, t in times.items()},
                           **{f"{name}_ms_all": t for name, t in times.items()}}
                    rows.append(row)
                    print(f"{kind} {sizes} {dtype:8} {'training ' if training else 'inference'}:", ", ".join(f"{name} {row[name + '_ms']:.3f} ms" for name in times), flush=True)
    if args.json:
        info = pf.device_info(args.device)
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"device": {k: info.get(k) for k in ("name", "architecture")}, "version": pf.__version__, "torch": torch.__version__ if torch else None, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
