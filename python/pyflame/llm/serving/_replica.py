"""A replica: `python -m pyflame.llm.serving._replica`, an Engine in a process of its own. Replicas (_replicas.py) starts it and describes the messages."""
import os
import sys
import threading
import traceback
from functools import partial

import pyflame as pf

from .._beams import Beams
from .._children import connected
from ..engine import Engine, Finished

_STATS_SECONDS = 1.0  # between two looks at what has changed


class _Replica:
    def __init__(self, words):
        self._messages, self._answers = connected(words)
        self._sending, self._closing, self._told = threading.Lock(), False, None
        self._changing, self._requests, self._early = threading.Lock(), {}, {}  # _early: the ends of requests that are not in _requests yet

    def _send(self, *message):
        with self._sending:
            try:
                self._answers.send(message)
            except OSError:  # the server has ended, and this process does so, too
                pass

    def run(self):
        name, *arguments = self._messages.recv()
        try:
            self._start(*arguments)
        except (OSError, ValueError, TypeError, ImportError, NotImplementedError, MemoryError, RuntimeError, pf.DeviceError) as e:
            self._send("refused", str(e))
            return 1
        threading.Thread(target=self._watch, daemon=True).start()
        while True:
            try:
                name, *arguments = self._messages.recv()
            except (EOFError, OSError):
                break
            getattr(self, "_" + name)(*arguments)
        self._closing = True
        self.engine.close(drain=False)
        return 0

    def _start(self, path, dtype, device, options):
        model = pf.llm.load(path, dtype and getattr(pf, dtype), device, cpu_offload_gb=options.get("cpu_offload_gb", 0))
        self.engine = Engine(model, **options)
        self._tell()
        self._send("ready", self.engine.max_model_len, self.engine.lora_names, self.engine._blocks.count)

    def _watch(self):
        """Says what has changed, and ends the process where the engine has ended by itself."""
        while self.engine._thread.is_alive():
            self._tell()
            self.engine._thread.join(_STATS_SECONDS)
        if not self._closing:
            print(f"the engine has ended: {self.engine._failure}", flush=True)
            os._exit(1)

    def _tell(self):
        stats = self.engine.stats()
        if stats != self._told:
            self._told = stats
            self._send("stats", stats)

    def _submit(self, number, ids, sampling, max_tokens, options):
        self._put(number, self.engine.submit, ids, sampling, max_tokens, **options)

    def _submit_beams(self, number, ids, params, options):
        self._put(number, self.engine.submit_beams, ids, params, **options)

    def _put(self, number, submit, *arguments, **options):
        try:
            request = submit(*arguments, receive=partial(self._receive, number), **options)
        except (ValueError, TypeError, RuntimeError) as e:
            return self._send("event", number, Finished("error", str(e), by_settings=not isinstance(e, RuntimeError)))
        with self._changing:
            event = self._early.pop(number, None)
            if event is None:
                self._requests[number] = request
        if event is not None:
            self._end(number, request, event)

    def _receive(self, number, event):
        if not isinstance(event, Finished):
            return self._send("event", number, event)
        with self._changing:
            request = self._requests.pop(number, None)
            if request is None:  # the thread that submits has not noted it yet
                self._early[number] = event
        if request is not None:
            self._end(number, request, event)

    def _end(self, number, request, event):
        self._tell()  # whoever sees the end sees what it has counted
        self._send("event", number, event, *([request.sequences] if isinstance(request, Beams) else []))

    def _cancel(self, number):
        request = self._requests.get(number)
        if request is not None:
            self.engine.cancel(request)


def main(words):
    code = 1
    try:
        code = _Replica(words).run()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
