"""Counters and histograms in Prometheus' text format, by the names that vLLM gives them, so that dashboards made for it find them."""
import itertools
import math

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from .._engine_steps import STEP_TOKENS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
_WHOLE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0)
_EACH = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_COUNTS = (1, 2, 5, 10, 20)
_TOKENS = tuple(m * 10**e for e in range(7) for m in (1, 2, 5))
_GAUGES = (  # name, key of engine.stats(), what it is
    ("num_requests_running", "num_requests_running", "Sequences that the engine computes"),
    ("num_requests_waiting", "num_requests_waiting", "Sequences that wait for the engine"),
    ("kv_cache_usage_perc", "kv_cache_usage", "Used part of the cache of keys and values, 0 to 1"),
    ("cpu_cache_usage_perc", "cpu_cache_usage", "Used part of the host memory for keys and values of sequences that made room for others, 0 to 1"),
)
_COUNTERS = (
    ("prompt_tokens", "prompt_tokens_total", "Tokens of prompts"),
    ("generation_tokens", "generation_tokens_total", "Tokens that were written"),
    ("prefix_cache_hits", "prefix_cache_hits", "Tokens of prompts that were in the cache"),
    ("cpu_prefix_cache_hits", "cpu_prefix_cache_hits", "Tokens of prompts that were copied back from host memory"),
    ("prefix_cache_queries", "prefix_cache_queries", "Tokens of prompts that were looked up in the cache"),
    ("num_preemptions", "preemptions_total", "Sequences that gave their memory to others"),
    ("spec_decode_num_drafts", "spec_decode_num_drafts", "Steps of sequences with guessed tokens"),
    ("spec_decode_num_draft_tokens", "spec_decode_num_draft_tokens", "Tokens that were guessed"),
    ("spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens", "Guessed tokens that were right"),
)


class Metrics:
    """What the server counts itself, and what it asks engine.stats() for when somebody reads it."""

    def __init__(self, engine, name):
        self._engine, self._name = engine, name
        self._registry = CollectorRegistry()
        self._first = self._histogram("time_to_first_token_seconds", "Seconds from a request to its first token", _FIRST)
        self._whole = self._histogram("e2e_request_latency_seconds", "Seconds from a request to its end", _WHOLE)
        self._between = self._histogram("inter_token_latency_seconds", "Seconds between two tokens of a text", _EACH)
        self._mean = self._histogram("request_time_per_output_token_seconds", "Mean of the seconds between two tokens of a text that has ended", _EACH)
        self._decode = self._histogram("request_decode_time_seconds", "Seconds from the first token of a text that has ended to its last", _WHOLE)
        self._queue = self._histogram("request_queue_time_seconds", "Seconds that a text which has ended waited until it was first computed", _WHOLE)
        self._prefill = self._histogram("request_prefill_time_seconds", "Seconds from then to its first token", _WHOLE)
        self._inference = self._histogram("request_inference_time_seconds", "Seconds from then to its last token", _WHOLE)
        self._read = self._histogram("request_prompt_tokens", "Tokens of the prompt of a text that has ended", _TOKENS)
        self._written = self._histogram("request_generation_tokens", "Tokens of a text that has ended", _TOKENS)
        self._n = self._histogram("request_params_n", "n of a request, one for each prompt whose first text has ended", _COUNTS)
        self._most = self._histogram("request_params_max_tokens", "max_tokens of a text that has ended, or what the context left for it", _TOKENS)
        self._reasons = Counter("vllm:request_success", "Texts that ended, by the reason", ["model_name", "finished_reason"], registry=self._registry)
        for reason in ("stop", "length", "abort"):
            self._reasons.labels(name, reason)
        self._registry.register(self)

    def _histogram(self, name, text, buckets):
        return Histogram("vllm:" + name, text, ["model_name"], registry=self._registry, buckets=buckets).labels(self._name)

    def first_token(self, seconds):
        self._first.observe(seconds)

    def request(self, seconds):
        self._whole.observe(seconds)

    def next_token(self, seconds):
        self._between.observe(seconds)

    def text(self, prompt_tokens, tokens, seconds, queue=None, prefill=None, *, max_tokens, n=None):
        """A text that has ended by itself. seconds: from its first token to its last; queue, prefill: the Token's seconds, None for a text without tokens and for one of a beam search.
        max_tokens: the most that it may have; n: of its request, None for a text that is not the first of its prompt."""
        self._most.observe(max_tokens)
        if n is not None:
            self._n.observe(n)
        self._read.observe(prompt_tokens)
        self._written.observe(tokens)
        self._decode.observe(seconds)
        if queue is not None:
            self._queue.observe(queue)
            self._prefill.observe(prefill)
            self._inference.observe(prefill + seconds)
        if tokens > 1:
            self._mean.observe(seconds / (tokens - 1))

    def finished(self, reason):
        self._reasons.labels(self._name, reason).inc()

    def collect(self):
        """For the registry: the engine's numbers of now. Those of several engines have the label `engine`, as in vLLM."""
        several = hasattr(self._engine, "stats_of_each")
        each = self._engine.stats_of_each() if several else [(None, self._engine.stats())]
        labels = ["model_name", "engine"] if several else ["model_name"]
        parts = [([self._name, number] if several else [self._name], stats) for number, stats in each]
        for names, kind in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for name, key, text in names:
                if any(key in stats for _, stats in parts):
                    family = kind("vllm:" + name, text, labels=labels)
                    for values, stats in parts:
                        if key in stats:
                            family.add_metric(values, stats[key])
                    yield family

        yield from self._iterations(parts, labels)
        yield from self._cache_config(parts, labels)
        key = "spec_decode_num_accepted_tokens_per_pos"
        if any(key in stats for _, stats in parts):
            family = CounterMetricFamily("vllm:" + key, "Guessed tokens that were right, by their place among the guesses", labels=[*labels, "position"])
            for values, stats in parts:
                for position, count in enumerate(stats.get(key, ())):
                    family.add_metric([*values, str(position)], count)
            yield family

    @staticmethod
    def _iterations(parts, labels):
        """How many tokens the steps of the engines had."""
        family = HistogramMetricFamily("vllm:iteration_tokens_total", "Tokens of a step of the engine", labels=labels)
        for values, stats in parts:
            if counts := stats.get("iteration_tokens_counts"):
                bounds = [*map(float, STEP_TOKENS), math.inf]
                family.add_metric(values, [(floatToGoString(b), n) for b, n in zip(bounds, itertools.accumulate(counts))], stats["iteration_tokens_total"])
        if family.samples:
            yield family

    @staticmethod
    def _cache_config(parts, labels):
        """What the caches of the engines are, as labels of a number that is 1."""
        configs = [(values, stats["cache_config"]) for values, stats in parts if "cache_config" in stats]
        if configs:
            names = list(configs[0][1])
            family = GaugeMetricFamily("vllm:cache_config_info", "What the cache of keys and values is", labels=[*labels, *names])
            for values, config in configs:
                family.add_metric([*values, *(str(config[name]) for name in names)], 1)
            yield family

    def describe(self):
        return []  # the names are known only when they are asked for

    def document(self):
        return generate_latest(self._registry)
