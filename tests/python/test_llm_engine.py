"""pf.llm.Engine: what a batch writes is what each request writes alone; blocks of the cache are shared, given up and given back."""
import os
import threading
import time

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import Engine, EngineFull, Finished, Sampler, Sampling, Token  # noqa: E402
from pyflame.llm import _blocks, _engine_cache, _engine_warm_up, _paged  # noqa: E402
from pyflame.llm import engine as engines  # noqa: E402
from pyflame.llm._queue import Queue  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


@pytest.fixture(scope="module")
def mixed(lm):
    """20 prompts with their numbers of tokens, and what the model writes for each alone."""
    rs = np.random.RandomState(0)
    prompts = [[int(i) for i in rs.randint(4, small.VOCABULARY, n)] for n in [*rs.randint(1, 100, 18), 1, 60]]
    counts = [int(n) for n in rs.randint(1, 25, 20)]
    return prompts, counts, [list(lm.tokens(p, n, GREEDY, stop_ids=())) for p, n in zip(prompts, counts)]


class Received:
    """The events of one request, and a way to wait for its end."""

    def __init__(self, after=None):
        self.events, self.done, self.after = [], threading.Event(), after or (lambda event: None)

    def __call__(self, event):
        self.events.append(event)
        try:
            self.after(event)
        finally:
            if isinstance(event, Finished):
                self.done.set()

    def wait(self):
        assert self.done.wait(60)
        assert [type(e) for e in self.events] == [Token] * (len(self.events) - 1) + [Finished]
        return self.end

    @property
    def ids(self):
        return [e.id for e in self.events if isinstance(e, Token)]

    @property
    def end(self):
        return self.events[-1]


def cache_of(lm, blocks):
    return (blocks + 1) * _paged.block_bytes(lm._network)


def written(engine, prompts, counts, sampling=GREEDY, **options):
    """All at once; the engine begins when it has them all."""
    received = [Received() for _ in prompts]
    with engine._wake:
        for r, p, n in zip(received, prompts, counts):
            engine.submit(p, sampling, n, stop_ids=(), receive=r, **options)
    for r in received:
        r.wait()
    return received


def idle(engine):
    """The engine's thread has done all it had to do, and waits."""
    with engine._wake:
        return not engine._running and not engine._waiting and engine._blocks.used == 0 and not engine._blocks._holders


# What is written.


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 16}, {"max_num_seqs": 1}, {"batch_invariant": True, "max_num_batched_tokens": 16}], ids=str)
def test_a_batch_writes_what_each_request_writes_alone(lm, mixed, options):
    prompts, counts, want = mixed
    with Engine(lm, **options) as engine:
        received = written(engine, prompts, counts)
        assert [r.ids for r in received] == want
        assert all(r.end == Finished("length") for r in received)
        stats = engine.stats()
        assert stats["prompt_tokens_total"] == sum(map(len, prompts)) and stats["generation_tokens_total"] == sum(counts)
        assert stats["preemptions_total"] == stats["num_requests_running"] == stats["num_requests_waiting"] == stats["kv_cache_usage"] == 0
        assert idle(engine)


@pytest.mark.parametrize("model_type", sorted(set(small.MODEL_TYPES) - {"llama"}))
def test_every_architecture(model_type, tmp_path):
    model = pf.llm.load(small.write_random_model(tmp_path, model_type, seed=3))
    rs = np.random.RandomState(1)
    prompts = [[int(i) for i in rs.randint(4, small.VOCABULARY, n)] for n in (3, 40, 17, 1)]
    want = [list(model.tokens(p, 8, GREEDY, stop_ids=())) for p in prompts]
    with Engine(model, max_num_batched_tokens=32) as engine:
        assert [r.ids for r in written(engine, prompts, [8] * 4)] == want


@pytest.mark.parametrize("dtype", [pf.bfloat16, pf.float16], ids=str)
def test_logits_in_half_precision(lm, dtype, tmp_path):
    model = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3), dtype=dtype)
    ids = [5, 6, 7] * 10
    pages, table = _paged.Pages(model._network, 4), [3, 1]
    first = _paged.Step(model._network, pages, [_paged.Part(ids[:20], 0, table, False)], 24, 1).run()
    last = _paged.Step(model._network, pages, [_paged.Part(ids[20:], 20, table, True)], 12, 1).run()
    want = lm.logits(ids).numpy()[-1]
    assert first.shape == (0, small.VOCABULARY) and np.abs(last[0] - want).max() < 0.05 * np.abs(want).max()


def test_which_steps_read_a_whole_prompt():
    def part(begin, tokens):
        return _paged.Part([5] * tokens, begin, [1] * 256, False)

    long = _paged.WHOLE
    assert all(_paged.whole_prompt(device, [part(0, long)]) for device in ("rocm", "cuda:1")) and not _paged.whole_prompt("cpu", [part(0, long)])
    assert not any(_paged.whole_prompt("rocm", parts) for parts in ([part(0, long - 1)], [part(16, long)], [part(0, long), part(0, 2)]))


@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16], ids=str)
def test_a_long_prompt_alone_in_its_step(dtype, tmp_path, monkeypatch):
    """It is attended to by itself, with the same logits. Behind its last token lies nothing that counts."""
    model = pf.llm.load(small.write_random_model(tmp_path, "qwen2", seed=3), dtype=dtype)
    ids, found = [5, 6, 7] * 11 + [8], []
    for is_whole, op in ((False, "varlen_attn"), (True, "scaled_dot_product_attention")):
        monkeypatch.setattr(_paged, "whole_prompt", lambda device, parts, is_whole=is_whole: is_whole and len(parts[0].ids) > 1)
        pages, calls, compute = _paged.Pages(model._network, 5), [], getattr(_paged._C, op)
        for x in (*pages.keys, *pages.values):
            x.fill_(float("nan"))
        with monkeypatch.context() as m:
            m.setattr(_paged._C, op, lambda *args, compute=compute, calls=calls, **kwargs: calls.append(args[0].shape) or compute(*args, **kwargs))
            found.append(_paged.Step(model._network, pages, [_paged.Part(ids, 0, [4, 1, 3], True)], 40, 1).run()[0])
        assert len(calls) == model._network.config.layers
        # The next token reads what the prompt has written.
        found.append(_paged.Step(model._network, pages, [_paged.Part([9], 34, [4, 1, 3], True)], 1, 1).run()[0])
    bound = 1e-5 if dtype == pf.float32 else 0.05
    for packed, alone in zip(found[:2], found[2:]):
        assert np.isfinite(alone).all() and np.abs(packed - alone).max() < bound * np.abs(packed).max()
    want = model.logits(ids).float().numpy()[-1]
    assert np.abs(found[2] - want).max() < bound * np.abs(want).max()


def test_linear_layers_run_once_for_all(lm, monkeypatch):
    rows, linear = [], _paged._C.linear
    monkeypatch.setattr(_paged._C, "linear", lambda x, *weights: rows.append(x.shape[0]) or linear(x, *weights))
    with Engine(lm, warm_up=False) as engine:
        written(engine, [[5, i] for i in range(8)], [2] * 8)
    layers = sum(1 for layer in lm._network.layers for name in layer if "norm" not in name) + 1  # GPUs join weights of the same input
    assert rows == [16] * (layers - 1) + [8] + [8] * layers  # a step with all prompts, a step with a token of each


