"""The version as PyTorch's programs compare it: with texts and with tuples of numbers."""
import re


class TorchVersion(str):
    """A version that compares by its numbers, with a text or a tuple of numbers: TorchVersion("2.10.0") > "2.9".

    What follows the numbers does not count, and a text without numbers counts as the lowest version: comparisons raise nothing.
    """

    def _numbers(self, other):
        given = other if isinstance(other, (tuple, list)) else re.match(r"[\d.]*", str(other)).group().strip(".").split(".")
        numbers = [int(n) for n in given if str(n).isdigit()]
        while numbers and numbers[-1] == 0:
            numbers.pop()
        return numbers

    def __lt__(self, other):
        return self._numbers(self) < self._numbers(other)

    def __le__(self, other):
        return self._numbers(self) <= self._numbers(other)

    def __gt__(self, other):
        return self._numbers(self) > self._numbers(other)

    def __ge__(self, other):
        return self._numbers(self) >= self._numbers(other)
