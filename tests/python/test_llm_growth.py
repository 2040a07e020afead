"""A server that runs for days: after thousands of requests there are as many objects, programs and bytes of tensors as after the first ones."""
import collections
import gc
import sys
import threading

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import Engine, Finished, Sampling, Token  # noqa: E402
from pyflame.llm._paged import BLOCK, block_bytes  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

REQUESTS, AT_ONCE = 2000, 50
SPARE = 250  # objects of one type that may be there at one time and not at another: less than one for each few requests


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


def held():
    """(objects by type, all blocks of Python's memory, the program cache's numbers, bytes of tensors)."""
    pf.synchronize()
    gc.collect()
    stats = pf.program_cache_stats()
    return collections.Counter(type(o).__name__ for o in gc.get_objects()), sys.getallocatedblocks(), (stats["misses"], stats["programs"], stats["ops"]), pf.memory_stats()["allocated"]


def grown(before, after):
    """What there is more of: {type: number}."""
    found = {name: after[0][name] - before[0][name] for name in after[0] if after[0][name] - before[0][name] > SPARE}
    for name, more, most in (("blocks of memory", after[1] - before[1], 2 * SPARE),
                             ("compiled programs", after[2][0] - before[2][0], before[2][0] // 10),  # how many tokens are guessed, or written before a client leaves, may differ
                             ("bytes of tensors", after[3] - before[3], 1 << 16)):
        if more > most:
            found[name] = more
    return found


class Receiver:
    """Cancels its request, or fails, after a number of tokens."""

    def __init__(self, engine, left, cancel_after=None, fail_after=None):
        self.engine, self.left, self.cancel_after, self.fail_after, self.request, self.tokens = engine, left, cancel_after, fail_after, None, 0

    def __call__(self, event):
        if isinstance(event, Finished):
            self.request = None
            self.left.release()
        elif isinstance(event, Token):
            self.tokens += 1
            if self.tokens == self.cancel_after:
                self.engine.cancel(self.request)
            if self.tokens == self.fail_after:
                raise ValueError("nobody reads this")


def serve_round(engine, draw, grammar):
    """AT_ONCE requests, of the same lengths and ends in each round, but of other tokens: the steps have the same shapes."""
    lengths = np.random.RandomState(5)
    left = threading.Semaphore(0)
    with engine._wake:
        for i in range(AT_ONCE):
            prompt = [int(t) for t in draw.randint(4, small.VOCABULARY, lengths.randint(1, 60))]
            receiver = Receiver(engine, left, cancel_after=2 if i % 7 == 1 else None, fail_after=1 if i % 11 == 5 else None)
            sampling = Sampling(temperature=0) if i % 3 else Sampling(temperature=1.0, seed=int(draw.randint(1 << 30)), grammar=grammar if i % 5 == 0 else None)
            receiver.request = engine.submit(prompt, sampling, int(lengths.randint(1, 14)), stop_ids=(), logprobs=2 if i % 9 == 0 else None, priority=i % 4 - 2, receive=receiver)
            if i % 13 == 4:
                engine.cancel(receiver.request)  # it has not begun
    for _ in range(AT_ONCE):
        assert left.acquire(timeout=60)


@pytest.mark.parametrize("options", [{"swap_space": 0.001}, {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 1}}], ids=lambda o: next(iter(o)))
def test_an_engine_holds_nothing_of_requests_that_have_ended(lm, options):
    try:
        grammar = pf.llm.Grammar.regex("[a-d]{1,9}")
    except ImportError:
        grammar = None
    draw = np.random.RandomState(0)
    # Eight blocks for texts of up to five: requests are preempted.
    with Engine(lm, max_num_seqs=8, kv_cache_bytes=9 * block_bytes(lm._network), max_model_len=5 * BLOCK, **options) as engine:
        for _ in range(24):  # guesses that are right make steps of other shapes, until all have been seen
            serve_round(engine, draw, grammar)
        before = held()
        for _ in range(REQUESTS // AT_ONCE):
            serve_round(engine, draw, grammar)
        stats = engine.stats()
        assert stats["num_requests_running"] == stats["num_requests_waiting"] == stats["kv_cache_usage"] == 0 and stats["preemptions_total"] > 40
        after = held()
    assert grown(before, after) == {}


def test_a_server_holds_nothing_of_requests_that_have_ended(lm):
    for package in ("jinja2", "aiohttp", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from llm_client import CHAT, COMPLETE, HELLO, Running, until

    engine = Engine(lm, max_num_seqs=4, max_model_len=96)
    served = Running(lm, engine)

    def ask(count):
        """Whole answers, streams, streams that are broken off, and requests that are refused, each in a connection of its own."""
        for i in range(count):
            fields = {"max_tokens": 1 + i % 4, "temperature": 0, "n": 1 + i % 2}
            if i % 4 == 0:
                assert served.ask(CHAT, {**HELLO, **fields})["choices"]
            elif i % 4 == 1:
                served.error(COMPLETE, {"prompt": "x", **fields, "n": 0})
            else:
                stream = served.stream(COMPLETE, {"prompt": [4 + i % 50] * 9, **fields, "max_tokens": 60 if i % 8 == 2 else 4})
                stream.break_off() if i % 8 == 2 else stream.rest()
        until(lambda: not served.server.answers and served.server._busy == served.server.connections.count == 0 and engine.stats()["kv_cache_usage"] == 0)

    try:
        ask(200)
        before = held()
        ask(600)
        after = held()
        assert grown(before, after) == {}
    finally:
        served.end()