def test_prompts_are_computed_in_parts(lm, monkeypatch):
    parts, step = [], _engine_cache.Step
    monkeypatch.setattr(_engine_cache, "Step", lambda n, pages, p, *rest: parts.append([(x.begin, len(x.ids)) for x in p]) or step(n, pages, p, *rest))
    with Engine(lm, max_num_batched_tokens=32, warm_up=False) as engine:
        writing, late = Received(), Received()
        with engine._wake:
            engine.submit([9, 8], GREEDY, 4, stop_ids=(), receive=writing)
            engine.submit([5, 6, 7] * 20, GREEDY, 1, stop_ids=(), receive=late)
        writing.wait(), late.wait()
    # The one that writes gets a token in each step, and the long prompt what is left.
    assert parts == [[(0, 2), (0, 30)], [(2, 1), (30, 30)], [(3, 1)], [(4, 1)]]


def test_the_end_of_a_text(lm):
    ids = [9, 9]
    first = list(lm.tokens(ids, 3, GREEDY, stop_ids=()))
    with Engine(lm) as engine:
        def run(prompt, most, **options):
            r = Received()
            engine.submit(prompt, GREEDY, most, receive=r, **options)
            return r.wait(), r.ids

        assert run(ids, 3, stop_ids={first[0]}) == (Finished("stop"), [])
        at = next(i for i in range(1, 3) if first[i] not in first[:i])
        assert run(ids, 3, stop_ids={first[at]}) == (Finished("stop"), first[:at])
        assert run(ids, 3, stop_ids=()) == (Finished("length"), first)
        assert run(ids, 0, stop_ids=()) == (Finished("length"), [])
        end, written_ids = run([5] * 250, 100, stop_ids=())  # the context is full
        assert end == Finished("length") and written_ids == list(lm.tokens([5] * 250, 100, GREEDY, stop_ids=())) and len(written_ids) == 6
        assert run([5] * 256, 5, stop_ids=()) == (Finished("length"), [])


def test_logprobs(lm):
    ids = [10, 20, 30]
    with Engine(lm) as engine:
        r = Received()
        engine.submit(ids, Sampling(seed=1), 3, stop_ids=(), logprobs=4, receive=r)
        none = Received()
        engine.submit(ids, Sampling(seed=1), 3, stop_ids=(), receive=none)
        only = Received()
        engine.submit(ids, Sampling(seed=1), 3, stop_ids=(), logprobs=0, receive=only)
        r.wait(), none.wait(), only.wait()
    assert r.ids == none.ids == only.ids
    for token, bare, own in zip(r.events[:-1], none.events, only.events):
        logits = lm.logits(ids).numpy()[-1].astype(np.float64)
        logs = logits - np.log(np.exp(logits).sum())
        order = np.argsort(-logs)[:4]
        assert abs(token.logprob - logs[token.id]) < 1e-4 and [i for i, _ in token.top] == order.tolist()
        assert np.allclose([x for _, x in token.top], logs[order], atol=1e-4)
        assert (bare.logprob, bare.top) == (None, []) and own.top == [] and abs(own.logprob - token.logprob) < 1e-5
        ids = ids + [token.id]


# The same in any batch.


def test_batch_invariant_gives_the_same_bits_in_any_batch(lm, mixed):
    prompts, counts, _ = mixed
    sampling = Sampling(temperature=0.9, seed=7)

    def events(received):
        return [[(e.id, e.logprob, tuple(e.top)) for e in r.events[:-1]] for r in received]

    with Engine(lm, max_num_seqs=6, max_num_batched_tokens=32, batch_invariant=True) as engine:
        alone = []
        for p, n in zip(prompts, counts):
            alone += events(written(engine, [p], [n], sampling, logprobs=3))
    with Engine(lm, max_num_seqs=6, max_num_batched_tokens=32, batch_invariant=True) as engine:
        assert events(written(engine, prompts, counts, sampling, logprobs=3)) == alone
        again = written(engine, prompts[::-1], counts[::-1], sampling, logprobs=3)  # other neighbours, and beginnings that are known
        assert events(again)[::-1] == alone and engine.stats()["prefix_cache_hits"] > 0
    with Engine(lm, max_num_seqs=6, max_num_batched_tokens=32, batch_invariant=True, kv_cache_bytes=cache_of(lm, 17)) as engine:
        assert events(written(engine, prompts, counts, sampling, logprobs=3)) == alone
        assert engine.stats()["preemptions_total"] > 0


def test_a_seed_gives_the_same_tokens_in_turn_and_at_once(lm, mixed):
    prompts, counts, _ = mixed
    with Engine(lm) as engine:
        at_once = [r.ids for r in written(engine, prompts, counts, Sampling(seed=4))]
        in_turn = [written(engine, [p], [n], Sampling(seed=4))[0].ids for p, n in zip(prompts, counts)]
    assert at_once == in_turn == [list(lm.tokens(p, n, Sampling(seed=4), stop_ids=())) for p, n in zip(prompts, counts)]


def test_batch_invariant_needs_products_whose_rows_are_equal(lm, monkeypatch):
    class Uneven(_engine_cache.Step):
        def run(self):
            logits = super().run()
            return logits + np.arange(len(logits), dtype=np.float32)[:, None] if self.rows < 24 else logits

    monkeypatch.setattr(_engine_cache, "Step", Uneven)
    with Engine(lm, max_num_seqs=5, batch_invariant=True, warm_up=False) as engine:
        assert engine._rows == 24 and idle(engine)
    monkeypatch.setattr(Uneven, "run", lambda self: np.arange(self.wanted)[:, None])
    with pytest.raises(NotImplementedError, match="Engine: batch_invariant is not available here; got products whose rows differ .*; hint: batch_invariant=False"):
        Engine(lm, max_num_seqs=5, batch_invariant=True, warm_up=False)


# The cache.


def test_blocks():
    blocks = _blocks.Blocks(4, 2, first=1)
    a = blocks.take(3)
    assert a == [1, 2, 3] and blocks.available == 1 and blocks.used == 3 and blocks.take(2) is None and blocks.available == 1
    one = blocks.register(a[0], _blocks.ROOT, [5, 6])
    two = blocks.register(a[1], one, [7, 8])
    assert blocks.find([5, 6, 7, 8, 9], 5) == [(1, one), (2, two)] and blocks.find([5, 6, 7, 8], 3) == [(1, one)]
    assert blocks.find([7, 8], 2) == [] and blocks.find([5, 6, 8, 7], 4) == [(1, one)]  # the same tokens after others are another content
    assert blocks.register(a[2], _blocks.ROOT, [5, 6]) == one and blocks.find([5, 6], 2) == [(1, one)]  # a second block with a known content
    blocks.hold([1])
    blocks.release(a)
    assert blocks.available == 3 and blocks.find([5, 6, 7, 8], 4) == [(1, one), (2, two)]
    blocks.release([1])
    assert blocks.available == 4 and blocks.kept_among([1, 2, 3]) == 2
    assert blocks.take(3) == [3, 4, 2] and blocks.find([5, 6, 7, 8], 4) == [(1, one)]  # the end of a text is evicted first
    assert blocks.take(1) == [1] and blocks.find([5, 6], 2) == []


