"""The log of `pyflame serve`: lines for people on standard error, or with --json one JSON object a line on standard output."""
import json
import logging
import sys
from datetime import datetime, timezone


class JsonLines(logging.Formatter):
    """A record as one JSON object: time (ISO 8601, UTC), level, event, message, the fields that the record brings with extra={"event": ..., "fields": {...}}, and the traceback
    of an exception as `exception`."""

    def format(self, record):
        document = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"), "level": record.levelname,
            "event": getattr(record, "event", "message"), "message": record.getMessage(), **getattr(record, "fields", {}),
        }  # fmt: skip
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class Log:
    """What the program says of itself. as_json: as records of logging, which begin() writes as JSON."""

    def __init__(self, as_json=False):
        self.as_json = as_json

    def begin(self):
        """Sends the records of all loggers to where the lines go."""
        if self.as_json:
            handler = logging.StreamHandler(sys.stdout)
            handler.setFormatter(JsonLines())
            logging.basicConfig(handlers=[handler], level=logging.INFO)
        else:
            logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")

    def say(self, text, event, level=logging.INFO, **fields):
        """A line. event: what happened, a name for programs; fields: what only the object has."""
        if self.as_json:
            logging.getLogger("pyflame.serve").log(level, "%s", text, extra={"event": event, "fields": fields})
        else:
            print(f"pyflame serve: {text}", file=sys.stderr, flush=True)
