"""Texts that follow one another, written by an engine: `pyflame generate` and `pyflame chat` with --tensor_parallel_size, --kv_cache_dtype or --attention_backend."""
import queue

from ._engine_cache import DEFAULT_BYTES
from ._errors import EngineDead
from ._kv_cache_gate import DEFAULT
from ._request import Finished
from .engine import Engine
from .language_model import Source, load


class SingleWriter:
    """An Engine that writes one text at a time. model: its LanguageModel, with this process's part of the weights. The keys and values of a text have at most 1 GiB in each
    process; a longer text ends there.

    path, device: as of pf.llm.load; size: the number of processes; speculative_config: a SpeculativeConfig or None; lora: the folder of an adapter or None; kv_cache_dtype, kv_cache_gate, attention_backend, cpu_offload_gb: as
    of the Engine. `with` ends the processes.
    OSError, ValueError, MemoryError; EngineDead where a process does not start."""

    def __init__(self, path, device, size, speculative_config=None, lora=None, kv_cache_dtype="auto", kv_cache_gate=DEFAULT, attention_backend="auto", cpu_offload_gb=0):
        self._lora = None if lora is None else "adapter"
        source = load(path, device=device, cpu_offload_gb=cpu_offload_gb) if size == 1 else Source(path, None, device, cpu_offload_gb)
        self._engine = Engine(source, max_num_seqs=1, kv_cache_bytes=DEFAULT_BYTES, speculative_config=speculative_config,
                              lora_modules=None if lora is None else {self._lora: lora}, tensor_parallel_size=size, kv_cache_dtype=kv_cache_dtype,
                              kv_cache_gate=kv_cache_gate, attention_backend=attention_backend)  # fmt: skip
        self.model = self._engine.model

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._engine.close(drain=False)

    def tokens(self, ids, max_tokens, sampling):
        """A generator of the ids of new tokens, which returns why it ended: 'stop' or 'length'. The request begins at once and ends with the iterator. ValueError, TypeError; while it writes, ValueError where the settings end the text, such as a grammar that grows too large, and otherwise EngineDead with the engine's words."""
        events = queue.SimpleQueue()
        request = self._engine.submit(ids, sampling, max_tokens, lora=self._lora, receive=events.put)
        return self._written(request, events)

    def _written(self, request, events):
        try:
            while not isinstance(event := events.get(), Finished):
                yield event.id
            if event.by_settings:
                raise ValueError(event.error)
            if event.reason not in ("stop", "length"):
                raise EngineDead(f"generate: the text ended early; got {event.error or event.reason}; expected its end")
            return event.reason
        finally:
            self._engine.cancel(request)
