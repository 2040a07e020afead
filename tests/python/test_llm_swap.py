"""swap_space: the keys and values of preempted requests, and of known beginnings that are evicted, go to host memory and come back; the texts stay the same."""
import threading

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import Engine, Finished, Sampling  # noqa: E402
from pyflame.llm import _engine_cache, _paged  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

BLOCK = _paged.BLOCK
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


@pytest.fixture(scope="module")
def texts(lm):
    """Prompts, and what the model writes for each alone."""
    rs = np.random.RandomState(1)
    prompts = [[int(i) for i in rs.randint(4, small.VOCABULARY, n)] for n in (40, 33, 20, 31, 5)]
    return prompts, [list(lm.tokens(p, 40, GREEDY, stop_ids=())) for p in prompts]


def cache_of(lm, blocks):
    return (blocks + 1) * _paged.block_bytes(lm._network)


def gib(lm, blocks):
    return blocks * _paged.block_bytes(lm._network) / (1 << 30)


def is_free(engine):
    with engine._wake:
        return not engine._running and not engine._waiting and not engine._blocks.used and engine._swap_blocks == engine._swap_count


class Computed:
    """Counts the tokens that the engine's steps compute."""

    def __init__(self, monkeypatch):
        self.tokens, step = 0, _engine_cache.Step

        def counted(network, pages, parts, *args):
            self.tokens += sum(len(p.ids) for p in parts)
            return step(network, pages, parts, *args)

        monkeypatch.setattr(_engine_cache, "Step", counted)


def written(engine, prompts, tokens=40):
    ended, events = [threading.Event() for _ in prompts], [[] for _ in prompts]
    with engine._wake:
        for done, seen, p in zip(ended, events, prompts):
            engine.submit(p, GREEDY, tokens, stop_ids=(), receive=lambda e, d=done, s=seen: (s.append(e), d.set() if isinstance(e, Finished) else None))
    assert all(e.wait(60) for e in ended)
    return [[e.id for e in seen[:-1]] for seen in events]


@pytest.mark.parametrize("options", [{}, {"batch_invariant": True}, {"speculative_config": {"num_speculative_tokens": 3}}], ids=str)
def test_preempted_texts_come_back_from_host_memory(lm, texts, monkeypatch, options):
    prompts, want = texts
    counts = {}
    for blocks in (0, 3, 100):  # none; too few for all that is preempted; enough
        with monkeypatch.context() as patch:
            with Engine(lm, kv_cache_bytes=cache_of(lm, 9), swap_space=gib(lm, blocks), **options) as engine:
                computed = Computed(patch)
                assert written(engine, prompts) == want
                stats = engine.stats()
            assert stats["preemptions_total"] > 0 and is_free(engine)
            counts[blocks] = computed.tokens
            if not blocks:
                assert "cpu_cache_usage" not in stats
            else:
                assert stats["cpu_cache_usage"] == 0 and 0 < stats["swapped_in_tokens_total"] <= stats["swapped_out_tokens_total"]
    if not options:
        everything = sum(len(p) + len(w) - 1 for p, w in zip(prompts, want))
        assert counts[100] == everything < counts[0]  # nothing is computed twice


def test_a_block_is_copied_to_host_memory_once(lm, texts, monkeypatch):
    """Known blocks of a text that is preempted are copied when they are evicted, and not before. The copies here are those until a text comes back."""
    prompts, want = texts
    copied, has_come_back, saved, restore = [], [], _paged.Pages.saved, _paged.Pages.restore

    def noted(pages, blocks):
        if not has_come_back:
            copied.extend(pages.keys[-1].reshape(pages.keys[-1].shape[0] // BLOCK, -1)[block].numpy().tobytes() for block in blocks)
        return saved(pages, blocks)

    monkeypatch.setattr(_paged.Pages, "saved", noted)
    monkeypatch.setattr(_paged.Pages, "restore", lambda *args: has_come_back.append(1) or restore(*args))
    with Engine(lm, kv_cache_bytes=cache_of(lm, 9), swap_space=gib(lm, 100), warm_up=False) as engine:
        assert written(engine, prompts) == want and engine.stats()["preemptions_total"] > 0
    copies, blocks = len(copied), len(set(copied))
    assert has_come_back and copies == blocks > 2


@pytest.mark.parametrize("blocks", [8, 12])
def test_what_a_preempted_text_needs_is_not_dropped(tmp_path, monkeypatch, blocks):
    """A text is preempted. While it waits, others end and leave the device. They make room in host memory for its blocks, so that nothing is computed twice."""
    model = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3, max_position_embeddings=256))
    rs, computed, shares, ended, seen = np.random.RandomState(1), Computed(monkeypatch), [], threading.Semaphore(0), []
    with Engine(model, max_num_seqs=2, kv_cache_bytes=cache_of(model, 12), swap_space=gib(model, blocks), warm_up=False) as engine:
        sizes = [(33, 155), *[(40, 8)] * 6]

        def receive(event):
            shares.append(engine.stats()["cpu_cache_usage"])
            if isinstance(event, Finished):
                ended.release()

        def first(event):
            seen.append(event)
            if len(seen) == 5:
                for length, tokens in sizes:
                    engine.submit([int(i) for i in rs.randint(4, 60, length)], GREEDY, tokens, stop_ids=(), receive=receive)
            receive(event)

        engine.submit([int(i) for i in rs.randint(4, 60, 100)], GREEDY, 80, stop_ids=(), priority=1, receive=first)
        assert all(ended.acquire(timeout=60) for _ in range(7))
        stats = engine.stats()
    assert len(seen) == 81 and stats["preemptions_total"] > 0 and is_free(engine)
    assert computed.tokens == sum(length + tokens - 1 for length, tokens in [(100, 80), *sizes])
    assert 0.5 < max(shares) <= 1 and stats["cpu_cache_usage"] == 0


