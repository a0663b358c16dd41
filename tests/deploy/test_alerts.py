"""Each alert fires when it should and is silent when nothing is amiss; dashboard and rules know our series only."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from config import metrics
from tests.config.test_metrics import names
from tests.deploy.promql import World, firing, seconds, written

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
PLAYED = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "holdfast.json").read_text())


def cases() -> Iterator[Any]:
    for test in PLAYED["tests"]:
        for asked in test["alert_rule_test"]:
            yield pytest.param(test, asked, id=f"{asked['alertname']}: {test['name']}")


@pytest.mark.parametrize(("test", "asked"), list(cases()))
def test_an_alert_fires_exactly_when_written(test: dict[str, Any], asked: dict[str, Any]) -> None:
    rule = RULES[asked["alertname"]]
    world = World(
        [written(one["series"], one["values"], seconds(test["interval"])) for one in test["input_series"]]
    )
    found = firing(rule, world, seconds(PLAYED["evaluation_interval"]), seconds(asked["eval_time"]))
    assert found == [wanted["exp_labels"] for wanted in asked["exp_alerts"]]
    for labels, wanted in zip(found, asked["exp_alerts"], strict=True):
        said = re.sub(r"{{ \$labels\.(\w+) }}", lambda m: labels[m[1]], rule["annotations"]["summary"])  # noqa: B023
        assert said == wanted["exp_annotations"]["summary"]


def test_every_alert_is_shown_firing_and_shown_silent() -> None:
    fired = {
        asked["alertname"]
        for test in PLAYED["tests"]
        for asked in test["alert_rule_test"]
        if asked["exp_alerts"]
    }
    silent = {
        asked["alertname"] for asked in PLAYED["tests"][0]["alert_rule_test"] if not asked["exp_alerts"]
    }
    assert fired == silent == set(RULES)


def test_every_alert_has_its_line_of_advice() -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "answer-an-alert.md").read_text()
    lines = re.findall(r"^\| (Holdfast\w+) \| (page|ticket) \|", page, re.MULTILINE)
    assert lines == [(name, rule["labels"]["severity"]) for name, rule in RULES.items()]


def test_prometheus_itself_agrees_where_it_is_installed() -> None:
    promtool = shutil.which("promtool")
    commands = (
        [] if promtool is None else [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]]
    )
    for command in commands:
        done = subprocess.run(
            [str(promtool), *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> Iterator[Any]:
    for name, rule in RULES.items():
        yield pytest.param(rule["expr"], id=name)
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"panel {panel['title']}")


@pytest.mark.parametrize("expression", list(expressions()))
def test_rules_and_dashboard_use_existing_series_and_labels_only(expression: str) -> None:
    known = {name: set(metric._labelnames) for metric in metrics.every() for name in names(metric)}
    added = {"job", "instance"}
    selectors = list(_selectors(promql_parser.parse(expression.replace("$__rate_interval", "5m"))))
    assert selectors
    for selector in selectors:
        if selector.name == "up":
            continue
        assert selector.name in known, f"no such series: {selector.name}"
        labels = {one.name for one in selector.matchers.matchers}
        assert labels <= known[selector.name] | added, f"{selector.name} has no such label: {labels}"


def _selectors(node: Any) -> Iterator[Any]:
    if type(node).__name__ == "VectorSelector":
        yield node
    if type(node).__name__ == "MatrixSelector":
        yield node.vector_selector
    for child in (getattr(node, "expr", None), getattr(node, "lhs", None), getattr(node, "rhs", None)):
        if child is not None:
            yield from _selectors(child)
    for child in getattr(node, "args", ()):
        yield from _selectors(child)


def test_labels_asked_for_by_name_have_values_that_the_code_gives() -> None:
    """A rule about `mode="degarded"` would be silent for ever."""
    from orders.tally import CHARGES, CHECKOUTS
    from payments.states import EffectiveMode
    from resilience.breaker_policy import State
    from resilience.shedding import Priority

    given = {
        "mode": {mode.value.lower() for mode in EffectiveMode},
        "end": {end.value for end in CHECKOUTS},
        "outcome": {outcome.__name__ for outcome in CHARGES},
        "state": {state.value for state in State},
        "priority": {priority.name.lower() for priority in Priority},
    }
    asked = [
        (one.name, value)
        for parameter in expressions()
        for selector in _selectors(promql_parser.parse(parameter.values[0].replace("$__rate_interval", "5m")))
        for one in selector.matchers.matchers
        if one.name in given
        for value in one.value.split("|")
    ]
    assert len(asked) > 10
    assert [(name, value) for name, value in asked if value not in given[name]] == []