def test_contents_that_are_saved():
    saves = []

    def save(of):
        if refused:
            return None
        saves.append(list(of))
        return f"copy of {of}"

    refused, blocks = False, _blocks.Blocks(5, 2, save=save)
    ids, held, content, contents = [5, 6, 7, 8, 9, 1, 2, 3], blocks.take(4), _blocks.ROOT, []
    for block in held:
        content = blocks.register(block, content, ids[2 * block:2 * block + 2])
        contents.append(content)
    blocks.release(held)
    other = blocks.take(4)  # one is free; three contents are evicted, the end first
    assert saves == [[3, 2], [1]] and other == [4, 3, 2, 1] and blocks.saved_count == 3
    found = blocks.find(ids, 8)
    assert found == [(0, contents[0]), (None, contents[1]), (None, contents[2]), (None, contents[3])] and blocks.available == 1 == blocks.kept_among([0])
    blocks.release(other)
    assert blocks.available == 5
    again, restores = blocks.hold_found(found[:3])
    assert again[0] == 0 and len(set(again)) == 3 and sorted(restores) == [("copy of [1]", [again[1]], [0]), ("copy of [3, 2]", [again[2]], [1])]
    assert blocks.find(ids, 8) == [*zip(again, contents), (None, contents[3])] and blocks.saved_count == 2  # one of two that were evicted together is left
    # What is computed again need not be saved any more.
    last = blocks.take(1)
    assert blocks.register(last[0], contents[2], ids[6:]) == contents[3] and blocks.saved_count == 0 and blocks.find(ids, 8)[-1] == (last[0], contents[3])
    blocks.release([*again, *last])
    # Where there is no room, contents are forgotten; those that were saved first go first.
    blocks.take(3)
    assert saves[2:] == [[last[0], again[2]]]
    refused = True
    assert blocks.forget_saved() and not blocks.forget_saved() and blocks.saved_count == 0
    blocks.take(2)
    assert blocks.find(ids, 8) == [] and len(saves) == 3


def test_contents_that_somebody_needs_are_not_forgotten():
    room, saves = [2], []

    def save(of):  # as an engine does, with room for two blocks
        while blocks.saved_count + len(of) > room[0]:
            if not blocks.forget_saved():
                return None
        saves.append(list(of))
        return saves[-1]

    def known(first):
        block = blocks.take(1)
        content = blocks.register(block[0], _blocks.ROOT, [first, first])
        blocks.release(block)
        return content

    def is_known(first):
        return bool(blocks.find([first, first], 2))

    blocks = _blocks.Blocks(2, 2, save=save)
    a, b = known(1), known(2)
    blocks.need([a])
    blocks.need([a, b])
    blocks.release(blocks.take(2))  # both are saved, each by itself or together
    assert blocks.saved_needed == blocks.saved_count == 2 and not blocks.forget_saved()
    known(3)
    blocks.release(blocks.take(2))  # there is no room for it
    assert is_known(1) and is_known(2) and not is_known(3)
    blocks.need_no_more([a, b])
    assert blocks.saved_needed == 1
    blocks.need_no_more([a])
    assert blocks.saved_needed == 0
    known(4)
    blocks.release(blocks.take(2))
    assert is_known(4) and not is_known(1)
    # What somebody needs is saved first.
    blocks.clear()
    room[0] = 1
    known(5), blocks.need([known(6)])
    blocks.release(blocks.take(2))
    assert is_known(6) and not is_known(5)
    assert known(7) > a  # a number is used once


def test_known_beginnings_are_found_and_counted(lm):
    ids = [int(i) for i in np.random.RandomState(5).randint(4, small.VOCABULARY, 50)]
    with Engine(lm) as engine:
        first = written(engine, [ids], [5])[0].ids
        assert engine.stats()["prefix_cache_queries"] == 50 and engine.stats()["prefix_cache_hits"] == 0
        assert written(engine, [ids], [5])[0].ids == first
        assert engine.stats()["prefix_cache_queries"] == 100 and engine.stats()["prefix_cache_hits"] == 48
        written(engine, [ids[:48]], [1])  # the last token is always computed
        assert engine.stats()["prefix_cache_hits"] == 48 + 32
        other = [4] + ids[1:]
        assert written(engine, [other], [5])[0].ids == list(lm.tokens(other, 5, GREEDY, stop_ids=())) and engine.stats()["prefix_cache_hits"] == 80
        # What was written counts, too: a conversation goes on.
        longer = ids + list(lm.tokens(ids, 20, GREEDY, stop_ids=()))
        written(engine, [ids], [20])
        hits = engine.stats()["prefix_cache_hits"]
        assert written(engine, [longer], [5])[0].ids == list(lm.tokens(longer, 5, GREEDY, stop_ids=())) and engine.stats()["prefix_cache_hits"] == hits + 64


def test_requests_of_one_step_share_their_beginning(lm):
    ids = [int(i) for i in np.random.RandomState(6).randint(4, small.VOCABULARY, 40)]
    prompts = [ids + [i] for i in range(4, 8)]
    with Engine(lm) as engine:
        got = [r.ids for r in written(engine, prompts, [6] * 4)]
        assert engine.stats()["prefix_cache_hits"] == 3 * 32
    assert got == [list(lm.tokens(p, 6, GREEDY, stop_ids=())) for p in prompts]


@pytest.mark.parametrize("options", [{}, {"batch_invariant": True}, {"max_num_batched_tokens": 24}], ids=str)
def test_preempted_requests_write_the_same(lm, mixed, options):
    prompts, counts, want = mixed
    with Engine(lm, kv_cache_bytes=cache_of(lm, 9), max_model_len=140, **options) as engine:
        assert [r.ids for r in written(engine, prompts, counts)] == want
        assert engine.stats()["preemptions_total"] > 0 and idle(engine)
        assert engine.stats()["prompt_tokens_total"] == sum(map(len, prompts))


def test_priority_and_order(lm):
    order = []
    with Engine(lm, max_num_seqs=1) as engine:
        received = [Received(lambda event, name=name: order.append(name) if isinstance(event, Finished) else None) for name in "abcd"]
        with engine._wake:
            for r, priority in zip(received, (1, 0, 1, -1)):
                engine.submit([5, 6], GREEDY, 2, priority=priority, stop_ids=(), receive=r)
        for r in received:
            r.wait()
    assert order == ["d", "b", "a", "c"]


def test_seconds_until_the_first_token(lm):
    begin = time.monotonic()
    with Engine(lm, max_num_seqs=1) as engine:
        with engine._wake:
            received = [Received() for _ in range(2)]
            for r in received:
                engine.submit(list(range(4, 24)), GREEDY, 3, stop_ids=(), receive=r)
            between = time.monotonic() - begin
        for r in received:
            r.wait()
    first, second = (r.events[0] for r in received)
    assert 0 <= first.queue_seconds and 0 < first.prefill_seconds
    assert second.queue_seconds + between >= first.queue_seconds + first.prefill_seconds  # there is one place
    assert second.queue_seconds + second.prefill_seconds <= time.monotonic() - begin
    assert all(e.queue_seconds is e.prefill_seconds is None for r in received for e in r.events[1:-1])


