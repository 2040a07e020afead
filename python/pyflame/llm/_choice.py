"""The choice of the next tokens where the logits are: by temperature, top_k, top_p and min_p (the op draw_tokens), after biases, penalties and grammars, and with the
log probabilities of the likeliest tokens.

The host says of each row of logits what it knows of the text, as a Row; Choices puts these into a few arrays, which go to the device. What a text changes of its logits
is a list of the tokens that it concerns: those with a bias, those that are in the text, and those that would end it. The lists of all rows are one list, whose length is
rounded up, so rows without one cost nothing. Only ids, and the log probabilities that somebody wants, come back.

A device may compute the next step before the host has seen the token of this one. That token then counts as a part of the text on the device (Row.place)."""
from __future__ import annotations

from array import array
from typing import NamedTuple

from .. import _C, _numpy as np

LEAST_CHANGES, LEAST_TOP = 256, 32  # the shortest list of changed logits, and the fewest tokens whose log probabilities are found
_LARGEST, _SMALLEST = (2 - 2.0**-23) * 2.0**127, 2.0**-126  # of float32
_SEEN, _FORBIDDEN, _ONCE = 1, 2, 4  # what is known of a token, as a number: how often it was written, times 4, and two bits
LIKELIEST = (0.0, 0, 1.0, 0.0, 0.0)  # the settings of a row that takes the likeliest token


def power_of_two(n, least):
    """The smallest of `least`, 2 least, 4 least, … that is not less than n."""
    while least < n:
        least *= 2
    return least


def _settings_of(settings, count):
    """What the op draw_tokens takes, float32 of `count` rows with 5 numbers, one after the other. Rows behind the settings take the likeliest token."""
    return array("f", [number for row in settings for number in row] + [0.0] * 5 * (count - len(settings)))


class Changes:
    """What a text changes of its logits, kept while it grows. sampling: a Sampling; size: how many tokens can be drawn; stop_ids: tokens that end a text, which
    min_tokens forbids."""

    def __init__(self, sampling, size, stop_ids):
        s = sampling
        self._size, self._least, self._length = size, s.min_tokens, 0
        self._marks, self._counts = s.repetition_penalty != 1, bool(s.frequency_penalty or s.presence_penalty)
        self.penalties = min(max(s.repetition_penalty, _SMALLEST), _LARGEST), s.frequency_penalty, s.presence_penalty
        self._places, self._ids, self._codes, self._biases = {}, np.zeros(64, np.int32), np.zeros(64, np.int32), np.zeros(64, np.float32)
        for id, bias in (s.logit_bias or {}).items():
            self._biases[self._place(id)] = bias
        self._ends = [self._place(i) for i in sorted(stop_ids) if i < size] if s.min_tokens else []

    def _place(self, id):
        """Where a token is in the list. It is put at the end if it is not there."""
        place = self._places.setdefault(id, len(self._places))
        if place == self._ids.size:
            self._ids, self._codes, self._biases = (np.concatenate([x, np.zeros_like(x)]) for x in (self._ids, self._codes, self._biases))
        self._ids[place] = id
        return place

    @property
    def depend_on_tokens(self):
        """Whether a token of the text changes what may follow."""
        return self._marks or self._counts

    def grow(self, tokens, prompt):
        """Takes what the text has more than at the last call. tokens: the whole text, of which the first `prompt` were given."""
        begin = max(self._length, 0 if self._marks else prompt)
        self._length = len(tokens)
        if self.depend_on_tokens:
            for i in range(begin, len(tokens)):
                self._take(tokens[i], i >= prompt)

    def _take(self, id, written):
        if id < self._size:  # a prompt may have ids that are never drawn
            place = self._place(id)
            self._codes[place] = (self._codes[place] | _SEEN) + (_ONCE if written else 0)

    def after(self, guesses, written):
        """(ids, codes, biases) of the text with these tokens behind it, of which `written` tokens were written. Arrays, which the text's growth may change."""
        n = len(self._places)
        ids, codes, biases = self._ids[:n], self._codes[:n], self._biases[:n]
        if self._ends and written < self._least:
            codes = codes.copy()
            codes[self._ends] |= _FORBIDDEN
        return self._with(ids, codes, biases, guesses) if guesses and self.depend_on_tokens else (ids, codes, biases)

    def _with(self, ids, codes, biases, guesses):
        codes, new = codes.copy(), {}
        for id in guesses:
            if id in self._places:
                place = self._places[id]
                codes[place] = (codes[place] | _SEEN) + _ONCE
            elif id < self._size:
                new[id] = (new.get(id, 0) | _SEEN) + _ONCE
        return (np.concatenate([ids, np.array(list(new), np.int32)]), np.concatenate([codes, np.array(list(new.values()), np.int32)]),
                np.concatenate([biases, np.zeros(len(new), np.float32)]))  # fmt: skip


