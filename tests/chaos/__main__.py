"""`make chaos MINUTES=5`: shoppers shop, everything dies at random, and at the end the books are right."""

from __future__ import annotations

import argparse
import os
import random
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--shoppers", type=int, default=4)
    options = parser.parse_args()
    from tests import servers

    servers.pytest_load_initial_conftests()
    try:
        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
        django.setup()
        from tests.chaos.storm import Storm

        report = Storm(options.seed, options.minutes * 60, options.shoppers).blow()
        print(report)
        return 1 if report.violations else 0
    finally:
        servers.pytest_unconfigure()


if __name__ == "__main__":
    sys.exit(main())
