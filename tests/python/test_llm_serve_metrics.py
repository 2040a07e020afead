"""Metrics of `pyflame serve` that come from the stats of an engine: steps and the cache, of one engine and of several."""
import re

import pytest

for package in ("regex", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
import pyflame as pf  # noqa: E402
from pyflame.llm.engine import BLOCK, STEP_TOKENS, Engine  # noqa: E402
from pyflame.llm.sampling import Sampling  # noqa: E402
from pyflame.llm.serving._metrics import Metrics  # noqa: E402
from pyflame.llm.serving._replicas import Replicas  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402


def document(engine):
    return Metrics(engine, "small").document().decode()


def steps(text, **labels):
    """({bound: count}, sum, count) of the histogram of steps with these labels."""
    bounds, ends = {}, {}
    for end, given, value in re.findall(r"^vllm:iteration_tokens_total_(bucket|sum|count){(.*)} (\S+)$", text, re.MULTILINE):
        given = dict(re.findall(r'(\w+)="(.*?)"', given))
        bound = given.pop("le", None)
        if given == {"model_name": "small", **labels}:
            (bounds if bound else ends)[float(bound) if bound else end] = float(value)
    return bounds, ends["sum"], ends["count"]


@pytest.mark.parametrize("dtype, shares", [("auto", True), ("int8", False)])
def test_an_engine(tmp_path, dtype, shares):
    lm = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3))
    with Engine(lm, kv_cache_dtype=dtype, kv_cache_gate=None, enable_prefix_caching=shares, max_num_batched_tokens=32) as engine:
        empty, *ends = steps(document(engine))
        assert set(empty.values()) == {0.0} and ends == [0, 0] and list(empty) == [*STEP_TOKENS, float("inf")]
        engine.submit([5 + i % 9 for i in range(41)], Sampling(temperature=0), 5, stop_ids=(), receive=lambda event: None)
        engine.close()
        text, stats = document(engine), engine.stats()
    # The prompt of 41 tokens in steps of 32 and 9 tokens, which write the first token, and four steps of one token.
    got, total, count = steps(text)
    assert (total, count) == (45, 6) and (got[1], got[8], got[16], got[32], got[float("inf")]) == (4, 4, 5, 6, 6)
    assert f'vllm:cache_config_info{{block_size="{BLOCK}",cache_dtype="{dtype}",enable_prefix_caching="{shares}",model_name="small",num_gpu_blocks="{engine._blocks.count}"}} 1.0' in text
    assert stats["iteration_tokens_total"] == 45 and sum(stats["iteration_tokens_counts"]) == 6


def test_several_engines():
    """Each has its own numbers, and the sums of steps are those of all."""
    class Two:
        def stats_of_each(self):
            config = {"block_size": 16, "num_gpu_blocks": 9, "cache_dtype": "auto", "enable_prefix_caching": True}
            counts = [[0] * (len(STEP_TOKENS) + 1) for _ in range(2)]
            counts[0][0], counts[1][2], counts[1][-1] = 3, 1, 1
            return [("0", {"iteration_tokens_counts": counts[0], "iteration_tokens_total": 3, "cache_config": config}),
                    ("1", {"iteration_tokens_counts": counts[1], "iteration_tokens_total": 20016, "cache_config": {**config, "num_gpu_blocks": 7}}), ("2", {})]  # fmt: skip

    text = document(Two())
    assert steps(text, engine="0")[1:] == (3, 3)
    got, total, count = steps(text, engine="1")
    assert (total, count, got[8], got[16], got[16384], got[float("inf")]) == (20016, 2, 0, 1, 1, 2)
    assert [re.search(rf'vllm:cache_config_info{{.*engine="{i}".*num_gpu_blocks="(\d)".*}} 1.0', text).group(1) for i in "01"] == ["9", "7"]
    all = Replicas.stats(Two())
    assert all["iteration_tokens_total"] == 20019 and sum(all["iteration_tokens_counts"]) == 5 and all["cache_config"]["block_size"] == 16


def test_nothing_of_an_engine_that_does_not_say_it():
    class Silent:
        def stats(self):
            return {"num_requests_running": 1}

    text = document(Silent())
    assert "vllm:num_requests_running" in text and "iteration_tokens" not in text and "cache_config" not in text
