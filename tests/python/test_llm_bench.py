"""`pyflame bench llm`: its figures, against an engine and against a server."""
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
import numpy as np  # noqa: E402
import pyflame as pf  # noqa: E402
from llm_client import EchoEngine, Running  # noqa: E402
from pyflame.llm import _lengths, bench  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """The records of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return pf.benchmarking.Records()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3)


@pytest.fixture
def echo(folder):
    lm = pf.llm.load(folder)
    running = Running(lm, EchoEngine(lm), name="small")
    yield running
    running.end()


def text(begin, times, tokens, error=None, read=3):
    return bench.Text([5] * read, tokens, begin, times, times[-1] if times else begin, tokens, error)


def test_figures():
    # By hand: TTFT 1 and 2 s; TPOT (4 - 2) / 4 and (5 - 3) / 2 s; three pieces have five tokens.
    s = bench.summary([text(1.0, [2.0, 3.0, 4.0], 5), text(1.0, [3.0, 4.0, 5.0], 3), text(1.0, [], 0, "lost")], 4.0, {"ttft": 1500.0, "tpot": 600.0})
    assert (s["requests"], s["failed"], s["first_error"]) == (2, 1, "lost")
    assert s["output_tokens"] == 8 and s["output_tokens_per_second"] == 2 and s["tokens_per_second"] == 3.5 and s["requests_per_second"] == 0.5
    assert s["ttft_ms"]["mean"] == 1500 and s["tpot_ms"]["mean"] == pytest.approx(750) and s["itl_ms"] == {"mean": 1000, "p50": 1000, "p90": 1000, "p99": 1000}
    assert s["e2el_ms"]["p50"] == 3500 and s["goodput"] == {"limits_ms": {"ttft": 1500, "tpot": 600}, "share": pytest.approx(1 / 3), "requests_per_second": 0.25}
    assert "tpot_ms" not in bench.summary([text(0.0, [1.0], 1)], 1.0)


def run(capsys, *words):
    code = bench.main([str(w) for w in words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_an_engine(capsys, folder, kept):
    common = ["--input_len", 9, "--output_len", 4, "--json"]
    code, out, _ = run(capsys, folder, "--latency", "--batch_sizes", 1, 3, "--iters", 2, *common)
    one, three = map(json.loads, out.splitlines())
    assert code == 0 and one["requests"] == 2 and three["requests"] == 6 and three["failed"] == 0
    assert three["output_tokens"] == 24 and three["input_tokens"] == 54 and three["ttft_ms"]["p50"] < three["e2el_ms"]["p50"]
    assert [r.figures for r in kept.find("llm *latency*")] == [one, three] and {r.kind for r in kept} == {"llm"} and {r.device for r in kept} == {"cpu"}
    first = kept.find(last=2)[0]
    assert first.name == f"llm {os.path.basename(folder)} latency: 1 at a time, 2 runs" and "input_len=9" in first.arguments and {"device", "settings", "arguments", "state"} <= set(first.environment)
    assert "1 at a time" in str(first) and "TTFT" in str(first)
    code, out, _ = run(capsys, folder, "--throughput", "--num_prompts", 5, "--range_ratio", 0.5, "--no-record", *common)
    s = json.loads(out)
    assert code == 0 and s["requests"] == 5 and 10 <= s["output_tokens"] <= 30 and len(kept.find()) == 2


def test_a_server(capsys, echo, folder, tmp_path, kept):
    words = [folder, "--serve", "--url", f"http://127.0.0.1:{echo.port}/v1", "--input_len", 9, "--output_len", 4, "--num_prompts", 6]
    code, out, _ = run(capsys, *words, "--json", "--request_rate", 1000, "--max_concurrency", 2, "--goodput", "ttft:60000", "--api_key", "a secret")
    s = json.loads(out)
    (record,) = kept.find("llm *serving*")
    assert record.figures == s and record.device == f"http://127.0.0.1:{echo.port}" and "a secret" not in kept.path.read_text()
    # The engine writes the prompt's tokens. A piece may be empty, so pieces are fewer than tokens.
    assert code == 0 and s["requests"] == 6 and s["output_tokens"] == 24 and s["goodput"]["share"] == 1
    assert all(r.stop_ids == frozenset() and r.max_tokens == 4 for r in echo.engine.requests)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text('once upon a time\n{"prompt": "the window", "output_len": 2}\n\n')
    code, out, _ = run(capsys, "--serve", *words[2:4], "--dataset", prompts, "--num_prompts", 4, "--output_len", 5)
    assert code == 0 and "4 requests in " in out and "TTFT" in out and "time to the first token" in out
    assert sorted(r.max_tokens for r in echo.engine.requests[-4:]) == [2, 2, 5, 5]
    echo.engine.fails = "broken"
    code, out, err = run(capsys, *words)
    assert code == 1 and "bench llm: the server does not answer; got" in err and "broken" in err


def test_tokens_without_text(echo):
    # Three of the four bytes of a character: only the last piece has text, and the first one has a time all the same.
    import asyncio

    ids = echo.model.tokenizer.encode("\U0001f600")[:3]
    t = bench.Text(ids, 3)
    asyncio.run(bench.run_server(f"http://127.0.0.1:{echo.port}", [t], math.inf, 1, 0))
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = [c for c in echo.stream("/v1/completions", {"prompt": ids, "ignore_eos": True, "stream_options": options}).rest() if c["choices"]]
    assert t.error is None and t.tokens == 3 and len(t.times) >= 2 and [bool(c["choices"][0]["text"]) for c in chunks] == [False, False, False, True]


def test_a_server_of_its_own(capsys, folder):
    code, out, _ = run(capsys, folder, "--serve", "--input_len", 9, "--output_len", 4, "--num_prompts", 3, "--json")
    s = json.loads(out)
    assert code == 0 and s["requests"] == 3 and s["output_tokens"] == 12


def test_arrivals_and_lengths_are_drawn_from_the_seed(folder):
    tokenizer = pf.llm.load_tokenizer(folder)

    def drawn(seed):
        args = bench._arguments([str(folder), "--throughput", "--input_len", "20", "--range_ratio", "0.5", "--num_prompts", "50", "--seed", str(seed)])
        return [(t.ids, t.wanted) for t in bench.prompts(args, tokenizer, 100)]

    first = drawn(1)
    assert first == drawn(1) != drawn(2) and {len(ids) for ids, _ in first} <= set(range(10, 31)) and len({len(ids) for ids, _ in first}) > 5
    assert not tokenizer.special_ids & {i for ids, _ in first for i in ids}


def lengths(*words, count=20000, seed=0):
    """The lengths that options ask for, an array (count, 2)."""
    found, random = _lengths.lengths_of(bench._arguments(["m", "--throughput", *map(str, words)])), np.random.default_rng(seed)
    return np.array([found.pair(random) for _ in range(count)]), found.longest


@pytest.mark.parametrize("kind, skews", [("normal", False), ("lognormal", True)])
def test_lengths_of_a_distribution(kind, skews):
    words = ["--length_distribution", kind, "--input_len", 200, "--input_std", 40, "--output_len", 100, "--output_std", 50]
    drawn, longest = lengths(*words)
    assert np.allclose(drawn.mean(0), [200, 100], rtol=0.02) and np.allclose(drawn.std(0), [40, 50], rtol=0.05)
    assert drawn.min() >= 1 and drawn[:, 0].max() <= 360 and drawn[:, 1].max() <= 300 and longest == 660
    # The tail of the log-normal one is to the right: its skewness is (w + 2) sqrt(w - 1) with w = 1 + (std / mean)**2, which is 1.6 where the mean is two deviations.
    skewness = ((drawn - drawn.mean(0)) ** 3).mean(0) / drawn.std(0) ** 3
    assert (skewness[1] > 1) == skews and abs(np.corrcoef(drawn.T)[0, 1]) < 0.05
    assert (lengths(*words, count=50)[0] == lengths(*words, count=50)[0]).all() and (lengths(*words, count=50)[0] != lengths(*words, count=50, seed=1)[0]).any()


def test_lengths_are_clipped():
    for kind in ("normal", "lognormal"):
        drawn, longest = lengths("--length_distribution", kind, "--input_len", 10, "--input_std", 30, "--output_len", 7)
        assert (drawn[:, 0].min(), drawn[:, 0].max()) == (1, 130) and set(drawn[:, 1]) == {7} and longest == 137


def test_lengths_of_a_file(tmp_path):
    listed = tmp_path / "listed.jsonl"
    listed.write_text('{"input_len": 5, "output_len": 2}\n\n{"input_len": 9, "output_len": 1, "name": "x"}\n')
    drawn, longest = lengths("--lengths", listed, count=5)
    assert drawn.tolist() == [[5, 2], [9, 1], [5, 2], [9, 1], [5, 2]] and longest == 10
    counted = tmp_path / "counted.jsonl"
    counted.write_text('{"input_len": 5, "output_len": 2, "count": 1}\n{"input_len": 9, "output_len": 1, "count": 3}\n')
    drawn, _ = lengths("--lengths", counted)
    assert {tuple(p) for p in drawn.tolist()} == {(5, 2), (9, 1)} and abs((drawn[:, 0] == 9).mean() - 0.75) < 0.02
    assert (drawn == lengths("--lengths", counted)[0]).all()


def test_runs_with_lengths(capsys, folder, tmp_path):
    listed = tmp_path / "listed.jsonl"
    listed.write_text('{"input_len": 5, "output_len": 2}\n{"input_len": 9, "output_len": 1}\n')
    code, out, _ = run(capsys, folder, "--throughput", "--lengths", listed, "--num_prompts", 5, "--json")
    s = json.loads(out)
    assert code == 0 and (s["requests"], s["input_tokens"], s["output_tokens"]) == (5, 33, 8)
    code, out, _ = run(capsys, folder, "--throughput", "--length-distribution", "lognormal", "--input_len", 20, "--input_std", 20, "--output_len", 3, "--num_prompts", 5, "--json")
    s = json.loads(out)
    assert code == 0 and (s["requests"], s["failed"], s["output_tokens"]) == (5, 0, 15) and s["input_tokens"] != 100


@pytest.mark.parametrize("text, message", [
    ("", "the file has no lengths; got"), ("512 128", "a line of lengths does not fit; got line 1 of"), ('{"input_len": 5}', "expected an object such as {\"input_len\": 512, \"output_len\": 128}"),
    ('{"input_len": 5, "output_len": 0}', "a line of lengths does not fit"), ('{"input_len": 5, "output_len": 1, "count": 0.5}', "a line of lengths does not fit"),
    ('{"input_len": 5, "output_len": 1, "count": 2}\n{"input_len": 5, "output_len": 1}', "some lines have a count; got"),
])  # fmt: skip
def test_wrong_files_of_lengths(capsys, folder, tmp_path, text, message):
    (tmp_path / "lengths").write_text(text)
    code, _, err = run(capsys, folder, "--throughput", "--lengths", tmp_path / "lengths")
    assert code == 1 and message in err


@pytest.mark.parametrize("words, message", [
    (["--input_std", "3"], "--input_std belongs to --length_distribution normal or lognormal"), (["--range_ratio", "1"], "--range_ratio is out of range; got 1"),
    (["--length_distribution", "normal"], "--length_distribution normal needs a standard deviation"), (["--length_distribution", "zipf"], "--length_distribution: there is no such choice; got 'zipf'; expected"),
    (["--length_distribution", "normal", "--output_std", "-1"], "--output_std is out of range; got -1"),
    (["--length_distribution", "normal", "--output_std", "nan"], "--output_std is out of range; got nan"),
    (["--length_distribution", "normal", "--output_std", "2", "--range_ratio", "0.5"], "--range_ratio belongs to --length_distribution uniform; got it with normal"),
    (["--length_distribution", "normal", "--input_std", "2", "--dataset", "x"], "--input_std belongs to random prompts; got it with --dataset"),
    (["--lengths", "x", "--dataset", "y"], "--lengths and --dataset exclude each other"), (["--lengths", "x", "--range_ratio", "0.5"], "--lengths and --range_ratio exclude each other"),
])  # fmt: skip
def test_wrong_lengths(capsys, words, message):
    with pytest.raises(SystemExit):
        bench._arguments(["m", "--throughput", *words])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["m"], "one of the arguments --latency --throughput --serve is required"), (["--latency"], "MODEL is missing"), (["m", "--latency", "--url", "x"], "--url belongs to --serve"),
        (["m", "--latency", "--iters", "0"], "--iters is out of range; got 0; expected a whole number from 1 upwards"), (["m", "--serve", "--goodput", "x:1"], "not a limit; got x:1"),
        (["m", "--serve", "--request_rate", "0"], "a rate of 0 or less"),
    ],
)  # fmt: skip
def test_wrong_arguments(capsys, words, message):
    with pytest.raises(SystemExit) as e:
        bench._arguments(words)
    assert e.value.code == 2 and message in capsys.readouterr().err


def test_wrong_files(capsys, folder, tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    code, _, err = run(capsys, folder, "--throughput", "--dataset", tmp_path / "empty.txt")
    assert code == 1 and "bench llm: the file has no prompts; got" in err
    assert run(capsys, tmp_path / "none.gguf", "--throughput")[0] == 1
    assert math.isinf(bench._arguments([str(folder), "--serve"]).request_rate)


def test_guessed_tokens(capsys, folder):
    words = [folder, "--throughput", "--num_prompts", 2, "--input_len", 9, "--output_len", 60, "--speculative_config", '{"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 2}']
    code, out, _ = run(capsys, *words, "--json")
    g = json.loads(out)["speculation"]
    assert code == 0 and 0 < g["drafts"] <= g["draft_tokens"] and g["acceptance_rate"] == g["accepted_tokens"] / g["draft_tokens"] and g["mean_acceptance_length"] == 1 + g["accepted_tokens"] / g["drafts"]
    code, out, _ = run(capsys, *words)
    assert code == 0 and "guessed tokens: " in out and "tokens for a step with guesses" in out
    with pytest.raises(SystemExit):
        bench.main([str(w) for w in words[:-1]] + ["ngram"])
    assert "--speculative_config is no JSON; got ngram" in capsys.readouterr().err


def test_the_cache_and_attention(capsys, folder, monkeypatch):
    """--kv_cache_dtype, --kv_cache_gate and --attention_backend reach the engine, also that of a server."""
    made, engine = [], bench.Engine

    def make(*arguments, **options):
        made.append(engine(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(bench, "Engine", make)
    words = [folder, "--latency", "--batch_sizes", 1, "--iters", 1, "--input_len", 9, "--output_len", 4, "--kv_cache_dtype", "int8", "--attention_backend", "reference"]
    assert run(capsys, *words)[0] == 0 and run(capsys, *words, "--kv_cache_gate", "off")[0] == 0
    assert [e.kv_cache_dtype for e in made] == ["int8", "int8"] and [e.kv_cache_gate for e in made] == [0.05, None] and made[0].attention_backend == "reference"
    started = []
    monkeypatch.setattr(bench.subprocess, "Popen", lambda words, **_: started.append(words) or (_ for _ in ()).throw(OSError("not started")))
    assert run(capsys, folder, "--serve", "--kv-cache-dtype", "int8", "--kv_cache_gate", "0.5")[0] == 1
    assert " ".join(started[0]).endswith("--kv_cache_dtype int8 --kv_cache_gate 0.5 --attention_backend auto")


@pytest.mark.parametrize(
    "words, message",
    [
        (["m", "--latency", "--kv_cache_dtype", "int4"], "--kv_cache_dtype: there is no such choice; got 'int4'; expected"),
        (["m", "--latency", "--kv_cache_gate", "much"], "--kv_cache_gate is out of range; got 'much'; expected off, or a number from 0 upwards"),
        (["m", "--serve", "--url", "x", "--kv_cache_dtype", "int8"], "--kv_cache_dtype belongs to a server that is started, not to --url"),
    ],
)
def test_wrong_caches(capsys, words, message):
    with pytest.raises(SystemExit):
        bench._arguments(words)
    assert message in capsys.readouterr().err


def test_the_benchmark_of_warming_up_runs(tmp_path):
    """benchmarks/llm_warm_up.py, one of its processes."""
    script = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "llm_warm_up.py"
    r = subprocess.run([sys.executable, str(script), "--texts", "2", "--tokens", "64", "--warm_up", "yes", "--json", str(tmp_path / "r.json")], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["warm_up"] and 0 < row["ms_median"] <= row["ms_largest"]
