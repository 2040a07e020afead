"""GPT-2; names as in Hugging Face's transformers."""
import math
from dataclasses import dataclass

from .. import nn
from .._C import arange, cat, empty, ones, tril, zeros


@dataclass
class GPT2Config:
    """The sizes of GPT-2 small by default. Keys of a config.json that are not here are ignored by from_dict.

    vocab_size: tokens. n_positions: the most tokens of a text. n_embd: the width. n_layer: blocks. n_head: heads of a block. n_inner: the width of
    the feed-forward layer; None: 4 n_embd. activation_function: a name; ValueError for one that is unknown. resid_pdrop, embd_pdrop, attn_pdrop:
    probabilities of dropout after each part of a block, of embeddings and of attention. layer_norm_epsilon: the eps of norms. initializer_range: the
    standard deviation of first weights. scale_attn_weights: whether scores are divided by the square root of a head's width;
    scale_attn_by_inverse_layer_idx: also by the number of the block, from 1. tie_word_embeddings: whether the head has the weight of the embedding.
    """

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True

    @classmethod
    def from_dict(cls, values):
        """The configuration of a config.json, read as a dict. Unknown entries are left out."""
        return cls(**{k: v for k, v in values.items() if k in cls.__dataclass_fields__})


_ACTIVATIONS = {"gelu_new": lambda x: nn.functional.gelu(x, approximate="tanh"), "gelu": nn.functional.gelu, "relu": nn.functional.relu, "silu": nn.functional.silu}


class Conv1D(nn.Module):
    """x W + b. The weight is (inputs, outputs), as GPT-2's files have it."""

    def __init__(self, outputs, inputs, std):
        super().__init__()
        self.weight = nn.Parameter(empty(inputs, outputs))
        self.bias = nn.Parameter(zeros(outputs))
        nn.init.normal_(self.weight, std=std)

    def forward(self, x):
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    def __init__(self, c, block=0):
        super().__init__()
        self.scale = (c.n_embd // c.n_head) ** -0.5 if c.scale_attn_weights else 1.0
        if c.scale_attn_by_inverse_layer_idx:
            self.scale /= block + 1
        self.heads, self.dropout = c.n_head, c.attn_pdrop
        self.c_attn = Conv1D(3 * c.n_embd, c.n_embd, c.initializer_range)
        self.c_proj = Conv1D(c.n_embd, c.n_embd, c.initializer_range / math.sqrt(2 * c.n_layer))
        self.resid_dropout = nn.Dropout(c.resid_pdrop)

    def forward(self, x, past=None):
        batch, length, dim = x.shape
        q, k, v = (z.view(batch, length, self.heads, dim // self.heads).transpose(1, 2) for z in self.c_attn(x).split(dim, dim=2))
        if past is not None:
            k, v = cat([past[0], k], dim=2), cat([past[1], v], dim=2)
        causal = length == k.shape[2]
        mask = None if causal or length == 1 else tril(ones(length, k.shape[2], dtype=x.dtype, device=x.device), k.shape[2] - length) > 0
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0, is_causal=causal, scale=self.scale)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(batch, length, dim))), (k, v)


class GPT2MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        inner = c.n_inner or 4 * c.n_embd
        self.c_fc = Conv1D(inner, c.n_embd, c.initializer_range)
        self.c_proj = Conv1D(c.n_embd, inner, c.initializer_range / math.sqrt(2 * c.n_layer))
        if c.activation_function not in _ACTIVATIONS:
            raise ValueError(f"GPT2Config: unknown activation_function; got {c.activation_function!r}; expected one of {', '.join(_ACTIVATIONS)}")
        self.act = _ACTIVATIONS[c.activation_function]
        self.dropout = nn.Dropout(c.resid_pdrop)

    def forward(self, x):
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


class GPT2Block(nn.Module):
    def __init__(self, c, block=0):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c.n_embd, eps=c.layer_norm_epsilon)
        self.attn = GPT2Attention(c, block)
        self.ln_2 = nn.LayerNorm(c.n_embd, eps=c.layer_norm_epsilon)
        self.mlp = GPT2MLP(c)

    def forward(self, x, past=None):
        y, present = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.mlp(self.ln_2(x)), present


class GPT2Model(nn.Module):
    """Token ids (N, T), T at most n_positions, to hidden states (N, T, n_embd).

    config: a GPT2Config. A call raises ValueError for ids of another rank and for more tokens than n_positions; TypeError for ids that are not int64 or
    int32; IndexError for an id beyond the vocabulary.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.drop = nn.Dropout(config.embd_pdrop)
        self.h = nn.ModuleList([GPT2Block(config, block) for block in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        for m in (self.wte, self.wpe):
            nn.init.normal_(m.weight, std=config.initializer_range)

    def forward(self, input_ids, past=None):
        """(hidden states, keys and values of each layer). past: those of the tokens before."""
        if input_ids.ndim != 2:
            raise ValueError(f"GPT2Model: the token ids have another rank; got shape {tuple(input_ids.shape)}; expected (N, T)")
        begin = 0 if past is None else past[0][0].shape[2]
        end = begin + input_ids.shape[1]
        if end > self.config.n_positions:
            raise ValueError(f"GPT2Model: too many tokens; got {end}; expected at most n_positions = {self.config.n_positions}")
        x = self.drop(self.wte(input_ids) + self.wpe(arange(begin, end, device=input_ids.device)))
        presents = []
        for i, block in enumerate(self.h):
            x, present = block(x, None if past is None else past[i])
            presents.append(present)
        return self.ln_f(x), presents


class GPT2LMHeadModel(nn.Module):
    """GPT-2 as a language model: token ids (N, T) to logits (N, T, vocab_size). The head shares the embedding's weight, unless
    tie_word_embeddings is False.

    config: a GPT2Config; None: that of GPT-2 small. A call raises what GPT2Model raises.
    """

    def __init__(self, config=None):
        super().__init__()
        self.config = config or GPT2Config()
        self.transformer = GPT2Model(self.config)
        self.lm_head = nn.Linear(self.config.n_embd, self.config.vocab_size, bias=False)
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.transformer.wte.weight
        else:
            nn.init.normal_(self.lm_head.weight, std=self.config.initializer_range)

    def forward(self, input_ids):
        return self.lm_head(self.transformer(input_ids)[0])

    def generate(self, input_ids, max_new_tokens, temperature=1.0, top_k=None):
        """Appends max_new_tokens to input_ids (N, T): the likeliest ones with temperature 0, drawn at random otherwise. Call eval() before."""
        from .. import no_grad, topk

        past, step, tokens = None, input_ids, [input_ids]
        with no_grad():
            for _ in range(max_new_tokens):
                hidden, past = self.transformer(step, past)
                logits = self.lm_head(hidden[:, -1])
                if temperature == 0:
                    step = logits.argmax(-1, keepdim=True)
                else:
                    logits = logits / temperature
                    if top_k is not None:
                        logits = logits.masked_fill(logits < topk(logits, top_k)[0][:, -1:], -math.inf)
                    from .. import multinomial

                    step = multinomial(logits.softmax(-1), 1)
                tokens.append(step)
        return cat(tokens, dim=1)
