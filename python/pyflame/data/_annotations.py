"""Names for the annotations of datasets and loaders. Type checkers and editors read this module; nothing imports it when a program runs."""
from typing import Protocol, TypeVar, Union

from .dataset import Dataset, T_co

SampleT = TypeVar("SampleT")


class Indexed(Protocol[T_co]):
    """What has a length and is read by index, such as a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


Samples = Union[Dataset[SampleT], Indexed[SampleT]]
