"""One JSON line an event on stderr: time, level, logger, message, and the fields of `extra={"fields": {...}}`.

Requests have one line each. No body, no header beyond the request id, no text of a conversation ever gets here: of an
unexpected exception its kind and places are logged, not its message (`faultlog`).
"""

import logging
import time
from typing import TextIO

import msgspec

from mainspring.faultlog import described, said

MESSAGE_CHARS = 2000


class JsonFormatter(logging.Formatter):
    _second, _when = -1, ""

    def format(self, record: logging.LogRecord) -> str:
        """A line of JSON; control characters are escaped by it."""
        second = int(record.created)
        if second != self._second:
            self._second, self._when = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        line: dict[str, object] = {
            "time": f"{self._when}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": said(record)[:MESSAGE_CHARS],
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = described(record.exc_info[1])
        return msgspec.json.encode(line).decode()


def set_up(stream: TextIO, level: int = logging.INFO) -> None:
    """Root logging of a serving process. What no line of ours says is not looked up: where in the source it was
    called, by which thread and process; that was half of a line's time."""
    logging._srcfile = None  # as the logging HOWTO has it
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # it says what we say
