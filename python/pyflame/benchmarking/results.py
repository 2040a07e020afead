"""A kept result whose figures are not samples of one function."""
import time
from dataclasses import dataclass, field

from . import environment

KINDS = ("llm", "collective", "comparison")


@dataclass
class Result:
    """What `pyflame bench llm`, `pyflame bench comm` in several processes and `pyflame bench compare` keep in the records.

    `name` is what was measured and `device` where; for a server that ran already, its address. `kind` is 'llm', 'collective' or 'comparison'. `figures` has the numbers by their names, `text` the lines that
    were printed for them. `arguments` has a text for each setting, `environment` the machine and its state as in a Measurement, `time` the end of the
    measurement in seconds since 1970. The commands make it; the fields are not checked, and nothing is raised for other values.
    """

    name: str
    device: str
    kind: str
    figures: dict
    text: str
    arguments: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)
    time: float = 0.0

    def to_dict(self):
        """The result as a dict for JSON: all fields by their names, as Records.add() writes them."""
        return dict(self.__dict__)

    @classmethod
    def from_dict(cls, record):
        """The Result of a dict that to_dict() returned. Unknown keys are ignored. KeyError for a dict without one of the fields."""
        return cls(**{k: record[k] for k in cls.__dataclass_fields__})

    def __str__(self):
        return "\n".join([f"{self.name} on {self.device}:", *(f"  {line}" for line in self.text.splitlines())])


def of(kind, name, device, figures, text, arguments=(), place=None, fn=None, file=None):
    """A Result with the environment of now. place: the device of this machine whose environment it is, if `device` is none; fn, file: of the program, for its commit."""
    here = place or device
    return Result(name, device, kind, figures, text, list(arguments), {**environment.describe(here, fn, file), "state": environment.state(here)}, time.time())
