import json
import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sandbox.catalog import Catalog
from sandbox.control import Control, ControlError
from sandbox.gateway import Gateway
from sandbox.neighbour import Neighbour, add_arguments, run
from sandbox.rates import Rates

_NEIGHBOURS: dict[str, type[Neighbour]] = {"gateway": Gateway, "catalog": Catalog, "rates": Rates}
_PREFIXES = {"gateway": "PAYMENT", "catalog": "CATALOG", "rates": "RATES"}


class Command(BaseCommand):
    help = "Run a sandbox neighbour, read or set its faults, read or clear its ledger."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        for name in _NEIGHBOURS:
            add_arguments(actions.add_parser(name, help=f"run the {name}"), name)
        faults = actions.add_parser("faults", help="show the fault rules, or change them")
        faults.add_argument("neighbour", help="gateway, catalog, rates or a URL")
        change = faults.add_mutually_exclusive_group()
        change.add_argument("--set", metavar="JSON", help="replace all rules by this list")
        change.add_argument("--clear", action="store_true")
        ledger = actions.add_parser("ledger", help="show what the neighbour has recorded")
        ledger.add_argument("neighbour", help="gateway, catalog, rates or a URL")
        ledger.add_argument("--clear", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        action = options["action"]
        if action in _NEIGHBOURS:
            run(action, _NEIGHBOURS[action], options)
            return
        control = Control(_address(options["neighbour"]))
        try:
            answer = _faults(control, options) if action == "faults" else _ledger(control, options)
        except ControlError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(answer, indent=2, ensure_ascii=False))


def _faults(control: Control, options: dict[str, Any]) -> Any:
    if options["clear"]:
        control.heal()
    elif options["set"] is not None:
        try:
            rules = json.loads(options["set"])
        except ValueError as error:
            raise CommandError(f"--set is no JSON: {error}") from error
        control.call("PUT", "/_sandbox/faults", rules)
    return control.faults()


def _ledger(control: Control, options: dict[str, Any]) -> Any:
    if options["clear"]:
        control.clear_ledger()
    return control.ledger()


def _address(neighbour: str) -> str:
    """A URL as it is; a name by its environment variables, the control address first."""
    if neighbour.startswith("http://"):
        return neighbour
    if neighbour not in _PREFIXES:
        raise CommandError(f"{neighbour} is neither a URL nor one of {', '.join(_PREFIXES)}")
    prefix = _PREFIXES[neighbour]
    found = os.environ.get(f"{prefix}_CONTROL_URL") or os.environ.get(f"{prefix}_URL")
    if not found:
        raise CommandError(f"set {prefix}_URL, or give the URL of the {neighbour}")
    return found
