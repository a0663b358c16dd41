#!/usr/bin/env python
"""Holdfast's command line."""

import os
import sys

from config.environment import ConfigurationError, use_running_demo


def main() -> None:
    if sys.argv[1:2] == ["lab"]:
        # It starts its own servers, so it must work where none is configured: without settings.
        from sandbox.lab.__main__ import main as lab

        sys.exit(lab(sys.argv[2:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    use_running_demo()
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ConfigurationError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
