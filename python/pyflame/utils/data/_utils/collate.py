"""Names that programs import from this path."""
from ....data.collate import collate, default_collate, default_collate_fn_map, default_convert  # noqa: F401
