"""Names that programs import from this path."""
from ....data.collate import default_collate, default_convert  # noqa: F401
