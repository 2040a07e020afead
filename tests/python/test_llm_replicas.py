"""`pyflame serve --replicas`: which engine a request goes to, what happens when one ends, what the metrics say, and that no process is left behind."""
import logging
import os
import re
import signal
import threading

import pytest

import pyflame as pf

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
from llm_client import CHAT, COMPLETE, HELLO, Running, until  # noqa: E402
from pyflame.llm import Engine, Finished, Sampling, Token  # noqa: E402
from pyflame.llm.serving import __main__ as command  # noqa: E402
from pyflame.llm.serving import _replicas  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402
from test_llm_serve_program import Program  # noqa: E402
from test_llm_tensor_parallel import is_gone  # noqa: E402

IN_ONE_PROCESS = "each test starts processes of its own; side by side they would wait for each other"
GREEDY = Sampling(temperature=0)
LONG = 1 << 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("replicas"), seed=3, max_position_embeddings=LONG)


def two(folder):
    made = _replicas.Replicas(folder, 2, threads=1, max_num_seqs=4, max_model_len=40000)
    yield made
    made.close(drain=False)


shared = pytest.fixture(scope="module")(two)
replicas = pytest.fixture(two)  # of one test, which ends them


class Text:
    def __init__(self, engine, ids, count=8, sampling=GREEDY, **options):
        self.ids, self.end, self.begun, self.done = [], None, threading.Event(), threading.Event()
        self.request = engine.submit(ids, sampling, count, stop_ids=(), receive=self, **options)

    def __call__(self, event):
        if isinstance(event, Token):
            self.ids.append(event.id)
            self.begun.set()
        else:
            self.end = event
            self.done.set()

    def wait(self):
        assert self.done.wait(60)
        return self

    @property
    def place(self):
        return self.request.replica.number


def killed(replicas, number):
    os.kill(replicas._replicas[number].child.process.pid, signal.SIGKILL)


def test_texts_are_those_of_one_engine(folder, shared):
    prompts = [[5, 6, 7], list(range(20, 90)), [9], list(range(20, 80))]
    settings = [GREEDY, Sampling(temperature=0.9, seed=4), Sampling(temperature=0, logit_bias={7: 5.0}), GREEDY]
    before = shared.stats()
    with Engine(pf.llm.load(folder), max_model_len=400) as engine:
        wanted = [Text(engine, p, 12, s).wait() for p, s in zip(prompts, settings)]
        texts = [Text(shared, p, 12, s) for p, s in zip(prompts, settings)]
        assert [t.wait().ids for t in texts] == [t.ids for t in wanted] and {t.place for t in texts} == {0, 1}
        assert all(t.end == Finished("length") for t in texts)
    stats = shared.stats()
    assert [stats[k] - before.get(k, 0) for k in ("generation_tokens_total", "prompt_tokens_total")] == [48, sum(map(len, prompts))]
    with pytest.raises(ValueError, match="generate: a token is not in the vocabulary"):
        Text(shared, [1 << 20])
    with pytest.raises(ValueError, match="there is no such adapter; got 'x'; expected none"):
        Text(shared, [1], lora="x")


def test_logprobs_of_prompts_and_clients(folder, shared):
    got, ids = [], list(range(20, 60))
    with Engine(pf.llm.load(folder), max_model_len=400) as engine:
        for each in (engine, shared):
            done, events = threading.Event(), []

            def receive(event, done=done, events=events):
                events.append(event)
                if isinstance(event, Finished):
                    done.set()

            each.submit(ids, GREEDY, 2, stop_ids=(), prompt_logprobs=2, client=("user", "one"), receive=receive)
            assert done.wait(60)
            got.append([e.prompt_logprobs for e in events])
    (one, *rest), (other, *others) = got
    assert rest == others == [None, None] and one[0] is other[0] is None and len(one) == len(other) == 40
    assert all(abs(p - q) < 1e-4 and [i for i, _ in a] == [i for i, _ in b] for (p, a), (q, b) in zip(one[1:], other[1:]))
    with pytest.raises(TypeError, match="generate: client is of the wrong type"):
        Text(shared, [5], client=[])


def test_a_grammar_goes_to_another_process(shared):
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    text = Text(shared, [5, 6], 20, Sampling(temperature=0, grammar=pf.llm.Grammar.regex("a{3,5}b"))).wait()
    assert text.end.reason == "stop" and re.fullmatch("a{3,5}b", shared.model.tokenizer.decode(text.ids))
    text = Text(shared, [5, 6], 90, Sampling(temperature=0, grammar=pf.llm.Grammar.regex("[a-c]{20}b{300000}"))).wait()
    assert text.ids and text.end.by_settings and text.end.error.startswith("grammar: the text cannot go on; got ")


