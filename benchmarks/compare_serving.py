#!/usr/bin/env python3
"""Serving a language model on one GPU: `pyflame serve` beside llama.cpp's server, and beside transformers' continuous batching.

All have a Llama of 8 billion parameters in bfloat16 with random weights, and read the same random prompts. The two servers read the same GGUF file, and get
the same requests from the same client (`pyflame bench llm --serve --url`), all at once. transformers has no server of its own, so it gets all prompts by
generate_batch(). Before that, a line for each number of texts says how fast llama.cpp (llama-batched-bench) and pf.llm.Engine (llm_decode.py) write.

    pip install gguf          # writes the file; llama.cpp's sources have it too, in gguf-py
    cmake -B build -DGGML_CUDA=ON && cmake --build build --target llama-server llama-batched-bench      # in llama.cpp
    python benchmarks/compare_serving.py --llama_cpp build/bin --vocabulary models/ggml-vocab-llama-bpe.gguf --model model.gguf --json results.json

`--write` only writes the file. `--only long --long N` starts each server for fewer texts with longer contexts, once for each of `--long_budgets`, the most tokens of a step. It sends
N prompts of 8,192 tokens while other texts are written, and says how long these wait for a token, and how long the prompts take.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER = 32, 4096, 32, 8, 128, 14336
SMALL = 2, 256, 4, 2, 64, 512
HERE = pathlib.Path(__file__).parent
COUNTS = (1, 8, 32, 128)
LONG, PORT = 8192, 8131


def note(*words):
    print(f"[{time.strftime('%H:%M:%S')}]", *words, flush=True)


def write_model(path, vocabulary, sizes):
    """A GGUF file with the tokenizer of `vocabulary` and random bfloat16 weights."""
    import gguf
    import torch

    layers, hidden, heads, kv_heads, head, inner = sizes
    known = gguf.GGUFReader(vocabulary).fields
    words = [bytes(known["tokenizer.ggml.tokens"].parts[i]) for i in known["tokenizer.ggml.tokens"].data]
    w = gguf.GGUFWriter(path, "llama")
    for add, value in ((w.add_block_count, layers), (w.add_context_length, 16384), (w.add_embedding_length, hidden), (w.add_feed_forward_length, inner), (w.add_head_count, heads), (w.add_head_count_kv, kv_heads),
                       (w.add_rope_dimension_count, head), (w.add_rope_freq_base, 500000.0), (w.add_layer_norm_rms_eps, 1e-5), (w.add_vocab_size, len(words)), (w.add_tokenizer_model, "gpt2"),
                       (w.add_tokenizer_pre, "llama-bpe"), (w.add_token_list, words), (w.add_file_type, gguf.LlamaFileType.MOSTLY_BF16)):
        add(value)
    w.add_token_types([int(known["tokenizer.ggml.token_type"].parts[i][0]) for i in known["tokenizer.ggml.token_type"].data])
    w.add_token_merges([bytes(known["tokenizer.ggml.merges"].parts[i]) for i in known["tokenizer.ggml.merges"].data])
    w.add_bos_token_id(128000), w.add_eos_token_id(128001)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def matrix(name, rows, columns):
        data = (torch.randn(rows, columns, device=device) * 0.02).to(torch.bfloat16).view(torch.uint8).cpu().numpy()
        w.add_tensor(name + ".weight", data, raw_dtype=gguf.GGMLQuantizationType.BF16)

    def norm(name):
        w.add_tensor(name + ".weight", torch.ones(hidden).numpy())

    matrix("token_embd", len(words), hidden), norm("output_norm"), matrix("output", len(words), hidden)
    for i in range(layers):
        p = f"blk.{i}."
        norm(p + "attn_norm"), norm(p + "ffn_norm")
        for name, rows, columns in (("attn_q", heads * head, hidden), ("attn_k", kv_heads * head, hidden), ("attn_v", kv_heads * head, hidden), ("attn_output", hidden, heads * head),
                                    ("ffn_gate", inner, hidden), ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
            matrix(p + name, rows, columns)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    return len(words)


def batched_bench(a):
    """llama.cpp's tokens per second by the number of texts."""
    room = max(COUNTS) * (a.context + 64 + 8)
    out = subprocess.run([os.path.join(a.llama_cpp, "llama-batched-bench"), "-m", a.model, "-ngl", "99", "-fa", "on", "-c", str(room), "-b", "2048", "-ub", "512", "-npp", str(a.context), "-ntg", "64",
                          "-npl", ",".join(map(str, COUNTS)), "--output-format", "jsonl"], capture_output=True, text=True)
    rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    if not rows:
        raise RuntimeError(f"llama-batched-bench: no rows; exit code {out.returncode}; {out.stderr[-500:]}")
    return [{"program": "llama.cpp", "sequences": r["pl"], "context": a.context, "tokens_per_s": r["speed_tg"], "prompt_tokens_per_s": r["speed_pp"]} for r in rows]


