"""Names that programs import from this path."""
from ._tensor_methods import Storage  # noqa: F401

UntypedStorage = TypedStorage = Storage
