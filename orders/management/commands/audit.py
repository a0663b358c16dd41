"""manage.py audit: the invariants against the database and the gateway's ledger."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orders.audit import LedgerCharge, confirmed
from payments.ledger import LedgerUnavailableError, read_ledger


def _ledger() -> list[LedgerCharge]:
    return [LedgerCharge(**charge) for charge in read_ledger()]


def _no_ledger() -> None:
    return None


class Command(BaseCommand):
    help = "Checks that no money is lost, taken twice or stuck and no stock oversold. Exit 1 and a line per violation."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")
        parser.add_argument("--no-ledger", action="store_true", help="check the database alone")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            violations = confirmed(_no_ledger if options["no_ledger"] else _ledger)
        except LedgerUnavailableError as error:
            raise CommandError(f"{error} (--no-ledger checks the database alone)") from error
        if options["json"]:
            found = [dataclasses.asdict(violation) for violation in violations]
            self.stdout.write(json.dumps({"ok": not found, "violations": found}))
        else:
            for violation in violations:
                self.stdout.write(f"{violation.invariant}  {violation.text}")
            self.stdout.write("all invariants hold" if not violations else f"{len(violations)} violations")
        if violations:
            raise SystemExit(1)