class Row(NamedTuple):
    """What the host knows of a row of logits. settings: as of Sampler.settings(); changes: None, or what Changes.after() has returned; penalties: repetition, frequency and
    presence; place: where the last token of the text is among those that the step before finds, -1 where the host knows it; allowed: None, or the words of a Matcher;
    top: None, or how many likeliest tokens are wanted, with their log probabilities and that of the token that is chosen; temperature: divides the logits of these;
    error: an exception that the row's text has met already; given: None, or a token whose log probability is wanted in the place of the chosen one's."""

    settings: tuple = LIKELIEST
    changes: tuple = None
    penalties: tuple = (1.0, 0.0, 0.0)
    place: int = -1
    allowed: np.ndarray = None
    top: int = None
    temperature: float = 1.0
    error: Exception = None
    given: int = None


class Found(NamedTuple):
    """What was found of a row. id: the token that was chosen; highest: the model's largest logit; left: the largest after biases, penalties and the grammar;
    logprob, top: where Row.top was given, log p of the token (or of Row.given), and of the likeliest ones as (id, log p), by the model's own logits; error: the row's."""

    id: int
    highest: float
    left: float
    logprob: float = None
    top: list = ()
    error: Exception = None


class Choices:
    """How the tokens of some rows of logits are chosen: Rows as arrays, which other processes can have. rows: of the first logits, at most `count`, and none
    takes more than the likeliest token behind them; width: the numbers of a row of logits. every: log probabilities are found for all rows where a row wants them, so that
    what is computed of one does not depend on how many there are."""

    def __init__(self, rows, count, width, every=False):
        self.count, self.errors = count, {i: r.error for i, r in enumerate(rows) if r.error is not None}
        self.settings = None if all(r.settings[0] == 0 for r in rows) else _settings_of([r.settings for r in rows], count)
        changed = [i for i, r in enumerate(rows) if r.changes is not None]
        self.changes = self._changes_of(rows, changed) if changed else None
        masked = [i for i, r in enumerate(rows) if r.allowed is not None]
        self.masks = self._masks_of(rows, masked, width) if masked else None
        self.tops = {i: r.top for i, r in enumerate(rows) if r.top is not None}
        self.shown = self._shown_of(rows, every) if self.tops else None
        self.given = self._given_of(rows) if any(r.given is not None for r in rows) else None

    def _changes_of(self, rows, changed):
        """(whether the list needs tokens that the step before finds, int32 numbers, float32 numbers): of the list ids, rows and codes, then the places of all rows; of the list biases, then
        the penalties of all rows."""
        ids, codes, biases = (np.concatenate(x) for x in zip(*(rows[i].changes for i in changed)))
        owners = np.repeat(np.array(changed, np.int32), [rows[i].changes[0].size for i in changed])
        n = power_of_two(ids.size, LEAST_CHANGES)
        self._listed, numbers, floats = n, np.zeros(3 * n + self.count, np.int32), np.zeros(n + 3 * self.count, np.float32)
        for k, x in enumerate((ids, owners, codes)):  # what is behind the end repeats the first; an empty list has token 0 of the first row, of which nothing is known
            numbers[k * n:k * n + x.size] = x
            numbers[k * n + x.size:(k + 1) * n] = x[0] if x.size else (0, changed[0], 0)[k]
        floats[: biases.size] = biases
        floats[biases.size:n] = biases[0] if biases.size else 0
        penalties, places = floats[n:].reshape(self.count, 3), numbers[3 * n:]
        penalties[:, 0], places[:] = 1, -1
        for i in changed:
            penalties[i], places[i] = rows[i].penalties, rows[i].place
        return bool((places >= 0).any()), numbers, floats

    def _masks_of(self, rows, masked, width):
        """(rows, words of bits that cover a row of logits)."""
        chosen = masked + masked[:1] * (power_of_two(len(masked), 1) - len(masked))
        words = np.zeros((len(chosen), -(-width // 32)), np.int32)
        for k, i in enumerate(chosen):
            words[k, : rows[i].allowed.size] = rows[i].allowed
        return np.array(chosen, np.int64), words

    def _shown_of(self, rows, every):
        """(how many likeliest tokens, rows, what divides their logits or None)."""
        chosen = list(range(self.count)) if every else list(self.tops)
        if not every:
            chosen += chosen[:1] * (min(self.count, power_of_two(len(chosen), 1)) - len(chosen))
        divisors = np.array([min(max(rows[i].temperature, 1e-30), 1e30) if i < len(rows) else 1 for i in chosen], np.float32)
        most = max(self.tops.values())
        return power_of_two(most, LEAST_TOP) if most else 0, np.array(chosen, np.int64), None if (divisors == 1).all() else divisors

    def _given_of(self, rows):
        """The tokens whose log probabilities are wanted, int64 (count,); -1: that of the token that is chosen."""
        given = np.full(self.count, -1, np.int64)
        given[: len(rows)] = [-1 if r.given is None else r.given for r in rows]
        return given

    @property
    def is_plain(self):
        """Whether nothing but the settings decides, and nobody wants log probabilities. The sizes of the arrays are the number of rows then."""
        return self.changes is None and self.masks is None and self.shown is None


class Chosen:
    """What choose() returns. ids: an int64 tensor (rows,) on the device."""

    def __init__(self, choices, ids, numbers, shown):
        self.ids, self._choices = ids, choices
        self._numbers, self._shown = _C._Readback(numbers), None if shown is None else _C._Readback(shown)

    def wait(self, count=None):
        """A Found of each of the first `count` rows (default: all). It waits for what was computed up to choose(), and not for later work."""
        numbers = self._numbers.wait().tolist()[:count]
        errors = self._choices.errors
        found = [Found(int(row[0]), row[1], row[-1], error=errors.get(i) if errors else None) for i, row in enumerate(numbers)]
        if self._shown is not None:
            self._add_logprobs(found, self._shown.wait().numpy())
        return found

    def _add_logprobs(self, found, numbers):
        rows, n = self._choices.shown[1], (numbers.shape[1] - 3) // 2
        with np.errstate(invalid="ignore", divide="ignore"):  # logits that are not finite, which Sampler.take() refuses
            logs = numbers[:, 2:3 + n] - numbers[:, :1] - np.log(numbers[:, 1:2])
        places = dict(zip(rows.tolist(), range(len(rows))))
        for i, top in self._choices.tops.items():
            k = places[i]
            likeliest = zip(numbers[k, 3 + n:3 + n + top].astype(np.int64).tolist(), logs[k, 1:1 + top].tolist())
            found[i] = found[i]._replace(logprob=float(logs[k, 0]), top=list(likeliest))


def choose(logits, known, choices, found=None):
    """Begins the choice of tokens, a Chosen. logits: float32 (rows, vocabulary), contiguous, which are written over; known: how many of the ids can be drawn; choices: a Choices
    of so many rows; found: the ids of the step before on the device, where a row has a place among them."""
    x = logits[:, :known]
    highest = [] if choices.changes is None and choices.masks is None else [x.amax(1)]
    # Each part is a program by itself: the number of programs is the sum of the sizes that the parts have, and not their product.
    shown = None
    if choices.shown is not None:
        shown = _Shown(x, *choices.shown)
        _C.cut()
    if choices.changes is not None:
        _change(logits, choices, found)
        _C.cut()
    if choices.masks is not None:
        _mask(logits, *choices.masks)
        _C.cut()
    if choices.settings is None:
        ids = x.argmax(1)
        left = x.gather(1, ids.unsqueeze(1))[:, 0]
    else:
        ids, left = _C._draw_tokens(x, _C.tensor(choices.settings, device=x.device).reshape(-1, 5))
    numbers = _C.stack([y.to(_C.float64) for y in (ids, *highest, left)], 1)
    return Chosen(choices, ids, numbers, None if shown is None else shown.of(ids if choices.given is None else _given_or(ids, choices.given)))


def _given_or(ids, given):
    """The ids, or in their place the tokens that were given."""
    given = _C.tensor(given, device=ids.device)
    return _C.where(given >= 0, given, ids)


def _change(logits, choices, found):
    """Biases, penalties and tokens that would end a text too early, of the logits in the list and of the tokens that the step before finds."""
    needs_found, numbers, floats = choices.changes
    n, count, width = choices._listed, choices.count, logits.shape[1]
    ids, rows, codes, places = _C.tensor(numbers, device=logits.device).split([n, n, n, count])
    biases, penalties = _C.tensor(floats, device=logits.device).split([n, 3 * count])
    penalties = penalties.reshape(count, 3)
    ids, rows, flat = ids.to(_C.int64), rows.to(_C.int64), logits.reshape(-1)
    times, seen, at = codes >> 2, (codes & _SEEN) != 0, rows * width + ids
    before = None
    if needs_found:
        is_found = places >= 0
        last = found.index_select(0, places.clamp(min=0).to(_C.int64))
        same = (_C.where(is_found, last, -1).index_select(0, rows) == ids)
        times, seen = times + same.to(_C.int32), seen | same
        # A token that the text did not have is not in the list. One that is there gets its value from the list, behind this. Rows without such a token write what token 0 has.
        where = _C.arange(count, device=logits.device) * width + _C.where(is_found, last, 0)
        before = where, _adjusted(flat.index_select(0, where), 0.0, penalties, is_found.to(_C.int32), is_found)
    values = _adjusted(flat.index_select(0, at), biases, penalties.index_select(0, rows), times, seen)
    values = _C.where((codes & _FORBIDDEN) != 0, -float("inf"), values)
    if before is not None:
        flat.index_copy_(0, *before)
    flat.index_copy_(0, at, values)


def _adjusted(x, bias, penalties, times, seen):
    """Logits x after their biases, the repetition penalty where they are seen, and the penalties for what was written so many times."""
    repetition, frequency, presence = penalties[:, 0], penalties[:, 1], penalties[:, 2]
    x = x + bias
    x = _C.where(seen, _C.where(x > 0, x / repetition, x * repetition), x)
    times = times.to(_C.float32)
    x = x - (times * frequency + _C.where(times > 0, presence, 0.0))
    return x.clamp(-_LARGEST, _LARGEST)


def _mask(logits, rows, words):
    """-inf for tokens whose bits are 0."""
    words, rows = (_C.tensor(x, device=logits.device) for x in (words, rows))
    bits = (words.unsqueeze(2) >> _C.arange(32, dtype=_C.int32, device=logits.device)) & 1
    allowed = bits.reshape(words.shape[0], -1)[:, : logits.shape[1]] != 0
    logits.index_copy_(0, rows, _C.where(allowed, logits.index_select(0, rows), -float("inf")))


class _Shown:
    """The rows whose log probabilities are wanted, before anything is changed. log p of a logit x is x - largest - log(sum), where the sum is that of exp(x - largest)."""

    def __init__(self, x, most, rows, divisors):
        self._rows = _C.tensor(rows, device=x.device)
        y = x.index_select(0, self._rows)
        self._logits = y if divisors is None else y / _C.tensor(divisors, device=x.device).unsqueeze(1)
        largest = self._logits.amax(1, keepdim=True)
        self._front = largest, (self._logits - largest).exp().sum(1, keepdim=True)
        self._top = self._logits.topk(min(most, x.shape[1]), 1) if most else ()

    def of(self, ids):
        """float64 (rows, 3 + 2 most): the largest logit, the sum, the logit of the token of ids, the likeliest logits and their ids."""
        chosen = self._logits.gather(1, ids.index_select(0, self._rows).unsqueeze(1))
        return _C.cat([y.to(_C.float64) for y in (*self._front, chosen, *self._top)], 1)
