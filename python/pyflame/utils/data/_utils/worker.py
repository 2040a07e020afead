"""Names that programs import from this path."""
from ....data.workers import WorkerInfo as WorkerInfo, get_worker_info as get_worker_info
