"""The process behind the C++ class pyflame::llm::LLM: `python -m pyflame.llm._cpp_host`, an LLM that a C++ program asks by messages (src/pyflame/llm/process.h starts it).

A message is a JSON object in a frame of multiprocessing's Connection: its length in 4 bytes, the highest first, then so many bytes of UTF-8. Requests are {"id", "op", ...}; an answer has
the request's id and one of: "piece" (new text of a call that streams), "item" (a part of the result), "error" with "kind", "done". Requests with different ids are worked on at the
same time. {"op": "cancel", "id"} ends the texts of a request. Numbers that JSON lacks are texts: 'nan', 'inf', '-inf'. The process ends where the pipe does."""
import json
import math
import os
import sys
import threading
import traceback

import pyflame as pf

from ._children import connected
from ._beams import BeamSearchParams
from .embedding import EmbeddingModel, PoolingParams
from .offline import LLM, SamplingParams, _Call

# The kinds of errors of src/pyflame/base/error.h, in the order in which an exception is looked up.
_KINDS = ((MemoryError, "OutOfMemory"), (pf.DeviceError, "Device"), (NotImplementedError, "NotImplemented"), (OSError, "OS"), (IndexError, "Index"), (KeyError, "Key"), (TypeError, "Type"),
          (ValueError, "Value"), (RuntimeError, "Runtime"), (ImportError, "Runtime"))


def _error(e):
    """{"kind", "error"} of an exception. One that nobody expects is printed with its place."""
    kind = next((name for type, name in _KINDS if isinstance(e, type)), None)
    if kind is None:
        traceback.print_exc()
        return {"kind": "Runtime", "error": f"{type(e).__name__}: {e}"}
    return {"kind": kind, "error": str(e.args[0]) if isinstance(e, KeyError) and e.args else str(e)}


def _number(x):
    return x if x is None or math.isfinite(x) else str(x)


def _logprobs(positions):
    return None if positions is None else [[[id, _number(p.logprob), p.rank, p.decoded_token] for id, p in (position or {}).items()] for position in positions]


def _text(o):
    """A CompletionOutput as JSON."""
    return {"index": o.index, "text": o.text, "token_ids": o.token_ids, "finish_reason": o.finish_reason, "cumulative_logprob": _number(o.cumulative_logprob), "logprobs": _logprobs(o.logprobs),
            "stop_reason": o.stop_reason}


def _output(r):
    """A RequestOutput as JSON."""
    return {"prompt": r.prompt, "prompt_token_ids": list(r.prompt_token_ids), "num_generation_tokens": r.num_generation_tokens, "outputs": [_text(o) for o in r.outputs],
            "request_id": r.request_id, "finished": r.finished, "num_cached_tokens": r.num_cached_tokens, "prompt_logprobs": _logprobs(r.prompt_logprobs)}


class _Host:
    def __init__(self, words):
        self._messages, self._answers = connected(words)
        self._sending, self._embedding, self._changing, self._calls = threading.Lock(), threading.Lock(), threading.Lock(), {}
        self._llm = None

    def _send(self, id, **answer):
        frame = json.dumps({"id": id, **answer}, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        with self._sending:
            try:
                self._answers.send_bytes(frame)
            except OSError:  # the program has ended, and this process does so, too
                pass

    def run(self):
        while True:
            try:
                request = json.loads(self._messages.recv_bytes())
            except (EOFError, OSError):
                break
            id, op = request.pop("id"), request.pop("op")
            if op == "cancel":
                self._cancel(id)
            elif op == "open":
                self._answer(id, self._open, request)
            else:
                with self._changing:
                    self._calls[id] = _Call(self._llm, self._pieces(id) if request.pop("stream", False) else None)
                threading.Thread(target=self._answer, args=(id, getattr(self, "_" + op), request), daemon=True).start()
        if self._llm is not None:
            self._llm.close()

    def _answer(self, id, work, request):
        try:
            for item in work(id, **request):
                self._send(id, item=item)
            last = {"done": True}
        except Exception as e:
            last = _error(e)
        with self._changing:
            self._calls.pop(id, None)
        self._send(id, **last)

    def _cancel(self, id):
        with self._changing:
            call = self._calls.get(id)
        if call is not None:
            call.cancel()

    def _pieces(self, id):
        def send(place, output, text, token_ids):
            if text or token_ids or output.finish_reason is not None:
                self._send(id, piece={"prompt": place, "index": output.index, "text": text, "token_ids": token_ids, "finish_reason": output.finish_reason})

        return send

    # The requests. Each gives the items of its answer.

    def _open(self, id, version, model, options):
        if version != pf.__version__:
            raise RuntimeError(f"LLM: the Python package is of another version; got {pf.__version__} in {os.path.dirname(pf.__file__)}; expected {version}, that of the C++ library; "
                               "hint: PYFLAME_PYTHON, or the option python, names the interpreter that has the package")
        self._llm = LLM(model, **options)
        yield {"embeds": isinstance(self._llm.model, EmbeddingModel)}

    def _generate(self, id, prompts, **options):
        self._llm._needs_texts("generate")
        return self._write(id, "generate", [self._llm._prompt(p) for p in prompts], **options)

    def _chat(self, id, conversations, params=None, lora_request=None, priority=None, **template):
        self._llm._needs_texts("chat")
        return self._write(id, "chat", self._llm._conversations(conversations, **template), params, lora_request, priority)

    def _write(self, id, op, prompts, params=None, lora_request=None, priority=None):
        each = [SamplingParams(**p) for p in (params if isinstance(params, list) else [] if params is None else [params])]
        call, chooses = self._calls[id], [p for p in each if p._chooses]
        if call.each and chooses:
            raise ValueError(f"{op}: pieces of texts that best_of leaves out cannot be taken back; got best_of {chooses[0].best_of} and n {chooses[0].n}; expected no best_of, or no function for pieces")
        return map(_output, self._llm._write(prompts, each if isinstance(params, list) else each[0] if each else None, False, lora_request, call, priority))

    def _beam_search(self, id, prompts, params, lora_request=None):
        found = self._llm.beam_search(prompts, BeamSearchParams(**params), lora_request)
        return ([{"tokens": list(s.tokens), "cum_logprob": _number(s.cum_logprob), "text": s.text, "finish_reason": s.finish_reason} for s in r.sequences] for r in found)

    def _embed(self, id, prompts, params=None):
        with self._embedding:
            found = self._llm.embed(prompts, PoolingParams(**params or {}))
        return ({"prompt_token_ids": list(r.prompt_token_ids), "embedding": r.outputs.embedding} for r in found)


def main(words):
    code = 1
    try:
        _Host(words).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
