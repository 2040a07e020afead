"""The random numbers of a text: those of NumPy's Generator(Philox(seed)).random(), one at a time, without NumPy.

Philox4x64-10 (Salmon et al., SC 2011) counts from 1 with a key of two words, which NumPy's SeedSequence makes of the seed (O'Neill's seed_seq_fe, pcg-random.org)."""
import os

_32, _64 = (1 << 32) - 1, (1 << 64) - 1
_POOL = 4  # words of 32 bits


def _key_of(seed):
    """Two words of 64 bits of a whole number from 0 upwards."""
    words = [seed >> begin & _32 for begin in range(0, max(seed.bit_length(), 1), 32)]
    factor = 0x43B0D7E5

    def hashed(x, step):
        nonlocal factor
        x ^= factor
        factor = factor * step & _32
        x = x * factor & _32
        return x ^ x >> 16

    def mix(i, x):
        x = (0xCA01F9DD * pool[i] - 0x4973F715 * hashed(x, 0x931E8875)) & _32
        pool[i] = x ^ x >> 16

    pool = [hashed(x, 0x931E8875) for x in (words + [0] * _POOL)[:_POOL]]
    for source in range(_POOL):
        for i in range(_POOL):
            if i != source:
                mix(i, pool[source])
    for word in words[_POOL:]:
        for i in range(_POOL):
            mix(i, word)
    factor = 0x8B51F9DD
    a, b, c, d = (hashed(x, 0x58F38DED) for x in pool)
    return a | b << 32, c | d << 32


class RandomNumbers:
    """random() gives the next number, a float from 0 up to but not including 1. seed: a whole number from 0 upwards; None is another one each time."""

    def __init__(self, seed: int | None = None) -> None:
        self._key = _key_of(int.from_bytes(os.urandom(16), "little") if seed is None else seed)
        self._count, self._left = 0, []

    def _block(self):
        """The four words of the next count, the last one first."""
        self._count += 1
        (k, m), a, b, c, d = self._key, self._count, 0, 0, 0
        for _ in range(10):
            x, y = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
            a, b, c, d = y >> 64 ^ b ^ k, y & _64, x >> 64 ^ d ^ m, x & _64
            k, m = k + 0x9E3779B97F4A7C15 & _64, m + 0xBB67AE8584CAA73B & _64
        return [d, c, b, a]

    def random(self) -> float:
        """The next number."""
        self._left = self._left or self._block()
        return (self._left.pop() >> 11) * 2.0**-53
