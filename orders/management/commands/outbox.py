"""manage.py outbox stats|list|redrive|discard: what waits, what is dead, and what becomes of it."""

from __future__ import annotations

import dataclasses
import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orders import outbox
from orders.operations import duty as steps
from payments.duty import MissingReasonError


class Command(BaseCommand):
    help = "Outbox and dead letters."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", nargs="?", default="stats", choices=["stats", "list", "redrive", "discard"]
        )
        parser.add_argument("ids", nargs="*", type=int)
        parser.add_argument("--all", action="store_true", help="redrive every dead letter")
        parser.add_argument("--rate", type=float, help="dead letters brought back per second")
        parser.add_argument("--reason", default="from the command line", help="why; kept in the audit record")
        parser.add_argument("--dry-run", action="store_true")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        action = {
            "stats": self._stats,
            "list": self._list,
            "redrive": self._redrive,
            "discard": self._discard,
        }[options["action"]]
        try:
            action(options)
        except MissingReasonError as error:
            raise CommandError(str(error)) from error

    def _stats(self, options: dict[str, Any]) -> None:
        figures = {name: dataclasses.asdict(value) for name, value in outbox.stats().items()}
        if options["json"]:
            self.stdout.write(json.dumps(figures))
            return
        for name, value in figures.items():
            self.stdout.write(
                f"{name}: {value['pending']} pending, oldest {value['oldest_seconds']:.0f} s, "
                f"late by {value['late_seconds']:.0f} s, {value['dead']} dead letters, "
                f"oldest {value['oldest_dead_seconds']:.0f} s"
            )

    def _list(self, options: dict[str, Any]) -> None:
        letters = [dataclasses.asdict(letter) for letter in outbox.dead_letters()]
        if options["json"]:
            self.stdout.write(json.dumps(letters, default=str))
            return
        for letter in letters:
            self.stdout.write(
                f"{letter['id']}\t{letter['kind']}\t{letter['order'] or '-'}\t{letter['attempts']} tries\t"
                f"{letter['reason']}"
            )

    def _redrive(self, options: dict[str, Any]) -> None:
        if bool(options["ids"]) == options["all"]:
            raise CommandError("name the dead letters, or give --all")
        letters = outbox.dead_letters(limit=None)
        ids = [letter.id for letter in letters if options["all"] or letter.id in options["ids"]]
        count = len(ids)
        if not options["dry_run"]:
            try:
                count = steps.redrive_many(
                    ids, rate=options["rate"], actor=_actor(), reason=options["reason"]
                )
            except ValueError as error:
                raise CommandError(str(error)) from error
        done = "would be redriven" if options["dry_run"] else "redriven"
        self.stdout.write(json.dumps({"redriven": ids}) if options["json"] else f"{count} {done}")

    def _discard(self, options: dict[str, Any]) -> None:
        letters = {letter.id: letter for letter in outbox.dead_letters(limit=None)}
        for number in options["ids"]:
            if number not in letters:
                raise CommandError(f"{number} is not a dead letter")
            seen = steps.letter_version(letters[number])
            if not options["dry_run"]:
                try:
                    steps.discard_letter(number, seen, actor=_actor(), reason=options["reason"])
                except steps.NotDiscardableError as error:
                    raise CommandError(f"{number}: money or a waiting order hangs on it") from error
        ids = options["ids"]
        done = "would be discarded" if options["dry_run"] else "discarded"
        self.stdout.write(json.dumps({"discarded": ids}) if options["json"] else f"{len(ids)} {done}")


def _actor() -> str:
    return f"cli:{getpass.getuser()}"
