"""Which blocks of the cache of keys and values belong to whom: reference counts, blocks shared by content, and eviction.

It knows numbers of blocks only; _paged.py has the tensors. Two blocks have the same content exactly if their tokens and all tokens before them are
equal. So a content is the pair (content of the block before, tokens), and it has a number that is used once: no hash can confuse two texts."""
from collections import OrderedDict

ROOT = 0  # the content before the first block of a text


class Blocks:
    """Blocks first … first + count - 1, each of `size` tokens. Not safe for several threads: the engine's thread alone uses it."""

    def __init__(self, count, size, first=0):
        self.count, self.size, self.first = count, size, first
        self.clear()

    def clear(self):
        """Forgets all contents. Every block is free afterwards."""
        self._free = list(range(self.first + self.count - 1, self.first - 1, -1))
        self._kept = OrderedDict()  # blocks that nobody holds and whose content is known, the least recently used first
        self._holders = {}  # block: how many hold it
        self._index = {}  # (content before, tokens): (block, content)
        self._key = {}  # block: its key in _index
        self._contents = ROOT

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
        taken = []
        for _ in range(n):
            if self._free:
                block = self._free.pop()
            else:
                block, _ = self._kept.popitem(last=False)
                del self._index[self._key.pop(block)]
            self._holders[block] = 1
            taken.append(block)
        return taken

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
        """The longest known beginning of ids in whole blocks, with at most `most` tokens: a list of (block, content). root: the content before the text."""
        found, content = [], root
        for begin in range(0, most - self.size + 1, self.size):
            known = self._index.get((content, tuple(ids[begin:begin + self.size])))
            if known is None:
                break
            found.append(known)
            content = known[1]
        return found

    def kept_among(self, blocks):
        """How many of these blocks nobody holds: hold() makes so many fewer available."""
        return sum(block in self._kept for block in blocks)

    def register(self, block, before, tokens):
        """Says what a full block contains. Returns the content's number. Where another block has this content already, that one stays the known one."""
        key = before, tuple(tokens)
        if key not in self._index:
            self._contents += 1
            self._index[key] = block, self._contents
            self._key[block] = key
        return self._index[key][1]