def test_an_engine_without_requests_sleeps(lm):
    waits, slept = [], threading.Event()
    with Engine(lm) as engine:
        wait = engine._wake.wait

        def noted(timeout=None):
            waits.append(timeout)
            slept.set()
            return wait(timeout)

        engine._wake.wait = noted
        for _ in range(3):
            slept.clear()
            written(engine, [[5, 6]], [2])
            assert slept.wait(60)
    assert waits == [None] * len(waits) and len(waits) <= 6  # it is woken by requests and not by a clock: once for each, and once for an end that has been delivered


def test_the_one_that_came_last_gives_up_its_blocks(lm):
    with Engine(lm, kv_cache_bytes=cache_of(lm, 4), max_model_len=60) as engine:
        first, late = [6] * 15, [7] * 31
        received = written(engine, [late, first], [30, 30], priority=0)
        assert engine.stats()["preemptions_total"] >= 1
        ends = [next(i for i, e in enumerate(r.events) if isinstance(e, Finished)) for r in received]
        assert ends[1] == 30 and ends[0] == 29  # max_model_len ends the longer one
        assert [r.ids for r in received] == [list(lm.tokens(p, n, GREEDY, stop_ids=())) for p, n in ((late, 29), (first, 30))]


# Cancellation and errors.


def test_random_cancellation_leaks_nothing(lm, mixed):
    prompts, counts, want = mixed
    rs = np.random.RandomState(3)
    with Engine(lm, max_num_seqs=4, max_num_batched_tokens=32, kv_cache_bytes=cache_of(lm, 17)) as engine:
        received, requests = [], {}

        def after(i, at):
            def cancel(event):
                if isinstance(event, Token) and len(received[i].ids) == at:
                    engine.cancel(requests[int(rs.randint(len(prompts)))])  # any of them: itself, one that waits, one that has ended
            return cancel

        received += [Received(after(i, int(rs.randint(1, 5)))) for i in range(len(prompts))]
        with engine._wake:
            for i, (p, n) in enumerate(zip(prompts, counts)):
                requests[i] = engine.submit(p, GREEDY, n, stop_ids=(), receive=received[i])
        for r in received:
            r.wait()
        reasons = [r.end.reason for r in received]
        assert "cancelled" in reasons and "length" in reasons and idle(engine)
        for r, ids, i in zip(received, want, range(len(prompts))):
            assert r.ids == ids[:len(r.ids)] and (r.end.reason == "cancelled" or r.ids == ids) and requests[i].finished is r.end
        # What is left in the cache is right.
        assert [r.ids for r in written(engine, prompts, counts)] == want


def test_cancellation_frees_within_a_step(lm):
    with Engine(lm) as engine:
        seen, used = [], []
        a = Received()

        def after(event):
            if isinstance(event, Token) and len(b.ids) == 2:
                engine.cancel(request)
            if isinstance(event, Token):
                used.append(engine._blocks.used)
                seen.append(len(a.ids))

        b = Received(after)
        with engine._wake:
            request = engine.submit([5] * 40, GREEDY, 200, stop_ids=(), receive=a)
            engine.submit([6] * 10, GREEDY, 6, stop_ids=(), receive=b)
        assert a.wait() == Finished("cancelled") and b.wait() == Finished("length")
        late = 1 if pf.get_device() != "cpu" else 0  # a GPU has begun the next step before the host sees a token
        assert len(a.ids) == 2 and used[:2 + late] == [4] * (2 + late) and used[2 + late:] == [1] * (4 - late) and seen[2:] == [2] * 4


def test_an_exception_in_receive_ends_that_request_alone(lm, caplog):
    def fails(event):
        raise KeyError("mine")

    with Engine(lm) as engine:
        bad, good = Received(fails), Received()
        with engine._wake:
            request = engine.submit([5, 6], GREEDY, 50, stop_ids=(), receive=bad)
            engine.submit([5, 7], GREEDY, 5, stop_ids=(), receive=good)
        assert good.wait() == Finished("length") and good.ids == list(lm.tokens([5, 7], 5, GREEDY, stop_ids=()))
        assert bad.wait() == Finished("cancelled", "receive() has failed: KeyError: 'mine'") and len(bad.ids) == 1 and request.finished == bad.end
        engine.close()
        assert "receive() has failed: KeyError: 'mine'" in caplog.text and idle(engine)


def test_wrong_logits_end_one_request(lm, monkeypatch):
    class Damaged(_engine_cache.Step):
        def chosen(self):
            parts = [p for p in self.parts if p.wanted]
            return [f._replace(highest=float("nan")) if p.ids[0] == 5 else f for f, p in zip(super().chosen(), parts)]

    monkeypatch.setattr(_engine_cache, "Step", Damaged)
    with Engine(lm) as engine:
        bad, good = written(engine, [[5], [6]], [4, 4])
        assert bad.end.reason == "error" and "the logits are not finite" in bad.end.error and good.end == Finished("length") and idle(engine)


def test_a_failed_step_ends_its_requests_and_nothing_else(lm, mixed, monkeypatch, caplog):
    prompts, counts, want = mixed
    failing = []

    def after(result):
        if failing and failing.pop():
            raise MemoryError("no memory")
        return result

    class Fails(_engine_cache.Step):
        def run(self):
            return after(super().run())

        def chosen(self):  # where the device finds the tokens
            return after(super().chosen())

    monkeypatch.setattr(_engine_cache, "Step", Fails)
    with Engine(lm, max_num_seqs=4, warm_up=False) as engine:
        written(engine, prompts[:2], counts[:2])
        failing.append(True)
        received = written(engine, prompts, counts)
        failed = [r for r in received if r.end == Finished("error", "MemoryError: no memory")]
        assert f"a step has failed, and with it {len(failed)} requests" in caplog.text and 'MemoryError("no memory")' in caplog.text  # and where it was raised
        assert 1 <= len(failed) <= 4 and all(r.ids == ids for r, ids in zip(received, want) if r not in failed) and idle(engine)
        assert [r.ids for r in written(engine, prompts, counts)] == want


def test_an_engine_that_cannot_go_on_says_so_to_all(lm, monkeypatch):
    class Fails(_engine_cache.Step):
        def chosen(self):
            monkeypatch.setattr(_engine_cache, "Pages", broken)
            raise RuntimeError("the device is lost")

    def broken(*args):
        raise MemoryError("nothing left")

    monkeypatch.setattr(_engine_cache, "Step", Fails)
    engine = Engine(lm, max_num_seqs=1, warm_up=False)
    a, b = written(engine, [[5], [6]], [2, 2])
    assert a.end == Finished("error", "RuntimeError: the device is lost") and b.end == Finished("error", "the engine has failed: MemoryError: nothing left")
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.submit([5], GREEDY, 1, receive=print)


