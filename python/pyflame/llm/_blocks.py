"""Which blocks of the cache of keys and values belong to whom: reference counts, blocks shared by content, eviction, and contents that are saved in host memory.

It knows numbers of blocks only; _paged.py has the tensors. Two blocks have the same content exactly if their tokens and all tokens before them are
equal. So a content is the pair (content of the block before, tokens), and it has a number that is used once: no hash can confuse two texts."""
from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

ROOT = 0  # the content before the first block of a text


class Known(NamedTuple):
    """A content that was found. block: where it is, or None: it is saved. content: its number."""

    block: int | None
    content: int


class Saved:
    """The contents of blocks that were evicted together. data: what save() returned; count: how many they were; left: content -> its place among them, of those that are still saved here."""

    def __init__(self, data, contents):
        self.data, self.count, self.left = data, len(contents), {content: place for place, content in enumerate(contents)}


class Blocks:
    """Blocks first … first + count - 1, each of `size` tokens. Not safe for several threads: the engine's thread alone uses it.

    save(blocks): called with blocks whose contents are evicted, before they are given away. It returns something that the contents can be restored from, or None: they are forgotten."""

    def __init__(self, count, size, first=0, save=None):
        self.count, self.size, self.first, self._save = count, size, first, save
        self._contents = ROOT  # the number of the last content
        self._needed = {}  # content: how many need it
        self.clear()

    def clear(self):
        """Forgets all contents. Every block is free afterwards."""
        self._free = list(range(self.first + self.count - 1, self.first - 1, -1))
        self._kept = OrderedDict()  # blocks that nobody holds and whose content is known, the least recently used first
        self._holders = {}  # block: how many hold it
        self._index = {}  # (content before, tokens): Known
        self._key = {}  # block: its key in _index
        self._saved = {}  # content: (its key in _index, its Saved)
        self._forgettable = OrderedDict()  # each Saved of which nobody needs a content: None, the first that was evicted first
        self.saved_count = 0  # how many blocks all Saved are of

    @property
    def available(self):
        """How many blocks can be taken."""
        return len(self._free) + len(self._kept)

    @property
    def used(self):
        """How many blocks somebody holds."""
        return self.count - self.available

    def take(self, n):
        """n blocks, a list, each with one holder; contents that nobody holds are evicted for them, the least recently used first. None if there are not so many."""
        if n > self.available:
            return None
        taken = [self._free.pop() for _ in range(min(n, len(self._free)))]
        evicted = [self._kept.popitem(last=False)[0] for _ in range(n - len(taken))]
        self._evict(evicted)
        taken += evicted
        self._holders.update(dict.fromkeys(taken, 1))
        return taken

    def _evict(self, blocks):
        """Saves the contents of blocks, those that somebody needs first, because room is made for them."""
        needed, others = [], []
        for block in blocks:
            (needed if self._index[self._key[block]].content in self._needed else others).append(block)
        self._save_in_groups(needed)
        self._save_in_groups(others)

    def _save_in_groups(self, blocks):
        """Saves the contents of blocks, in groups of 1, 2, 4 and so on: each size of a copy has a program of its own."""
        while blocks:
            group = blocks[: 1 << len(blocks).bit_length() - 1]
            blocks = blocks[len(group):]
            keys = [self._key.pop(block) for block in group]
            data = self._save(group) if self._save is not None else None
            if data is None:
                for key in keys:
                    del self._index[key]
                continue
            saved = Saved(data, [self._index[key].content for key in keys])
            self.saved_count += saved.count
            for key in keys:
                self._index[key] = Known(None, self._index[key].content)
                self._saved[self._index[key].content] = key, saved
            self._sort(saved)

    def need(self, contents):
        """Says that somebody needs these contents: those that are saved are not forgotten until need_no_more() was called as often."""
        for content in contents:
            self._needed[content] = self._needed.get(content, 0) + 1
        self._sort_those_with(contents)

    def need_no_more(self, contents):
        """The contrary of need()."""
        for content in contents:
            self._needed[content] -= 1
            if not self._needed[content]:
                del self._needed[content]
        self._sort_those_with(contents)

    @property
    def saved_needed(self):
        """How many contents that somebody needs are saved."""
        return sum(content in self._saved for content in self._needed)

    def _sort_those_with(self, contents):
        for saved in {self._saved[content][1]: None for content in contents if content in self._saved}:
            self._sort(saved)

    def _sort(self, saved):
        """Notes whether a Saved may be forgotten."""
        if not saved.left or any(content in self._needed for content in saved.left):
            self._forgettable.pop(saved, None)
        else:
            self._forgettable.setdefault(saved)

    def forget_saved(self):
        """Forgets the contents that were saved first, all that were evicted together, but those that somebody needs. Returns whether there were any."""
        if not self._forgettable:
            return False
        saved, _ = self._forgettable.popitem(last=False)
        for content in list(saved.left):
            key, _ = self._unsaved(content)
            del self._index[key]
        return True

    def _unsaved(self, content):
        """Takes a content from those that are saved: (its key, (its Saved, its place there))."""
        key, saved = self._saved.pop(content)
        place = saved.left.pop(content)
        if not saved.left:
            self.saved_count -= saved.count
        if not saved.left or content in self._needed:
            self._sort(saved)
        return key, (saved, place)

    def hold_found(self, found):
        """One more holder for what find() has returned: (blocks, restores). A content that is saved gets a block, of which there must be enough. restores: a list of (data, blocks, places): what save() has
        returned, and which of its places must be copied to which blocks now."""
        places = {known.content: self._unsaved(known.content) for known in found if known.block is None}  # before others are evicted and take their places
        self.hold([known.block for known in found if known.block is not None])
        fresh, blocks, groups = self.take(len(places)), [], {}
        for known in found:
            block = known.block
            if block is None:
                block, (key, (saved, place)) = fresh.pop(), places[known.content]
                self._index[key], self._key[block] = Known(block, known.content), key
                _, targets, sources = groups.setdefault(id(saved), (saved.data, [], []))
                targets.append(block)
                sources.append(place)
            blocks.append(block)
        return blocks, list(groups.values())

    def hold(self, blocks):
        """One more holder for each of these blocks, which find() has returned."""
        for block in blocks:
            self._kept.pop(block, None)
            self._holders[block] = self._holders.get(block, 0) + 1

    def release(self, blocks):
        """One holder less for each. The end of a text is evicted before its beginning."""
        for block in reversed(blocks):
            left = self._holders[block] - 1
            if left:
                self._holders[block] = left
                continue
            del self._holders[block]
            if block in self._key:
                self._kept[block] = None
            else:
                self._free.append(block)

    def find(self, ids, most, root=ROOT):
        """The longest known beginning of ids in whole blocks, with at most `most` tokens: a list of Known. root: the content before the text."""
        found, content = [], root
        for begin in range(0, most - self.size + 1, self.size):
            known = self._index.get((content, tuple(ids[begin:begin + self.size])))
            if known is None:
                break
            found.append(known)
            content = known.content
        return found

    def kept_among(self, blocks):
        """How many of these blocks nobody holds: hold() makes so many fewer available."""
        return sum(block in self._kept for block in blocks)

    def register(self, block, before, tokens):
        """Says what a full block contains. Returns the content's number. Where another block has this content already, that one stays the known one; where it is saved, it need not be any more."""
        key = before, tuple(tokens)
        known = self._index.get(key)
        if known is None:
            self._contents += 1
            known = Known(None, self._contents)
        elif known.block is None:
            self._unsaved(known.content)
        if known.block is None:
            self._index[key] = Known(block, known.content)
            self._key[block] = key
        return known.content