def test_the_same_beginning_goes_to_the_same_replica(shared):
    first, second = list(range(16, 80)), list(range(100, 164))
    before = [s["prefix_cache_hits"] for _, s in shared.stats_of_each()]
    places = [Text(shared, beginning + [4 + i]).wait().place for i in range(3) for beginning in (first, second)]
    assert places[0] != places[1] and places == places[:2] * 3
    # Two texts of 65 tokens find 64 of them, twice.
    assert [s["prefix_cache_hits"] - b for (_, s), b in zip(shared.stats_of_each(), before)] == [128, 128]


def test_the_fewest_tokens_that_wait_and_a_limit_of_unfairness():
    """The choice alone, without processes."""
    made = _replicas.Replicas.__new__(_replicas.Replicas)
    made._most, made._replicas = 4, [_replicas._Replica(i, None) for i in range(3)]
    for r in made._replicas:
        r.state, r.room = "ready", 100
    ids = list(range(64))
    chain = _replicas._chain(ids, None)

    def busy(r, *waits):
        r.texts = {i: _replicas._Text(i, None, r, w) for i, w in enumerate(waits)}

    a, b, c = made._replicas
    busy(a, 100), busy(b, 20), busy(c, 50)
    assert made._choose(chain, 64) is b
    c.remember(chain)
    assert c.known(chain) == 64 and c.known(_replicas._chain(ids[:40] + [0] * 24, None)) == 32 and c.known(_replicas._chain(ids, "adapter")) == 0
    assert made._choose(chain, 64) is c  # 50 and the last token, against 20 and all 64
    busy(c, 0, 0, 0, 0)
    assert made._choose(chain, 64) is b  # c has more than two texts more than the others
    b.state = a.state = "starts"
    assert made._choose(chain, 64) is c
    for r in made._replicas:
        r.state = "ended"
    with pytest.raises(RuntimeError, match="there is no replica; got a request after all of them had ended"):
        made._choose(chain, 64)
    b.room = 2
    b.remember(chain)
    assert b.known(chain) == 32  # the beginning stays


def test_a_replica_that_ends(replicas, monkeypatch, caplog):
    monkeypatch.setattr(_replicas, "MOST_RESTARTS", 1)
    caplog.set_level(logging.INFO, "pyflame.serve")
    texts = [Text(replicas, [5 + i], 30000) for i in range(2)]
    assert [t.place for t in texts] == [0, 1] and all(t.begun.wait(60) for t in texts)
    killed(replicas, 0)
    assert texts[0].wait().end == Finished("error", "replica 0 has ended before the text was complete")
    assert not texts[1].done.is_set()
    until(lambda: replicas._replicas[0].state == "ready" and replicas._replicas[0].restarts == 1)
    again = Text(replicas, [40]).wait()
    assert again.place == 0 and len(again.ids) == 8
    killed(replicas, 0)
    until(lambda: replicas._replicas[0].state == "ended")
    assert Text(replicas, [41]).wait().place == 1 and not texts[1].done.is_set()
    replicas.cancel(texts[1].request)
    assert texts[1].wait().end.reason == "cancelled"
    said = [r.getMessage() for r in caplog.records]
    assert any(re.match(r"replica 0 was ended by signal 9 \(SIGKILL\); .*texts that end with it: 1; it is started again \(1 of 1\)", s, re.S) for s in said) and "replica 0 is ready again" in said
    assert any(s.endswith("texts that end with it: 0; it is not started again, because it was 1 times") for s in said)


def test_a_request_waits_for_the_replica_that_starts(folder):
    one = _replicas.Replicas(folder, 1, threads=1, max_model_len=400)
    try:
        killed(one, 0)
        until(lambda: one._replicas[0].state == "starts")
        assert len(Text(one, [5, 6]).wait().ids) == 8
    finally:
        one.close(drain=False)


