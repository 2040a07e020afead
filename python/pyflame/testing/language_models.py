"""Small language models with random weights, as folders in Hugging Face's layout, for tests and examples. They write nonsense."""
import json
import os

import numpy as np

_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
# A template that takes functions, in the manner of Hermes: calls stand between <tool_call> and </tool_call>.
TOOLS_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "th e", "Ġ the", "i n", "Ġ a", "e r", "o n", "h e", "l l", "Ġ w", "o r", "Ġ h")
VOCABULARY = 256 + len(SPECIAL) + len(MERGES)
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "gpt2", "mixtral", "qwen2_moe", "qwen3_moe")


def tokenizer_json():
    """A byte-level BPE tokenizer with 256 bytes, four special tokens and twelve merges, as a tokenizer.json."""
    from ..llm._text_parts import CHARACTER_OF_BYTE

    texts = [*SPECIAL, *sorted(CHARACTER_OF_BYTE.values()), *(m.replace(" ", "") for m in MERGES)]
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, t in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False, "vocab": {t: i for i, t in enumerate(texts)}, "merges": list(MERGES)},
    }  # fmt: skip


def config_json(model_type, **changes):
    """The config.json of a model with four layers (gemma3_text: seven) and hidden size 64. changes: other keys and values."""
    if model_type not in MODEL_TYPES:
        raise ValueError(f"config_json: there is no such model; got {model_type!r}; expected one of {', '.join(MODEL_TYPES)}")
    if model_type == "gpt2":
        return {"model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 256, "layer_norm_epsilon": 1e-5, "bos_token_id": 0, "eos_token_id": 1, **changes}
    config = {
        "model_type": model_type, "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7 if model_type == "gemma3_text" else 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": model_type.startswith("gemma"), "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": 0,
    }  # fmt: skip
    if model_type.startswith("gemma"):
        config.update(head_dim=16, hidden_activation="gelu_pytorch_tanh")
    if model_type in ("gemma2", "gemma3_text"):
        config.update(sliding_window=17, query_pre_attn_scalar=24)
    if model_type == "mistral":
        config.update(sliding_window=17, head_dim=16)
    if model_type == "qwen3":
        config.update(head_dim=32)
    if model_type == "mixtral":
        config.update(num_local_experts=5, num_experts_per_tok=2)
    if model_type in ("qwen2_moe", "qwen3_moe"):
        config.update(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=model_type == "qwen3_moe", mlp_only_layers=[1])
    if model_type == "qwen2_moe":
        config.update(shared_expert_intermediate_size=56)
    if model_type == "qwen3_moe":
        config.update(head_dim=16)
    return {**config, **changes}


def _experts(c, layer):
    """(name, outputs, inputs) of the matrices of a mixture of experts, or nothing for a layer without one."""
    h = c["hidden_size"]
    if c["model_type"] == "mixtral":
        inner, path = c["intermediate_size"], "block_sparse_moe."
        return [(path + "gate", c["num_local_experts"], h)] + [(f"{path}experts.{e}.{n}", *s) for e in range(c["num_local_experts"]) for n, s in (("w1", (inner, h)), ("w2", (h, inner)), ("w3", (inner, h)))]
    if "num_experts" not in c or layer in c["mlp_only_layers"]:
        return []

    def three(path, inner):
        return [(path + "gate_proj", inner, h), (path + "up_proj", inner, h), (path + "down_proj", h, inner)]

    shared = c.get("shared_expert_intermediate_size")
    return [("mlp.gate", c["num_experts"], h)] + [x for e in range(c["num_experts"]) for x in three(f"mlp.experts.{e}.", c["moe_intermediate_size"])] + (
        [*three("mlp.shared_expert.", shared), ("mlp.shared_expert_gate", 1, h)] if shared else [])


def _shapes(c):
    if c["model_type"] == "gpt2":
        h, shapes = c["n_embd"], {"transformer.wte.weight": (c["vocab_size"], c["n_embd"]), "transformer.wpe.weight": (c["n_positions"], c["n_embd"])}
        for i in range(c["n_layer"]):
            p = f"transformer.h.{i}."
            for name, size in (("ln_1", h), ("ln_2", h)):
                shapes.update({p + name + ".weight": (size,), p + name + ".bias": (size,)})
            for name, inputs, outputs in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, 4 * h), ("mlp.c_proj", 4 * h, h)):
                shapes.update({p + name + ".weight": (inputs, outputs), p + name + ".bias": (outputs,)})
        return {**shapes, "transformer.ln_f.weight": (h,), "transformer.ln_f.bias": (h,)}
    kind, h, inner = c["model_type"], c["hidden_size"], c["intermediate_size"]
    size = c.get("head_dim", h // c["num_attention_heads"])
    q, kv = c["num_attention_heads"] * size, c["num_key_value_heads"] * size
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], h)
    norms = ["input_layernorm", "post_attention_layernorm"] + (["pre_feedforward_layernorm", "post_feedforward_layernorm"] if kind in ("gemma2", "gemma3_text") else [])
    linear = [("self_attn.qkv_proj", q + 2 * kv, h), ("mlp.gate_up_proj", 2 * inner, h)] if kind == "phi3" else [
        ("self_attn.q_proj", q, h), ("self_attn.k_proj", kv, h), ("self_attn.v_proj", kv, h), ("mlp.gate_proj", inner, h), ("mlp.up_proj", inner, h)]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes.update({p + name + ".weight": (h,) for name in norms})
        if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
            shapes.update({p + f"self_attn.{name}_norm.weight": (size,) for name in "qk"})
        sparse = _experts(c, i)
        for name, outputs, inputs in [*(x for x in linear if not (sparse and x[0].startswith("mlp"))), ("self_attn.o_proj", h, q), *(sparse or [("mlp.down_proj", h, inner)])]:
            shapes[p + name + ".weight"] = (outputs, inputs)
            biased = (kind in ("qwen2", "qwen2_moe") and name[10:] in ("q_proj", "k_proj", "v_proj")) or c.get("attention_bias" if name.startswith("self") else "mlp_bias")
            if biased:
                shapes[p + name + ".bias"] = (outputs,)
    return shapes


