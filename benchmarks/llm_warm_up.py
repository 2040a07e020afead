#!/usr/bin/env python3
"""The time between two tokens while texts grow and end, with an engine that warms up and with one that does not.

An engine writes texts of different lengths, so the rows of its steps become fewer and the tables of blocks longer. A step of a size that was not there before waits until its program is
planned. What comes before every text has its first token is not counted: these steps read prompts. Each engine runs in a process of its own, on a model of random weights; the first process is not counted, because it compiles kernels that the others find in the cache of files. A line for
each process has the milliseconds between two tokens of a text (median, 99th percentile, largest), how many programs were planned, and how long the engine warmed up.

    python benchmarks/llm_warm_up.py --device cuda --shape 8b --json results.json
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import llm_decode
import numpy as np

import pyflame as pf
from pyflame.llm import Engine, Finished, Sampling, Token


class Text:
    """Notes when each token came."""

    def __init__(self, left):
        self.times, self._left = [], left

    def __call__(self, event):
        if isinstance(event, Token):
            self.times.append(time.perf_counter())
        elif isinstance(event, Finished):
            self._left.release()


def write(engine, count, tokens, rng):
    """The seconds between two tokens of each text, from the first token of the last text on. The k-th text has k / count of the tokens."""
    left, vocabulary = threading.Semaphore(0), engine.model.config.vocab
    texts = [Text(left) for _ in range(count)]
    for k, text in enumerate(texts):
        engine.submit(rng.integers(0, vocabulary, 32).tolist(), Sampling(temperature=0), tokens * (k + 1) // count, stop_ids=(), receive=text)
    for _ in texts:
        left.acquire()
    begin = max(text.times[0] for text in texts)
    return np.concatenate([np.diff([t for t in text.times if t >= begin]) for text in texts])


def measure(a):
    pf.set_device(a.device)
    model = llm_decode.random_model(a.shape, "bfloat16", a.device, 2 * a.tokens)
    begin = time.perf_counter()
    with Engine(model, max_num_seqs=a.texts, max_model_len=a.tokens + 64, max_num_batched_tokens=max(512, a.texts), warm_up=a.warm_up == "yes") as engine:
        while engine._warm_up.left:
            time.sleep(0.01)
        seconds, before = time.perf_counter() - begin, pf.program_cache_stats()["misses"]
        gaps = 1e3 * write(engine, a.texts, a.tokens, np.random.default_rng(0))
    return {"shape": a.shape, "texts": a.texts, "tokens": a.tokens, "warm_up": a.warm_up == "yes", "seconds_before": seconds, "programs": pf.program_cache_stats()["misses"] - before,
            "ms_median": float(np.median(gaps)), "ms_p99": float(np.percentile(gaps, 99)), "ms_largest": float(gaps.max()), "largest": sorted(set(np.round(gaps, 1).tolist()))[-20:]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--device", default="cpu")
    p.add_argument("--shape", default="tiny", choices=[s for s in llm_decode.SHAPES if s not in llm_decode.EXPERTS])
    p.add_argument("--texts", type=int, default=32)
    p.add_argument("--tokens", type=int, default=1024, help="of the longest text")
    p.add_argument("--rounds", type=int, default=2, help="processes of each kind")
    p.add_argument("--warm_up", choices=["yes", "no"], help=argparse.SUPPRESS)
    p.add_argument("--json", help="a file for the results")
    a = p.parse_args()
    if a.warm_up:
        rows = [measure(a)]
    else:
        rows = []
        for i, kind in enumerate(["yes", *["no", "yes"] * a.rounds]):
            with tempfile.NamedTemporaryFile() as file:
                subprocess.run([sys.executable, os.path.abspath(__file__), "--device", a.device, "--shape", a.shape, "--texts", str(a.texts), "--tokens", str(a.tokens), "--warm_up", kind, "--json", file.name], check=True)
                row = json.load(open(file.name))["rows"][0]
            if i:
                rows.append(row)
                print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"pyflame": pf.__version__, "device": str(a.device), "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
