#!/usr/bin/env python3
"""Attention of a decoding step over the pages of a key/value cache: bfloat16 pages against pages of 8 bits (kv_cache_dtype of pf.llm.Engine).

    python benchmarks/kv_cache_formats.py --device cuda --json benchmarks/results/MACHINE/kv_cache_formats.json

32 sequences with 4,096 keys each, 32 query heads, 8 key/value heads, D = 128. The formats take turns; a time is the median over the turns of the mean of 20 calls. The bytes are
those of keys, values and scales, which each call reads once. `error`: the norm of the difference from the result of the bfloat16 pages, relative to that result's norm.
"""
import argparse
import json
import statistics
import time

import pyflame as pf
from pyflame.llm import _kv_cache

SEQUENCES, HEADS, KV_HEADS, DIM, KEYS, PAGE = 32, 32, 8, 128, 4096, 16
CALLS = 20


def arguments(name, pages):
    if name == "bfloat16":
        return pages, {}
    (keys, key_scale), (values, value_scale) = (_kv_cache.quantized(x.float(), _kv_cache.format_of(name)) for x in pages)
    return [keys, values], {"key_scale": key_scale, "value_scale": value_scale}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", help="write the results to this file")
    args = parser.parse_args()
    pf.set_device(args.device)
    pf.manual_seed(0)
    count = SEQUENCES * KEYS // PAGE
    table, lengths = pf.arange(count, dtype=pf.int32).reshape(SEQUENCES, KEYS // PAGE), pf.full((SEQUENCES,), KEYS, dtype=pf.int32)
    query, pages = pf.randn(SEQUENCES, HEADS, DIM).bfloat16(), [pf.randn(count, PAGE, KV_HEADS, DIM).bfloat16() for _ in range(2)]
    calls, results, times = {}, {}, {}
    for name in ("bfloat16", "int8", "fp8", "fp8_e5m2"):
        (keys, values), scales = arguments(name, pages)
        calls[name] = lambda keys=keys, values=values, scales=scales: pf._C.paged_attention(query, keys, values, table, lengths, **scales)
        results[name], times[name] = calls[name]().float(), []
    for turn in range(args.turns + 1):  # the first one warms up
        for name, call in calls.items():
            pf.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                out = call()
                pf.cut()
            pf.synchronize()
            if turn:
                times[name].append((time.perf_counter() - start) / CALLS)
    del out
    want, rows = results["bfloat16"], []
    for name, taken in times.items():
        size = 2 * SEQUENCES * KEYS * KV_HEADS * (2 * DIM if name == "bfloat16" else DIM + 4)
        median = statistics.median(taken)
        rows.append({"format": name, "median_us": median * 1e6, "times_us": [t * 1e6 for t in taken], "bytes": size, "tb_per_s": size / median / 1e12,
                     "error": float((results[name] - want).norm() / want.norm())})
        print(f"{name:9} {median * 1e6:8.1f} us [{min(taken) * 1e6:.1f} {max(taken) * 1e6:.1f}] {size / median / 1e12:6.2f} TB/s  error {rows[-1]['error']:.4f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"benchmark": "kv_cache_formats", "device": args.device, "versions": {"pyflame": pf.__version__}, "rows": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
