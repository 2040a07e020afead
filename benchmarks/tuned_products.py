#!/usr/bin/env python3
"""What tuning gains for matrix products and convolutions: 76 products and 20 convolutions with their gradients. The products are 60 of three dtypes, skinny, odd and square and gradients of weights, 8 batches of products,
and 8 products of 8-bit floats, in the format of the device's matrix cores.

First `pyflame tune --problems` measures the products in a cache folder of its own, and a process with pf.tuning.measure the convolutions. Then two fresh processes, one that uses the measurements and one that ignores
them (PYFLAME_TUNED=0), compute each problem in turns. Operands rotate through more memory than the last cache holds. The ratio of a problem is the median
over the turns of the default's time over the tuned one's, so above 1 tuning helps.

    python benchmarks/tuned_products.py --device cuda --json results.json
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

GPU_BYTES, CPU_BYTES = 512 << 20, 64 << 20  # of operands that rotate


def products(scale, device):
    """M,N,K,dtype,layout[,batch] of the list; scale divides sizes, but not batches."""
    import pyflame as pf

    small = pf.float8.formats(device)[0].name
    rows = []
    for m in (1, 2, 4, 8, 16, 32, 64, 128):  # decoding: few rows times the weights of a layer
        rows += [(m, 4096, 4096, "bfloat16", "NT"), (m, 11008, 4096, "float16", "NT"), (m, 4096, 14336, "bfloat16", "NT")]
    for m, n, k in ((1000, 1000, 1000), (333, 777, 1111), (127, 4095, 513), (2047, 2049, 1023), (512, 50257, 768), (4000, 300, 3000)):  # odd
        rows += [(m, n, k, "bfloat16", "NN"), (m, n, k, "float32", "NN")]
    for m, n, k in ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)):
        rows += [(m, n, k, "bfloat16", "NT"), (m, n, k, "float16", "NN"), (m, n, k, "float32", "NN")]
    for m, n, k in ((64, 64, 32768), (256, 256, 16384), (768, 768, 8192), (128, 1024, 65536), (32, 32, 8192), (768, 3072, 8192)):  # gradients of weights
        rows += [(m, n, k, "bfloat16", "TN"), (m, n, k, "float32", "TN")]
    for m, n, k, layout, batch in ((256, 256, 64, "NT", 192), (256, 64, 256, "NN", 192), (1, 1024, 128, "NT", 256), (100, 300, 500, "NN", 24)):  # heads of attention, one query each, odd
        rows += [(m, n, k, "bfloat16", layout, batch), (m, n, k, "float32", layout, batch)]
    for m, n, k in ((16, 4096, 4096), (64, 4096, 14336), (128, 11008, 4096), (512, 4096, 4096), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (4096, 14336, 4096)):
        rows += [(m, n, k, small, "NT")]
    return [(*(max(1, d // scale) for d in row[:3]), *row[3:]) for row in rows]


def convolutions(scale):
    """Images, channels, size, outputs, kernel, stride, groups, dtype, layout: of networks, odd, skinny, with few channels, grouped."""
    rows = [(32, 64, 56, 64, 3, 1, 1), (32, 128, 28, 128, 3, 1, 1), (32, 256, 14, 256, 3, 1, 1), (32, 512, 7, 512, 3, 1, 1), (32, 256, 56, 64, 1, 1, 1), (32, 1024, 14, 256, 1, 1, 1),
            (16, 3, 224, 64, 7, 2, 1), (7, 37, 45, 53, 3, 1, 1), (1, 64, 112, 128, 3, 2, 1), (64, 96, 28, 96, 3, 1, 96)]
    small = [(max(1, n // scale), *row) for n, *row in rows]
    return [(*row, dtype, layout) for row in small for dtype, layout in (("bfloat16", "channels_last"), ("float32", "contiguous"))]


def of_convolution(row):
    """A convolution with both its gradients. (name, bytes, call)"""
    import pyflame as pf

    n, c, size, k, kernel, stride, groups, dtype, layout = row
    x, w = pf.randn(n, c, size, size).to(getattr(pf, dtype)), pf.randn(k, c // groups, kernel, kernel).to(getattr(pf, dtype))
    if layout == "channels_last":
        x, w = x.to(memory_format=pf.channels_last), w.to(memory_format=pf.channels_last)
    x.requires_grad = w.requires_grad = True

    def forward():
        return pf.nn.functional.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups)

    g = pf.randn(*forward().shape).to(x.dtype)
    if layout == "channels_last":
        g = g.to(memory_format=pf.channels_last)

    def call():
        y = forward()
        return y, pf.autograd.grad(y, (x, w), g)

    return f"conv {n}x{c}x{size}x{size} {k}x{kernel}x{kernel} stride {stride} groups {groups} {dtype} {layout}", x.nbytes + 2 * g.nbytes + w.nbytes, call


def is_convolution(row):
    return len(row) == 9


def of_problem(row):
    from pyflame.benchmarking.gemms import Gemm
    from pyflame.benchmarking.problems import of_gemm

    if is_convolution(row):
        return of_convolution(row)
    g = of_gemm(Gemm(*row))
    return g.name, g.bytes, g.call


def name_of(row):
    from pyflame.benchmarking.gemms import Gemm

    return "conv " + " ".join(map(str, row)) if is_convolution(row) else str(Gemm(*row)).removeprefix("gemm ")


def problems(scale, device, only=""):
    """Those whose names contain a text."""
    return [row for row in products(scale, device) + convolutions(scale) if only in name_of(row)]


def measure_convolutions(device, scale, budget, only):
    import pyflame as pf

    pf.set_device(device)
    with pf.tuning.measure(budget=budget) as done:
        for row in filter(is_convolution, problems(scale, device, only)):
            call = of_problem(row)[2]
            for _ in range(2):
                out = call()
                pf.synchronize()
                del out
    print(done())


def worker(device, scale, only):
    """Computes the problem whose number it reads, with all its operands, so many times, and says how many microseconds one took."""
    import pyflame as pf

    pf.set_device(device)
    gpu = device != "cpu"
    held, rows = {}, problems(scale, device, only)
    print("ready", flush=True)
    for line in sys.stdin:
        number, calls = map(int, line.split())
        if number not in held:
            held.clear()
            pf.manual_seed(number)
            one = of_problem(rows[number])
            count = int(max(2, min(32, (GPU_BYTES if gpu else CPU_BYTES) // one[1])))
            held[number] = [one[2]] + [of_problem(rows[number])[2] for _ in range(count - 1)]
            pf.synchronize()
        some = held[number]
        if gpu:
            begin, end = pf.Event(enable_timing=True), pf.Event(enable_timing=True)
            begin.record()
        start = time.perf_counter()
        for _ in range(calls):  # all operands in one program, so that short products wait for the device and not for the host
            out = [call() for call in some]
            pf._C.cut()
            del out
        if gpu:
            end.record()
            end.synchronize()
            us = begin.elapsed_time(end) * 1e3 / calls / len(some)
        else:
            pf.synchronize()
            us = (time.perf_counter() - start) * 1e6 / calls / len(some)
        print(us, flush=True)


def start(args, tuned, cache):
    environment = {**os.environ, "PYFLAME_TUNED": tuned, "PYFLAME_CACHE_DIR": cache}
    p = subprocess.Popen([sys.executable, __file__, "--worker", "--device", args.device, "--scale", str(args.scale), "--only", args.only], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True)
    assert p.stdout.readline().strip() == "ready"
    return p


def ask(process, number, calls):
    process.stdin.write(f"{number} {calls}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"tuned_products: the process that computes has ended, at product {number}")
    return float(answer)


def tune(args, folder):
    path, listed = os.path.join(folder, "list.csv"), [row for row in problems(args.scale, args.device, args.only) if not is_convolution(row)]
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(",".join(map(str, row)) + "\n" for row in listed)
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, "-m", "pyflame.tuning", "--problems", path, "--device", args.device, "--budget", str(args.budget)],
                         env={**os.environ, "PYFLAME_CACHE_DIR": args.cache or folder}, stdout=subprocess.PIPE, text=True, check=True)
    print(ran.stdout.strip().splitlines()[-1], flush=True)
    if len(listed) < len(problems(args.scale, args.device, args.only)):
        subprocess.run([sys.executable, __file__, "--convolutions", "--device", args.device, "--scale", str(args.scale), "--budget", str(args.budget), "--only", args.only],
                       env={**os.environ, "PYFLAME_CACHE_DIR": args.cache or folder}, check=True)
    return time.perf_counter() - began


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--scale", type=int, default=None, help="divide sizes; default: 1 on a GPU, 8 on the CPU")
    p.add_argument("--budget", type=float, default=240, help="seconds for tuning")
    p.add_argument("--turns", type=int, default=11)
    p.add_argument("--only", default="", help="problems whose names contain this text, such as float8")
    p.add_argument("--cache", help="a folder for the measurements that is kept")
    p.add_argument("--json")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--convolutions", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    args.scale = args.scale or (8 if args.device == "cpu" else 1)
    if args.worker:
        return worker(args.device, args.scale, args.only)
    if args.convolutions:
        return measure_convolutions(args.device, args.scale, args.budget, args.only)
    if not problems(args.scale, args.device, args.only):
        p.error(f"--only: no problem has this text in its name; got {args.only!r}; expected a part of a name such as {name_of(problems(args.scale, args.device)[0])!r}")
    with tempfile.TemporaryDirectory() as folder:
        seconds = tune(args, folder)
        compare(args, args.cache or folder, seconds)
    return None


def compare(args, folder, seconds):
    default, tuned = start(args, "0", folder), start(args, "1", folder)
    rows, found = problems(args.scale, args.device, args.only), []
    print(f"{'problem':68} {'default us':>12} {'tuned us':>12} {'ratio':>7}")
    for number, row in enumerate(rows):
        ask(default, number, 8), ask(tuned, number, 8)
        calls = max(1, min(50, round(1e4 / max(1.0, 8 * ask(default, number, 4)))))
        times = []
        for turn in range(args.turns):
            pair = [ask(p, number, calls) for p in ((default, tuned) if turn % 2 == 0 else (tuned, default))]
            times.append(pair if turn % 2 == 0 else pair[::-1])
        ratios = sorted(a / b for a, b in times)
        result = {"problem": name_of(row), "default_us": statistics.median(a for a, _ in times), "tuned_us": statistics.median(b for _, b in times),
                  "ratio": statistics.median(ratios), "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]]}
        found.append(result)
        print(f"{result['problem']:68} {result['default_us']:12.1f} {result['tuned_us']:12.1f} {result['ratio']:7.2f}", flush=True)
    mean = statistics.geometric_mean(r["ratio"] for r in found)
    count = sum(not is_convolution(row) for row in rows)
    for what, some in (("products", found[:count]), ("convolutions", found[count:])):
        if some:
            print(f"geometric mean of {len(some)} {what}: {statistics.geometric_mean(r['ratio'] for r in some):.3f}")
    print(f"geometric mean of {len(found)}: {mean:.3f}; lowest {min(r['ratio'] for r in found):.2f}; tuning took {seconds:.0f} s")
    if args.json:
        import pyflame as pf

        from pyflame.benchmarking.environment import describe

        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"environment": describe(args.device), "turns": args.turns, "tuning_seconds": seconds, "geometric_mean": mean, "version": pf.__version__, "results": found}, f,
                      indent=1)
    for process in (default, tuned):
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