def decoding(a):
    """The same of pf.llm.Engine, with weights of the same shape."""
    kept = str(a.model) + ".decode.json"
    subprocess.run([sys.executable, str(HERE / "llm_decode.py"), "--device", a.device, "--shape", "tiny" if a.small else "8b", "--sequences", ",".join(map(str, COUNTS)), "--context", str(a.context), "--engine", "--json", kept], check=True)
    return json.loads(pathlib.Path(kept).read_text())["rows"]


class Server:
    """A program that listens at a port, until the end of the block."""

    def __init__(self, command, port):
        self.command, self.url = command, f"http://127.0.0.1:{port}"

    def __enter__(self):
        begin = time.perf_counter()
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=2) as r:
                    if r.status == 200:
                        break
            except OSError:
                pass
            if self.process.poll() is not None or time.perf_counter() - begin > 300:
                self.log.seek(0)
                raise RuntimeError(f"{self.command[0]} did not start; exit code {self.process.poll()}; {self.log.read()[-800:]}")
            time.sleep(0.1)
        self.seconds = time.perf_counter() - begin
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def requests(model, url, prompts, tokens, written, rate=None, wait=True, temperature=0):
    words = [sys.executable, "-m", "pyflame", "bench", "llm", model, "--serve", "--url", url, "--num_prompts", str(prompts), "--input_len", str(tokens), "--output_len", str(written), "--temperature", str(temperature), "--json"]
    words += ["--request_rate", str(rate)] if rate else []
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return result_of(p) if wait else p


def result_of(p):
    out, err = p.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"bench llm: no result; exit code {p.returncode}; {err[-500:]}")
    return json.loads(lines[-1])


def serving(name, command, a):
    """command(texts, tokens of a text, tokens of a step, port): what starts a server."""
    room = a.input + a.output + 16
    with Server(command(a.texts, room, 2048, PORT), PORT) as server:
        note(f"the server started in {server.seconds:.1f} s")
        requests(a.model, server.url, 8, a.input, 8)  # programs are compiled, memory is taken
        first = requests(a.model, server.url, a.texts, a.input, 4)
        note(f"{a.texts} prompts, 4 tokens each: {first['seconds']:.1f} s")
        found = {"program": name, "start_seconds": server.seconds, "all_at_once": requests(a.model, server.url, a.prompts, a.input, a.output)}
        note(json.dumps(found))
        if a.temperature:
            requests(a.model, server.url, a.texts, a.input, 4, temperature=a.temperature)
            found["all_at_once_drawn"] = requests(a.model, server.url, a.prompts, a.input, a.output, temperature=a.temperature)
            note(json.dumps(found["all_at_once_drawn"]))
    return found


