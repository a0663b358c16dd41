"""The shop's own small drawings: one line, 24 × 24, in the colour of the text around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ICONS: Final[Mapping[str, str]] = {
    "knot": '<path d="M12 21V8M12 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM8 11h8M4 14c0 4.5 3.5 7 8 7s8-2.5 8-7"/>',
    "basket": '<path d="M3 9h18l-2 11H5L3 9ZM8 9l4-6 4 6M9 13v4M15 13v4"/>',
    "person": '<path d="M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4 21c0-4 3.6-6 8-6s8 2 8 6"/>',
    "search": '<path d="M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM15.5 15.5 21 21"/>',
    "list": '<path d="M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01"/>',
    "check": '<path d="M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM8 12.5l3 3 5-6"/>',
    "clock": '<path d="M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM12 7v5.5l3.5 2"/>',
    "hourglass": '<path d="M6 3h12M6 21h12M7 3c0 5 5 6 5 9s-5 4-5 9M17 3c0 5-5 6-5 9s5 4 5 9"/>',
    "magnifier": '<path d="M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM15.5 15.5 21 21M8 10.5l2 2 3-4"/>',
    "key": '<path d="M8 15a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 11h9M18 11v4M21 11v3"/>',
    "card-off": '<path d="M3 6h18v12H3V6ZM3 10h18M14 13l4 3M18 13l-4 3"/>',
    "cross": '<path d="M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM9 9l6 6M15 9l-6 6"/>',
    "late": '<path d="M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM12 7v5M9 18l6-3"/>',
    "back": '<path d="M4 9h11a5 5 0 0 1 0 10H8M4 9l4-4M4 9l4 4"/>',
    "letter": '<path d="M3 6h18v13H3V6ZM3 7l9 7 9-7"/>',
    "warning": '<path d="M12 3 2 20h20L12 3ZM12 9v5M12 17h.01"/>',
    "info": '<path d="M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM12 11v6M12 7.5h.01"/>',
    "remove": '<path d="M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5"/>',
}
"""By name: what stands inside the `svg` element."""


def drawing(name: str) -> str:
    """The whole SVG element. It says nothing to a screen reader: the words stand beside it."""
    return f'<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">{ICONS[name]}</svg>'
