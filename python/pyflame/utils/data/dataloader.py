"""Names that programs import from this path."""
from ...data.collate import default_collate, default_convert  # noqa: F401
from ...data.loader import DataLoader  # noqa: F401
from ...data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler  # noqa: F401
from ...data.workers import get_worker_info  # noqa: F401
