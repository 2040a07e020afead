"""Names that programs import from this path."""
from ._tensor_methods import Storage as Storage

UntypedStorage = TypedStorage = Storage
