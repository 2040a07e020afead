"""Names that programs import from this path."""
from ..nn.hooks import RemovableHandle as RemovableHandle
