"""/v1/embeddings: requests and answers of OpenAI's API, and the thread that computes vectors.

Requests are computed one after the other, the texts of a request in batches. A request that was given up is skipped if it has not begun."""
import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ._requests import Fields, RequestError, _shown, check_model

MOST_TEXTS = 2048  # OpenAI's limit
_ENCODINGS = ("float", "base64")


@dataclass
class EmbeddingJob:
    """What a request asks for. ids: a list of token ids for each text."""

    ids: list
    dimensions: int = None
    encoding: str = "float"


def embedding_job(document, model, names):
    """The EmbeddingJob of a request to /v1/embeddings. RequestError."""
    f = Fields("embeddings", document)
    check_model(f, names)
    f.get("user", str)
    encoding = f.get("encoding_format", str, "float")
    if encoding not in _ENCODINGS:
        raise f.wrong("encoding_format", "there is no such encoding_format", _shown(encoding), " or ".join(_ENCODINGS))
    dimensions, truncate = f.get("dimensions", int, None, 1, 1 << 20), f.get("truncate_prompt_tokens", int, None, -1, 1 << 31)
    if f.values.get("messages") is not None:
        raise f.wrong("messages", "messages are not available yet", "some", "input", code="unsupported_parameter")
    given = f.values.get("input")
    if isinstance(given, str) or (isinstance(given, list) and given and isinstance(given[0], int)):
        given = [given]
    if not isinstance(given, list) or not given or not all(isinstance(t, (str, list)) for t in given):
        raise f.wrong("input", "input has the wrong type" if given else "there is no input", _shown(given), "a text, texts, token ids, or lists of token ids")
    if len(given) > MOST_TEXTS:
        raise f.wrong("input", "there are too many texts", len(given), f"at most {MOST_TEXTS}")
    try:
        model.check_dimensions(dimensions)
    except ValueError as e:
        raise RequestError(f"embeddings: {e}", param="dimensions", code=None if model.matryoshka else "unsupported_parameter") from None
    try:
        ids = [model.ids(f.text("input", t) if isinstance(t, str) else t, truncate) for t in given]
    except (ValueError, TypeError) as e:
        code = "context_length_exceeded" if "too many tokens" in str(e) else None
        raise RequestError(f"embeddings: {e}", param="input", code=code) from None
    return EmbeddingJob(ids, dimensions, encoding)


def embedding_document(job, vectors, name):
    """The answer."""
    def form(v):
        return base64.b64encode(v.astype("<f4").tobytes()).decode() if job.encoding == "base64" else [float(x) for x in v]

    count = sum(map(len, job.ids))
    return {"object": "list", "data": [{"object": "embedding", "embedding": form(v), "index": i} for i, v in enumerate(vectors)], "model": name, "usage": {"prompt_tokens": count, "total_tokens": count}}


class Embedder:
    """Computes vectors with an EmbeddingModel on a thread of its own. It has the place that an Engine has in a Server."""

    def __init__(self, model):
        self.model, self.max_model_len = model, model.context
        self._pool, self._lock = ThreadPoolExecutor(1, thread_name_prefix="pyflame-embedder"), threading.Lock()
        self._running, self.waiting, self._tokens = 0, 0, 0

    def submit(self, job):
        """A Future of the vectors, float32 (texts, size)."""
        count = len(job.ids)

        def compute():
            with self._lock:
                self._running += count
                self.waiting -= count
            try:
                return self.model.vectors(job.ids, job.dimensions)
            finally:
                with self._lock:
                    self._running -= count
                    self._tokens += sum(map(len, job.ids))

        with self._lock:
            self.waiting += count
        future = self._pool.submit(compute)
        future.add_done_callback(lambda f: self._given_up(count) if f.cancelled() else None)
        return future

    def _given_up(self, count):
        with self._lock:
            self.waiting -= count

    def stats(self):
        """A dict by the names of Engine.stats()."""
        with self._lock:
            return {"num_requests_running": self._running, "num_requests_waiting": self.waiting, "prompt_tokens_total": self._tokens}

    def close(self, drain=True):
        self._pool.shutdown(wait=True, cancel_futures=not drain)
