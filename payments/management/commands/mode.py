"""manage.py mode [show|auto|on|off|pause|resume]: how orders are taken, for the person on duty."""

from __future__ import annotations

import dataclasses
import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from payments import mode, replicas
from payments.duty import MissingReasonError

_CHOICES = ["show", "auto", "on", "off", "pause", "resume"]


class Command(BaseCommand):
    help = (
        "Shows or sets degraded mode: auto (the breakers decide), on (no inline charges), off (always charge); "
        "pause and resume hold the replay of waiting charges and let it go on."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("setting", nargs="?", default="show", choices=_CHOICES)
        parser.add_argument(
            "--reason", default="", help="why; needed for on and off, kept in the audit record"
        )
        parser.add_argument("--for", type=int, dest="seconds", help="seconds after which it is auto again")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["setting"] == "show":
                now = mode.current()
            elif options["setting"] in {"pause", "resume"}:
                now = mode.pause_replay(
                    paused=options["setting"] == "pause",
                    actor=f"cli:{getpass.getuser()}",
                    reason=options["reason"],
                )
            else:
                now = mode.change(
                    options["setting"],
                    actor=f"cli:{getpass.getuser()}",
                    reason=options["reason"],
                    for_seconds=options["seconds"],
                )
        except (mode.ModeInputError, MissingReasonError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            board = [{**dataclasses.asdict(row), "state": row.state.name} for row in replicas.board()]
            self.stdout.write(json.dumps({**dataclasses.asdict(now), "processes": board}, default=str))
            return
        since = f" since {now.since:%Y-%m-%d %H:%M:%S} UTC" if now.since else ""
        until = f" until {now.until:%Y-%m-%d %H:%M:%S} UTC" if now.until else ""
        why = f" ({now.reason})" if now.reason else ""
        paused = ", replay paused" if now.replay_paused else ""
        self.stdout.write(f"{now.setting}, effective {now.effective}{since}{until}{why}{paused}")
