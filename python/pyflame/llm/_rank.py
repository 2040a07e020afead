"""A rank of tensor parallelism other than rank 0: `python -m pyflame.llm._rank`, which Workers (_workers.py) starts and describes."""
import os
import sys
import traceback

from .. import _C
from ..distributed import TCPStore
from ._children import connected
from ._lora import Adapters, read_adapter
from ._paged import Pages, Part, Step
from ._share import Share
from ._workers import MEETING_SECONDS, meet
from .language_model import load_part


class _Rank:
    """A worker. Each message is a call of the method of its name."""

    def __init__(self, words):
        self._messages, self._answers = connected(words)
        self._saved, self._pages, self._adapters, self._before = {}, None, None, None

    def run(self):
        while True:
            try:
                name, *arguments = self._messages.recv()
            except (EOFError, OSError):  # the engine has ended
                return
            getattr(self, name)(*arguments)

    def load(self, path, dtype, device, rank, size, cpu_offload_gb):
        self._share = Share(rank, size)
        _C.set_device(device)
        self._network = load_part(path, dtype and getattr(_C, dtype), device, self._share, cpu_offload_gb=cpu_offload_gb)._network
        self._answers.send("loaded")

    def attention_backend(self, name):
        if name != "auto":
            _C._force_entry("paged_attention", name)

    def meet(self, port):
        store = TCPStore("127.0.0.1", port, timeout=MEETING_SECONDS)
        self._share.group = meet(self._share.rank, self._share.size, store)

    def pages(self, count, kv_cache_dtype, longest, texts):
        self._pages = Pages(self._network, count, kv_cache_dtype, longest, texts)

    def adapters(self, folders):
        known = {a.name: a for a in self._adapters.adapters} if self._adapters else {}
        self._adapters = Adapters(self._network, [known.get(name) or read_adapter(name, path, self._network) for name, path in folders])

    def step(self, parts, rows, logits, follows, start):
        step = Step(self._network, self._pages, [Part(*p) for p in parts], rows, logits, self._adapters, self._before.next_ids if follows else None)
        if start is None:
            step.logits()
        else:
            step.start(*start)
        self._pages.settle()
        self._before = step

    def copy(self, pairs):
        self._pages.copy(pairs)

    def save(self, key, blocks):
        self._saved[key] = self._pages.saved(blocks)

    def restore(self, key, blocks, places):
        self._pages.restore(blocks, self._saved[key], places)

    def forget(self, keys):
        for key in keys:
            self._saved.pop(key, None)


def main(words):
    try:
        _Rank(words).run()
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # collectives and GPUs that wait for ranks which are gone would delay the end
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
