"""The decoder that all architectures share, and its cache of keys and values.

Layers (arXiv:1706.03762): x + attention(norm(x)), then x + feed_forward(norm(x)). Positions are rotations of queries and keys (RoPE, arXiv:2104.09864)
or learned vectors. Shapes repeat: texts are computed in blocks of few sizes, and the cache has a fixed size, so the windows of a step find their
programs in the program cache."""
import math
import threading

from .. import _C
from .. import no_grad
from . import _layers, _loading, _offload
from ._experts import Experts
from ._packed import PackedWeight, PairedRows

BLOCKS = (512, 128, 32)  # sizes in which prompts are computed; the last block is padded, on a CPU to a multiple of LEAST: there each row costs about the same
LEAST = 8
STEP = 256  # the cache's length, and the part of it that a block of a prompt looks at, are multiples of this


def _frequencies(c, base, scaling, long=False):
    """(angle per position for each pair of dims, factor of cosines and sines). long: by LongRoPE's factors of long texts. Sources: linear, NTK and YaRN (arXiv:2309.00071), Llama 3.1, LongRoPE
    (arXiv:2402.13753)."""
    n, kind = c.rope_dim, scaling.get("type", "none")
    factor, original = scaling.get("factor", 1.0), scaling.get("original") or c.context
    if kind == "dynamic":  # NTK: a larger base, for the model's whole context
        base *= max(1.0, factor * c.context / original - (factor - 1)) ** (n / (n - 2))
    angles = [base ** (-2 * i / n) for i in range(n // 2)]
    attention = scaling.get("attention_factor")
    if kind == "linear":
        angles = [a / factor for a in angles]
    elif kind == "llama3":
        low, high = scaling.get("low_freq_factor", 1.0), scaling.get("high_freq_factor", 4.0)
        for i, a in enumerate(angles):
            turns = original * a / (2 * math.pi)
            keep = min(1.0, max(0.0, (turns - low) / (high - low)))
            angles[i] = a * keep + a / factor * (1 - keep)
    elif kind == "yarn":
        def dim_of(turns):
            return n * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

        first, last = max(math.floor(dim_of(scaling.get("beta_fast", 32.0))), 0), min(math.ceil(dim_of(scaling.get("beta_slow", 1.0))), n - 1)
        for i, a in enumerate(angles):
            keep = 1 - min(1.0, max(0.0, (i - first) / max(last - first, 1e-3)))
            angles[i] = a * keep + a / factor * (1 - keep)
        if attention is None:
            attention = 1 + 0.1 * math.log(factor) if factor > 1 else 1.0
            if scaling.get("mscale") and scaling.get("mscale_all_dim"):
                attention = (1 + 0.1 * scaling["mscale"] * math.log(factor)) / (1 + 0.1 * scaling["mscale_all_dim"] * math.log(factor))
    elif kind == "longrope" and attention is None:
        attention = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    divisors = scaling.get("long" if long else "short") if kind == "longrope" else scaling.get("divisors")
    if divisors is not None:
        divisors = [float(x) for x in (divisors.tolist() if hasattr(divisors, "tolist") else divisors)]
        if len(divisors) != len(angles) or min(divisors) <= 0:
            raise ValueError(f"llm: RoPE's factors do not fit; got {len(divisors)}; expected {len(angles)} positive numbers")
        angles = [a / d for a, d in zip(angles, divisors)]
    attention = 1.0 if attention is None else attention
    if not all(map(math.isfinite, [*angles, attention])):
        raise ValueError(f"llm: RoPE's angles are not finite; got a base of {base} and a factor of {factor}; expected numbers of a model that exists")
    return angles, attention


def _on_gpu(device):
    return str(device).partition(":")[0] in ("rocm", "cuda")


def _linear(x, weights):
    weight, bias = _offload.on_device(weights[0]), weights[1]
    return weight.linear(x, bias) if isinstance(weight, PackedWeight) else _C.linear(x, weight, bias)


def _rows(table, ids):
    return table.rows(ids) if isinstance(table, PackedWeight) else _C.embedding(ids, table)


def _can_join(weights):
    packed = all(isinstance(w, PackedWeight) and w.type == weights[0].type for w in weights)
    dense = not any(isinstance(w, PackedWeight) for w in weights) and _on_gpu(weights[0].device)
    return packed, dense


def _join_stacks(weights):
    """The gates and ups of all experts become one stack of matrices, where that is one product of groups instead of two."""
    both = weights["gate"], weights["up"]
    packed, dense = _can_join(both)
    if packed or dense:
        weights["gate_up"] = both[0].cat(both) if packed else _C.cat(list(both), dim=1)
        del weights["gate"], weights["up"]


def _joined(layer, name, parts):
    """Weights of the same type that multiply the same input become one: their rows follow each other. On GPUs weights without blocks do, too: there a
    launch costs more than it computes for a few rows."""
    weights, biases = zip(*(layer[p] for p in parts))
    packed, dense = _can_join(weights)
    if (packed or dense) and len({b is None for b in biases}) == 1:
        layer[name] = weights[0].cat(weights) if packed else _C.cat(list(weights), dim=0), None if biases[0] is None else _C.cat(list(biases), dim=0)
        for p in parts:
            del layer[p]


_ACTIVATIONS = {"silu": _C.silu, "gelu": _C.gelu, "relu": _C.relu, "gelu_tanh": lambda x: _C.gelu(x, approximate="tanh")}


class Cache:
    """Keys and values of one sequence: tensors of shape (1, key heads, capacity, head size) for each layer, written in place. length: tokens in it; long: its keys are rotated by LongRoPE's
    factors of long texts."""

    def __init__(self, network, tokens, long=False):
        c = network.config
        self.capacity, self.length, self.long = -(-tokens // STEP) * STEP, 0, long
        network.reserve(self.capacity, long)
        shape = (1, c.kv_heads, self.capacity, c.head_dim)
        self.keys = [_C.zeros(*shape, dtype=network.dtype, device=network.device) for _ in range(c.layers)]
        self.values = [_C.zeros(*shape, dtype=network.dtype, device=network.device) for _ in range(c.layers)]


    def grow(self, network, tokens):
        """Makes room for more tokens. The keys and values stay. If the memory does not suffice, nothing has changed."""
        with no_grad():
            bigger = Cache(network, tokens, self.long)
            for old, new in zip([*self.keys, *self.values], [*bigger.keys, *bigger.values]):
                new[:, :, :self.length] = old[:, :, :self.length]
        self.keys, self.values, self.capacity = bigger.keys, bigger.values, bigger.capacity


class Network:
    """The weights of a decoder, under the names of GGUF, and its forward pass. ValueError for weights that are missing or have another shape.

    share: this process's part of a model that several compute together (_share.py), or None. config is of the whole model; tensors and self.config are of the part.
    offload_bytes: of the last layers' matrices that lie in host memory (_offload.py)."""

    def __init__(self, config, tensors, dtype=None, device=None, share=None, offload_bytes=0):
        self.whole, self.share = config, share  # the Config of the whole model
        self.config = config if share is None else share.config(config)
        self.device = _C.get_device() if device is None else _C.device(device) if isinstance(device, str) else device
        self.dtype = dtype or _C.float32
        with no_grad():
            self._take(dict(tensors), offload_bytes)
        self.index, self.rope, self.rope_long, self._growing = None, [], [], threading.Lock()
        self.reserve(STEP)
        if "long" in self.config.scaling:
            self._angles(self.config.rope_base, self.config.scaling, True)  # wrong factors are found now, and not by the first long text

    # The weights.

    def _take(self, tensors, offload_bytes):
        c, a = self.config, self.config.architecture
        sizes, missing, wrong, used = _layers.sizes(c), [], [], set()

        def tensor(name, shape):
            t = tensors.get(name)
            used.add(name)
            if t is None:
                missing.append(name)
                return None
            if len(t.shape) == 1 and len(shape) == 2 and shape[0] == 1:  # GGUF files have a matrix of one row as a vector
                t = t.reshape(1, -1)
            if tuple(t.shape) != shape:
                wrong.append(f"{name} {tuple(t.shape)} instead of {shape}")
            return t

        def ready(t, dtype=None):
            if t is None:
                return None
            if isinstance(t, PackedWeight) and not t.as_floats:
                return t.to(self.device)
            if isinstance(t, (PackedWeight, PairedRows)):
                t = t.decoded(dtype or self.dtype)
            return t.detach().to(self.device).to(dtype or self.dtype)

        def taken(weight, shape, name):
            """(the weight, its bias or None), as the forward pass has them."""
            t, dtype = tensor(name + ".weight", shape), None
            if weight.kind == _layers.SMALL and isinstance(t, PackedWeight):
                t = t.decoded()
            if weight.kind == _layers.NORM:
                # GPUs compute norms of 16-bit types in float32 without casts, which would be kernels of their own.
                dtype = self.dtype if a.norm == "rms" and _on_gpu(self.device) else _C.float32
            biased = a.norm == "layer" if weight.kind == _layers.NORM else weight.bias and (c.bias or (name + ".bias" in tensors if weight.bias == "file" else getattr(c, weight.bias)))
            t = ready(t, dtype)
            return t, ready(tensor(name + ".bias", shape[:1]), dtype) if biased else None

        def of_model(name):
            weight = _layers.OF_NAME[name]
            return taken(weight, weight.shape(sizes), weight.gguf)

        self.embedding = of_model("embedding")[0]
        self.positions = of_model("positions")[0] if a.positions == "learned" else None
        self.output_norm = of_model("output_norm")
        own = "output.weight" in tensors if c.tied is None else not c.tied
        self.output = of_model("output")[0] if own else self.embedding
        if self.share is not None and self.output is not None:
            self.output = self.share.head(self.output, not own)
        self.layers, self.experts = [], {}
        first_offloaded = self._first_offloaded(tensors, offload_bytes)
        of_layer = {sparse: [(w, w.shape(sizes)) for w in _layers.of_layer(c, sparse)] for sparse in {False, c.experts is not None}}
        for i in range(c.layers):
            layer, of_experts = {}, {}
            for weight, shape in of_layer[c.experts is not None and i not in c.experts.dense]:
                name = f"blk.{i}.{weight.gguf}"
                if weight.unless in layer or (weight.optional and name + ".weight" not in tensors):
                    continue
                (of_experts if weight.of_experts else layer)[weight.name] = taken(weight, shape, name)
            self.layers.append(layer)
            if missing or wrong:
                break  # the first layer's names say enough
            for joined, parts in _layers.JOINED.items():
                if all(part in layer for part in parts):
                    _joined(layer, joined, parts)
            if of_experts:
                self.experts[i] = Experts(c.experts, {name: weight for name, (weight, _) in of_experts.items()}, _ACTIVATIONS[c.activation], _linear)
                _join_stacks(self.experts[i].weights)
            for weight in self._matrices(i):
                if isinstance(weight, PackedWeight):
                    weight.tile()
            if i >= first_offloaded:
                self._offload(i)
            _loading.packed(i + 1, c.layers)
        if missing or wrong:
            got = "; ".join(filter(None, ["no " + ", ".join(missing[:8]) if missing else "", ", ".join(wrong[:8])]))
            raise ValueError(f"llm: the weights do not fit the architecture '{a.gguf}'; got {got}; expected the tensors of the model's description")
        if isinstance(self.output, PackedWeight):
            self.output.tile(keep_rows=self.output is self.embedding)
        left = [name for name in tensors if name.startswith("blk.") and name not in used]
        if left:
            raise ValueError(f"llm: the weights do not fit the architecture '{a.gguf}' with {c.layers} layers; got {', '.join(left[:8])} ({len(left)} in all), which it does not use; "
                             "expected only the tensors of the model's description")

    def _matrices(self, i):
        """The matrices of layer i."""
        return [*(w for w, _ in self.layers[i].values() if len(w.shape) > 1), *(self.experts[i].matrices() if i in self.experts else [])]

    # Weights in host memory.

    def _first_offloaded(self, tensors, nbytes):
        """The first layer whose matrices go to host memory while they are read."""
        layers = self.config.layers
        if not nbytes or not _offload.can_offload(self.device):
            return layers
        sizes, each = [0] * layers, self.dtype.itemsize
        for name, t in tensors.items():
            weight, number = _layers.of_gguf(name.rpartition(".")[0], self.config.architecture) or (None, None)
            if number is not None and int(number) < layers and weight.kind == _layers.PRODUCT and len(t.shape) > 1:
                sizes[int(number)] += t.nbytes if isinstance(t, PackedWeight) and not t.as_floats else math.prod(t.shape) * each
        return _offload.first_offloaded(sizes, nbytes)

    def _offload(self, i):
        """Moves the matrices of layer i to host memory."""
        self.layers[i] = {name: (_offload.to_host(weight), bias) for name, (weight, bias) in self.layers[i].items()}
        if i in self.experts:
            self.experts[i].offload()

    def offload(self, nbytes):
        """Moves the matrices of the last layers to host memory, of nbytes at most with those that lie there already."""
        if not nbytes or not _offload.can_offload(self.device):
            return
        sizes = [sum(map(_offload.nbytes_of, self._matrices(i))) for i in range(len(self.layers))]
        with no_grad():
            for i in range(_offload.first_offloaded(sizes, nbytes), len(self.layers)):
                self._offload(i)

    def offloaded_bytes(self):
        """The bytes of the matrices that lie in host memory."""
        return sum(w.nbytes for i in range(len(self.layers)) for w in self._matrices(i) if isinstance(w, _offload.HostWeight))

    def experts_depend_on_batch(self):
        """Whether the last bits of a token's result depend on how many other tokens have the same expert: where a CPU's library computes the products."""
        return not _on_gpu(self.device) and any(not isinstance(w, PackedWeight) for e in self.experts.values() for w in e.weights.values())

    def is_long(self, length):
        """Whether texts of up to so many tokens have LongRoPE's factors of long texts. One cache has one set of factors, because keys that are in it cannot be rotated again."""
        return "long" in self.config.scaling and length > self.config.scaling["original"]

    def reserve(self, length, long=False):
        """Makes the tables of positions at least this long, and those of long texts too. They grow with the caches, because a model may claim a context of millions of tokens."""
        with self._growing:
            known = 0 if self.index is None else self.index.shape[0]
            if known >= length and (self.rope_long or not long):
                return
            length = max(known, 1 << (length - 1).bit_length())
            if self.config.architecture.positions == "rope":
                self.rope = self.rope if known == length else self._tables(length, False)
                self.rope_long = self._tables(length, True) if long or self.rope_long else []
            if known < length:
                self.index = _C.arange(length, device=self.device)

    def turns(self, windowed, long):
        """(cosines, sines) of a layer's positions."""
        return (self.rope_long if long else self.rope)[1 if windowed and self.config.local_base is not None else 0]

    def _tables(self, length, long):
        c = self.config
        bases = [(c.rope_base, c.scaling)] + ([(c.local_base, {})] if c.local_base is not None else [])
        return [self._table(base, scaling, length, long) for base, scaling in bases]

    @staticmethod
    def _rounded(n):
        return -(-n // STEP) * STEP

    def _angles(self, base, scaling, long):
        try:
            return _frequencies(self.config, base, scaling, long)
        except ArithmeticError as e:
            raise ValueError(f"llm: a number of the model's description is out of range; got {e} with RoPE's base {base} and {self.config.rope_dim} dims; expected one that RoPE can use") from None

    def _table(self, base, scaling, length, long):
        """(cosines, sines) of shape (length, rope_dim)."""
        angles, factor = self._angles(base, scaling, long)
        turns = _C.arange(length, dtype=_C.float64, device="cpu").unsqueeze(1) * _C.tensor(angles, dtype=_C.float64, device="cpu")
        both = ((f(turns) * factor).float() for f in (_C.cos, _C.sin))
        return tuple(_C.cat([x, x], dim=1).to(self.device).to(self.dtype) for x in both)

    # The forward pass.

    def _norm(self, x, weights):
        weight, bias = weights
        if bias is not None or self.config.architecture.norm == "layer":
            return _C.layer_norm(x.float(), (x.shape[-1],), weight, bias, self.config.eps).to(self.dtype)
        if weight.dtype == self.dtype:
            return _C.rms_norm(x, (x.shape[-1],), weight, self.config.eps)
        return _C.rms_norm(x.float(), (x.shape[-1],), weight, self.config.eps).to(self.dtype)

    def _rotated(self, x, cos, sin):
        n = self.config.rope_dim
        part = x if n == x.shape[-1] else x[..., :n]
        turned = _C.cat([-part[..., n // 2:], part[..., : n // 2]], dim=-1)
        part = part * cos + turned * sin
        return part if n == x.shape[-1] else _C.cat([part, x[..., n:]], dim=-1)

    def _product(self, i, name, x, adapt=None):
        """x times a weight of layer i, and what adapters add to it."""
        y = _linear(x, self.layers[i][name])
        y = y if adapt is None else adapt(i, name, x, y)
        return y if self.share is None or name not in _layers.SUMMED else self.share.summed(y)

    def _queries_keys_values(self, i, x, adapt=None):
        """Queries, keys and values (T, heads, head size), before they are turned."""
        c, layer = self.config, self.layers[i]
        if "qkv" in layer:
            q_size, kv_size = c.heads * c.head_dim, c.kv_heads * c.head_dim
            q, k, v = self._product(i, "qkv", x, adapt).split([q_size, kv_size, kv_size], dim=-1)
        else:
            q, k, v = self._product(i, "q", x, adapt), self._product(i, "k", x, adapt), self._product(i, "v", x, adapt)
        q, k, v = q.reshape(-1, c.heads, c.head_dim), k.reshape(-1, c.kv_heads, c.head_dim), v.reshape(-1, c.kv_heads, c.head_dim)
        return (self._norm(q, layer["q_norm"]), self._norm(k, layer["k_norm"]), v) if "q_norm" in layer else (q, k, v)

    def _capped(self, q, k, v, mask):
        """softmax(cap tanh(q k^T scale / cap)) v (arXiv:2408.00118)."""
        c, t = self.config, q.shape[2]
        q = q.reshape(1, c.kv_heads, c.heads // c.kv_heads, t, c.head_dim)
        scores = (q @ k.unsqueeze(2).transpose(-1, -2)).float() * c.scale
        scores = (scores / c.attention_cap).tanh() * c.attention_cap
        scores = scores.masked_fill(~mask, -math.inf)
        return (scores.softmax(-1).to(self.dtype) @ v.unsqueeze(2)).reshape(1, c.heads, t, c.head_dim)

    def _feed_forward(self, i, x, adapt=None):
        if i in self.experts:
            y = self.experts[i](x)
            return y if self.share is None else self.share.summed(y)
        act, layer = _ACTIVATIONS[self.config.activation], self.layers[i]
        if "gate_up" in layer:
            gate, up = self._product(i, "gate_up", x, adapt).split(self.config.inner, dim=-1)
            x = act(gate) * up
        elif "gate" in layer:
            x = act(self._product(i, "gate", x, adapt)) * self._product(i, "up", x, adapt)
        else:
            x = act(self._product(i, "up", x, adapt))
        return self._product(i, "down", x, adapt)

    def states(self, ids, positions, attention, adapt=None):
        """Hidden states (T, hidden) of tokens, ids (T,). This is the block of all architectures; what differs between the forward passes are two functions: positions(table) has the tokens' rows of
        learned positions, and attention(i, q, k, v) what layer i's queries see, T times heads times head size; it also keeps the keys and values. adapt: what adapters add to a product, or None."""
        c = self.config
        x = _rows(self.embedding, ids).to(self.dtype)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        if self.positions is not None:
            x = x + positions(self.positions)
        for i, layer in enumerate(self.layers):
            q, k, v = self._queries_keys_values(i, self._norm(x, layer["attn_norm"]), adapt)
            y = attention(i, q, k, v)
            y = self._product(i, "o", y.reshape(-1, c.heads * c.head_dim), adapt)
            x = x + (self._norm(y, layer["after_attn"]) if "after_attn" in layer else y)
            y = self._feed_forward(i, self._norm(x, layer["ffn_norm"]), adapt)
            x = x + (self._norm(y, layer["after_ffn"]) if "after_ffn" in layer else y)
        return x

    def _block(self, ids, cache, begin, adapt=None):
        """Hidden states (T, hidden) of T tokens from position `begin` on. Keys and values are written to the cache."""
        c, t, made = self.config, len(ids), {}
        length = cache.capacity if t == 1 else min(cache.capacity, self._rounded(begin + t))

        def seen(windowed):
            if windowed not in made:
                at, key = self.index[begin:begin + t].unsqueeze(1), self.index[:length].unsqueeze(0)
                made[windowed] = (key <= at) & (key > at - c.window) if windowed else key <= at
            return made[windowed]

        def attention(i, q, k, v):
            q, k, v = q.transpose(0, 1).unsqueeze(0), k.transpose(0, 1).unsqueeze(0), v.transpose(0, 1).unsqueeze(0)
            windowed = c.windowed[i]
            if c.architecture.positions == "rope":
                cos, sin = (table[begin:begin + t] for table in self.turns(windowed, cache.long))
                q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
            keys, values = cache.keys[i], cache.values[i]
            keys[:, :, begin:begin + t] = k
            values[:, :, begin:begin + t] = v
            if t == 1 and not windowed and not c.attention_cap:  # one token sees all keys: their number is no part of the program
                y = _C.scaled_dot_product_attention(q, keys, values, scale=c.scale, enable_gqa=c.heads != c.kv_heads, kv_length=begin + 1)
            else:
                keys, values, mask = keys[:, :, :length], values[:, :, :length], seen(windowed)
                y = self._capped(q, keys, values, mask) if c.attention_cap else _C.scaled_dot_product_attention(q, keys, values, mask, scale=c.scale, enable_gqa=c.heads != c.kv_heads)
            return y.transpose(1, 2)

        return self.states(_C.tensor(ids, dtype=_C.int64, device=self.device), lambda table: table[begin:begin + t], attention, adapt)

    def _head(self, x):
        logits = _linear(self._norm(x, self.output_norm), (self.output, None)).float()
        logits = (logits / self.config.logit_cap).tanh() * self.config.logit_cap if self.config.logit_cap else logits
        return logits if self.share is None else self.share.gathered(logits, self.config.vocab)

    def hidden(self, ids):
        """The hidden states of a text after the last norm, float32 (T, hidden). The caller checks the length."""
        return self.forward(ids, Cache(self, len(ids) + BLOCKS[-1], self.is_long(len(ids))), every=True, head=lambda x: self._norm(x, self.output_norm).float())

    def forward(self, ids, cache, every=False, head=None, adapt=None, blocks=None):
        """Appends tokens to the cache. Logits, float32: (T, vocab) with every, otherwise (vocab,) of the last token. The caller checks the lengths.

        head: what is computed of hidden states instead of logits; adapt: adapters (_lora.py); blocks: sizes of the parts, in falling order."""
        if self.share is not None:
            raise RuntimeError(f"llm: the model is divided over {self.share.size} processes; got a call that this one alone computes; expected LLM.generate(), LLM.chat() or Engine.submit(), in which all take part")
        ids, parts, last, head, blocks = list(ids), [], None, head or self._head, blocks or BLOCKS
        with no_grad():
            while ids:
                begin = cache.length
                size = 1 if len(ids) == 1 else next((b for b in blocks if b <= len(ids)), blocks[-1])
                if size > len(ids) and not _on_gpu(self.device):
                    size = min(size, -(-len(ids) // LEAST) * LEAST)
                size = min(size, cache.capacity - begin)
                if self.positions is not None:
                    size = min(size, self.config.context - begin)
                taken, ids = ids[:size], ids[size:]
                x = self._block(taken + [0] * (size - len(taken)), cache, begin, adapt)
                cache.length = begin + len(taken)
                if every:
                    parts.append(head(x)[:len(taken)])
                elif not ids:
                    last = head(x[len(taken) - 1:len(taken)])[0]
        return _C.cat(parts, dim=0) if every else last


def unpaired(tensors, config):
    """Rows of q and k of GGUF's llama from pairs (2i, 2i + 1) to halves (i, i + n/2), which the other files have."""
    changed = dict(tensors)
    for name, t in tensors.items():
        heads = _layers.heads_of(name, config)
        if heads and t.shape[0] == heads * config.head_dim:
            changed[name] = t.in_halves(heads) if isinstance(t, PackedWeight) else PairedRows(t, heads)
    return changed
