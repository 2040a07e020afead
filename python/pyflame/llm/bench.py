"""`pyflame bench llm`: how fast a language model answers. It measures an engine in this process, or a server over HTTP.

The figures are vLLM's. TTFT: from the request to the first token. TPOT: from the first token to the last one, by the number of tokens between them. ITL: between two
pieces that arrive one after the other. E2EL: from the request to the end. Tokens are counted by the engine or by the server's usage, never by pieces: a piece may
have several tokens."""
import argparse
import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np

import pyflame as pf
from pyflame._command_help import HelpFormatter, Parser, examples
from pyflame._entry import command
from pyflame.benchmarking import environment, results
from pyflame.benchmarking.records import add_options, of_options
from pyflame.llm import Engine, Finished, Sampling, _kv_cache_gate, _lengths
from pyflame.llm._kv_cache import NAMES
from pyflame.llm._workers import EngineDead
from pyflame.llm._engine_cache import default_texts
from pyflame.llm.language_model import Source, load_part

_PERCENTILES = (50, 90, 99)
_UNITS = (("ttft", "time to the first token"), ("tpot", "time per output token after the first"), ("itl", "time between pieces"), ("e2el", "time to the end"))


@dataclass
class Text:
    """A request and what became of it. Times in seconds of time.perf_counter(); tokens: written; error: None, or why there is no text."""

    ids: list
    wanted: int
    begin: float = 0.0
    times: list = field(default_factory=list)
    end: float = 0.0
    tokens: int = 0
    error: str = None

    def figures(self):
        """A dict of TTFT, TPOT and E2EL in seconds; TPOT is missing for a single token."""
        found = {"ttft": self.times[0] - self.begin, "e2el": self.times[-1] - self.begin}
        if self.tokens > 1:
            found["tpot"] = (self.times[-1] - self.times[0]) / (self.tokens - 1)
        return found


def prompts(args, tokenizer, vocabulary, lengths=None, count=None):
    """The Texts to write, `count` or args.num_prompts: of a file, or random tokens. The same seed gives the same ones. lengths: of lengths_of(), where these texts continue a file of lengths.
    ValueError for a file without prompts."""
    random, lengths, count = np.random.default_rng(args.seed), lengths or _lengths.lengths_of(args), args.num_prompts if count is None else count
    if args.dataset is None:
        special = tokenizer.special_ids if tokenizer else frozenset()
        usable = np.array([i for i in range(vocabulary) if i not in special])
        pairs = [lengths.pair(random) for _ in range(count)]
        return [Text([int(i) for i in random.choice(usable, read)], wanted) for read, wanted in pairs]
    with open(args.dataset, encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"bench llm: the file has no prompts; got '{args.dataset}' without a line; expected a prompt in each line")
    found = []
    for i in range(count):
        line = lines[i % len(lines)]
        document = None
        if line.lstrip().startswith("{"):
            try:
                document = json.loads(line)
            except ValueError:
                pass
        if isinstance(document, dict) and isinstance(document.get("prompt"), str):
            wanted = document.get("output_len")
            found.append(Text(document["prompt"], wanted if isinstance(wanted, int) and wanted > 0 else lengths.output(random)))
        else:
            found.append(Text(line, lengths.output(random)))
    if tokenizer is not None:
        for t in found:
            t.ids = tokenizer.encode(t.ids)
    return found


def run_engine(engine, texts, sampling):
    """Writes all texts at once. Returns the seconds from the first request to the last end."""
    done = threading.Semaphore(0)

    def receiver(text):
        def receive(event):
            now = time.perf_counter()
            if isinstance(event, Finished):
                text.end, text.error = now, event.error or (event.reason if event.reason in ("error", "cancelled") else None)
                if not text.times and text.error is None:
                    text.error = "no token was written"
                done.release()
            else:
                text.times.append(now)
                text.tokens += 1

        return receive

    begin = time.perf_counter()
    for text in texts:
        text.begin = time.perf_counter()
        engine.submit(text.ids, sampling, text.wanted, stop_ids=(), receive=receiver(text))
    for _ in texts:
        done.acquire()
    return time.perf_counter() - begin


