"""Names that programs import from this path."""
from ....data.workers import WorkerInfo, get_worker_info  # noqa: F401
