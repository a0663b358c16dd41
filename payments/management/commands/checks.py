"""manage.py checks list|close: money that a person has to look at."""

from __future__ import annotations

import dataclasses
import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from payments import checks, queries
from payments.duty import MissingReasonError


class Command(BaseCommand):
    help = "Money checks: what the machines could not settle about money."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", nargs="?", default="list", choices=["list", "close"])
        parser.add_argument("id", nargs="?", type=int)
        parser.add_argument("--reason", default="", help="what was found; needed to close")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "close":
            self._close(options)
            return
        found = queries.open_checks()
        if options["json"]:
            self.stdout.write(json.dumps([dataclasses.asdict(check) for check in found], default=str))
            return
        for check in found:
            since = f"{check.opened_at:%Y-%m-%d %H:%M} UTC"
            self.stdout.write(
                f"{check.id}\t{since}\t{check.order_key or '-'}\t{check.subject}\t{check.reason}"
            )

    def _close(self, options: dict[str, Any]) -> None:
        if options["id"] is None:
            raise CommandError("name the check to close")
        try:
            closed = checks.close_check(options["id"], f"cli:{getpass.getuser()}", options["reason"])
        except MissingReasonError as error:
            raise CommandError("a money check is closed with a note on what was found") from error
        if not closed:
            raise CommandError(f"no open money check {options['id']}")
        self.stdout.write("closed")
