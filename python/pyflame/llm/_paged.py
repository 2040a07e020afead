"""A decoder's forward pass for parts of several texts at once, whose keys and values lie in blocks.

All tokens of a step are the rows of one matrix, so each linear layer is one product for all texts. A layer writes the new keys and values to their
blocks. Texts with one new token read the blocks in place (paged_attention); for parts of prompts the blocks that they need are gathered, one text
after the other, and attended to as packed sequences, or, of a step that reads one long prompt from its beginning, by themselves. A row that one of the two does not compute is zero in its result, and the results are added. paged_attention gets only
the first rows, up to the last text with one new token.
Numbers of rows and of blocks are rounded up to a few sizes, so windows repeat and find their programs in the program cache. Each program that is kept takes
memory, and a step with a part of a prompt has six such numbers: all but the rows, which cost the most time, have very few sizes there."""
import itertools
import operator
from array import array
from typing import NamedTuple

from .. import _C, _numpy as np
from .. import no_grad
from ._choice import LIKELIEST, Choices, Row, choose
from ._kv_cache import dequantized, format_of, quantized, row_bytes
from ._network import STEP, _on_gpu

BLOCK = 16  # tokens in a block
# In a step with a part of a prompt: the fewest rows, and rows of logits; the fewest blocks of a table; the fewest texts of packed sequences.
LEAST_ROWS, LEAST_BLOCKS, LEAST_TEXTS = 8, 16, 32
LEAST_WIDTH = 8  # the fewest blocks of the table of a step that only writes: so many keys are one part of paged_attention in any case
WHOLE = 2048  # on a GPU: the fewest tokens of a prompt that is attended to by itself where a step reads nothing else
_COPY_BYTES = 64 << 20  # the most that a copy of blocks takes of the device's memory
WASTE = 0  # the block that rows without a token write to; block manager: from 1 on