def test_close(lm):
    engine = Engine(lm, max_num_seqs=2)
    received = [Received() for _ in range(5)]
    for r in received:
        engine.submit([5, 6], GREEDY, 5, stop_ids=(), receive=r)
    engine.close()
    assert all(r.wait() == Finished("length") and len(r.ids) == 5 for r in received) and not engine._thread.is_alive()
    with pytest.raises(RuntimeError, match=r"generate: the engine is closed; got a request after close\(\); expected it before"):
        engine.submit([5], GREEDY, 1, receive=print)
    engine.close()


def test_close_without_drain(lm):
    engine = Engine(lm, max_num_seqs=2)
    reached, closing = threading.Event(), threading.Event()
    received = [Received(lambda event: (reached.set(), closing.wait(60))) for _ in range(5)]
    for r in received:
        engine.submit([5, 6], GREEDY, 200, stop_ids=(), receive=r)
    assert reached.wait(60)
    with engine._wake:
        engine._closing = "drain"  # as if another thread was in close() already
    closer = threading.Thread(target=engine.close, kwargs={"drain": False})
    closer.start()
    with engine._wake:
        assert engine._wake.wait_for(lambda: engine._closing == "cancel", 60)
    closing.set()
    closer.join(60)
    ends = [r.wait() for r in received]
    assert Finished("cancelled", "the engine was closed before the text was complete") in ends and idle(engine) and not engine._thread.is_alive()


def test_an_engine_does_not_live_on_after_fork(lm):
    with Engine(lm) as engine:
        pid = os.fork()
        if pid == 0:
            try:
                engine.submit([5], GREEDY, 1, receive=print)
            except RuntimeError as e:
                os._exit(7 if str(e) == "generate: the engine has no thread here; got a process that fork() made; expected the one that made the engine; hint: make an engine after the fork" else 8)
            finally:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_close_by_an_event_and_by_an_error(lm):
    engine = Engine(lm)
    r = Received(lambda event: engine.close(drain=False))
    engine.submit([5, 6], GREEDY, 50, stop_ids=(), receive=r)
    assert r.wait().reason == "cancelled" and len(r.ids) <= 2  # a GPU has begun the step after the first token
    engine.close()
    with pytest.raises(ZeroDivisionError):
        with Engine(lm) as engine:
            1 / 0
    assert not engine._thread.is_alive()


def test_the_queue_has_a_limit(lm):
    with Engine(lm, max_num_seqs=1, max_waiting=2) as engine:
        received = [Received(), Received()]
        with engine._wake:
            for r in received:
                engine.submit([5], GREEDY, 1, stop_ids=(), receive=r)
            with pytest.raises(EngineFull, match="generate: the engine's queue is full; got 2 requests that wait; expected fewer than max_waiting; hint: try again later"):
                engine.submit([5], GREEDY, 1, stop_ids=(), receive=print)
        for r in received:
            r.wait()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_num_seqs": 0}, "Engine: max_num_seqs is out of range; got 0; expected a whole number from 1 upwards"),
        ({"max_num_batched_tokens": 2.0}, "Engine: max_num_batched_tokens is out of range; got 2.0"),
        ({"max_waiting": True}, "Engine: max_waiting is out of range; got True"),
        ({"max_num_batched_tokens": 4, "max_num_seqs": 8}, "Engine: a step has no room for all requests; got max_num_batched_tokens 4 and max_num_seqs 8; expected at least as many tokens"),
        ({"max_model_len": 257}, "Engine: max_model_len is out of range; got 257; expected at most the model's context of 256"),
        ({"kv_cache_bytes": 1000}, "Engine: the cache is too small; got kv_cache_bytes 1000; expected at least 32768 for one text of 16 tokens"),
        ({"kv_cache_bytes": 50000, "max_model_len": 64}, "Engine: the cache is too small; got kv_cache_bytes 50000; expected at least 81920 for one text of 64 tokens"),
    ],
)
def test_wrong_engines(lm, options, message):
    with pytest.raises(ValueError) as e:
        Engine(lm, **options)
    assert str(e.value).startswith(message)


def test_wrong_requests(lm):
    with Engine(lm, max_model_len=40, warm_up=False) as engine:
        cases = [
            ((([5] * 41),), {}, ValueError, "generate: too many tokens; got 41; expected at most the engine's max_model_len of 40"),
            (([5] * 257,), {}, ValueError, "generate: too many tokens; got 257; expected at most the model's context of 256"),
            (([],), {}, ValueError, "generate: there are no tokens"),
            (([small.VOCABULARY],), {}, ValueError, "generate: a token is not in the vocabulary"),
            (([1.5],), {}, TypeError, "generate: these are no tokens"),
            (([5], GREEDY, -1), {}, ValueError, "generate: max_tokens is out of range; got -1"),
            (([5],), {"logprobs": 21}, ValueError, "generate: logprobs is out of range; got 21; expected None or a whole number from 0 to 20"),
            (([5],), {"priority": "x"}, ValueError, "generate: priority is no whole number; got 'x'"),
            (([5], {"temperature": 0}), {}, TypeError, "generate: sampling is of the wrong type; got dict; expected a Sampling"),
            (([5],), {"receive": 3}, TypeError, "generate: receive cannot be called; got 3"),
            (([5], Sampling(logit_bias={small.VOCABULARY: 1})), {}, ValueError, f"generate: logit_bias has a token that is not in the vocabulary; got {small.VOCABULARY}; expected 0 to"),
        ]
        for args, options, kind, message in cases:
            with pytest.raises(kind) as e:
                engine.submit(*args, **{"receive": print, **options})
            assert str(e.value).startswith(message)
        assert idle(engine)


def test_a_small_cache_limits_the_length(lm):
    with Engine(lm, kv_cache_bytes=cache_of(lm, 2)) as engine:
        assert engine.max_model_len == 32
        assert written(engine, [[5] * 30], [10])[0].ids == list(lm.tokens([5] * 30, 2, GREEDY, stop_ids=()))


def test_numbers_of_rows():
    sizes = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512]
    assert [_paged.rounded(n) for n in range(1, 513)] == [min(s for s in sizes if s >= n) for n in range(1, 513)]


# Passes that begin before the tokens of the one before are known. GPUs do so.


def test_a_step_looks_at_no_request_that_goes_on_waiting(lm, monkeypatch):
    seen, each = [], Queue.__iter__
    monkeypatch.setattr(Queue, "__iter__", lambda self: (seen.append(r) or r for r in each(self)))
    with Engine(lm, max_num_seqs=1, warm_up=False) as engine:
        received = written(engine, [[5, 6 + i] for i in range(6)], [3, 0, 3, 3, 0, 3])
        assert [len(r.ids) for r in received] == [3, 0, 3, 3, 0, 3] and not engine._ending and idle(engine)
    assert seen == []


def test_what_was_cancelled_after_its_end_is_not_kept(lm):
    received = Received()
    with Engine(lm, warm_up=False) as engine:
        request = engine.submit([5, 6], GREEDY, 2, stop_ids=(), receive=received)
        assert received.wait() == Finished("length")
        engine.cancel(request)
        assert not engine._ending


