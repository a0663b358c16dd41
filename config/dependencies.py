"""The third question of health: what works around this instance. For people and alerts, never for an orchestrator.

Every check reads only, uses a connection of its own, and is asked by one thread at a time. What is said names
the dependency and the class of an error, nothing of its address.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from health_check.base import HealthCheck
from health_check.exceptions import ServiceUnavailable
from health_check.views import HealthCheckView

from config.single_flight import SingleFlight
from payments.dependencies import build_session, patient
from payments.storage import PatientConnection
from resilience.deadline import Deadline, use_deadline
from resilience.errors import Answered, BadAnswer, ResilienceError, ServerError
from resilience.http import HttpSession

TIMEOUT_SECONDS = 2.0
"""After so long a dependency that says nothing counts as down."""
_CALL_MS = 1000
_askers = threading.BoundedSemaphore(4)  # each holds a place of a shopper while something says nothing


@dataclass
class Dependency(HealthCheck):  # type: ignore[misc]  # the library is not typed
    """One dependency, by the name that people know. `flight` raises when it does not work."""

    name: str
    flight: SingleFlight[None] = field(repr=False)

    def __repr__(self) -> str:
        return self.name

    @property
    def labels(self) -> dict[str, str]:
        return {"check": self.name}

    async def run(self) -> None:
        """Raises ServiceUnavailable with a sentence without secrets."""
        asked = asyncio.shield(asyncio.wrap_future(self.flight.begin()))
        try:
            await asyncio.wait_for(asked, TIMEOUT_SECONDS)
        except TimeoutError:
            raise ServiceUnavailable(f"does not answer within {TIMEOUT_SECONDS:g} s") from None
        except _Down as error:
            raise ServiceUnavailable(str(error)) from None
        except Exception as error:
            raise ServiceUnavailable(f"does not work ({type(error).__name__})") from None


class _Down(Exception):
    """Found not to work. The text is shown."""


class DependenciesView(HealthCheckView):  # type: ignore[misc]
    """`/health/dependencies/`: 200 or 503, JSON; `?format=text` and `?format=openmetrics` too."""

    http_method_names = ["get", "head"]

    def get_checks(self) -> list[Dependency]:
        return _all()

    async def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not _askers.acquire(blocking=False):
            text = "Enough others are being told; ask again in a second.\n"
            return HttpResponse(text, status=503, content_type="text/plain", headers={"Retry-After": "1"})
        try:
            return await self._tell(request)
        finally:
            _askers.release()

    async def _tell(self, request: HttpRequest) -> HttpResponse:
        self.results = await asyncio.gather(*(check.get_result() for check in self.get_checks()))
        status = 503 if any(result.error for result in self.results) else 200
        wanted = request.GET.get("format")
        response: HttpResponse
        if wanted == "openmetrics":
            response = self.render_to_response_openmetrics()  # always 200, else it could not be scraped
        elif wanted == "text":
            response = self.render_to_response_text(status)
        else:
            response = self.render_to_response_json(status)
        response._has_been_logged = True  # type: ignore[attr-defined]  # the checks have logged it by name
        return response


@cache
def _all() -> list[Dependency]:
    """Made at the first request of a process, so after any fork."""
    config = settings.HOLDFAST
    questions: dict[str, Callable[[], None]] = {
        "database": _database,
        "cache": lambda: _redis(settings.CACHE_URL),
        "broker": lambda: _redis(settings.BROKER_URL),
        **{name: _neighbour(name) for name in config.dependencies},
    }
    if settings.EMAIL_HOST:
        questions["mail"] = _mail
    return [Dependency(name, SingleFlight(question)) for name, question in questions.items()]


def _database() -> None:
    """Not through the pool, whose state is not the question, and never kept."""
    database: dict[str, Any] = settings.DATABASES["default"]
    options = {name: value for name, value in database["OPTIONS"].items() if name != "pool"}
    how = {
        **options,
        "dbname": database["NAME"],
        "user": database["USER"],
        "password": database["PASSWORD"],
        "host": database["HOST"],
        "port": database["PORT"],
        "options": f"{options.get('options', '')} -c statement_timeout={_CALL_MS}",
        "application_name": "holdfast health",
    }
    with use_deadline(Deadline.after_ms(_CALL_MS)), PatientConnection.connect(**how) as connection:
        row = connection.execute("SHOW transaction_read_only").fetchone()
    if row and row[0] == "on":
        raise _Down("takes no writes")


def _redis(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=0.5, socket_connect_timeout=0.5, retry=None) as client:
        client.ping()


def _neighbour(name: str) -> Callable[[], None]:
    """Any answer but a server's own error shows that somebody is there; no key is sent for that."""
    session: HttpSession = build_session(settings.HOLDFAST.dependencies[name], patient(_CALL_MS))

    def ask() -> None:
        try:
            session.request("GET", "/", deadline=Deadline.after_ms(_CALL_MS))
        except ServerError as error:
            raise _Down("answers with an error of its own") from error
        except (Answered, BadAnswer):
            return  # not the page we would want, but somebody is there
        except ResilienceError as error:
            raise _Down(f"does not answer ({type(error).__name__})") from error

    return ask


def _mail() -> None:
    socket.create_connection((settings.EMAIL_HOST, settings.EMAIL_PORT), timeout=1).close()