def test_a_server_of_replicas(replicas, monkeypatch):
    monkeypatch.setattr(_replicas, "MOST_RESTARTS", 0)
    server = Running(replicas.model, replicas, name="small")
    answer = server.ask(CHAT, {**HELLO, "max_tokens": 5, "ignore_eos": True})
    assert answer["usage"]["completion_tokens"] == 5
    lines = server.raw("/metrics")[2].decode()
    assert 'vllm:generation_tokens_total{engine="0",model_name="small"} 5.0' in lines and 'vllm:num_requests_running{engine="1",model_name="small"} 0.0' in lines
    stream = server.stream(COMPLETE, {"prompt": "x", "max_tokens": 30000, "ignore_eos": True})
    next(stream)
    [number] = [r.number for r in replicas._replicas if r.texts]
    killed(replicas, number)
    assert "has ended before the text was complete" in stream.rest()[-1]["error"]["message"]
    assert server.ask("/health") == {"status": "ok"} and server.ask(COMPLETE, {"prompt": "x", "max_tokens": 3, "ignore_eos": True})["usage"]["completion_tokens"] == 3
    killed(replicas, 1 - number)
    until(lambda: all(r.state == "ended" for r in replicas._replicas))
    assert server.ask("/health", status=503) == {"status": "failed"} and server.error(COMPLETE, {"prompt": "x"}, 503)["code"] == "engine_failed"
    server.end()


def test_close_ends_texts_and_processes(folder):
    two = _replicas.Replicas(folder, 2, threads=1, max_model_len=40000)
    pids = [r.child.process.pid for r in two._replicas]
    long, short = Text(two, [5], 30000), Text(two, [6], 4)
    assert long.begun.wait(60) and short.wait().end == Finished("length")
    two.close(drain=False)
    assert long.wait().end.reason == "cancelled" and all(map(is_gone, pids))
    with pytest.raises(RuntimeError, match="generate: the engine is closed"):
        Text(two, [5])


# The program.


def processes_of(parent):
    """The pids of the processes whose ancestor this one is."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                parents[int(pid)] = int(f.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            pass
    found = [parent]
    for pid in found:
        found += [p for p, of in parents.items() if of == pid]
    return found[1:]


@pytest.mark.parametrize("number,count,ranks", [(signal.SIGTERM, 2, 2), (signal.SIGKILL, 2, 1)])
def test_the_program(folder, number, count, ranks):
    p = Program("--model", folder, "--port", 0, "--replicas", count, "--tensor_parallel_size", ranks, "--max_model_len", 400)
    try:
        client = Running.__new__(Running)
        client.port = int(p.find(r"is at http://127.0.0.1:(\d+)").group(1))
        assert client.ask(CHAT, {**HELLO, "max_tokens": 5, "ignore_eos": True})["usage"]["completion_tokens"] == 5
        pids = processes_of(p.process.pid)
        assert len(pids) == count * (ranks - 1) + (count if count > 1 else 0)
        if count * ranks == 4:  # a rank of a replica ends, and with it the replica
            os.kill(pids[-1], signal.SIGKILL)
            assert p.find(r"replica \d ended with exit code 1; its last lines:")
            assert any("rank 1 was ended by signal 9 (SIGKILL)" in line for line in p.lines) and p.find(r"replica \d is ready again")
            assert client.ask(CHAT, {**HELLO, "max_tokens": 5, "ignore_eos": True})["usage"]["completion_tokens"] == 5
            pids = processes_of(p.process.pid)
            assert len(pids) == 4
        p.process.send_signal(number)
        assert p.end() == (0 if number == signal.SIGTERM else -number)
        until(lambda: all(map(is_gone, pids)))
    finally:
        p.process.kill()
        p.process.wait()


def test_what_is_refused(folder, tmp_path, capsys):
    def said(*words):
        assert command.main(["--port", "0", *map(str, words)]) == 1
        return capsys.readouterr().err

    assert "serve: --replicas is out of range; got 0; expected a whole number from 1 upwards" in said("--model", folder, "--replicas", 0)
    assert "Engine: tensor_parallel_size is out of range; got 0" in said("--model", folder, "--tensor_parallel_size", 0)
    assert "Engine: the query heads cannot be divided; got 4 and tensor_parallel_size 3" in said("--model", folder, "--tensor_parallel_size", 3)
    assert "Engine: max_model_len is out of range; got 99999" in said("--model", folder, "--replicas", 2, "--max_model_len", 99999)
    encoder = small.write_random_encoder(tmp_path / "encoder")
    for name in ("replicas", "tensor_parallel_size"):
        assert f"serve: --{name} belongs to models that write texts; got 2 with one for embeddings; expected 1" in said("--model", encoder, f"--{name}", 2)
