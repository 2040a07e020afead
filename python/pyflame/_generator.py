"""Generators of random numbers, which samplers and loaders take. Ops draw from the global generator, which manual_seed starts anew."""
import contextlib
import os

from . import _C


class Generator:
    """Random numbers of its own, independent of the global ones. They are a function of the seed and of how many were drawn.

    device: what the attribute `device` says. Functions may use the generator for tensors of any device.

        generator = pf.Generator().manual_seed(7)
        pf.rand(3, generator=generator)
    """

    def __init__(self, device="cpu"):
        self.device = _C.device(device)
        self._state = (67280421310721, 0)

    def manual_seed(self, seed):
        """Starts anew from this seed; returns the generator."""
        self._state = (int(seed) % 2**64, 0)
        return self

    def seed(self):
        """Starts anew from a seed of the system, which is returned."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        return self.initial_seed()

    def initial_seed(self):
        """The seed that the generator was started with."""
        return self._state[0]

    def get_state(self):
        """(seed, offset), for set_state."""
        return self._state

    def set_state(self, state):
        """Continues from what get_state returned."""
        self._state = tuple(state)

    def clone_state(self):
        """Another generator that continues from here."""
        other = Generator(self.device)
        other.set_state(self.get_state())
        return other

    def get_offset(self):
        """How many numbers were drawn."""
        return self.get_state()[1]

    def set_offset(self, offset):
        """Continues after this many numbers."""
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


def manual_seed(seed):
    """Starts the random numbers anew from this seed, on all devices. Returns the global generator."""
    _C.manual_seed(seed)
    return default_generator


def initial_seed():
    """The seed that the global generator was started with."""
    return default_generator.initial_seed()


def seed():
    """Starts the random numbers anew from a seed of the system, which is returned."""
    return default_generator.seed()


def drawing_from(generator):
    """A context in which ops draw from this generator; None means the global one."""
    if generator is None:
        return contextlib.nullcontext()
    if not isinstance(generator, Generator):
        raise TypeError(f"generator: not a Generator; got {type(generator).__name__}; expected pyflame.Generator() or None")
    return generator._drawing()


def draw_seed(generator=None):
    """A seed from a generator's random numbers."""
    with drawing_from(generator):
        return _C.randint(0, 2**62, (1,), device="cpu").item()
