"""Plays the rule tests of Prometheus without Prometheus: the part of its language that our rules use.

The parser is Prometheus' own, ported; anything that the evaluation does not know raises. Where `promtool` is installed,
the same file is also given to that.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import promql_parser as parser

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
_LOOKBACK = 300.0
_COMPARE = {">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne}
_ARITHMETIC = {"-": operator.sub, "/": operator.truediv, "+": operator.add, "*": operator.mul}


@dataclass(frozen=True)
class Series:
    """One written series: a value, or none, every `interval` seconds from 0 on."""

    name: str
    labels: Labels
    values: tuple[float | None, ...]
    interval: float

    def between(self, start: float, end: float) -> list[tuple[float, float]]:
        """Samples after `start`, up to `end`."""
        timed = ((index * self.interval, value) for index, value in enumerate(self.values))
        return [(at, value) for at, value in timed if value is not None and start < at <= end]


def written(series: str, values: str, interval: float) -> Series:
    """`a{b="c"}` with values in the rule tests' notation: `1 0 0x10 0+5x20`."""
    selector = parser.parse(series)
    labels = frozenset((one.name, one.value) for one in selector.matchers.matchers)
    found: list[float | None] = []
    for word in values.split():
        match = re.fullmatch(r"(-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?", word)
        if match is None:
            raise ValueError(f"unknown notation: {word}")
        start, step, times = float(match[1]), float(match[2] or 0), int(match[3] or 0)
        found += [start + step * turn for turn in range(times + 1)]
    return Series(selector.name, labels, tuple(found), interval)


class World:
    """All series of one test, to be asked at any moment."""

    def __init__(self, series: list[Series]) -> None:
        self._series = series

    def ask(self, expression: Any, at: float) -> Vector | float:
        kind = type(expression).__name__
        known: Mapping[str, Callable[[Any, float], Vector | float]] = {
            "NumberLiteral": lambda e, _: float(e.val),
            "ParenExpr": lambda e, at: self.ask(e.expr, at),
            "VectorSelector": self._instant,
            "AggregateExpr": self._aggregate,
            "BinaryExpr": self._binary,
            "Call": self._call,
        }
        return known[kind](expression, at)

    def _selected(self, selector: Any) -> list[Series]:
        def fits(labels: Mapping[str, str], one: Any) -> bool:
            value = labels.get(one.name, "")
            if one.op in (parser.MatchOp.Re, parser.MatchOp.NotRe):
                return (re.fullmatch(one.value, value) is not None) == (one.op == parser.MatchOp.Re)
            return (value == one.value) == (one.op == parser.MatchOp.Equal)

        return [
            series
            for series in self._series
            if series.name == selector.name
            and all(fits(dict(series.labels), one) for one in selector.matchers.matchers)
        ]

    def _instant(self, selector: Any, at: float) -> Vector:
        found = {series.labels: series.between(at - _LOOKBACK, at) for series in self._selected(selector)}
        return {labels: samples[-1][1] for labels, samples in found.items() if samples}

    def _call(self, call: Any, at: float) -> Vector | float:
        if call.func.name == "time":
            return at
        if call.func.name == "absent":
            (selector,) = call.args
            alike = (one for one in selector.matchers.matchers if one.op == parser.MatchOp.Equal)
            labels = frozenset((one.name, one.value) for one in alike)
            return {} if self.ask(selector, at) else {labels: 1.0}
        if call.func.name == "rate":
            (matrix,) = call.args
            seconds = matrix.range.total_seconds()
            found = {s.labels: s.between(at - seconds, at) for s in self._selected(matrix.vector_selector)}
            return {labels: _rate(samples) for labels, samples in found.items() if len(samples) > 1}
        if call.func.name == "histogram_quantile":
            share, buckets = (self.ask(argument, at) for argument in call.args)
            assert isinstance(share, float)
            assert isinstance(buckets, dict)
            return _quantiles(share, buckets)
        raise NotImplementedError(call.func.name)

    def _aggregate(self, expression: Any, at: float) -> Vector:
        kept = set(expression.modifier.labels) if expression.modifier else set()
        inner = self.ask(expression.expr, at)
        assert isinstance(inner, dict)
        groups: dict[Labels, list[float]] = defaultdict(list)
        for labels, value in inner.items():
            groups[_only(labels, kept)].append(value)
        combine = {"sum": sum, "max": max, "min": min}[str(expression.op)]
        return {labels: combine(values) for labels, values in groups.items()}

    def _binary(self, expression: Any, at: float) -> Vector | float:
        left, right, op = self.ask(expression.lhs, at), self.ask(expression.rhs, at), str(expression.op)
        on = (
            set(expression.modifier.matching.labels) if op in ("and", "or") and _matches(expression) else None
        )
        if op in ("and", "or"):
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            others = {labels if on is None else _only(labels, on) for labels in right}
            if op == "and":
                return {k: v for k, v in left.items() if (k if on is None else _only(k, on)) in others}
            return {**right, **left}
        return _calculate(op, left, right)


def _matches(expression: Any) -> bool:
    return expression.modifier is not None and expression.modifier.matching is not None


def _only(labels: Labels, kept: set[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] in kept)


def _calculate(op: str, left: Vector | float, right: Vector | float) -> Vector | float:
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = {labels: (value, right[labels]) for labels, value in left.items() if labels in right}
    elif isinstance(left, dict):
        assert isinstance(right, float)
        pairs = {labels: (value, right) for labels, value in left.items()}
    else:
        assert isinstance(right, dict)
        pairs = {labels: (left, value) for labels, value in right.items()}
    if op in _COMPARE:
        return {labels: a for labels, (a, b) in pairs.items() if _COMPARE[op](a, b)}
    return {labels: _ARITHMETIC[op](a, b) for labels, (a, b) in pairs.items() if b or op != "/"}


def _rate(samples: list[tuple[float, float]]) -> float:
    """Without the extrapolation to the range's ends: a little less than Prometheus says."""
    grown = sum(max(0.0, b - a) for (_, a), (_, b) in pairwise(samples))
    return grown / (samples[-1][0] - samples[0][0])


def _quantiles(share: float, buckets: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        rest = frozenset(pair for pair in labels if pair[0] != "le")
        groups[rest].append((float(dict(labels)["le"]), count))
    found = {}
    for labels, steps in groups.items():
        steps.sort()
        wanted, low, before = share * steps[-1][1], 0.0, 0.0
        for bound, count in steps:
            if count >= wanted and wanted > 0:
                part = (wanted - before) / (count - before) if count > before else 0.0
                found[labels] = low if bound == float("inf") else low + (bound - low) * part
                break
            low, before = bound, count
    return found


def seconds(text: str) -> float:
    """`90m`, `30s`, `1h`."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def firing(rule: Mapping[str, Any], world: World, interval: float, at: float) -> list[dict[str, str]]:
    """The labels of the rule's firing alerts at a moment, after all evaluations up to it."""
    expression = parser.parse(rule["expr"])
    since: dict[Labels, float] = {}
    now = 0.0
    while now <= at:
        found = world.ask(expression, now)
        assert isinstance(found, dict)
        since = {labels: since.get(labels, now) for labels in found}
        now += interval
    patience = seconds(rule["for"])
    last = now - interval
    return [{**dict(labels), **rule["labels"]} for labels, begun in since.items() if last - begun >= patience]