def random_weights(config, seed=0):
    """NumPy float32 arrays with the names and shapes of a config_json. The same seed gives the same numbers."""
    random, weights = np.random.RandomState(seed), {}
    for name, shape in _shapes(config).items():
        values = random.standard_normal(shape)
        is_norm = len(shape) == 1 and "norm" in name or ".ln_" in name and name.endswith("weight")
        offset = 0.0 if config["model_type"].startswith("gemma") else 1.0
        weights[name] = ((offset + 0.2 * values) if is_norm else 0.1 * values).astype(np.float32)
    return weights


def write_random_model(folder, model_type="llama", seed=0, template=_TEMPLATE, **changes):
    """Writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json and generation_config.json to a folder. Returns the folder.

    template: the chat template; changes: other keys and values of config.json."""
    from .. import tensor
    from ..io import save

    folder = os.fspath(folder)
    os.makedirs(folder, exist_ok=True)
    config = config_json(model_type, **changes)
    save({name: tensor(values, device="cpu") for name, values in random_weights(config, seed).items()}, os.path.join(folder, "model.safetensors"))
    for name, document in (
        ("config", config), ("tokenizer", tokenizer_json()), ("tokenizer_config", {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}),
        ("generation_config", {"eos_token_id": [1, 3], "temperature": 0.7, "top_k": 20}),
    ):  # fmt: skip
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(document, f)
    return folder


ENCODER_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "window", "door", "is", "open", "shut", "a", "##s", "##ing", "house", "and", "to", "in", *"bcdefghijklmnopqrstuvwxyz")


def write_random_encoder(folder, seed=0, pooling="mean_tokens", normalize=True, **changes):
    """Writes a BERT encoder with random weights and a WordPiece tokenizer of ENCODER_WORDS, in the layout of Sentence Transformers. Returns the folder.

    pooling: what pooling_mode_ is true, or None for a folder without the files of Sentence Transformers; changes: other keys and values of config.json."""
    from .. import manual_seed
    from ..io import save
    from ..models import BertConfig, BertModel

    folder = os.fspath(folder)
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    config = {"model_type": "bert", "vocab_size": len(ENCODER_WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 64, "initializer_range": 0.3, **changes}
    manual_seed(seed)
    save(dict(BertModel(BertConfig.from_dict(config)).state_dict()), os.path.join(folder, "model.safetensors"))
    special = {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in enumerate(ENCODER_WORDS[:5])}
    documents = {
        "config": config,
        "tokenizer": {
            "version": "1.0",
            "added_tokens": [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, t in enumerate(ENCODER_WORDS[:5])],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                               "pair": [], "special_tokens": special},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {t: i for i, t in enumerate(ENCODER_WORDS)}},
        },
        "tokenizer_config": {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"},
    }  # fmt: skip
    if pooling is not None:
        kinds = ["Transformer", "Pooling"] + (["Normalize"] if normalize else [])
        documents["modules"] = [{"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{k}", "type": f"sentence_transformers.models.{k}"} for i, k in enumerate(kinds)]
        documents["1_Pooling/config"] = {"word_embedding_dimension": config["hidden_size"], **{f"pooling_mode_{k}": k == pooling for k in ("mean_tokens", "cls_token", "lasttoken", "max_tokens")}}
        documents["sentence_bert_config"] = {"max_seq_length": 32, "do_lower_case": False}
    for name, document in documents.items():
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(document, f)
    return folder