async def _stream(session, url, headers, model, text, temperature):
    body = {"prompt": text.ids, "max_tokens": text.wanted, "ignore_eos": True, "temperature": temperature, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    if model:
        body["model"] = model
    text.begin = time.perf_counter()
    try:
        async with session.post(url + "/v1/completions", json=body, headers=headers) as response:
            if response.status != 200:
                text.error = f"status {response.status}: {(await response.text())[:200]}"
                return
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                now, document = time.perf_counter(), json.loads(line[6:])
                if "error" in document:
                    text.error = str(document["error"])[:200]
                    return
                choices, written = document.get("choices"), (document.get("usage") or {}).get("completion_tokens", 0)
                # A token may have no text, such as the first bytes of a character. The usage of the piece tells that it is there.
                if choices and (written > text.tokens or any(c.get("text") for c in choices)):
                    text.times.append(now)
                text.tokens = max(text.tokens, written)
    except Exception as e:  # whatever the library or the server does: this request has failed
        text.error = f"{type(e).__name__}: {e}"
    finally:
        text.end = time.perf_counter()
    if text.error is None and not (text.times and text.tokens):
        text.error = "no text arrived" if not text.times else "the server sent no usage"


async def run_server(url, texts, rate, concurrency, seed, model=None, key=None, progress=lambda done: None, temperature=0.0):
    """Sends requests with Poisson arrivals, `rate` in a second (inf: all at once), at most `concurrency` at a time. Returns the seconds from first to last."""
    from ._errors import needed

    aiohttp = needed("aiohttp", "the client of bench llm --serve", "serve")
    random, gate, done = np.random.default_rng(seed), asyncio.Semaphore(concurrency or len(texts)), 0
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def one(session, text):
        nonlocal done
        async with gate:
            await _stream(session, url, headers, model, text, temperature)
        done += 1
        progress(done)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), read_bufsize=1 << 20) as session:
        begin, tasks, due = time.perf_counter(), [], time.perf_counter()
        for text in texts:
            tasks.append(asyncio.ensure_future(one(session, text)))
            if rate < math.inf:
                due += random.exponential(1 / rate)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await asyncio.gather(*tasks)
    return time.perf_counter() - begin


def summary(texts, seconds, goodput=None):
    """The figures of a run, a dict. Times in milliseconds. goodput: limits in milliseconds by name; the share and the rate of requests within all of them."""
    whole = [t for t in texts if t.error is None]
    written, read = sum(t.tokens for t in whole), sum(len(t.ids) for t in whole if isinstance(t.ids, list))
    found = {"requests": len(whole), "failed": len(texts) - len(whole), "seconds": seconds, "requests_per_second": len(whole) / seconds, "output_tokens": written, "input_tokens": read,
             "output_tokens_per_second": written / seconds, "tokens_per_second": (written + read) / seconds}
    values = {name: [] for name, _ in _UNITS}
    for t in whole:
        for name, value in t.figures().items():
            values[name].append(1e3 * value)
        values["itl"] += [1e3 * d for d in np.diff(t.times)]
    for name, v in values.items():
        if v:
            found[name + "_ms"] = {"mean": float(np.mean(v)), **{f"p{p}": float(np.percentile(v, p)) for p in _PERCENTILES}}
    if goodput:
        good = sum(all(1e3 * t.figures().get(name, 0.0) <= most for name, most in goodput.items()) for t in whole)
        found["goodput"] = {"limits_ms": goodput, "share": good / len(texts), "requests_per_second": good / seconds}
    errors = [t.error for t in texts if t.error is not None]
    if errors:
        found["first_error"] = errors[0]
    return found


def _table(s):
    lines = [
        f"{s['requests']} requests in {s['seconds']:.2f} s: {s['requests_per_second']:.2f} requests/s, {s['output_tokens_per_second']:.1f} output tokens/s, {s['tokens_per_second']:.1f} tokens/s with the prompts",
        f"{'ms':>6} {'mean':>9} " + " ".join(f"{'p' + str(p):>9}" for p in _PERCENTILES),
    ]
    for name, meaning in _UNITS:
        if (v := s.get(name + "_ms")) is not None:
            lines.append(f"{name.upper():>6} {v['mean']:>9.2f} " + " ".join(f"{v[f'p{p}']:>9.2f}" for p in _PERCENTILES) + f"   {meaning}")
    if "goodput" in s:
        limits = ", ".join(f"{k} <= {v:g} ms" for k, v in s["goodput"]["limits_ms"].items())
        lines.append(f"goodput ({limits}): {100 * s['goodput']['share']:.1f} % of the requests, {s['goodput']['requests_per_second']:.2f} requests/s")
    if "speculation" in s:
        g = s["speculation"]
        lines.append(f"guessed tokens: {g['draft_tokens']}, of which {100 * g['acceptance_rate']:.1f} % were right; {g['mean_acceptance_length']:.2f} tokens for a step with guesses")
    if s["failed"]:
        lines.append(f"FAILED: {s['failed']} requests; the first one: {s['first_error']}")
    return "\n".join(lines)


