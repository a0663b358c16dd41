"""Semantics 5: what comes over the wire is believed within limits only."""

import contextlib
import gzip
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience.body import Unusable, parse, read_all, unpack
from resilience.retry_after import parse_retry_after

NOON = "Mon, 30 Nov 2026 12:00:00 GMT"


def test_fractions_become_decimals_and_never_floats():
    assert parse(b'{"rate": 1.10, "small": 1e-7, "count": 3}') == {
        "rate": Decimal("1.10"),
        "small": Decimal("1E-7"),
        "count": 3,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>maintenance</html>",
        b'{"cut": ',
        b'{"a": 1, "a": 2}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 5000,
        b"1e999999999",
        b"0." + b"1" * 500,
        rb'"\u0000"',
        rb'{"\ud800": 1}',
        rb'["\udfff"]',
        b'{"a": 1} trailing',
    ],
)
def test_text_that_is_not_plain_json_is_unusable(data):
    with pytest.raises(Unusable):
        parse(data)


def test_escaped_text_that_is_whole_is_usable():
    assert parse(rb'["\u00e9", {"\ud83d\ude00": "x"}, 1]') == ["é", {"😀": "x"}, 1]


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_parse_or_be_unusable(data):
    with contextlib.suppress(Unusable):
        parse(data)


def test_a_body_is_read_up_to_its_limit_and_no_further():
    pieces = iter([b"x" * 60, b"x" * 41, b"never asked for"])
    with pytest.raises(Unusable, match="larger than 100 bytes"):
        read_all(lambda most: next(pieces), 100)
    assert next(pieces) == b"never asked for"


def test_gzip_is_unpacked_up_to_the_limit():
    assert unpack(gzip.compress(b"x" * 100), " GZip ", 100) == b"x" * 100
    with pytest.raises(Unusable, match="larger than 99 bytes when unpacked"):
        unpack(gzip.compress(b"x" * 100), "gzip", 99)


def test_a_gzip_bomb_is_never_unpacked():
    bomb = gzip.compress(b"\0" * 50_000_000)
    tracemalloc.start()
    with pytest.raises(Unusable):
        unpack(bomb, "gzip", 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"no gzip", "gzip"),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], "gzip"),
        (b"x", "br"),
        (b"x", "gzip, gzip"),
    ],
)
def test_broken_or_unknown_encodings_are_unusable(data, encoding):
    with pytest.raises(Unusable):
        unpack(data, encoding, 1000)


# Semantics 10


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("86400", 86400),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30),
        ("Mon, 30 Nov 2026 11:59:00 GMT", 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(value, seconds):
    assert parse_retry_after(value, NOON) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "-5",
        "1.5",
        "9999999999",
        "86401",
        "9" * 6000,
        "soon",
        "٣",
        "1, 2",
        "Fri, 01 Jan 2099 00:00:00 GMT",
        "Fri, 01 Jan 99999 00:00:00 GMT",
        "Mon, 30 Nov 2026 99:00:00 GMT",
        "Mon, 30 Nov 2026 12:00:00 +9999999",
        f"{NOON}, {NOON}",
    ],
)
def test_a_hostile_retry_after_is_no_advice_and_no_crash(value):
    assert parse_retry_after(value, NOON) is None


def test_without_a_date_of_its_own_the_answer_is_measured_by_the_wall_clock():
    assert parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_in_either_header_crashes(value, date):
    seconds = parse_retry_after(value, date)
    assert seconds is None or 0 <= seconds <= 86_400
