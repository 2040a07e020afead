"""What a cache of 8 bits costs a model in perplexity, measured when an Engine begins, and the limit from which on the cache is refused (kv_cache_gate).

A short text is read twice, in parts, with keys and values of the model's dtype and with those of 8 bits. Each token after a part's first one already sees rounded
keys and values of its own part, so the parts' size has no influence on what is rounded."""
import math
from dataclasses import dataclass

from .. import _C
from .. import no_grad
from ._paged import BLOCK, Part, rounded

# The perplexity may become so much worse, as a part of it. docs/language-models.md has what models of different sizes have measured.
DEFAULT = 0.05
TOKENS, READ = 256, 64  # the most tokens of the text; how many are read at a time, which bounds the memory for logits
TEXT = (
    "The library of the small town stands between the post office and an old mill. It was built in 1912, when the mill still worked, and its walls are made of the same grey stone. "
    "On weekdays it opens at nine. The first visitors are usually pensioners who read the newspapers by the window; after school the children come, and it gets louder. "
    "The librarian, a patient woman with short hair, knows most of them by name. She says that the number of loans has fallen by 12 percent in ten years, but that more people than before "
    "sit at the tables and work there. \"They have books at home,\" she explains, \"but no quiet room.\"\n\n"
    "Last spring the roof began to leak. The council compared three offers: repairing the old tiles would cost 40,000, new tiles 95,000, and a flat roof with solar panels 120,000, of which the "
    "state would pay half. After a long discussion the third one was chosen. Work began in June and took eleven weeks. During this time the books were kept in the gymnasium, in boxes with numbers, "
    "and volunteers carried them back in a single day. Since then the building produces more electricity than it uses, except in December and January."
)


@dataclass(frozen=True)
class CacheCheck:
    """kv_cache_dtype; tokens: whose probabilities counted; auto, perplexity: with keys and values of the model's dtype, and of this one; change: perplexity / auto - 1; seconds: that the check took."""

    kv_cache_dtype: str
    tokens: int
    auto: float
    perplexity: float
    change: float
    seconds: float

    def __str__(self):
        return f"a perplexity of {self.perplexity:.4f} over {self.tokens} tokens, {self.auto:.4f} with 'auto' ({100 * self.change:+.2f}%)"


def check_limit(op, limit):
    """ValueError unless it is None or a number from 0 upwards."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < math.inf):
        raise ValueError(f"{op}: kv_cache_gate is out of range; got {limit!r}; expected None, or a number from 0 upwards such as {DEFAULT}")


def limit_of(op, text):
    """The kv_cache_gate of a command line: a number, or None for 'off'. ValueError."""
    try:
        limit = None if text == "off" else float(text)
        check_limit(op, limit)
        return limit
    except ValueError:
        raise ValueError(f"{op}: --kv_cache_gate is out of range; got {text!r}; expected off, or a number from 0 upwards such as {DEFAULT}") from None


def ids_of(model, most):
    """The tokens that are read: of TEXT, or for a model without a tokenizer ids from its whole vocabulary."""
    most = min(most, TOKENS)
    if model.tokenizer is None:
        return [i * 7919 % model.config.vocab for i in range(1, most + 1)]
    return [i for i in model.tokenizer.encode(TEXT) if i < model.config.vocab][:most]


def loss(step_of, ids):
    """The mean of -log p(token | tokens before it) over all ids but the first. step_of(parts, rows, rows of logits): a Step over pages with room for the ids."""
    blocks, total = list(range(1, -(-len(ids) // BLOCK) + 1)), 0.0
    for begin in range(0, len(ids) - 1, READ):
        part = ids[begin:min(begin + READ, len(ids) - 1)]
        rows = rounded(max(8, len(part)))
        with no_grad():
            logits = step_of([Part(part, begin, blocks, len(part))], rows, rows).logits()[: len(part)]
            target = _C.tensor(ids[begin + 1:begin + len(part) + 1], device=logits.device).unsqueeze(1)
            total += float((logits.logsumexp(1) - logits.gather(1, target).squeeze(1)).sum().item())
    return total / (len(ids) - 1)


def perplexity(mean):
    return math.exp(mean) if mean < 709 else math.inf if mean > 0 else math.nan


def change(auto, eight_bits):
    """By which part the perplexity grows between two mean losses; nan where one of them is not finite."""
    return math.nan if not math.isfinite(eight_bits - auto) else math.expm1(min(eight_bits - auto, 700.0))


def check(found, limit):
    """ValueError where a CacheCheck is beyond the limit, or says nothing because numbers are not finite."""
    if not found.change <= limit:
        raise ValueError(f"Engine: kv_cache_dtype {found.kv_cache_dtype!r} makes the model worse than kv_cache_gate allows; got {found}; expected at most {100 * limit:+g}%; "
                         "hint: another kv_cache_dtype, a higher kv_cache_gate, or kv_cache_gate=None, which measures nothing")