@pytest.fixture
def ahead(monkeypatch):
    """How many passes began so, in a list of one number."""
    count, begin = [0], Engine._begin

    def counted(self, parts, found=None):
        count[0] += found is not None
        return begin(self, parts, found)

    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: True)
    monkeypatch.setattr(Engine, "_begin", counted)
    return count


@pytest.mark.parametrize("options", [{}, {"max_num_seqs": 3}, {"batch_invariant": True, "max_num_batched_tokens": 16}], ids=str)
def test_passes_ahead_write_the_same(lm, mixed, ahead, options):
    prompts, counts, want = mixed
    with Engine(lm, **options) as engine:
        assert [r.ids for r in written(engine, prompts, counts)] == want
        assert idle(engine) and engine.stats()["generation_tokens_total"] == sum(counts)
    assert ahead[0] > 5


def warmed_up(engine):
    """Whether the engine has computed all steps that it warms up with."""
    for _ in range(6000):
        if not engine._warm_up.left:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("warm_up", [True, False])
def test_after_warming_up_no_writing_step_plans_a_program(lm, mixed, ahead, monkeypatch, warm_up):
    """The texts end one after the other, and the blocks of the last ones are more than those of the smallest table."""
    planned, begin = [0], Engine._begin

    def counted(self, parts, found=None):
        before = pf.program_cache_stats()["ops"]
        step = begin(self, parts, found)
        if all(len(p.ids) == 1 for _, p in parts):
            planned[0] += pf.program_cache_stats()["ops"] - before > 10  # fewer: what the tokens of a step with a prompt become
        return step

    pf.clear_program_cache()
    with Engine(lm, max_num_seqs=6, warm_up=warm_up) as engine:
        assert warmed_up(engine)
        monkeypatch.setattr(Engine, "_begin", counted)
        counts = [38 * (i + 1) for i in range(6)]
        got = [r.ids for r in written(engine, [[7 + i, 9] for i in range(6)], counts)]
    assert (planned[0] == 0) is warm_up
    assert got == [list(lm.tokens([7 + i, 9], count, GREEDY, stop_ids=())) for i, count in enumerate(counts)]


def test_what_warms_up_are_all_sizes_of_writing_steps(lm, ahead):
    sizes = _engine_warm_up.sizes_of(Engine(lm, max_num_seqs=5, max_model_len=150))
    rows, widths = (sorted({size[i] for size in sizes if not size.read}) for i in range(2))
    assert rows == [1, 2, 3, 4, 6] and widths == [8, 16]


@pytest.mark.parametrize("warm_up", [True, False])
def test_steps_that_read_long_prompts_are_warmed_up(lm, ahead, monkeypatch, warm_up):
    """Prompts are read alone and while up to five texts are written, with the whole budget of a step. What is alive when a window ends may differ once, which is another program."""
    planned, sizes, begin = [], set(), Engine._begin

    def noted(self, parts, found=None):
        before = pf.program_cache_stats()["ops"]
        step = begin(self, parts, found)
        readers = [p for _, p in parts if len(p.ids) > 1]
        # How many prompts are read beside each other depends on when they come: these are the steps of one long prompt, or of the end of one and the begin of the next.
        if sum(len(p.ids) for _, p in parts) == 32 and sum(len(p.table()) for p in readers) <= 32 and all(p.wanted for _, p in parts if len(p.ids) == 1):
            singles = step[1]._singles
            sizes.add(_paged.Size(step[1].rows, 0 if singles is None else singles.table.shape[1], step[1]._packed.count, step[1].wanted > 0))
            planned.append(pf.program_cache_stats()["ops"] - before > 10)  # fewer: what the tokens of a step become
        return step

    pf.clear_program_cache()
    with Engine(lm, max_num_seqs=6, max_num_batched_tokens=32, warm_up=warm_up) as engine:
        warms = set(_engine_warm_up.sizes_of(engine) if warm_up else ())
        assert warmed_up(engine)
        monkeypatch.setattr(Engine, "_begin", noted)
        prompts = [[7 + i % 40 for i in range(n)] for n in (150, 2, 3, 190, 120, 200)]
        got = [r.ids for r in written(engine, prompts, [60, 40, 50, 20, 30, 10])]
    assert len(sizes) >= 3 and (sizes <= warms if warm_up else not warms)
    least = 1 if os.environ.get("PYFLAME_WINDOW") == "1" else 3  # then each op is a program, and steps share most of them
    assert sum(planned) <= 1 if warm_up else sum(planned) >= least
    assert got == [list(lm.tokens(p, n, GREEDY, stop_ids=())) for p, n in zip(prompts, [60, 40, 50, 20, 30, 10])]


def test_a_whole_prompt_is_not_what_warms_up(lm, ahead, monkeypatch):
    """On a GPU, a long prompt alone has a program of its own, which takes longer than to plan it. The size is warmed up with two parts, which have as many tokens and blocks."""
    engine = Engine(lm, max_num_seqs=5, max_model_len=150)
    size = _paged.Size(160, 0, 9, True)
    (only,) = _engine_warm_up.WarmUp._prompts(engine, size, size.rows)
    monkeypatch.setattr(_engine_warm_up, "whole_prompt", lambda device, parts: len(parts) == 1)
    parts = _engine_warm_up.WarmUp._prompts(engine, size, size.rows)
    assert [p.wanted for p in parts] == [False, True] and all(p.begin == 0 and len(p.ids) <= len(p.blocks) * _paged.BLOCK for p in parts)
    assert sum(len(p.ids) for p in parts) == len(only.ids) and sum(len(p.blocks) for p in parts) == len(only.blocks)


def test_a_failure_while_the_engine_warms_up_ends_no_request(lm, ahead, monkeypatch):
    monkeypatch.setattr(_engine_warm_up.WarmUp, "_compute", lambda self, *size: 1 / 0)
    with Engine(lm) as engine:
        assert warmed_up(engine)
        (received,) = written(engine, [[7, 8, 9]], [3])
    assert received.ids == list(lm.tokens([7, 8, 9], 3, GREEDY, stop_ids=()))


def test_prompts_are_read_in_passes_ahead(lm, mixed, ahead, monkeypatch):
    """Their parts, and the first parts of requests that waited, are in passes that begin before the tokens of the one before are known."""
    prompts, counts, want = mixed
    plan, planned = Engine._plan_ahead, []

    def noted(self, now):
        before = len(self._waiting)
        parts = plan(self, now)
        planned.extend((p.after is not None, p.begin > 0, before - len(self._waiting)) for _, p in parts or ())
        return parts

    monkeypatch.setattr(Engine, "_plan_ahead", noted)
    with Engine(lm, max_num_seqs=4, max_num_batched_tokens=24) as engine:
        assert [r.ids for r in written(engine, prompts, counts)] == want and idle(engine)
        assert engine.stats()["generation_tokens_total"] == sum(counts)
    assert (False, True, 0) in planned and any(admitted for _, _, admitted in planned) and ahead[0] > 20