async def beside_long_prompts(a, url, texts, seed):
    """(gaps of texts alone, gaps while long prompts are read, times of the long prompts), all in ms. A gap is the time between two pieces of a text that arrive one after the other."""
    import aiohttp

    draw, arrived = random.Random(seed), [[] for _ in range(texts)]

    def body(tokens, written):
        return {"model": name, "prompt": [draw.randrange(1000) for _ in range(tokens)], "max_tokens": written, "temperature": 0, "ignore_eos": True, "stream": True}

    async def write(times, content):
        async with session.post(url + "/v1/completions", json=content) as r:
            r.raise_for_status()
            async for line in r.content:
                if line.startswith(b"data: {") and b'"text"' in line:
                    times.append(time.perf_counter())

    async def read():
        begin, times = time.perf_counter(), []
        await write(times, body(LONG, 1))
        return 1e3 * (times[0] - begin)

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        async with session.get(url + "/v1/models") as r:
            name = (await r.json())["data"][0]["id"]
        writing = [asyncio.create_task(write(times, body(a.input, a.long_output))) for times in arrived]
        while min(map(len, arrived)) < 50:
            await asyncio.sleep(0.01)
        alone = time.perf_counter()
        await asyncio.sleep(2)
        begin, reading = time.perf_counter(), []
        for _ in range(a.long):
            reading.append(asyncio.create_task(read()))
            await asyncio.sleep(draw.expovariate(1))
        waited = await asyncio.gather(*reading)
        end = time.perf_counter()
        if any(task.done() for task in writing):
            raise RuntimeError("a text was complete before all long prompts were read; expected a larger --long_output")
        for task in writing:
            task.cancel()

    def gaps(first, last):
        return [1e3 * (y - x) for times in arrived for x, y in zip(times, times[1:]) if first <= x and y <= last]

    return gaps(alone, begin), gaps(begin, end), waited


def long_prompts(name, command, a, budget):
    """Long prompts arrive, about one a second, while other texts are written, in steps of at most `budget` tokens. The server has some seconds
    without requests before, in which PyFlame's warms up. The second of two runs counts; the first one compiles."""
    texts = a.texts // 4
    with Server(command(texts + a.long, max(LONG, a.input + a.long_output) + 64, budget, PORT), PORT) as server:
        time.sleep(a.long_idle)
        for seed in range(2):  # other prompts, or the server would have their keys and values
            alone, beside, waited = asyncio.run(beside_long_prompts(a, server.url, texts, seed))
            time.sleep(1)  # until the server has ended the texts
    percentiles = lambda ms: {f"p{p}": sorted(ms)[int(len(ms) * p / 100)] for p in (50, 90, 99)}  # noqa: E731
    return {"program": name, "step_tokens": budget, "idle_seconds": a.long_idle, "texts": texts, "prompts": a.long, "prompt_tokens": LONG, "alone_ms": percentiles(alone), "beside_ms": percentiles(beside), "first_token_ms": percentiles(waited)}


