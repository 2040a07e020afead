"""BERT as an encoder (arXiv:1810.04805), such as MiniLM for embeddings of sentences; names as in Hugging Face's transformers."""
from dataclasses import dataclass

from .. import nn
from .._C import arange, ones, zeros


@dataclass
class BertConfig:
    """The sizes of BERT base by default. Keys of a config.json that are not here are ignored by from_dict.

    vocab_size: tokens. hidden_size: the width. num_hidden_layers: blocks. num_attention_heads: heads of a block. intermediate_size: the width of the
    feed-forward layer. hidden_act: the name of its activation; ValueError for one that is unknown. hidden_dropout_prob, attention_probs_dropout_prob:
    probabilities of dropout. max_position_embeddings: the most tokens of a text. type_vocab_size: kinds of segments. initializer_range: the standard
    deviation of first weights. layer_norm_eps: the eps of norms. pad_token_id: the token of padding, whose embedding gets no gradient.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0

    @classmethod
    def from_dict(cls, values):
        """The configuration of a config.json, read as a dict. Unknown entries are left out."""
        return cls(**{k: v for k, v in values.items() if k in cls.__dataclass_fields__})


_ACTIVATIONS = {"gelu": nn.functional.gelu, "gelu_new": lambda x: nn.functional.gelu(x, approximate="tanh"), "relu": nn.functional.relu, "silu": nn.functional.silu}


class BertEmbeddings(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size, padding_idx=c.pad_token_id)
        self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, input_ids, token_type_ids):
        positions = arange(input_ids.shape[1], device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids) + self.position_embeddings(positions)
        return self.dropout(self.LayerNorm(x))


class BertSelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.p = c.num_attention_heads, c.attention_probs_dropout_prob
        self.query = nn.Linear(c.hidden_size, c.hidden_size)
        self.key = nn.Linear(c.hidden_size, c.hidden_size)
        self.value = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x, mask):
        batch, length, dim = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, dim // self.heads).transpose(1, 2) for layer in (self.query, self.key, self.value))
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask, self.p if self.training else 0.0)
        return y.transpose(1, 2).reshape(batch, length, dim)


class BertOutput(nn.Module):
    """Linear, dropout, then the norm of the sum with what came in."""

    def __init__(self, inputs, c):
        super().__init__()
        self.dense = nn.Linear(inputs, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, x, short):
        return self.LayerNorm(self.dropout(self.dense(x)) + short)


class BertAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self = BertSelfAttention(c)
        self.output = BertOutput(c.hidden_size, c)

    def forward(self, x, mask):
        return self.output(self.self(x, mask), x)


class BertIntermediate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dense = nn.Linear(c.hidden_size, c.intermediate_size)
        if c.hidden_act not in _ACTIVATIONS:
            raise ValueError(f"BertConfig: unknown hidden_act; got {c.hidden_act!r}; expected one of {', '.join(_ACTIVATIONS)}")
        self.act = _ACTIVATIONS[c.hidden_act]

    def forward(self, x):
        return self.act(self.dense(x))


class BertLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = BertAttention(c)
        self.intermediate = BertIntermediate(c)
        self.output = BertOutput(c.intermediate_size, c)

    def forward(self, x, mask):
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class BertEncoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(c) for _ in range(c.num_hidden_layers)])

    def forward(self, x, mask):
        for layer in self.layer:
            x = layer(x, mask)
        return x


class BertPooler(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dense = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x):
        return self.dense(x[:, 0]).tanh()


class BertModel(nn.Module):
    """Token ids (N, T) to (hidden states (N, T, hidden_size), pooled first token (N, hidden_size)).

    attention_mask: (N, T), 1 for tokens and 0 for padding. token_type_ids: (N, T), which of two texts a token is of.

    config: a BertConfig; None: that of BERT base. A call raises ValueError for ids of another rank and for more tokens than max_position_embeddings;
    TypeError for ids that are not int64 or int32; IndexError for an id beyond the vocabulary.
    """

    def __init__(self, config=None):
        super().__init__()
        self.config = config or BertConfig()
        self.embeddings = BertEmbeddings(self.config)
        self.encoder = BertEncoder(self.config)
        self.pooler = BertPooler(self.config)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=self.config.initializer_range)
            if isinstance(m, nn.Linear):
                nn.init.zeros_(m.bias)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        if input_ids.ndim != 2:
            raise ValueError(f"BertModel: the token ids have another rank; got shape {tuple(input_ids.shape)}; expected (N, T)")
        if input_ids.shape[1] > self.config.max_position_embeddings:
            raise ValueError(f"BertModel: too many tokens; got {input_ids.shape[1]}; expected at most {self.config.max_position_embeddings}")
        if token_type_ids is None:
            token_type_ids = zeros(input_ids.shape, dtype=input_ids.dtype, device=input_ids.device)
        mask = None if attention_mask is None else (attention_mask != 0)[:, None, None, :]
        x = self.encoder(self.embeddings(input_ids, token_type_ids), mask)
        return x, self.pooler(x)


def mean_pooling(hidden, attention_mask=None):
    """The embedding of each sentence: the mean of its tokens' hidden states (N, T, D), scaled to length 1: (N, D).

    attention_mask: (N, T), 1 for tokens that count; None: all count. Raises ValueError for hidden of another rank and for a mask that does not fit.
    """
    if hidden.ndim != 3:
        raise ValueError(f"mean_pooling: not hidden states; got shape {tuple(hidden.shape)}; expected (N, T, D)")
    if attention_mask is None:
        attention_mask = ones(hidden.shape[:2], dtype=hidden.dtype, device=hidden.device)
    weights = attention_mask.to(hidden.dtype)[:, :, None]
    mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    return mean / (mean * mean).sum(-1, keepdim=True).clamp(min=1e-24).sqrt()


