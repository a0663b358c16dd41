"""From the bytes of an answer to a value, with a limit on everything the other side decides."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

_PIECE = 65536
_MOST_EXPONENT = 100  # of a number: beyond that it is an attack on our arithmetic, not a price


class Unusable(Exception):
    """The body cannot be used; the text says why and holds nothing of it."""


def read_all(read: Callable[[int], bytes], limit: int) -> bytes:
    """Everything `read` gives until it gives nothing. Raises Unusable beyond `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    while piece := read(_PIECE):
        size += len(piece)
        if size > limit:
            raise Unusable(f"body is larger than {limit} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def unpack(data: bytes, encoding: str, limit: int) -> bytes:
    """Undo the content encoding.

    Raises Unusable when it is unknown, broken, or swells beyond `limit` bytes.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "x-gzip"):
        raise Unusable("body has a content encoding that was not asked for")
    decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        plain = decoder.decompress(data, limit + 1)
    except zlib.error:
        raise Unusable("body is broken gzip") from None
    if len(plain) > limit:
        raise Unusable(f"body is larger than {limit} bytes when unpacked")
    if not decoder.eof:
        raise Unusable("body is gzip cut short")
    return plain


def parse(data: bytes) -> Any:
    """The JSON value, with Decimal for every number that is not whole.

    Raises Unusable for anything else: other text, NaN and infinity, the same key twice, numbers or nesting
    beyond reason, text that no database or file could hold (NUL, halves of surrogate pairs).
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_float=_decimal,
            parse_constant=_no_constant,
            object_pairs_hook=_unique,
        )
        if b"\\u" in data:
            _check_text(value)
    except (ValueError, RecursionError):
        raise Unusable("body is not usable JSON") from None
    return value


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if abs(number.adjusted()) > _MOST_EXPONENT or len(text) > 2 * _MOST_EXPONENT:
        raise ValueError("number out of reason")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("the same key twice")
    return value


def _check_text(value: Any) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("NUL in text")
        value.encode("utf-8")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_text(key)
            _check_text(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_text(inner)
