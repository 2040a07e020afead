#!/usr/bin/env python3
"""What a profile costs: training steps without one, with one, and with one that also has shapes, memory and stacks.

The three take turns, each for the same number of steps; the first turn of each is left out. A step ends by reading its loss. The figures are medians over
the turns of the time of a step, and the cost is the median of the ratios within a turn. Starting and ending a recording is not part of a turn.

    python benchmarks/profiler_overhead.py --device cuda --json results.json
"""
import argparse
import json
import statistics
import time

import pyflame as pf


def gpt2(small):
    """A training step of GPT-2: of 124 million parameters in bfloat16 with 8 x 1024 tokens, or of a small one for a CPU."""
    from pyflame.models import GPT2Config, GPT2LMHeadModel

    drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=2048, n_positions=128, n_embd=128, n_layer=4, n_head=4, **drop) if small else GPT2Config(**drop))
    if not small:
        model.to(pf.bfloat16)
    model.train()
    optimizer = pf.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = pf.randint(0, 2048, (4, 128) if small else (8, 1024))

    def step():
        optimizer.zero_grad()
        out = model(tokens)
        logits = out[0] if isinstance(out, tuple) else out
        loss = pf.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]).float(), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def mlp():
    """A step of three small layers, which takes tens of microseconds."""
    model = pf.nn.Sequential(pf.nn.Linear(64, 64), pf.nn.ReLU(), pf.nn.Linear(64, 64), pf.nn.ReLU(), pf.nn.Linear(64, 8))
    optimizer = pf.optim.SGD(model.parameters(), lr=0.01)
    x, y = pf.randn(32, 64), pf.randn(32, 8)

    def step():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


MODES = {"none": None, "times": {}, "everything": {"record_shapes": True, "profile_memory": True, "with_stack": True}}


def turn(step, steps, options):
    """Microseconds of a step."""
    def timed():
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return (time.perf_counter() - start) / steps * 1e6

    if options is None:
        return timed()
    with pf.profiler.profile(**options) as profile:
        us = timed()
    if profile.dropped:
        raise SystemExit(f"{profile.dropped} events were dropped; expected none; hint: fewer --steps")
    return us


def measure(step, steps, turns):
    times = {name: [] for name in MODES}
    for _ in range(turns + 1):
        for name, options in MODES.items():
            times[name].append(turn(step, steps, options))
    times = {name: all_[1:] for name, all_ in times.items()}
    row = {f"us_{name}": round(statistics.median(all_), 2) for name, all_ in times.items()}
    for name in ("times", "everything"):
        ratios = sorted(a / b - 1 for a, b in zip(times[name], times["none"]))
        row[f"cost_{name}"] = round(statistics.median(ratios), 4)
        row[f"cost_{name}_quartiles"] = [round(ratios[len(ratios) // 4], 4), round(ratios[-1 - len(ratios) // 4], 4)]
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--turns", type=int, default=9)
    p.add_argument("--json", metavar="FILE")
    args = p.parse_args()
    pf.set_device(args.device)
    cpu = args.device == "cpu"
    rows = {}
    for name, make, steps in (("gpt2_step", lambda: gpt2(cpu), 10 if cpu else 20), ("mlp_step", mlp, 500)):
        step = make()
        for _ in range(12):
            step()
        row = rows[name] = measure(step, steps, args.turns)
        print(f"{name:<10} {row['us_none']:10.1f} us; with a profile {row['cost_times']:+.1%}; with shapes, memory and stacks {row['cost_everything']:+.1%}", flush=True)
    if args.json:
        info = pf.device_info(args.device)
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"device": info["name"] if isinstance(info, dict) else str(info), "version": pf.__version__, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
