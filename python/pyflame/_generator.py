"""Generators of random numbers, which samplers and loaders take. Ops draw from the global generator, which manual_seed starts anew."""
from __future__ import annotations

import contextlib
import os

from . import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ._annotations import Device


class Generator:
    """Random numbers of its own, independent of the global ones. They are a function of the seed and of how many ops drew from it.

    device: what the attribute `device` says. Functions may use the generator for tensors of any device. ValueError for the name of no
    device.

        generator = pf.Generator().manual_seed(7)
        pf.rand(3, generator=generator)
    """

    def __init__(self, device: Device = "cpu") -> None:
        self.device = _C.device(device)
        self._state = (67280421310721, 0)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the numbers anew from this seed, an int, which is taken modulo 2^64. Returns the generator."""
        self._state = (int(seed) % 2**64, 0)
        return self

    def seed(self) -> int:
        """Starts the numbers anew from a seed that the operating system draws, an int of 63 bits, and returns it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        return self.initial_seed()

    def initial_seed(self) -> int:
        """The seed with which the numbers began, an int: that of manual_seed, seed or set_state."""
        return self._state[0]

    def get_state(self) -> tuple[int, int]:
        """The state as a tuple (seed, offset) of two ints. set_state with it repeats the numbers that follow."""
        return self._state

    def set_state(self, state: Sequence[int]) -> None:
        """Sets the state, a pair (seed, offset) of get_state: the numbers that followed it come again."""
        self._state = tuple(state)

    def clone_state(self) -> Generator:
        """A new generator with the state of this one. Both draw the same numbers from here on, independently of each other."""
        other = Generator(self.device)
        other.set_state(self.get_state())
        return other

    def get_offset(self) -> int:
        """How often numbers were drawn since the seed: an op that draws counts once, whatever its size."""
        return self.get_state()[1]

    def set_offset(self, offset: int) -> None:
        """Continues as if ops had drawn this often since the seed; the seed stays. Zero repeats all numbers."""
        self.set_state((self.get_state()[0], offset))

    @contextlib.contextmanager
    def _drawing(self):
        """Ops draw from this generator; afterwards the global one is where it was."""
        before = _C.get_rng_state()
        _C.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = _C.get_rng_state()
            _C.set_rng_state(before)

    def __repr__(self):
        return f"<pyflame.Generator seed={self.initial_seed()}>"


class _Global(Generator):
    """The generator that ops draw from."""

    _state = property(lambda self: _C.get_rng_state(), lambda self, state: _C.set_rng_state(state))

    def __init__(self):
        self.device = _C.device("cpu")

    @contextlib.contextmanager
    def _drawing(self):
        yield


default_generator = _Global()


def manual_seed(seed: int) -> Generator:
    """Starts the random numbers anew from this seed, on all devices. Returns the global generator.

    seed: an integer; a negative one counts modulo 2^64. TypeError for anything else, OverflowError below -2^63 and from 2^64 on.
    """
    _C.manual_seed(seed)
    return default_generator


def initial_seed() -> int:
    """The seed with which the numbers of the global generator began, an int: that of manual_seed or seed.

    It takes no arguments and raises nothing.
    """
    return default_generator.initial_seed()


def seed() -> int:
    """Starts the random numbers anew from a seed of the system, which is returned. It takes no arguments and raises nothing."""
    return default_generator.seed()


def drawing_from(generator: Generator | None) -> AbstractContextManager[None]:
    """A context in which ops draw from this generator; None means the global one."""
    if generator is None:
        return contextlib.nullcontext()
    if not isinstance(generator, Generator):
        raise TypeError(f"generator: not a Generator; got {type(generator).__name__}; expected pyflame.Generator() or None")
    return generator._drawing()


def draw_seed(generator: Generator | None = None) -> int:
    """A seed from a generator's random numbers."""
    with drawing_from(generator):
        return _C.randint(0, 2**62, (1,), device="cpu").item()
