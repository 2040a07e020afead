#!/usr/bin/env python3
"""PyFlame against ONNX Runtime, on models that are in packages of PyPI: silero-vad (finds speech) and magika (recognizes types of files).

Each framework has one process, and both have the same number of threads. A call takes arrays of NumPy and gives arrays of NumPy. For each row the
values are compared first. Then the two take turns; a turn is the same number of calls for both, at least --seconds long by ONNX Runtime's clock. A
ratio is ONNX Runtime's median time over PyFlame's: above 1 PyFlame is faster.

    make compare-onnx                   # makes the environment and runs everything
    python benchmarks/compare_onnx.py --only 'silero*' --turns 15 --json results.json

The packages:

    pip install onnx onnxruntime
    pip install --no-deps silero-vad magika    # only their models are read
"""
import argparse
import fnmatch
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import numpy as np

HINTS = {"pyflame": "make install, or pip install .", "onnx": "pip install onnx", "onnxruntime": "pip install onnxruntime", "silero-vad": "pip install --no-deps silero-vad",
         "magika": "pip install --no-deps magika"}
TOLERANCE = 1e-4  # of the largest value of an output


def noise(*shape):
    return lambda r: (0.1 * r.standard_normal(shape)).astype(np.float32)


def speech(batch, rate=True):
    """A frame of 576 samples (36 ms at 16 kHz, as the package calls its model) for each of the batch, and the state of the frames before."""
    return {"input": noise(batch, 576), "state": noise(2, batch, 128), **({"sr": lambda r: np.array(16000, np.int64)} if rate else {})}


def contents(batch):
    """2048 bytes for each of the files."""
    return {"bytes": lambda r: r.integers(0, 256, (batch, 2048)).astype(np.int32)}


SILERO, MAGIKA = ("silero-vad", "silero_vad", "data/"), ("magika", "magika", "models/standard_v3_3/")
# Name of the row -> the package, the file in it, the inputs.
ROWS = {
    "silero_vad": (SILERO, "silero_vad.onnx", speech(1)),
    "silero_vad batch 64": (SILERO, "silero_vad.onnx", speech(64)),
    "silero_vad_16k_op15": (SILERO, "silero_vad_16k_op15.onnx", speech(1)),
    "silero_vad_op18_ifless": (SILERO, "silero_vad_op18_ifless.onnx", speech(1)),
    "silero_vad_half": (SILERO, "silero_vad_half.onnx", speech(1, rate=False)),
    "silero_vad_openvino_16k": (SILERO, "silero_vad_openvino_16k.onnx", speech(1, rate=False)),
    "silero_vad_16k_sequence, 100 frames": (SILERO, "silero_vad_16k_sequence.onnx", {"input": noise(100, 576), "h": noise(1, 1, 128), "c": noise(1, 1, 128)}),
    "magika": (MAGIKA, "model.onnx", contents(1)),
    "magika batch 16": (MAGIKA, "model.onnx", contents(16)),
}


def model_file(name):
    """The path of a row's model. The package is not imported."""
    (distribution, package, folder), file, _ = ROWS[name]
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise FileNotFoundError(f"{distribution} is not installed; hint: {HINTS[distribution]}")
    path = pathlib.Path(spec.submodule_search_locations[0]) / folder / file
    if not path.is_file():
        raise FileNotFoundError(f"{distribution} {importlib.metadata.version(distribution)} has no {folder}{file}")
    return str(path)


