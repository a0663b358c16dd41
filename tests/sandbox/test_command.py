"""`manage.py sandbox`."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from sandbox.control import Control
from sandbox.gateway import Gateway


def command(*words: str) -> Any:
    out = StringIO()
    call_command("sandbox", *words, stdout=out)
    return json.loads(out.getvalue())


def test_faults_are_set_shown_and_cleared_by_name_or_url(
    gateway: Gateway, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAYMENT_CONTROL_URL", gateway.control_url)
    rules = [{"match": {"path": "/v1"}, "effect": {"refuse": True}}]
    with pytest.raises(CommandError, match="takes no match"):
        command("faults", "gateway", "--set", json.dumps(rules))
    rules[0]["match"] = {}
    assert command("faults", "gateway", "--set", json.dumps(rules)) == rules
    assert command("faults", gateway.control_url) == rules
    assert command("faults", "gateway", "--clear") == []


def test_the_ledger_is_shown_and_cleared(gateway: Gateway) -> None:
    assert command("ledger", gateway.url)["charges"] == []
    assert command("ledger", gateway.url, "--clear")["requests"] == []


def test_wrong_words_are_answered_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATES_CONTROL_URL", raising=False)
    monkeypatch.delenv("RATES_URL", raising=False)
    with pytest.raises(CommandError, match="set RATES_URL"):
        command("ledger", "rates")
    with pytest.raises(CommandError, match="neither a URL nor"):
        command("ledger", "bank")
    with pytest.raises(CommandError, match="no JSON"):
        command("faults", "http://127.0.0.1:9", "--set", "[")
    with pytest.raises(CommandError, match="cannot be reached"):
        command("faults", "http://127.0.0.1:9")
