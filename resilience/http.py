"""One HTTP call that ends when it must, and says exactly what is known about it afterwards.

Built on requests, used for what it does well (urllib3's pool, the wire format) and kept from what surprises:
redirects, proxies and credentials from the environment, hidden repeats, cookies, unbounded waits and bodies.
"""

from __future__ import annotations

import http.client
import json as jsonlib
import math
import os
import re
import threading
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import EmptyPoolError

from resilience.body import Unusable, parse, read_all, unpack
from resilience.clock import SYSTEM_CLOCK, Clock
from resilience.deadline import HEADER, Deadline
from resilience.errors import (
    BadAnswer,
    ClientError,
    ConnectFailed,
    OutcomeUnknown,
    OutOfTime,
    PoolTimeout,
    ResilienceError,
    ServerError,
)
from resilience.resolver import Resolver
from resilience.retry_after import parse_retry_after
from resilience.sockets import Bounds, DeadlineSocket, current_bounds, open_connection, tls_context

request_id: ContextVar[str | None] = ContextVar("resilience_request_id", default=None)
"""The id of the request this work belongs to, sent on as `X-Request-ID`.

Unset or unfit, a new one is made.
"""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TARGET = re.compile(r"/[!\"$-~]*")
_LEAST_SECONDS = 0.001
_NOTHING_SENT = frozenset({"pool", "dns", "connect", "tls"})
_NETWORK_ERRORS = (OSError, http.client.HTTPException, urllib3.exceptions.HTTPError)
_TRANSIENT = frozenset({408, 425, 429})
_SAFE_HEADERS = ("content-type", "date", "idempotent-replayed", "request-id", "retry-after", "x-request-id")