def test_cancelled_and_failed_texts_free_host_memory(lm, texts, monkeypatch):
    prompts, want = texts
    with Engine(lm, kv_cache_bytes=cache_of(lm, 9), swap_space=gib(lm, 100)) as engine:
        requests, swapped, done = [], [], [threading.Event() for _ in prompts]

        def receive(i, event):
            if isinstance(event, Finished):
                done[i].set()
            else:
                if not swapped and engine.stats()["cpu_cache_usage"] > 0:
                    swapped.append(sum(r._swapped is not None for r in requests))
                    for r in requests:
                        engine.cancel(r)

        with engine._wake:
            for i, p in enumerate(prompts):
                requests.append(engine.submit(p, GREEDY, 40, stop_ids=(), receive=lambda e, i=i: receive(i, e)))
        assert all(d.wait(60) for d in done) and swapped[0] > 0
        assert "cancelled" in {r.finished.reason for r in requests} and engine.stats()["cpu_cache_usage"] == 0 and not engine._blocks._needed
        # A step fails while a text is in host memory: what is there is right.
        failed = []

        def breaking(function):
            def breaks(step):
                with engine._wake:
                    if not failed and engine.stats()["cpu_cache_usage"] > 0:
                        failed.append(1)
                        raise MemoryError("no memory")
                return function(step)

            return breaks

        for name in ("run", "chosen"):  # chosen: where a GPU chooses the tokens
            monkeypatch.setattr(_engine_cache.Step, name, breaking(getattr(_engine_cache.Step, name)))
        got = written(engine, prompts)
        assert failed and all(g == w or w[: len(g)] == g for g, w in zip(got, want)) and want[-1] == got[-1]
    assert is_free(engine)


@pytest.mark.parametrize("options", [{}, {"batch_invariant": True, "max_num_batched_tokens": 16}, {"kv_cache_dtype": "int8", "kv_cache_gate": None}, {"speculative_config": {"num_speculative_tokens": 3}}], ids=str)
def test_known_beginnings_come_back_from_host_memory(lm, monkeypatch, options):
    rs = np.random.RandomState(4)
    conversations = [[int(i) for i in rs.randint(4, small.VOCABULARY, 70)] for _ in range(4)]
    nbytes = _paged.block_bytes(lm._network, options.get("kv_cache_dtype", "auto"))
    found = {}
    for blocks in (0, 3, 100):  # none; too few for a conversation; enough
        with monkeypatch.context() as patch:
            with Engine(lm, kv_cache_bytes=10 * nbytes, swap_space=blocks * nbytes / (1 << 30), warm_up=False, **options) as engine:
                first = [written(engine, [c], 20)[0] for c in conversations]
                hits, computed = engine.stats()["prefix_cache_hits"], Computed(patch)
                again = [written(engine, [c + f], 20)[0] for c, f in reversed([*zip(conversations, first)])]  # the last one's beginning was not evicted yet
                stats = engine.stats()
            assert hits == 0 and is_free(engine) and engine._blocks.saved_count <= blocks
            found[blocks] = first, again, computed.tokens, stats
    assert found[0][:2] == found[3][:2] == found[100][:2]
    assert "cpu_prefix_cache_hits" not in found[0][3]
    few, enough = found[3][3], found[100][3]
    assert 0 < few["cpu_prefix_cache_hits"] < enough["cpu_prefix_cache_hits"] <= enough["prefix_cache_hits"] and enough["cpu_cache_usage"] == 0
    assert found[100][2] < found[3][2] < found[0][2]  # tokens that were computed again
    if not options:  # 89 tokens are known of each, in full blocks 80: the last one that was written is not read
        assert found[0][3]["prefix_cache_hits"] < enough["prefix_cache_hits"] == 4 * 80


def test_copies_that_fail(lm, texts, monkeypatch, caplog):
    """What cannot be copied is computed again, and nobody waits for ever."""
    prompts, want = texts
    saved, restore = _paged.Pages.saved, _paged.Pages.restore

    def fails(*_):
        raise MemoryError("no memory for a copy")

    with Engine(lm, kv_cache_bytes=cache_of(lm, 9), swap_space=gib(lm, 100)) as engine:
        monkeypatch.setattr(_paged.Pages, "saved", fails)
        assert written(engine, prompts) == want and engine.stats()["swapped_out_tokens_total"] == 0 and engine.stats()["preemptions_total"] > 0
        assert "could not be copied to host memory: no memory for a copy" in caplog.text
        monkeypatch.setattr(_paged.Pages, "saved", saved)
        failures = []

        def fails_first(*arguments):
            if len(failures) < 3 and len(failures) % 2 == 0:  # not twice in a row
                failures.append(1)
                fails()
            failures.append(0)
            restore(*arguments)

        monkeypatch.setattr(_paged.Pages, "restore", fails_first)
        assert written(engine, prompts) == want and sum(failures) == 2
    assert is_free(engine)


@pytest.mark.parametrize("value", [-1, True, "4", float("nan")])
def test_swap_space_out_of_range(lm, value):
    with pytest.raises(ValueError, match=f"Engine: swap_space is out of range; got {value!r}; expected a number of GiB from 0 upwards"):
        pf.llm.LLM(lm, swap_space=value)