def test_a_prompt_alone_is_read_in_passes_ahead(lm, ahead, monkeypatch):
    """No pass finds a token, so each can begin without the one before."""
    begun, begin = [], Engine._begin
    monkeypatch.setattr(Engine, "_begin", lambda self, parts, found=None: begun.append(found) or begin(self, parts, found))
    prompt = [5 + i % 40 for i in range(100)]
    with Engine(lm, max_num_batched_tokens=16) as engine:
        (received,) = written(engine, [prompt], [3])
    assert received.ids == list(lm.tokens(prompt, 3, GREEDY, stop_ids=()))
    assert [f is None for f in begun] == [True] * 7 + [False] * 2


@pytest.mark.parametrize("seed", range(3))
def test_passes_ahead_beside_requests_that_draw(lm, mixed, ahead, seed):
    """Requests whose tokens only the host can choose come between greedy ones, and some are cancelled: each text is the one that its request writes alone."""
    prompts, counts, _ = mixed
    rs = np.random.RandomState(seed)
    samplings = [Sampling(temperature=0.8, seed=i) if rs.rand() < 0.3 else GREEDY for i in range(len(prompts))]
    with Engine(lm) as engine:
        want = [written(engine, [p], [n], s)[0].ids for p, n, s in zip(prompts, counts, samplings)]
    with Engine(lm, max_num_seqs=3, max_num_batched_tokens=20, kv_cache_bytes=cache_of(lm, 25), max_model_len=160) as engine:
        requests, received = {}, []

        def after(i, victim, at):
            return lambda event: isinstance(event, Token) and len(received[i].ids) == at and engine.cancel(requests[victim])

        for i in range(len(prompts)):
            received.append(Received(after(i, int(rs.randint(len(prompts))), int(rs.randint(1, 12)))))
        with engine._wake:
            for i, (p, n, s) in enumerate(zip(prompts, counts, samplings)):
                requests[i] = engine.submit(p, s, n, stop_ids=(), receive=received[i], priority=int(rs.randint(2)))
        ends = [r.wait().reason for r in received]
        assert [r.ids for r, end in zip(received, ends) if end == "length"] == [ids for ids, end in zip(want, ends) if end == "length"]
        assert all(r.ids == ids[: len(r.ids)] for r, ids in zip(received, want)) and idle(engine)
    assert ahead[0] > 0


def test_passes_ahead_after_a_prompts_part_of_one_token(lm, ahead, monkeypatch):
    """With batch_invariant, such a part is a pass of one row, and the next pass has the rows of a full batch."""
    prompts = [[5 + i % 40 for i in range(n)] for n in (1, 16, 17, 33)]
    with Engine(lm, batch_invariant=True, max_num_batched_tokens=16) as engine:
        got = [written(engine, [p], [6])[0].ids for p in prompts]
    assert ahead[0] > 5
    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: False)
    with Engine(lm, batch_invariant=True, max_num_batched_tokens=16) as engine:
        assert got == [written(engine, [p], [6])[0].ids for p in prompts]


def test_passes_ahead_with_few_blocks(lm, mixed, ahead):
    prompts, counts, want = mixed
    with Engine(lm, kv_cache_bytes=cache_of(lm, 12), max_model_len=160) as engine:
        assert [r.ids for r in written(engine, prompts, counts)] == want and idle(engine)
    assert ahead[0] > 0


def test_a_text_that_ends_while_the_next_pass_runs(lm, ahead):
    prompt = list(range(5, 25))
    want = list(lm.tokens(prompt, 30, GREEDY, stop_ids=()))
    stop = want[20]
    first, other = Received(), Received()
    with Engine(lm) as engine:
        with engine._wake:
            engine.submit(prompt, GREEDY, 30, stop_ids=(stop,), receive=first)
            engine.submit(prompt[::-1], GREEDY, 30, stop_ids=(), receive=other)
        assert first.wait() == Finished("stop") and first.ids == want[: want.index(stop)]
        assert other.wait() == Finished("length") and other.ids == list(lm.tokens(prompt[::-1], 30, GREEDY, stop_ids=()))
        assert idle(engine)
        # What it has written is found again: a new request with it writes the same.
        again = written(engine, [prompt + first.ids], [5])[0]
        assert again.ids == list(lm.tokens(prompt + first.ids, 5, GREEDY, stop_ids=()))
        assert want.index(stop) < 12 or engine.stats()["prefix_cache_hits"] >= 32
    assert ahead[0] > 0


def test_a_pass_ahead_that_fails(lm, ahead, monkeypatch):
    """The tokens of the pass before it are right, so they are delivered; then the requests end with the error, and the engine goes on."""
    begin, left = Engine._begin, [4]

    def failing(self, parts, found=None):
        left[0] -= found is not None
        if left[0] == 0:
            left[0] = -1
            raise RuntimeError("no memory")
        return begin(self, parts, found)

    want = list(lm.tokens([5, 6, 7], 20, GREEDY, stop_ids=()))
    with Engine(lm) as engine:
        monkeypatch.setattr(Engine, "_begin", failing)
        received = written(engine, [[5, 6, 7]], [20])[0]
        assert received.end == Finished("error", "RuntimeError: no memory") and received.ids == want[:4]
        assert [r.ids for r in written(engine, [[5, 6, 7]], [20])] == [want] and idle(engine)


def test_a_cancelled_request_has_no_pass_ahead_for_long(lm, ahead):
    received, request = Received(), None

    def cancel(event):
        if isinstance(event, Token) and len(received.ids) == 3:
            engine.cancel(request)

    received.after = cancel
    with Engine(lm) as engine:
        with engine._wake:
            request = engine.submit([5, 6, 7], GREEDY, 50, stop_ids=(), receive=received)
        assert received.wait().reason == "cancelled" and len(received.ids) == 3
        assert written(engine, [[5, 6]], [4])[0].ids == list(lm.tokens([5, 6], 4, GREEDY, stop_ids=())) and idle(engine)


@pytest.mark.parametrize("how", ["cancelled", "without tokens"])
def test_a_waiting_request_ends_while_passes_begin_ahead(lm, ahead, how):
    """All places are taken, so passes could follow each other until a text ends; a request that waits and shall end does not wait for that."""
    writing, waiting, written_then = Received(), Received(), []

    def token(event):
        if isinstance(event, Token) and len(writing.ids) == 5:
            if how == "cancelled":
                engine.cancel(request)
            else:
                engine.submit([5, 6], GREEDY, 0, stop_ids=(), receive=waiting)

    writing.after = token
    waiting.after = lambda event: written_then.append(len(writing.ids))
    with Engine(lm, max_num_seqs=1) as engine:
        with engine._wake:
            engine.submit([5, 6, 7], GREEDY, 40, stop_ids=(), receive=writing)
            if how == "cancelled":
                request = engine.submit([5, 6], GREEDY, 40, stop_ids=(), receive=waiting)
        assert waiting.wait().reason == ("cancelled" if how == "cancelled" else "length")
        assert writing.wait() == Finished("length") and len(writing.ids) == 40
    assert written_then[0] <= 7 and ahead[0] > 20  # the pass that gave the fifth token, and the one that had begun


# Tokens that a device draws by temperature, top_k, top_p and min_p.


DRAWN = [Sampling(temperature=0.9, seed=3), Sampling(temperature=1.2, top_k=9, seed=4), Sampling(temperature=1, top_p=0.8, seed=5), Sampling(temperature=1, min_p=0.2, seed=6), GREEDY]


