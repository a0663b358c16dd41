"""One line per decision: JSON in production, plain text elsewhere. No value can forge a second line."""

from __future__ import annotations

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime

from resilience.http import request_id

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
trace_id: ContextVar[str | None] = ContextVar("holdfast_trace_id", default=None)
"""The trace that this work belongs to, when traces are on."""
# Whoever reads a log must not be able to open somebody's order or choose somebody's password.
_KEYS = re.compile(r"(/(?:orders|account/join|account/password/[^/\s]+)/)[A-Za-z0-9_:=.-]{16,}")


class LineFormatter(logging.Formatter):
    """Writes time, level, logger, message, request and trace id and the fields given by `extra=`."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line, in which keys that stand in addresses are left out."""
        return _KEYS.sub(r"\1…", self._line(record))

    def _line(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if identity := request_id.get():
            fields["request_id"] = identity
        if trace := trace_id.get():
            fields["trace_id"] = trace
        fields.update((key, value) for key, value in vars(record).items() if key not in _PLAIN)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if self._as_json:
            return json.dumps(fields, default=str, ensure_ascii=False)
        exception = fields.pop("exception", None)
        head = " ".join(str(fields.pop(key)) for key in ("at", "level", "logger", "message"))
        line = " ".join([head, *(f"{key}={value}" for key, value in fields.items())])
        line = line.replace("\r", "\\r").replace("\n", "\\n")
        return f"{line}\n{exception}" if exception else line
