"""Fault rules: which requests go wrong, and how. JSON in, frozen values out; nonsense is refused.

`PUT /_sandbox/faults` takes a list of `{"match": {...}, "effect": {...}}`, of which the first matching one
applies; docs/reference/sandbox.md explains every word.
"""

import json
import random
import re
import socket
import threading
from dataclasses import dataclass, field, fields
from typing import Any

from sandbox.http import Request

_LONGEST_MS = 600_000
_LARGEST_BODY = 64 * 1024 * 1024
_ENDINGS = ("hang", "reset", "close", "refuse")


class BadRule(ValueError):
    """A rule is wrong; the text is one sentence that says what and where."""


def _header_pairs(value: object) -> tuple[tuple[str, str], ...]:
    """An object or a list of pairs (so that a header may come twice)."""
    items = list(value.items()) if isinstance(value, dict) else value
    _require(isinstance(items, list | tuple), "headers must be an object or a list of pairs")
    assert isinstance(items, list | tuple)
    pairs = []
    for item in items:
        _require(isinstance(item, list | tuple) and len(item) == 2, "a header must be a name and a value")
        name, text = (str(part) for part in item)
        _require(not re.search(r"[\r\n]", name + text), "a header must not contain a line break")
        pairs.append((name, text))
    return tuple(pairs)


def _require(fine: bool, sentence: str) -> None:
    if not fine:
        raise BadRule(sentence)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object, least: int, most: int | None = None) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value >= least and (most is None or value <= most)


@dataclass(frozen=True)
class Match:
    """All given conditions must hold; an empty match takes every request outside /_sandbox/."""

    method: str | None = None
    path: str | None = None  # prefix
    path_regex: str | None = None  # searched in path and query string
    contains: str | None = None  # in the body
    share: float = 1.0
    seed: int | None = None
    count: int | None = None  # the first n, then the rule is spent
    every: int = 1

    def __post_init__(self) -> None:
        for name in ("method", "path", "path_regex", "contains"):
            _require(
                getattr(self, name) is None or isinstance(getattr(self, name), str), f"{name} must be text"
            )
        _require(_is_number(self.share) and 0 <= self.share <= 1, "share must be from 0 to 1")
        _require(self.seed is None or _is_count(self.seed, 0), "seed must be a whole number ≥ 0")
        _require(self.count is None or _is_count(self.count, 1), "count must be a whole number ≥ 1")
        _require(_is_count(self.every, 1), "every must be a whole number ≥ 1")
        try:
            re.compile(self.path_regex or "")
        except re.error as error:
            raise BadRule(f"path_regex is no regular expression: {error}") from error

    def fits(self, request: Request) -> bool:
        """The conditions that look at the request alone."""
        return (
            (self.method is None or self.method.upper() == request.method)
            and (self.path is None or request.path.startswith(self.path))
            and (self.path_regex is None or re.search(self.path_regex, request.target) is not None)
            and (self.contains is None or self.contains.encode() in request.body)
        )


@dataclass(frozen=True)
class Effect:
    """What happens. Times in milliseconds. `before` and `after` are seen from the processing (booking)."""

    status: int | None = None
    body: Any = None
    headers: Any = ()
    after: bool = False
    stored: bool = False
    latency_ms: float = 0
    jitter_ms: float = 0
    latency_after_ms: float = 0
    hang: bool = False
    trickle: str | None = None
    interval_ms: float = 100
    reset: str | None = None
    close: str | None = None
    close_after_answer_ms: float | None = None
    refuse: bool = False
    lie: dict[str, Any] | None = None
    replace_body: str | None = None
    truncate_bytes: int | None = None
    pad_bytes: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        chosen = [name for name in _ENDINGS if getattr(self, name)]
        _require(len(chosen) <= 1, f"choose one of {' and '.join(chosen)}")
        _require(not (chosen and self.status), f"status and {'/'.join(chosen)} exclude each other")
        _require(self.status is not None or self.body is None, "body needs a status; use replace_body or lie")
        _require(self.status is not None or not self.stored, "stored needs a status")
        _require(not self.after or bool(self.status or self.hang), "after needs a status or hang")
        object.__setattr__(self, "headers", _header_pairs(self.headers))

    def _check_types(self) -> None:
        _require(self.status is None or _is_count(self.status, 200, 599), "status must be from 200 to 599")
        for name in ("after", "stored", "hang", "refuse"):
            _require(isinstance(getattr(self, name), bool), f"{name} must be true or false")
        for name in ("latency_ms", "jitter_ms", "latency_after_ms", "interval_ms", "close_after_answer_ms"):
            value = getattr(self, name)
            fine = _is_number(value) and 0 <= value <= _LONGEST_MS
            _require(value is None or fine, f"{name} must be from 0 to {_LONGEST_MS}")
        _require(self.trickle in (None, "headers", "body"), "trickle must be headers or body")
        for name in ("reset", "close"):
            _require(getattr(self, name) in (None, "before", "after"), f"{name} must be before or after")
        _require(self.lie is None or isinstance(self.lie, dict), "lie must be an object")
        _require(self.replace_body is None or isinstance(self.replace_body, str), "replace_body must be text")
        cut = self.truncate_bytes
        _require(cut is None or _is_count(cut, 0), "truncate_bytes must be a whole number ≥ 0")
        _require(_is_count(self.pad_bytes, 0, _LARGEST_BODY), f"pad_bytes must be from 0 to {_LARGEST_BODY}")

    @property
    def instead(self) -> bool:
        """Is the request answered without being processed?"""
        return self.status is not None and not self.after

    def delay(self) -> float:
        """Seconds to wait before processing, drawn anew each time."""
        return max(0.0, self.latency_ms + random.uniform(-self.jitter_ms, self.jitter_ms)) / 1000