def version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def runtime(name, threads, inputs):
    """A call of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(model_file(name), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def ours(name, threads, inputs):
    """A call of PyFlame."""
    import pyflame as pf

    pf.set_num_threads(threads)
    model = pf.onnx.load(model_file(name))

    def call():
        with pf.no_grad():
            outputs = model(**inputs)
            return [y.numpy() for y in (outputs if isinstance(outputs, tuple) else (outputs,))]

    return call


def worker(kind, threads):
    module = __import__("onnxruntime" if kind == "onnxruntime" else "pyflame.onnx")
    print(json.dumps(module.__version__), flush=True)
    current = None
    for line in sys.stdin:
        name, calls, file = json.loads(line)
        try:
            if name != current:
                random = np.random.default_rng(0)
                inputs = {k: make(random) for k, make in ROWS[name][2].items()}
                call, current = (runtime if kind == "onnxruntime" else ours)(name, threads, inputs), name
            start = time.perf_counter()
            for _ in range(calls):
                outputs = call()
            answer = {"seconds": (time.perf_counter() - start) / calls}
            if file:
                np.savez(file, *outputs)
        except Exception as e:
            current, answer = None, {"error": f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"}
        print(json.dumps(answer), flush=True)


class Peer:
    def __init__(self, kind, args):
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), PYFLAME_NUM_THREADS=str(args.threads), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(8 << 30),
                   MALLOC_TOP_PAD_=str(64 << 20))
        command = [sys.executable, os.path.abspath(__file__), "--worker", kind, "--threads", str(args.threads)]
        self.kind, self.process = kind, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.version = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker of {self.kind} ended with exit code {self.process.wait()}")
        return json.loads(line)

    def ask(self, name, calls, file=""):
        """Seconds of a call."""
        self.process.stdin.write(json.dumps([name, calls, file]) + "\n")
        self.process.stdin.flush()
        answer = self.read()
        if "error" in answer:
            raise RuntimeError(f"{self.kind}: {answer['error']}")
        return answer["seconds"]


def difference(expected, got):
    """The largest difference of two files of outputs, as a part of the largest value of the output."""
    with np.load(expected) as a, np.load(got) as b:
        if a.files != b.files or any(a[k].shape != b[k].shape for k in a.files):
            raise RuntimeError(f"the outputs differ in shape; got {[b[k].shape for k in b.files]}; expected {[a[k].shape for k in a.files]}")
        return max(float(np.abs(a[k].astype(np.float64) - b[k]).max() / np.abs(a[k]).max()) for k in a.files)


def measure(name, peers, args, folder):
    """The times of one row in milliseconds, and how far the values differ; or why the row cannot be measured."""
    try:
        model_file(name)
        files, first = {kind: os.path.join(folder, f"{kind}.npz") for kind in peers}, {}
        for kind, peer in peers.items():
            peer.ask(name, 3)  # the first calls allocate and plan
            first[kind] = peer.ask(name, 3, files[kind])
        apart = difference(files["onnxruntime"], files["pyflame"])
        if not apart <= TOLERANCE:
            return {"row": name, "error": f"the values differ by {apart:.1e} of the largest; expected at most {TOLERANCE:.0e}"}
        calls = max(1, min(10000, int(args.seconds / first["onnxruntime"])))
        times = {kind: [] for kind in peers}
        for turn in range(args.warmup + args.turns):
            for kind in list(peers)[:: 1 if turn % 2 else -1]:
                time.sleep(0.02)  # the idle threads of the other side have gone to sleep by then
                seconds = peers[kind].ask(name, calls)
                if turn >= args.warmup:
                    times[kind].append(seconds * 1e3)
    except (FileNotFoundError, RuntimeError) as e:
        return {"row": name, "error": str(e)}
    median = {kind: statistics.median(t) for kind, t in times.items()}
    quartiles = {kind: statistics.quantiles(t, n=4) if len(t) > 1 else t * 3 for kind, t in times.items()}
    return {"row": name, "calls": calls, "median_ms": median, "quartiles_ms": quartiles, "ratio": median["onnxruntime"] / median["pyflame"], "difference": apart, "times_ms": times}


def show(result):
    if "error" in result:
        return print(f"{result['row']:36} {result['error']}", flush=True)
    cells = [f"{result['median_ms'][kind]:.3f} [{low:.3f} {high:.3f}]" for kind, (low, _, high) in result["quartiles_ms"].items()]
    print(f"{result['row']:36} {cells[0]:>26} {cells[1]:>26} {result['ratio']:7.2f} {result['difference']:11.0e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", choices=["onnxruntime", "pyflame"], help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--turns", type=int, default=9, help="timed turns of each framework")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="the least length of a turn")
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of rows")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args.threads)
    for package in ("pyflame", "onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            parser.error(f"{package} is not installed; hint: {HINTS[package]}")
    names = [n for n in ROWS if any(fnmatch.fnmatch(n, p) for p in args.only)]
    if not names:
        parser.error(f"no row has such a name; got {' '.join(args.only)}; expected some of {', '.join(ROWS)}")
    peers = {kind: Peer(kind, args) for kind in ("onnxruntime", "pyflame")}
    versions = {kind: peer.version for kind, peer in peers.items()}
    versions.update({d: version(d) for d in ("silero-vad", "magika") if version(d)})
    print(f"{args.threads} threads, {args.turns} turns, {versions}; milliseconds: median [quartiles]")
    print(f"{'row':36} {'ONNX Runtime':>26} {'PyFlame':>26} {'ratio':>7} {'difference':>11}")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            results.append(measure(name, peers, args, folder))
            show(results[-1])
    ratios = [r["ratio"] for r in results if "ratio" in r]
    mean = statistics.geometric_mean(ratios) if ratios else None
    if ratios:
        print(f"geometric mean of {len(ratios)} ratios: {mean:.2f}; lowest {min(ratios):.2f}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"machine": {"cpu": machine.cpu(), "cores": machine.cores()}, "threads": args.threads, "turns": args.turns, "versions": versions,
                       "geometric_mean": mean, "results": results}, f, indent=1)
            f.write("\n")
    return 1 if len(ratios) < len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