@dataclass(frozen=True)
class HttpPolicy:
    """Where and within which bounds. Times are seconds.

    base_url: scheme, host, port and path prefix, without credentials. connect_timeout: name, connection
    and TLS together. read_timeout: between two bytes. call_timeout: everything. pool_wait: for a pooled
    connection. max_bytes: of a body, as sent and unpacked. headers: sent with every request, for
    instance Authorization. ca_bundle: file with the certificates to trust; None: the system's.
    """

    base_url: str
    connect_timeout: float
    read_timeout: float
    call_timeout: float
    pool_wait: float
    pool_size: int = 20
    max_bytes: int = 1_000_000
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_bundle: str | None = None

    def __post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("base_url must be http://host or https://host, with a port and a path if needed")
        if url.username is not None or url.password is not None:
            raise ValueError("base_url must not hold credentials; use headers")
        if url.query or url.fragment:
            raise ValueError("base_url must not hold a query or a fragment")
        for name in ("connect_timeout", "read_timeout", "call_timeout"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a finite number of seconds > 0, got {value}")
        if not (math.isfinite(self.pool_wait) and self.pool_wait >= 0):
            raise ValueError(f"pool_wait must be a finite number of seconds ≥ 0, got {self.pool_wait}")
        for name in ("pool_size", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be ≥ 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class HttpResponse:
    """A success. `body`: JSON with Decimal for fractions, None when there is none.

    `headers`: in lower case.
    """

    status: int
    body: Any
    headers: Mapping[str, str]


class HttpSession:
    """The connections of this process to one neighbour.

    Thread-safe. Connections are made at the first call and never taken over from a parent process;
    failures do not rebuild the pool.
    """

    def __init__(
        self, policy: HttpPolicy, *, clock: Clock = SYSTEM_CLOCK, resolver: Resolver | None = None
    ) -> None:
        """`resolver`: for names that must be looked up in a special way."""
        self.policy = policy
        self._now = clock.monotonic
        self._given_resolver = resolver
        self._lock = threading.Lock()
        self._adapter: tuple[int, _Adapter] | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        deadline: Deadline,
        form: Mapping[str, str] | None = None,
        json: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> HttpResponse:
        """Make one request and return its 2xx (or 304) answer with its parsed body.

        `path` begins with "/" and is quoted already. Raises NotSent (OutOfTime, PoolTimeout, ConnectFailed),
        OutcomeUnknown, BadAnswer, ClientError or ServerError; ValueError for a request that cannot be built.
        Returns or raises by the deadline, by `call_timeout` at the latest.
        """
        now = self._now()
        end = min(deadline.end, now + self.policy.call_timeout)
        if end - now < _LEAST_SECONDS:
            raise OutOfTime("too little time left to send a request")
        prepared = self._prepare(method, path, form=form, json=json, query=query)
        prepared.headers.update(headers or {})
        if idempotency_key is not None:
            prepared.headers["Idempotency-Key"] = idempotency_key
        prepared.headers[HEADER] = str(int((end - now) * 1000))
        bounds = Bounds(
            self._now,
            end,
            connect_timeout=self.policy.connect_timeout,
            read_gap=self.policy.read_timeout,
            pool_wait=self.policy.pool_wait,
        )
        token = current_bounds.set(bounds)
        try:
            status, received, data = self._exchange(prepared, bounds)
        finally:
            current_bounds.reset(token)
        return _outcome(status, received, data, self.policy.max_bytes)

    def close(self) -> None:
        """Close the idle connections. The session may be used again."""
        with self._lock:
            known, self._adapter = self._adapter, None
        if known is not None and known[0] == os.getpid():
            known[1].close()

    def _prepare(
        self,
        method: str,
        path: str,
        *,
        form: Mapping[str, str] | None,
        json: Any,
        query: Mapping[str, str] | None,
    ) -> requests.PreparedRequest:
        if not _TARGET.fullmatch(path):
            raise ValueError("path must begin with / and be quoted")
        if form is not None and json is not None:
            raise ValueError("a request has a form or a JSON body, not both")
        prepared = requests.PreparedRequest()
        prepared.method = method.upper()
        prepared.url = self.policy.base_url.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        prepared.headers = requests.structures.CaseInsensitiveDict(
            {
                "User-Agent": "holdfast",
                "Accept": "application/json",
                "Accept-Encoding": "gzip",
                "X-Request-ID": _fit_request_id(),
            }
        )
        prepared.headers.update(self.policy.headers)
        if form is not None:
            prepared.body = urlencode(form).encode()
            prepared.headers["Content-Type"] = "application/x-www-form-urlencoded"
        elif json is not None:
            prepared.body = jsonlib.dumps(json, allow_nan=False).encode()
            prepared.headers["Content-Type"] = "application/json"
        if prepared.body is not None:
            prepared.headers["Content-Length"] = str(len(prepared.body))
        elif prepared.method not in ("GET", "HEAD"):
            prepared.headers["Content-Length"] = "0"
        return prepared

    def _exchange(
        self, prepared: requests.PreparedRequest, bounds: Bounds
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send, receive, and read the body. Any failure comes out as one of our own errors."""
        status: int | None = None
        raw = None
        try:
            answer = self._connected().send(prepared, stream=True)
            status, raw = answer.status_code, answer.raw
            bounds.phase = "body"
            data = read_all(lambda most: raw.read1(most, decode_content=False), self.policy.max_bytes)
            return status, {name.lower(): raw.headers[name] for name in raw.headers}, data
        except Unusable as error:
            failure: ResilienceError = BadAnswer(str(error), status=status or 0)
        except Exception as error:
            if bounds.phase in _NOTHING_SENT and not isinstance(error, _NETWORK_ERRORS):
                raise  # a mistake in the request, found before anything was sent
            failure = _failure(bounds.phase, status, error)
        finally:
            if raw is not None:
                if not raw.closed:
                    raw.close()  # unread: the connection is of no more use
                raw.release_conn()
        # Raised out here, so that the original exception, which holds the request and its headers, is let go.
        raise failure

    def _connected(self) -> _Adapter:
        process = os.getpid()
        known = self._adapter
        if known is None or known[0] != process:
            with self._lock:
                known = self._adapter
                if known is None or known[0] != process:
                    known = self._adapter = (
                        process,
                        _Adapter(self.policy, self._given_resolver or Resolver()),
                    )
        return known[1]


def _fit_request_id() -> str:
    known = request_id.get()
    return known if known is not None and _ID.fullmatch(known) else uuid.uuid4().hex


# What is known afterwards


def _failure(phase: str, status: int | None, error: Exception) -> ResilienceError:
    """The phase decides, not the exception's class: the same class is raised before and after sending."""
    if phase == "pool":
        return PoolTimeout("no connection became free in time")
    if phase in _NOTHING_SENT:
        return ConnectFailed(f"no connection ({phase}: {_root(error)})")
    if status is not None:
        return BadAnswer(f"body did not arrive ({_root(error)})", status=status)
    return OutcomeUnknown(f"no answer ({phase}: {_root(error)})", phase=phase)


def _root(error: BaseException) -> str:
    """The class of the innermost cause: enough to understand, and nothing of the request in it."""
    for _ in range(10):
        inner = error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return type(error).__name__


def _outcome(status: int, headers: Mapping[str, str], data: bytes, limit: int) -> HttpResponse:
    if 200 <= status < 300 or status == 304:
        return HttpResponse(status, _good_body(status, headers, data, limit), headers)
    if not data and "content-length" not in headers and "transfer-encoding" not in headers:
        # Nothing says where this answer ends, so it may have been cut off among its headers.
        raise BadAnswer("body is missing", status=status)
    safe = {name: headers[name] for name in _SAFE_HEADERS if name in headers}
    kind = ClientError if 400 <= status < 500 and status not in _TRANSIENT else ServerError
    raise kind(
        status=status,
        body=_error_body(headers, data, limit),
        headers=safe,
        retry_after=parse_retry_after(headers.get("retry-after"), headers.get("date")),
    )


def _good_body(status: int, headers: Mapping[str, str], data: bytes, limit: int) -> Any:
    if status in (204, 205, 304):
        return None
    reason = ""
    try:
        return parse(unpack(data, headers.get("content-encoding", ""), limit))
    except Unusable as error:
        reason = str(error)
    raise BadAnswer(reason, status=status)


def _error_body(headers: Mapping[str, str], data: bytes, limit: int) -> Any:
    """The status decides; a body that is no JSON (a proxy's error page) is left out."""
    try:
        return parse(unpack(data, headers.get("content-encoding", ""), limit))
    except Unusable:
        return None


# The layers below, each kept from what it would do by itself


class _Opens:
    """Connections that look names up with a bound and connect within the call's bounds."""

    resolver: Resolver
    host: str
    port: int
    socket_options: list[tuple[int, int, int]] | None

    def _new_conn(self) -> DeadlineSocket:
        bounds = current_bounds.get()
        bounds.phase = "dns"
        bounds.begin_connecting()
        found = self.resolver.addresses(self.host, self.port, bounds.left_to_connect())
        return open_connection(found, bounds, list(self.socket_options or ()))


class _WaitsBriefly:
    """Pools whose wait for a connection is bounded by the policy and the call."""

    def _get_conn(self, timeout: float | None = None) -> Any:
        bounds = current_bounds.get()
        left = bounds.end - bounds.now()
        if left <= 0:
            # This error alone says that no connection was taken; after any other the pool would put one back.
            raise EmptyPoolError(self, "the time for this call is over")  # type: ignore[arg-type]
        conn = super()._get_conn(min(bounds.pool_wait, left))  # type: ignore[misc]
        bounds.phase = "connect"
        return conn


class _HttpPool(_WaitsBriefly, HTTPConnectionPool):
    pass


class _HttpsPool(_WaitsBriefly, HTTPSConnectionPool):
    pass


class _Adapter(HTTPAdapter):
    """A transport to one host, over one bounded pool."""

    def __init__(self, policy: HttpPolicy, resolver: Resolver) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self._timeout = urllib3.Timeout(connect=policy.connect_timeout, read=policy.read_timeout)
        self._pool = _pool(policy, resolver)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        return self._pool

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: the pool's own context verifies, whatever the environment says."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs["timeout"] = self._timeout
        return super().send(request, *args, **kwargs)

    def close(self) -> None:
        self._pool.close()
        super().close()


def _pool(policy: HttpPolicy, resolver: Resolver) -> HTTPConnectionPool:
    url = urlsplit(policy.base_url)
    host = url.hostname or ""
    attributes = {"resolver": resolver}
    if url.scheme == "http":
        plain = _HttpPool(host, url.port or 80, maxsize=policy.pool_size, block=True)
        plain.ConnectionCls = type("_Plain", (_Opens, HTTPConnection), attributes)
        return plain
    secure = _HttpsPool(
        host,
        url.port or 443,
        maxsize=policy.pool_size,
        block=True,
        cert_reqs="CERT_REQUIRED",
        ssl_context=tls_context(policy.ca_bundle),
    )
    secure.ConnectionCls = type("_Secure", (_Opens, HTTPSConnection), attributes)
    return secure
