"""A server under load for as long as one likes: random requests, streams that are broken off, grammars, errors. Memory, threads and open files must not grow.

    python tests/hard/soak_serving.py --minutes 60 --json soak_serving.json

A random small model is served in a process of its own, whose cache of programs is bounded by --cache_ops, so that it is full within the first minute: from then on
programs are compiled and thrown away. Thirty times, a line says what the process holds. What the server logs besides requests is printed. The exit code is 1 if a
request got a wrong answer, if the process holds more at the end than after a third of the time (5 % of its memory, or any thread or file), or if in the second half of
the time its memory grows by more than --growth MB per 1,000 requests: the slope of the line that fits best."""
import argparse
import http.client
import json
import os
import pathlib
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from pyflame.testing import language_models as small


def held(pid):
    """(MB of memory, threads, open files) of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024, int(re.search(r"Threads:\s+(\d+)", status).group(1)), len(os.listdir(f"/proc/{pid}/fd"))


def processor():
    match = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{match.group(1) if match else platform.machine()}, {os.cpu_count()} cores"


def growth(rows):
    """By how many MB memory grows per 1,000 requests: the least-squares slope."""
    requests, memory = [r["requests"] / 1000 for r in rows], [r["MB"] for r in rows]
    x, y = sum(requests) / len(rows), sum(memory) / len(rows)
    return sum((a - x) * (b - y) for a, b in zip(requests, memory)) / max(sum((a - x) ** 2 for a in requests), 1e-9)


def body(draw):
    b = {"prompt": [draw.randrange(4, small.VOCABULARY) for _ in range(draw.randrange(1, 120))], "max_tokens": draw.randrange(1, 100), "temperature": draw.choice([0, 1.0]), "seed": draw.randrange(1 << 30),
         "stream": draw.random() < 0.7, "n": draw.choice([1, 1, 1, 3])}  # fmt: skip
    kind = draw.random()
    if kind < 0.1:
        b["guided_regex"] = f"[a-d]{{{draw.randrange(1, 30)}}}"
    elif kind < 0.15:
        b["logprobs"] = 3
    elif kind < 0.2:
        b["max_tokens"] = -1  # refused
    return b


# A line of the log about one request: its id, the client, the method, the path and the status.
_REQUEST = re.compile(r"[0-9a-f]{32} 127\.0\.0\.1 (GET|POST) /")


def show_log(lines):
    for line in lines:
        if not _REQUEST.search(line):
            print("server:", line.rstrip(), flush=True)


def client(port, seed, end, counts, lock):
    draw = random.Random(seed)
    while time.monotonic() < end:
        b, leaves, data = body(draw), draw.random() < 0.3, b""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            connection.request("POST", "/v1/completions", json.dumps(b), {"Content-Type": "application/json"})
            if leaves and draw.random() < 0.5:
                what = "left before the answer"
            else:
                response = connection.getresponse()
                if b["max_tokens"] < 1:
                    data = response.read()
                    what = "refused" if response.status == 400 and b"max_tokens" in data else f"WRONG: status {response.status} for a request that is wrong"
                elif response.status != 200:
                    data = response.read()
                    what = f"WRONG: status {response.status}"
                elif leaves:
                    response.read(draw.randrange(1, 200))
                    what = "left within the answer"
                else:
                    data = response.read()
                    whole = data.rstrip().endswith(b"[DONE]") if b["stream"] else len(json.loads(data)["choices"]) == b["n"]
                    what = "answered" if whole and b'"error"' not in data else "WRONG: an answer that is not whole"
        except OSError as e:
            what = f"WRONG: {type(e).__name__}"
        finally:
            connection.close()
        if what.startswith("WRONG"):
            print(what, b, data[-400:], flush=True)
        with lock:
            counts[what] = counts.get(what, 0) + 1


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--clients", type=int, default=12)
    p.add_argument("--model_type", default="llama", choices=small.MODEL_TYPES)
    p.add_argument("--cache_ops", type=int, default=4096, help="PYFLAME_CACHE_OPS of the server: the most ops of all programs that it keeps (default: %(default)s)")
    p.add_argument("--growth", type=float, default=0.3, help="the most MB that memory may grow per 1,000 requests in the second half (default: %(default)s)")
    p.add_argument("--json", help="a file for the lines' figures")
    args = p.parse_args()
    folder = small.write_random_model(tempfile.mkdtemp(), args.model_type, seed=3)
    server = subprocess.Popen([sys.executable, "-m", "pyflame.llm.serving", "--model", folder, "--port", "0", "--kv_cache_bytes", str(1 << 21)], stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYFLAME_CACHE_OPS": str(args.cache_ops)})  # fmt: skip
    port = next(int(m.group(1)) for line in server.stderr if (m := re.search(r" is at http://127\.0\.0\.1:(\d+)", line)))
    threading.Thread(target=show_log, args=(server.stderr,), daemon=True).start()
    begin, counts, lock, rows = time.monotonic(), {}, threading.Lock(), []
    end = begin + 60 * args.minutes
    threads = [threading.Thread(target=client, args=(port, i, end, counts, lock)) for i in range(args.clients)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        time.sleep(max(0.5, min(60 * args.minutes / 30, end - time.monotonic())))
        memory, workers, files = held(server.pid)
        with lock:
            rows.append({"minutes": (time.monotonic() - begin) / 60, "MB": memory, "threads": workers, "files": files, "requests": sum(counts.values())})
        print(f"{rows[-1]['minutes']:6.1f} min {memory:8.1f} MB {workers:4d} threads {files:4d} files {rows[-1]['requests']:8d} requests", flush=True)
    time.sleep(2)
    after = held(server.pid)
    server.send_signal(signal.SIGTERM)
    code = server.wait(60)
    early = next(r for r in rows if r["minutes"] >= args.minutes / 3)
    print(counts, f"the server's exit code: {code}; after {after[0]:.1f} MB, {after[1]} threads, {after[2]} files; after a third of the time {early['MB']:.1f} MB, {early['threads']} threads")
    slope = growth([r for r in rows if r["minutes"] >= args.minutes / 2])
    print(f"in the second half, memory grew by {slope:.3f} MB per 1,000 requests; at most {args.growth:g} are allowed")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"settings": {k: v for k, v in vars(args).items() if k != "json"}, "processor": processor(), "rows": rows, "counts": counts, "exit_code": code, "MB per 1,000 requests": slope}, indent=1))
    grew = slope > args.growth or after[0] > 1.05 * early["MB"] or after[1] > early["threads"] or after[2] > max(r["files"] for r in rows)
    return 1 if code or grew or any(w.startswith("WRONG") for w in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
