"""A line of production's log is one JSON object that can be joined by request and by order."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import Any

from config.logging import LineFormatter
from resilience.http import request_id
from tests.world import Shopper, World


def test_every_line_of_a_checkout_names_its_request_and_its_order(
    world: World, shopper: Shopper, caplog: Any
) -> None:
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(LineFormatter(as_json=True))
    logging.getLogger("orders").addHandler(handler)
    try:
        shopper.put_in_basket()
        shopper.client.defaults["HTTP_X_REQUEST_ID"] = "req-1"
        with caplog.at_level(logging.INFO, "orders"):
            shopper.submit(shopper.checkout_form())
    finally:
        logging.getLogger("orders").removeHandler(handler)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    told = {line["message"]: (line["request_id"], line["order"]) for line in lines if "order" in line}
    number = world.order().number
    assert told == {"order placed": ("req-1", number), "payment outcome": ("req-1", number)}


def test_no_value_makes_a_second_line() -> None:
    record = logging.makeLogRecord({"msg": "a\nb", "levelname": "INFO", "name": "x", "typed": "c\r\n{}"})
    token = request_id.set("req-2")
    try:
        lines = [LineFormatter(as_json=as_json).format(record) for as_json in (True, False)]
    finally:
        request_id.reset(token)
    assert not any("\n" in line or "\r" in line for line in lines)
    assert json.loads(lines[0])["typed"] == "c\r\n{}"