def transformers_batching(a, words):
    """transformers' continuous batching: tokens per second of generate_batch()."""
    import torch
    import transformers

    layers, hidden, heads, kv_heads, head, inner = SMALL if a.small else (LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER)
    config = transformers.LlamaConfig(vocab_size=words, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head,
                                      max_position_embeddings=16384, rope_theta=500000.0, tie_word_embeddings=False)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    model.set_attn_implementation(a.attention)
    random = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 1000, (a.input,), generator=random).tolist() for _ in range(a.prompts)]
    settings = dict(do_sample=False, eos_token_id=-1, pad_token_id=0, use_cuda_graph=True)
    rows = []
    for count, written in ((8, 8), (a.texts, 4), (a.prompts, a.output)):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        out = model.generate_batch(inputs=prompts[:count], generation_config=transformers.GenerationConfig(max_new_tokens=written, **settings), progress_bar=False)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        rows.append({"requests": count, "seconds": seconds, "output_tokens": sum(len(o.generated_tokens) for o in out.values())})
        note(json.dumps(rows[-1]))
    last = rows[-1]
    return {"program": "transformers", "version": transformers.__version__, "attention": a.attention, "output_tokens_per_second": last["output_tokens"] / last["seconds"], **last}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="the GGUF file; it is written if it is not there")
    p.add_argument("--vocabulary", help="a GGUF file with the tokenizer of Llama 3")
    p.add_argument("--llama_cpp", help="the folder with llama.cpp's programs")
    p.add_argument("--device", default="cuda")
    p.add_argument("--prompts", type=int, default=500)
    p.add_argument("--input", type=int, default=512)
    p.add_argument("--output", type=int, default=256)
    p.add_argument("--texts", type=int, default=128, help="texts that a server writes at the same time")
    p.add_argument("--context", type=int, default=512, help="of decoding alone")
    p.add_argument("--temperature", type=float, default=0, help="the requests once more, with tokens drawn at this temperature")
    p.add_argument("--long", type=int, default=8, help="with --only long: the number of long prompts")
    p.add_argument("--long_budgets", default="128,256,512", help="with --only long: the most tokens of a step, of one server each")
    p.add_argument("--long_output", type=int, default=4096, help="with --only long: the tokens of the other texts")
    p.add_argument("--long_idle", type=float, default=20, help="with --only long: the seconds without requests after a server's start")
    p.add_argument("--attention", default="paged|sdpa", help="transformers' implementation of attention")
    p.add_argument("--only", default="decode,pyflame,llama.cpp,transformers")
    p.add_argument("--small", action="store_true", help="a small model, to try the program")
    p.add_argument("--write", action="store_true", help="only write the file")
    p.add_argument("--json", help="a file for the results")
    a = p.parse_args()
    if not os.path.exists(a.model):
        note("writes", a.model)
        write_model(a.model, a.vocabulary, SMALL if a.small else (LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER))
    if a.write:
        return
    cache = 2 * 2 * KV_HEADS * HEAD * LAYERS
    programs = {
        "pyflame": lambda texts, room, step, port: [sys.executable, "-m", "pyflame", "serve", a.model, "--device", a.device, "--dtype", "bfloat16", "--port", str(port), "--max_num_seqs", str(texts), "--max_num_batched_tokens", str(step),
                                                    "--max_model_len", str(room + a.output), "--kv_cache_bytes", str(cache * texts * (room + a.output))],
        # llama.cpp divides the context among its texts.
        "llama.cpp": lambda texts, room, step, port: [os.path.join(a.llama_cpp or "", "llama-server"), "-m", a.model, "-ngl", "99", "-fa", "on", "--port", str(port), "-np", str(texts), "-c", str(texts * -(-room // 256) * 256),
                                                      "-b", str(step), "-ub", str(step), "--no-warmup"],
    }
    found, wanted = {"decode": [], "serving": [], "long": [], "errors": {}}, a.only.split(",")
    jobs = [("decode", "llama.cpp decodes", lambda: batched_bench(a))] if "decode" in wanted and a.llama_cpp else []
    jobs += [("decode", "pyflame decodes", lambda: decoding(a))] if "decode" in wanted else []
    jobs += [("serving", name, lambda name=name, what=what: [serving(name, what, a)]) for name, what in programs.items() if name in wanted and (name == "pyflame" or a.llama_cpp)]
    if "long" in wanted:
        jobs += [("long", f"{name}, steps of {n} tokens", lambda name=name, what=what, n=int(n): [long_prompts(name, what, a, n)]) for n in a.long_budgets.split(",") for name, what in programs.items() if name == "pyflame" or a.llama_cpp]
    jobs += [("serving", "transformers", lambda: [transformers_batching(a, 128256)])] if "transformers" in wanted else []
    for part, name, job in jobs:
        note(name)
        try:
            rows = job()
        except Exception as e:  # the other programs are measured all the same
            found["errors"][name] = f"{type(e).__name__}: {e}"
            note("failed:", found["errors"][name])
            continue
        found[part] += rows
        for row in rows:
            note(json.dumps(row))
        if a.json:
            import pyflame as pf

            info = pf.device_info(a.device)
            pathlib.Path(a.json).write_text(json.dumps({"device": {k: info.get(k) for k in ("name", "architecture")}, "version": pf.__version__, "prompts": a.prompts, "input": a.input, "output": a.output, "texts": a.texts, **found}, indent=1))


if __name__ == "__main__":
    main()