def rounded(n):
    """The next larger of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, …: halves of a power of two, and quarters from 32 on."""
    power = 1 << (n - 1).bit_length() - 1 if n > 1 else 1  # the largest power of two that is less than n
    step = max(1, power // (4 if power >= 32 else 2))
    return -(-n // step) * step


def coarsely_rounded(n, least):
    """`least`, or the smallest power of two that is not less than n if that is more."""
    return max(least, 1 << max(0, n - 1).bit_length())


def step_sizes(parts, wanted, texts=1):
    """(rows, rows of logits) of a step: at least the tokens of its parts, and the logits that they want; in a step with a part of a prompt those of `texts` texts, so that
    it has the same size however many texts are written."""
    tokens = sum(len(p.ids) for p in parts)
    if all(len(p.ids) == 1 for p in parts):
        return rounded(tokens), rounded(max(1, wanted))
    return rounded(max(LEAST_ROWS, tokens)), coarsely_rounded(max(wanted, texts), LEAST_ROWS)


def block_bytes(network, kv_cache_dtype="auto"):
    """The bytes of a block: keys and values of all layers, with their scales."""
    c = network.config
    return 2 * c.layers * BLOCK * c.kv_heads * row_bytes(kv_cache_dtype, c.head_dim, network.dtype)


def whole_prompt(device, parts):
    """Whether a step's only part is a long prompt from its first token on, whose attention a GPU's libraries may compute."""
    return _on_gpu(device) and len(parts) == 1 and parts[0].begin == 0 and len(parts[0].ids) >= WHOLE


def table_width(blocks):
    """The blocks that each text of a table has where all texts are written. A text reads no more blocks than it has, so a wide table costs little, and powers of two are few sizes."""
    return coarsely_rounded(blocks, LEAST_WIDTH)


class Size(NamedTuple):
    """Of steps that have one program. rows: of the matrix; written: blocks of the table of the texts that are written, 0: there are none; read: blocks to gather for parts of prompts,
    0: there are none; wanted: whether logits are."""

    rows: int
    written: int
    read: int = 0
    wanted: bool = True


def _powers(least, tokens):
    """The numbers of blocks to which those of up to `tokens` tokens are rounded."""
    found, most = [least], coarsely_rounded(-(-tokens // BLOCK), least)
    while found[-1] < most:
        found.append(2 * found[-1])
    return found


def writing_sizes(texts, tokens):
    """The sizes of all steps that write up to `texts` texts of up to `tokens` tokens: the smallest tables first, and of one width the most rows first."""
    return [Size(rows, width) for width in _powers(LEAST_WIDTH, tokens) for rows in sorted({rounded(n + 1) for n in range(texts)}, reverse=True)]


def reading_sizes(budget, tokens):
    """The sizes of steps of `budget` tokens that read a long prompt, of up to `tokens` tokens, alone or while texts of as many are written; the shortest first. A step may have the end of
    one and the begin of the next. Where there is no next one, the end of a prompt has fewer rows: there are too many sizes of these steps."""
    reads, rows = [n for n in _powers(LEAST_BLOCKS, tokens + budget) if n * BLOCK >= min(budget, tokens)], rounded(max(LEAST_ROWS, min(budget, tokens)))
    alone = [Size(rows, 0, read, wanted) for read in reads for wanted in (False, True)]
    beside = [Size(rows, width, read) for width in _powers(LEAST_BLOCKS, tokens) for read in reads]
    return sorted(alone + beside, key=lambda size: max(size.written, size.read))


class HostCopy:
    """Contents of `count` blocks on their way from tensors of the device to host memory. The device goes on with other work meanwhile."""

    def __init__(self, tensors, count):
        self.count, self._tensors, self._readbacks = count, None, [_C._Readback(x) for x in tensors]

    def tensors(self):
        """The contents, tensors on the CPU, when they have arrived."""
        if self._readbacks is not None:
            self._tensors, self._readbacks = [r.wait() for r in self._readbacks], None
        return self._tensors


class Pages:
    """Keys and values of `count` blocks and the waste block: for each layer a tensor of shape ((count + 1) BLOCK, key heads, head size), written in place. kv_cache_dtype: as of
    the Engine. If that has 8 bits, each layer also has key_scales and value_scales, ((count + 1) BLOCK, key heads). longest: the most tokens of a text, which decides about LongRoPE's factors, and
    for which the model's tables of positions are made at once: when they grow, all programs that read them are planned again. texts: how many texts a step with a part of a prompt has room for at least, so that it has the same
    size however many there are."""

    def __init__(self, network, count, kv_cache_dtype="auto", longest=1, texts=1):
        c, self.texts, self.block_bytes, self._coming = network.config, texts, block_bytes(network, kv_cache_dtype), []
        self.long = network.is_long(longest)
        network.reserve(longest, self.long)
        self.dtype, self.format = network.dtype, format_of(kv_cache_dtype, network.device)

        def of_layers(*shape, dtype):
            return [_C.empty((count + 1) * BLOCK, *shape, dtype=dtype, device=network.device) for _ in range(c.layers)]

        self.keys, self.values = (of_layers(c.kv_heads, c.head_dim, dtype=self.format or network.dtype) for _ in range(2))
        self.key_scales, self.value_scales = (of_layers(c.kv_heads, dtype=_C.float32) if self.format else [None] * c.layers for _ in range(2))

    def write(self, layer, slots, k, v):
        """Writes k and v (rows, key heads, head size) of a layer to slots (rows,)."""
        for x, pages, scales in ((k, self.keys, self.key_scales), (v, self.values, self.value_scales)):
            if self.format:
                x, s = quantized(x, self.format)
                scales[layer].index_copy_(0, slots, s)
            pages[layer].index_copy_(0, slots, x)

    def attention(self, layer, q, table, lengths, **options):
        """paged_attention of q (rows, heads, head size) over a layer's keys and values."""
        keys, values, *scales = (None if x is None else _blocks_of(x) for x in (self.keys[layer], self.values[layer], self.key_scales[layer], self.value_scales[layer]))
        return _C.paged_attention(q, keys, values, table, lengths, key_scale=scales[0], value_scale=scales[1], **options)

    def gathered(self, layer, table, count):
        """The keys and the values of these blocks, one after the other: (count BLOCK, key heads, head size), in the model's dtype."""
        def of_blocks(x):
            return x.reshape(-1, x.numel() // x.shape[0] * BLOCK).index_select(0, table).reshape(count * BLOCK, *x.shape[1:])

        k, v = of_blocks(self.keys[layer]), of_blocks(self.values[layer])
        if not self.format:
            return k, v
        return dequantized(k, of_blocks(self.key_scales[layer]), self.dtype), dequantized(v, of_blocks(self.value_scales[layer]), self.dtype)

    def saved(self, blocks):
        """The contents of blocks, a list of HostCopy. They are on their way to host memory: settle() waits for them."""
        copies = [HostCopy(self._contents_of(group), len(group)) for group in self._groups(blocks)]
        self._coming += copies
        return copies

    def restore(self, blocks, saved, places):
        """Writes what saved() returned into blocks: for each one the place among those that were saved."""
        begin = 0
        for copy in saved:
            here = [(block, place - begin) for block, place in zip(blocks, places) if begin <= place < begin + copy.count]
            for group in self._groups(here):
                self._write_contents(*zip(*group), copy.tensors())
            begin += copy.count

    def settle(self):
        """Waits until what saved() returned is in host memory; until then it takes the device's memory, too."""
        coming, self._coming = self._coming, []
        for copy in coming:
            copy.tensors()

    def _groups(self, items):
        """The items of a copy in groups: of a few sizes, because each size has a program of its own, and none with more than _COPY_BYTES."""
        most = 1 << max(0, (_COPY_BYTES // self.block_bytes).bit_length() - 1)
        while items:
            size = min(most, 1 << len(items).bit_length() - 1)
            yield items[:size]
            items = items[size:]

    def _contents_of(self, blocks):
        """The contents of blocks: keys and values of all layers, and their scales where there are any, each of shape (tensors, blocks, BLOCK, key heads, …)."""
        slots = self._slots(blocks)
        with no_grad():
            return [_C.stack([x.index_select(0, slots) for x in family]).reshape(len(family), len(blocks), BLOCK, *family[0].shape[1:]) for family in self._families()]

    def _write_contents(self, blocks, places, tensors):
        slots, places = self._slots(blocks), _C.tensor(np.array(places, dtype=np.int64), device="cpu")
        with no_grad():
            for family, contents in zip(self._families(), tensors):
                contents = contents.index_select(1, places).to(slots.device).reshape(len(family), len(blocks) * BLOCK, *family[0].shape[1:])
                for x, content in zip(family, contents):
                    x.index_copy_(0, slots, content)

    def _families(self):
        """Tensors of one shape: keys and values, and their scales."""
        return [[*self.keys, *self.values], *([[*self.key_scales, *self.value_scales]] if self.format else [])]

    def _slots(self, blocks):
        return _C.tensor((np.array(blocks, dtype=np.int64)[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1), device=self.keys[0].device)

    def copy(self, pairs):
        """Copies blocks: a list of (from, to)."""
        pairs = np.array([*pairs, *[(WASTE, WASTE)] * (rounded(len(pairs)) - len(pairs))], dtype=np.int64)  # a few sizes only
        source, target = map(self._slots, pairs.T)
        with no_grad():
            for x in itertools.chain.from_iterable(self._families()):
                x.index_copy_(0, target, x.index_select(0, source))


class Part:
    """The tokens of one text that a step computes. ids: their ids; begin: how many tokens of the text are in the cache; blocks: the text's blocks, with room
    for the new tokens; wanted: after how many of its last tokens the logits are wanted; adapter: its number, or None. after: where the only token is not known yet,
    its place among the tokens that the step before finds; its id is any number then."""

    __slots__ = ("ids", "begin", "blocks", "wanted", "adapter", "after")

    def __init__(self, ids, begin, blocks, wanted, adapter=None, after=None):
        self.ids, self.begin, self.blocks, self.wanted, self.adapter, self.after = ids, begin, blocks, int(wanted), adapter, after

    @property
    def end(self):
        return self.begin + len(self.ids)

    def table(self):
        """The blocks with the text's tokens up to the end of this part."""
        return self.blocks[: -(-self.end // BLOCK)]


class _Singles:
    """What paged_attention needs: how many of the first rows it computes, and of each the blocks and the number of keys, 0 for rows that are not a text's only new token."""

    def __init__(self, network, parts, begins, rows, texts):
        width = max(-(-p.end // BLOCK) for p in parts if len(p.ids) == 1)
        if all(len(p.ids) == 1 for p in parts):
            width = table_width(width)
        else:
            width = coarsely_rounded(width, LEAST_BLOCKS)
            # The engine's steps begin with these rows. Each further row would start workgroups that have nothing to do.
            last = max(row for p, row in zip(parts, begins) if len(p.ids) == 1)
            rows = min(rows, coarsely_rounded(max(1 + last, texts), LEAST_TEXTS))
        self.rows = rows
        lengths, table = [0] * rows, [WASTE] * (rows * width)
        for p, row in zip(parts, begins):
            if len(p.ids) == 1:
                blocks, at = p.table(), row * width
                table[at:at + len(blocks)], lengths[row] = blocks, p.end
        numbers = _C.tensor(array("i", lengths + table), device=network.device)  # one copy to the device
        self.table, self.lengths = numbers[rows:].reshape(rows, width), numbers[:rows]


class _Packed:
    """What varlen_attn needs: blocks to gather, offsets of queries and keys. Texts with one new token have no keys here.

    A sequence without queries skips keys that nobody may see: the end of a last block."""

    def __init__(self, network, parts, rows, texts):
        tables, queries, keys, at = [], [0], [0], 0
        for p in parts:
            table = p.table() if len(p.ids) > 1 else []
            for q, k in ((len(p.ids), p.end if table else 0), (0, len(table) * BLOCK)):
                queries.append(queries[-1] + q)
                keys.append(at + k)
            at += len(table) * BLOCK
            tables += table
        count = coarsely_rounded(len(tables), LEAST_BLOCKS)
        sequences = 2 * coarsely_rounded(max(len(parts), texts), LEAST_TEXTS) + 2
        queries.append(rows)  # rows without a token see no key
        keys.append(at)
        queries += [rows] * (sequences + 1 - len(queries))
        keys += [count * BLOCK] * (sequences + 1 - len(keys))
        self.count = count
        self.longest = tuple(max(1, *map(operator.sub, x[1:], x)) for x in (queries, keys))
        self.table = _C.tensor(array("q", tables + [WASTE] * (count - len(tables))), device=network.device)
        self.queries, self.keys = (_C.tensor(array("i", x), device=network.device) for x in (queries, keys))


def _blocks_of(pages):
    return pages.reshape(-1, BLOCK, *pages.shape[1:])


class Step:
    """The forward pass of some parts. rows: of the matrix, at least the parts' tokens; logits: rows of logits, at least those that the parts want. adapters: an
    Adapters (_lora.py), where a part has one. found: next_ids of the step before, where a part has its token from there."""

    def __init__(self, network, pages, parts, rows, logits, adapters=None, found=None):
        self.network, self.pages, self.parts, self.rows, self._found = network, pages, parts, rows, found
        ids, at, slots, self.begins = [], [], [], []
        for p in parts:
            self.begins.append(len(ids))
            ids += p.ids
            at += range(p.begin, p.end)
            slots += (p.blocks[i // BLOCK] * BLOCK + i % BLOCK for i in range(p.begin, p.end))
        last = [row for begin, p in zip(self.begins, parts) for row in range(begin + len(p.ids) - p.wanted, begin + len(p.ids))]
        self.adapt = None
        if adapters is not None and any(p.adapter is not None for p in parts):
            chosen = [p.adapter for p in parts for _ in p.ids]
            self.adapt = adapters.of_rows(chosen + [None] * (rows - len(ids)))
        self.wanted = len(last)
        network.reserve(-(-max(p.end for p in parts) // STEP) * STEP, pages.long)
        # Rows without a token write to the waste block, or nothing at all where an op of its own writes (rotary_store, which does not write pages of 8 bits).
        self._fused = network.config.architecture.positions == "rope" and not pages.format
        nowhere = -1 if self._fused else WASTE * BLOCK
        parts_of_it = [(at, rows, 0), (slots, rows, nowhere)]
        self._all_rows = rows == logits and last == list(range(len(last)))  # the rows are the logits' rows
        if not self._all_rows:
            parts_of_it.append((last, logits, 0))
        self.at, self.slots, self.last = [*self._uploaded(parts_of_it), None][:3]
        self.ids = self._ids(ids, parts, found)
        self._longer = any(len(p.ids) > 1 for p in parts)
        self._singles = _Singles(network, parts, self.begins, rows, pages.texts) if any(len(p.ids) == 1 for p in parts) else None
        self._packed, self._prompt, self._masks, self._tables = None, None, {}, {}

    def _uploaded(self, lists):
        """Tensors of lists of numbers, each (numbers, size, number behind the end), with one copy to the device."""
        numbers = array("q", [number for x, n, fill in lists for number in (*x, *[fill] * (n - len(x)))])
        return list(_C.tensor(numbers, device=self.network.device).split([n for _, n, _ in lists]))

    def _ids(self, ids, parts, found):
        """The rows' tokens, a tensor of their own wherever they come from: so the step has one program."""
        if found is None:
            return _C.tensor(array("q", ids + [0] * (self.rows - len(ids))), device=self.network.device)
        if found.shape[0] == self.rows and [p.after for p in parts] == list(range(len(parts))):
            return found
        # The rows choose from the tokens that were found and then those that the host knows.
        places = [[len(found) + begin + i for i in range(len(p.ids))] if p.after is None else [p.after] for begin, p in zip(self.begins, parts)]
        known, places = self._uploaded([(ids, self.rows, 0), ([place for of_part in places for place in of_part], self.rows, len(found))])
        chosen = _C.cat([found, known]).index_select(0, places)
        _C.cut()  # or each number of tokens that were found would be another program
        return chosen

    def run(self):
        """The wanted logits in the order of the parts, a float32 array (wanted, vocabulary). It waits for the values."""
        x = self.logits()
        if self.wanted:
            return x.cpu().numpy()[: self.wanted]
        x[:1].float().cpu().numpy()  # the step is complete then
        return np.empty((0, self.network.config.vocab), dtype=np.float32)

    def start(self, known, choices=None):
        """Starts the step. choices: a Choices of its rows of logits, a function that makes one while the device computes, or None: the likeliest tokens. Of the first `known` ids, the
        device chooses the next tokens: `next_ids`, an int64 tensor (logits,) on the device, which the next step can take before the host has seen it; None where no logits
        are wanted."""
        self.next_ids = None
        with no_grad():
            x = self.logits()
            if not self.wanted:
                self._chosen = _C._Readback(x[:1, :2].to(_C.float64))  # it is complete when the step is
                return
            _C.cut()  # what has been recorded begins; and how tokens are chosen makes no further programs of the whole step
            if callable(choices):
                choices = choices()
            elif choices is None:
                choices = Choices([Row(LIKELIEST)] * self.wanted, *x.shape)
            self._chosen = choose(x, known, choices, self._found)
        self.next_ids = self._chosen.ids

    def chosen(self):
        """After start(): a Found for each of the wanted logits. It waits for this step, and not for what was started after it."""
        if self.wanted:
            return self._chosen.wait(self.wanted)
        self._chosen.wait()
        return []

    def logits(self):
        """The logits that the parts want, float32 (logits, vocabulary), which are computed when they are read; without any, the hidden states."""
        n = self.network
        with no_grad():
            x = n.states(self.ids, lambda table: table.index_select(0, self.at), self._attention, self.adapt)
            return n._head(x if self._all_rows else x.index_select(0, self.last)) if self.wanted else x

    def _attention(self, i, q, k, v):
        """What layer i's queries see (rows, heads, head size); keys and values are written to the pages."""
        n, c = self.network, self.network.config
        windowed = c.windowed[i]
        if self._fused:
            q = _C._rotary_store(q, k, v, *n.turns(windowed, self.pages.long), self.at, self.slots, self.pages.keys[i], self.pages.values[i])
        else:
            if c.architecture.positions == "rope":
                q, k = (n._rotated(z, *self._turns(windowed)) for z in (q, k))
            self.pages.write(i, self.slots, k, v)
        window, y = c.window if windowed else None, None
        if self._singles is not None:
            y = self.pages.attention(i, q[: self._singles.rows], self._singles.table, self._singles.lengths, scale=c.scale, window=window, softcap=c.attention_cap or None)
        if self._longer:
            # Packed sequences have no masks, so neither a window nor a soft cap.
            if c.attention_cap or (window is not None and any(p.end > window for p in self.parts if len(p.ids) > 1)):
                z = self._masked_parts(i, q, window)
            elif whole_prompt(n.device, self.parts):
                z = self._whole_prompt(i, q)
            else:
                z = self._sequences(i, q)
            if y is not None:
                z[: self._singles.rows].add_(y)
            y = z
        return y

    def _turns(self, windowed):
        if ("turns", windowed) not in self._tables:
            self._tables["turns", windowed] = tuple(t.index_select(0, self.at).unsqueeze(1) for t in self.network.turns(windowed, self.pages.long))
        return self._tables["turns", windowed]

    def _sequences(self, i, q):
        c = self.network.config
        if self._packed is None:
            self._packed = _Packed(self.network, self.parts, self.rows, self.pages.texts)
        p = self._packed
        k, v = self.pages.gathered(i, p.table, p.count)
        return _C.varlen_attn(q, k, v, p.queries, p.keys, *p.longest, True, scale=c.scale, enable_gqa=c.heads != c.kv_heads)

    def _whole_prompt(self, i, q):
        """Attention of the step's only part, which is a prompt from its first token on: (rows, heads, head size). Libraries of GPUs compute it faster than packed sequences."""
        c = self.network.config
        if self._prompt is None:
            count, table = -(-self.rows // BLOCK), self.parts[0].table()
            nobody = np.arange(self.rows).reshape(-1, 1, 1) >= self.parts[0].end
            self._prompt = [_C.tensor(x, device=self.network.device) for x in (array("q", table + [WASTE] * (count - len(table))), nobody)]
        table, nobody = self._prompt
        # A library may let a nan through from a key that is not seen, and what lies behind the last token may be one.
        k, v = (x[: self.rows].masked_fill(nobody, 0).transpose(0, 1).unsqueeze(0) for x in self.pages.gathered(i, table, len(table)))
        z = _C.scaled_dot_product_attention(q.transpose(0, 1).unsqueeze(0), k, v, is_causal=True, scale=c.scale, enable_gqa=c.heads != c.kv_heads)
        return z[0].transpose(0, 1)

    def _masked_parts(self, i, q, window):
        """Attention with masks, one part after the other: (rows, heads, head size)."""
        n, c = self.network, self.network.config
        y = _C.zeros(self.rows + 1, c.heads, c.head_dim, dtype=n.dtype, device=n.device)  # the last row is for queries without a token
        longer = [j for j, p in enumerate(self.parts) if len(p.ids) > 1]
        for j in longer:
            if len(longer) > 1:
                _C.cut()  # or each combination of parts would be a program
            table, count, source, target, seen, beyond = self._mask(j, window)
            queries = q.index_select(0, source).transpose(0, 1).unsqueeze(0)
            k, v = self.pages.gathered(i, table, count)
            k, v = k.transpose(0, 1).unsqueeze(0), v.masked_fill(beyond, 0).transpose(0, 1).unsqueeze(0)  # what lies there belongs to nobody and may be nan
            if c.attention_cap:
                z = n._capped(queries, k, v, seen)
            else:
                z = _C.scaled_dot_product_attention(queries, k, v, seen, scale=c.scale, enable_gqa=c.heads != c.kv_heads)
            y.index_copy_(0, target, z[0].transpose(0, 1))
        if len(longer) > 1:
            _C.cut()
        return y[: self.rows]

    def _mask(self, j, window):
        """What the attention of a part needs: its blocks and their number; the rows of its queries, and where their results go; which keys each query
        sees, (queries, keys); which keys belong to nobody, (keys, 1, 1). Queries without a token see the first key."""
        if (j, window) not in self._masks:
            p, device = self.parts[j], self.network.device
            table, begin, tokens = p.table(), self.begins[j], len(p.ids)
            count, spare = coarsely_rounded(len(table), LEAST_BLOCKS), coarsely_rounded(tokens, LEAST_BLOCKS) - tokens
            key, at = np.arange(count * BLOCK)[None, :], np.array([*range(p.begin, p.end), *[0] * spare])[:, None]
            seen = (key <= at) & (key > at - window) if window is not None else key <= at
            numbers = np.array([*table, *[WASTE] * (count - len(table)), *range(begin, begin + tokens), *[0] * spare, *range(begin, begin + tokens), *[self.rows] * spare], dtype=np.int64)
            table, source, target = _C.tensor(numbers, device=device).split([count, tokens + spare, tokens + spare])
            self._masks[j, window] = table, count, source, target, _C.tensor(seen, device=device), _C.tensor((key >= p.end).reshape(-1, 1, 1), device=device)
        return self._masks[j, window]