def test_a_device_draws_the_same_in_any_batch(lm, mixed, ahead):
    prompts, counts, _ = mixed
    samplings = [DRAWN[i % len(DRAWN)] for i in range(len(prompts))]
    with Engine(lm) as engine:
        want = [written(engine, [p], [n], s)[0].ids for p, n, s in zip(prompts, counts, samplings)]
    passes = ahead[0]
    with Engine(lm, max_num_seqs=4, max_num_batched_tokens=24, kv_cache_bytes=cache_of(lm, 30), max_model_len=160) as engine:
        received = [Received() for _ in prompts]
        with engine._wake:
            for r, p, n, s in zip(received, prompts, counts, samplings):
                engine.submit(p, s, n, stop_ids=(), receive=r)
        assert all(r.wait() == Finished("length") for r in received) and idle(engine)
    assert [r.ids for r in received] == want
    assert passes > 5 and ahead[0] > passes + 5  # nobody waits for the host
    assert all(ids == list(lm.tokens(p, n, GREEDY, stop_ids=())) for p, n, s, ids in zip(prompts, counts, samplings, want) if s is GREEDY)


def test_requests_of_all_settings_in_one_batch(lm, mixed, ahead):
    """Penalties, biases, min_tokens and log probabilities are computed beside the others' tokens, and no step waits for the host."""
    prompts, counts, _ = mixed
    options = [({"sampling": Sampling(temperature=0.9, seed=1)}, {}), ({"sampling": Sampling(temperature=0.9, seed=1)}, {"logprobs": 2}), ({"sampling": GREEDY}, {}),
               ({"sampling": Sampling(temperature=0.7, frequency_penalty=0.5, seed=2)}, {}), ({"sampling": GREEDY}, {"logprobs": 1}),
               ({"sampling": Sampling(temperature=0, repetition_penalty=1.4, presence_penalty=-0.5)}, {"logprobs": 20}),
               ({"sampling": Sampling(temperature=1.1, top_k=30, repetition_penalty=0.9, logit_bias={5: 3.0, 77: -100}, seed=3)}, {}), ({"sampling": Sampling(temperature=0, min_tokens=9)}, {"logprobs": 0})]
    chosen = [options[i % len(options)] for i in range(len(prompts))]
    with Engine(lm) as engine:
        want = [written(engine, [p], [n], o["sampling"], **more)[0] for p, n, (o, more) in zip(prompts, counts, chosen)]
        received = [Received() for _ in prompts]
        with engine._wake:
            for r, p, n, (o, more) in zip(received, prompts, counts, chosen):
                engine.submit(p, o["sampling"], n, stop_ids=(), receive=r, **more)
        assert all(r.wait() == Finished("length") for r in received)
    assert [r.ids for r in received] == [w.ids for w in want] and ahead[0] > 20
    for r, w, (_, more) in zip(received, want, chosen):
        for a, b in zip(r.events[:-1], w.events[:-1]):
            assert (a.logprob is None) == (not more) and (not more or (abs(a.logprob - b.logprob) < 1e-4 and len(a.top) == more["logprobs"]))
    assert [w.ids for w in want] == [list(lm.tokens(p, n, o["sampling"], stop_ids=())) for p, n, (o, _) in zip(prompts, counts, chosen)]


@pytest.mark.parametrize("settings", [{"frequency_penalty": 2.0}, {"presence_penalty": 2.0, "frequency_penalty": -1.0}, {"repetition_penalty": 3.0}, {"logit_bias": {9: 4.0}, "frequency_penalty": 0.5}], ids=str)
def test_penalties_of_tokens_that_only_the_device_knows(lm, ahead, settings):
    """The texts are those of a model alone, whose host sees each token before the next one, and those by the probabilities of the host."""
    prompts = [[5, 9, 13, 20], [7], [30, 30, 30]]
    sampling = Sampling(temperature=0, **settings)
    with Engine(lm) as engine:
        got = [r.ids for r in written(engine, prompts, [30] * 3, sampling)]
    assert ahead[0] > 20 and got == [list(lm.tokens(p, 30, sampling, stop_ids=())) for p in prompts]
    ids = list(prompts[0])
    for id in got[0][:8]:
        assert id == Sampler(sampling).probabilities(lm.logits(ids).numpy()[-1], ids, 4)[0][0]
        ids.append(id)


def test_a_model_alone_draws_what_an_engine_draws(lm):
    prompt = [5, 9, 13, 20]
    with Engine(lm) as engine:
        for sampling in DRAWN:
            assert list(lm.tokens(prompt, 20, sampling, stop_ids=())) == written(engine, [prompt], [20], sampling)[0].ids


def test_a_gpu_gives_keys_and_values_three_quarters_of_its_free_memory(lm, monkeypatch):
    """The default of kv_cache_bytes: 1 GiB on a CPU. On a GPU, what is free there counts, and what the process keeps for reuse; a limit of its memory counts, too."""
    room = {"free": 100 << 30, "cached": 4 << 30, "allocated": 16 << 30, "limit": 0}
    monkeypatch.setattr(_engine_cache.memory, "stats", lambda device: room)
    assert _engine_cache.default_cache_bytes(pf.device("cpu")) == 1 << 30
    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: True)
    assert _engine_cache.default_cache_bytes(pf.device("cpu")) == 78 << 30
    room["limit"] = 24 << 30
    assert _engine_cache.default_cache_bytes(pf.device("cpu")) == 6 << 30
    room["limit"] = 16 << 30  # nothing is left: the smallest cache is tried, and the allocation says why it fails
    assert _engine_cache.default_cache_bytes(pf.device("cpu")) == 1 << 30


def test_a_gpu_writes_more_texts_at_a_time(lm, monkeypatch):
    def texts(**options):
        with Engine(lm, **options) as engine:
            return engine.max_num_seqs

    assert (engines.default_texts(pf.device("cpu")), engines.default_texts("rocm:0")) == (8, 64)
    monkeypatch.setattr(engines, "default_texts", lambda device: 64)
    assert texts() == 64 and texts(max_num_seqs=3) == 3
    assert texts(max_num_batched_tokens=20) == 20  # a step has a token for each


def test_a_gpu_takes_texts_as_long_as_its_memory_allows(lm, monkeypatch, caplog):
    """Unless max_model_len asks for longer ones, which is an error where the memory is allocated."""
    monkeypatch.setattr(_engine_cache, "default_cache_bytes", lambda device: 5 * _paged.block_bytes(lm._network))
    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: False)
    with Engine(lm, warm_up=False) as engine:
        assert engine.max_model_len == 256  # the model's context, on a CPU
    monkeypatch.setattr(_engine_cache, "_on_gpu", lambda device: True)
    with caplog.at_level("INFO", "pyflame.llm"), Engine(lm, max_num_seqs=2, warm_up=False) as engine:
        assert engine.max_model_len == 80 and "texts have at most 80 tokens" in caplog.text and "the model's context is 256" in caplog.text
        assert written(engine, [[5, 6]], [200])[0].end == Finished("length")
    with Engine(lm, max_num_seqs=2, max_model_len=200, warm_up=False) as engine:
        assert engine.max_model_len == 200
