"""Traces are off unless configured, and then none of it is even imported.

The Redis client imports OpenTelemetry's metrics by itself wherever it finds them, which is why the test names modules.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_NOT_INSTALLED = "import sys; sys.modules['opentelemetry'] = None\n"
_WEB_AND_WORKER = """
import config.wsgi, config.celery, sys
from orders import clients
from payments.clients import inline_gateway
inline_gateway(), clients.catalog(), clients.rates()
print([name for name in ("config.traces", "opentelemetry.sdk.trace", "opentelemetry.exporter") if name in sys.modules])
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_unconfigured_nothing_is_imported_and_nothing_need_be_installed() -> None:
    done = run(_NOT_INSTALLED + _WEB_AND_WORKER)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
    assert run(_WEB_AND_WORKER).stdout == "[]\n"


def test_configured_but_not_installed_is_one_sentence_and_no_start() -> None:
    done = run(_NOT_INSTALLED + "import config.wsgi", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "Holdfast cannot start. OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not "
    )
    assert line.endswith("(holdfast.E016)")
    assert run("import config.wsgi", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318").returncode == 0


def test_an_address_that_is_none_stops_the_start() -> None:
    done = run("import config.wsgi", OTEL_EXPORTER_OTLP_ENDPOINT="collector:4318")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL of the form http://" in done.stderr
    assert done.returncode == 1
