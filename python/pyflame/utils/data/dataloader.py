"""Names that programs import from this path."""
from ...data.collate import default_collate as default_collate, default_convert as default_convert
from ...data.loader import DataLoader as DataLoader
from ...data.sampler import BatchSampler as BatchSampler, RandomSampler as RandomSampler, Sampler as Sampler, SequentialSampler as SequentialSampler
from ...data.workers import get_worker_info as get_worker_info