def _goodput(text):
    name, _, value = text.partition(":")
    if name not in ("ttft", "tpot", "e2el") or not re.fullmatch(r"\d+(\.\d+)?", value):
        raise argparse.ArgumentTypeError(f"not a limit; got {text}; expected ttft, tpot or e2el, a colon and milliseconds, such as ttft:200")
    return name, float(value)


def underscored(words):
    """The words of a command line, with `_` in the names of options: --input-len is --input_len, as with the other commands."""
    names = [re.match(r"--[a-z][a-z-]*", word) for word in words]
    return [name.group().replace("-", "_").replace("__", "--", 1) + word[name.end():] if name else word for name, word in zip(names, words)]


def _arguments(words):
    usage = "pyflame bench llm [MODEL] (--latency | --throughput\n                         | --serve) [options]"
    shown = examples(("pyflame bench llm model.gguf --latency --batch_sizes 1 8", "one text, then eight at a time"),
                     ("pyflame bench llm model.gguf --throughput --num_prompts 64", "64 texts at once"),
                     ("pyflame bench llm --serve --url URL --dataset prompts.txt", "a server that runs already"))
    p = Parser(prog="pyflame bench llm", allow_abbrev=False, usage=usage, epilog=shown, formatter_class=HelpFormatter, description=__doc__.split("\n\n")[0])
    p.add_argument("model", nargs="?", help="a GGUF file, a Hugging Face folder or an installed package")
    mode = p.add_mutually_exclusive_group(required=True)
    mode.add_argument("--latency", action="store_true", help="some texts at a time, for each of --batch_sizes")
    mode.add_argument("--throughput", action="store_true", help="all texts at once")
    mode.add_argument("--serve", action="store_true", help="over HTTP: of --url, or of a server that is started for MODEL")
    p.add_argument("--url", help="a server with OpenAI's API, such as http://127.0.0.1:8000")
    p.add_argument("--model_name", help="the name of the model in requests to --url")
    p.add_argument("--api_key", default=os.environ.get("PYFLAME_API_KEY", "").split(",")[0] or None)
    p.add_argument("--device", help="cpu, rocm, cuda, ...; default: the current device")
    p.add_argument("--dtype", choices=("float32", "float16", "bfloat16"))
    p.add_argument("--dataset", help="a file with a prompt in each line: text, or JSON with prompt and perhaps output_len")
    _lengths.add_arguments(p)
    p.add_argument("--num_prompts", type=int, metavar="N", default=32, help="how many prompts (default 32)")
    p.add_argument("--temperature", type=float, metavar="X", default=0.0, help="at which tokens are drawn; 0 (the default): the likeliest token")
    p.add_argument("--batch_sizes", type=int, nargs="+", metavar="N", default=[1, 8], help="with --latency: texts at a time (default 1 8)")
    p.add_argument("--iters", type=int, metavar="N", default=5, help="with --latency: runs of each batch size")
    p.add_argument("--request_rate", type=float, metavar="N", default=math.inf, help="with --serve: requests in a second, with Poisson arrivals; inf (the default): all at once")
    p.add_argument("--max_concurrency", type=int, metavar="N", help="with --serve: the most requests at a time")
    p.add_argument("--goodput", type=_goodput, action="append", default=[], metavar="NAME:MS", help="a limit such as ttft:200; counts the requests within all limits")
    p.add_argument("--max_num_seqs", type=int, metavar="N", help="most texts that are written at the same time (default 8, on a GPU 64)")
    p.add_argument("--max_num_batched_tokens", type=int, metavar="N", default=512, help="most tokens of a step (default 512)")
    p.add_argument("--kv_cache_dtype", choices=NAMES, default="auto", help="what the cache stores keys and values as (default auto, the model's dtype)")
    p.add_argument("--kv_cache_gate", metavar="X", default=str(_kv_cache_gate.DEFAULT), help=f"by which part such a cache may raise a text's perplexity, or off (default {_kv_cache_gate.DEFAULT})")
    p.add_argument("--attention_backend", metavar="NAME", default="auto", help="the implementation of attention over pages, as PYFLAME_FORCE names it (default auto)")
    p.add_argument("--speculative_config", metavar="JSON", help='drafts of tokens, a JSON object such as {"method": "ngram", "num_speculative_tokens": 4}')
    p.add_argument("--tensor_parallel_size", type=int, metavar="N", default=1, help="processes that compute each step together, each with its part of the weights (default 1)")
    p.add_argument("--seed", type=int, metavar="N", default=0, help="of the random prompts (default 0)")
    p.add_argument("--json", action="store_true", help="print one JSON object for each run")
    add_options(p, "_")
    args = p.parse_args(underscored(words))
    for name in ("input_len", "output_len", "num_prompts", "iters", "max_num_seqs", "tensor_parallel_size"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            p.error(f"--{name} is out of range; got {getattr(args, name)}; expected a whole number from 1 upwards")
    if not 0 <= args.temperature <= 100:
        p.error(f"--temperature is out of range; got {args.temperature:g}; expected 0 to 100")
    if not args.request_rate > 0 or min(args.batch_sizes) < 1:
        p.error("a rate of 0 or less, or an empty batch")
    if wrong := _lengths.check(args):
        p.error(wrong)
    if args.speculative_config is not None:
        try:
            args.speculation = json.loads(args.speculative_config)
        except (ValueError, RecursionError) as e:
            p.error(f"--speculative_config is no JSON; got {args.speculative_config[:80]}: {e}; expected an object")
        if args.url:
            p.error("--speculative_config belongs to a server that is started, not to --url")
    if args.url and args.tensor_parallel_size != 1:
        p.error("--tensor_parallel_size belongs to a server that is started, not to --url")
    for name in ("kv_cache_dtype", "attention_backend"):
        if args.url and getattr(args, name) != "auto":
            p.error(f"--{name} belongs to a server that is started, not to --url")
    try:
        args.gate = _kv_cache_gate.limit_of("bench llm", args.kv_cache_gate)
    except ValueError as e:
        p.error(str(e))
    if args.url and not args.serve:
        p.error("--url belongs to --serve")
    if not args.model and not (args.url and args.dataset):
        p.error("MODEL is missing; without it --serve needs --url and --dataset, because random prompts need a vocabulary")
    return args


_NOT_KEPT = ("api_key", "json", "records", "no_record", "gate", "speculation")  # of the arguments: secrets, what changes no figure, and what another argument says


def _record(args, title, s, device):
    """The Result of a run. device: of the engine, or the address of a server that ran already."""
    here = not args.url
    model = os.path.basename(args.model.rstrip("/")) if args.model else args.model_name or "a server's model"
    settings = [f"{name}={value}" for name, value in sorted(vars(args).items()) if name not in _NOT_KEPT and value is not None]
    return results.of("llm", f"llm {model} {title}", device, {"run": title, **s}, _table(s), environment.without_secrets(settings), None if here else "cpu", main)


def _say(args, title, s, device):
    print(json.dumps({"run": title, **s}) if args.json else f"{title}\n{_table(s)}\n", flush=True)
    records = of_options(args)
    if records is not None:
        records.add(_record(args, title, s, device))
    return s["failed"]


def _guessed(before, after):
    """What became of guessed tokens between two Engine.stats(): a dict, empty without speculative_config."""
    if "spec_decode_num_drafts" not in after:
        return {}
    drafts, tokens, accepted = (after[f"spec_decode_num_{n}"] - before[f"spec_decode_num_{n}"] for n in ("drafts", "draft_tokens", "accepted_tokens"))
    return {"speculation": {"drafts": drafts, "draft_tokens": tokens, "accepted_tokens": accepted, "acceptance_rate": accepted / tokens if tokens else 0.0, "mean_acceptance_length": 1 + accepted / drafts if drafts else 1.0}}


def _load(args):
    """(what an Engine takes, the model's context). Where several processes compute, each reads its part."""
    dtype = getattr(pf, args.dtype) if args.dtype else None
    if args.tensor_parallel_size > 1:
        return Source(args.model, dtype, args.device), load_part(args.model, dtype, args.device, weights=False).config.context
    lm = pf.llm.load(args.model, dtype=dtype, device=args.device)
    return lm, lm.config.context


def _offline(args):
    (model, context), failed = _load(args), 0
    sampling = Sampling(temperature=args.temperature)
    longest = _lengths.lengths_of(args).longest + 1 if args.dataset is None else None
    seqs = max(args.batch_sizes) if args.latency else args.max_num_seqs
    with Engine(model, seqs, max(args.max_num_batched_tokens, seqs or 1), min(longest or context, context), max_waiting=max(1024, args.num_prompts),
                speculative_config=getattr(args, "speculation", None), tensor_parallel_size=args.tensor_parallel_size, kv_cache_dtype=args.kv_cache_dtype, kv_cache_gate=args.gate,
                attention_backend=args.attention_backend) as engine:
        lm = engine.model
        first = prompts(args, lm.tokenizer, lm._known())[:1]
        seconds = run_engine(engine, first, sampling)
        if not args.json:
            print(f"{lm!r} on {lm._network.device}; the first text took {seconds:.2f} s and is in no figure\n", flush=True)
        if args.throughput:
            args.seed += 1
            run_engine(engine, prompts(args, lm.tokenizer, lm._known())[: engine.max_num_seqs], sampling)  # compiles for full batches
            args.seed += 1
            texts = prompts(args, lm.tokenizer, lm._known())
            before = engine.stats()
            seconds = run_engine(engine, texts, sampling)
            return _say(args, f"throughput: {len(texts)} texts at once, at most {engine.max_num_seqs} running", {**summary(texts, seconds, dict(args.goodput)), **_guessed(before, engine.stats())}, str(lm._network.device))
        for size in args.batch_sizes:
            texts, total, before, lengths = [], 0.0, {}, _lengths.lengths_of(args)
            for i in range(args.iters + 1):  # the first run compiles for this size, and is in no figure
                args.seed += 1  # other tokens, so that no prompt is known already
                batch = prompts(args, lm.tokenizer, lm._known(), lengths, size)
                before = before if i > 1 else engine.stats()
                seconds = run_engine(engine, batch, sampling)
                if i > 0:
                    total, texts = total + seconds, texts + batch
            failed += _say(args, f"latency: {size} at a time, {args.iters} runs", {**summary(texts, total, dict(args.goodput)), **_guessed(before, engine.stats())}, str(lm._network.device))
    return failed


def _start_server(args):
    """(process, URL) of a server of the model, in a process of its own."""
    words = [sys.executable, "-m", "pyflame.llm.serving", "--model", args.model, "--port", "0", "--max_num_batched_tokens", str(args.max_num_batched_tokens)]
    words += ["--max_num_seqs", str(args.max_num_seqs)] if args.max_num_seqs else []
    words += ["--tensor_parallel_size", str(args.tensor_parallel_size)]
    for name in ("device", "dtype", "speculative_config", "kv_cache_dtype", "kv_cache_gate", "attention_backend"):
        if getattr(args, name):
            words += ["--" + name, getattr(args, name)]
    environment = {k: v for k, v in os.environ.items() if k != "PYFLAME_API_KEY"}
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if match := re.search(r" is at (http://\S+)", line):
            threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()
            return process, match.group(1)
    raise OSError(f"bench llm: the server did not start; got {''.join(lines[-3:]).strip()}; expected it to listen")


def _served(args):
    lm_tokenizer, vocabulary, process, url, key = None, 0, None, args.url, args.api_key
    if args.model:
        lm_tokenizer = pf.llm.load_tokenizer(args.model)
        vocabulary = lm_tokenizer.vocab_size
    if url is None:
        process, url = _start_server(args)
        key = None

    def progress(done):
        if sys.stderr.isatty():
            print(f"\r{done} of {args.num_prompts} requests", end="" if done < args.num_prompts else "\n", file=sys.stderr, flush=True)

    try:
        url = url.rstrip("/").removesuffix("/v1")
        first = prompts(args, lm_tokenizer, vocabulary)[:1]
        asyncio.run(run_server(url, first, math.inf, 1, args.seed, args.model_name, key, temperature=args.temperature))
        if first[0].error:
            raise OSError(f"bench llm: the server does not answer; got {first[0].error}; expected a text from {url}")
        args.seed += 1
        asyncio.run(run_server(url, prompts(args, lm_tokenizer, vocabulary)[: args.max_num_seqs or default_texts(args.device or pf.get_device())], math.inf, None, args.seed, args.model_name, key, temperature=args.temperature))  # a full batch, in no figure
        args.seed += 1
        texts = prompts(args, lm_tokenizer, vocabulary)
        seconds = asyncio.run(run_server(url, texts, args.request_rate, args.max_concurrency, args.seed, args.model_name, key, progress, args.temperature))
        rate = "all at once" if args.request_rate == math.inf else f"{args.request_rate:g} requests/s, Poisson arrivals"
        device = environment.without_secrets([url])[0] if args.url else args.device or pf.get_device()
        return _say(args, f"serving: {len(texts)} requests, {rate}", summary(texts, seconds, dict(args.goodput)), device)
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait()


@command((OSError, ValueError, TypeError, ImportError, NotImplementedError, MemoryError, pf.DeviceError, EngineDead))
def main(words=None):
    args = _arguments(sys.argv[1:] if words is None else words)
    return 1 if (_served(args) if args.serve else _offline(args)) else 0


if __name__ == "__main__":
    sys.exit(main())