NO_EFFECT = Effect()


@dataclass
class Rule:
    match: Match
    effect: Effect
    source: dict[str, Any]
    matched: int = 0
    applied: int = 0
    dice: random.Random = field(default_factory=random.Random)

    def takes(self, request: Request) -> bool:
        if not self.match.fits(request) or (
            self.match.count is not None and self.applied >= self.match.count
        ):
            return False
        self.matched += 1
        if self.matched % self.match.every or self.dice.random() >= self.match.share:
            return False
        self.applied += 1
        return True


def parse_rules(value: object) -> list[Rule]:
    """The rules in a decoded JSON list. Raises BadRule with one sentence."""
    if not isinstance(value, list):
        raise BadRule("the faults must be a JSON list of rules")
    rules = []
    for number, item in enumerate(value, 1):
        try:
            rules.append(_parse_rule(item))
        except BadRule as error:
            raise BadRule(f"rule {number}: {error}") from None
    return rules


def _parse_rule(item: object) -> Rule:
    _require(isinstance(item, dict), "must be an object with match and effect")
    assert isinstance(item, dict)
    _require(set(item) <= {"match", "effect"} and "effect" in item, "has match and effect, nothing else")
    match = Match(**_known(item.get("match", {}), Match, "match"))
    effect = Effect(**_known(item["effect"], Effect, "effect"))
    _require(not effect.refuse or match == Match(), "refuse is for all connections and takes no match")
    return Rule(match, effect, item, dice=random.Random(match.seed))


def _known(value: object, kind: type[Match] | type[Effect], name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRule(f"{name} must be an object")
    strange = sorted(set(value) - {item.name for item in fields(kind)})
    _require(not strange, f"{name} does not know {', '.join(strange)}")
    return value


class Faults:
    """The rules in force. Thread-safe. Every change wakes whoever waits on `wake()`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._wake = socket.socketpair()

    def replace(self, rules: list[Rule]) -> None:
        with self._lock:
            self._rules = rules
            # Whoever waits holds the reading end; it turns readable (end of file) for all of them at once.
            self._wake[1].close()
            self._wake = socket.socketpair()

    def wake(self) -> socket.socket:
        """A socket that turns readable when the rules change."""
        with self._lock:
            return self._wake[0]

    def choose(self, request: Request) -> tuple[Effect, socket.socket]:
        """The effect for this request, and the `wake()` that belongs to these rules."""
        with self._lock:
            for rule in self._rules:
                if rule.takes(request):
                    return rule.effect, self._wake[0]
            return NO_EFFECT, self._wake[0]

    @property
    def refusing(self) -> bool:
        with self._lock:
            return any(rule.effect.refuse for rule in self._rules)

    def sources(self) -> list[dict[str, Any]]:
        """The rules as they were given."""
        with self._lock:
            return [json.loads(json.dumps(rule.source)) for rule in self._rules]

    def counters(self) -> list[dict[str, int]]:
        with self._lock:
            return [{"matched": rule.matched, "applied": rule.applied} for rule in self._rules]
