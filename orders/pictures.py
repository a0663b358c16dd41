"""Which SVG pictures from the catalog may be put into a page: small, self-contained and without behaviour.

The picture is inserted as it is, so it has to be harmless both to an XML and to an HTML parser: no markup
declarations, no processing instructions, only drawing elements and attributes of a list, references only
inside the picture.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

LARGEST_BYTES: Final = 4096
_SVG: Final = "{http://www.w3.org/2000/svg}"
_XLINK: Final = "{http://www.w3.org/1999/xlink}"
_SHAPES: Final = (
    "path circle ellipse rect line polyline polygon text tspan linearGradient radialGradient stop"
)
_ELEMENTS: Final = frozenset(f"svg g defs symbol use title desc clipPath mask pattern {_SHAPES}".split())
_TEXT_ONLY: Final = frozenset({"title", "desc"})  # an HTML parser reads what is inside as HTML
_ATTRIBUTE: Final = re.compile(r"(?!on)[a-z][A-Za-z0-9-]*", re.ASCII)
_INNER: Final = re.compile(r"#[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
_INNER_URL: Final = re.compile(r"url\(#[A-Za-z][A-Za-z0-9_-]*\)", re.ASCII)
_LOADING: Final = re.compile(r"url|image|src|expression|import|javascript|data:", re.IGNORECASE | re.ASCII)


def safe_svg(text: object) -> str:
    """Return `text` if it is a harmless SVG picture of at most 4 kB, otherwise an empty string."""
    if not isinstance(text, str) or len(text) > LARGEST_BYTES or "<!" in text or "<?" in text:
        return ""
    try:
        if len(text.encode()) > LARGEST_BYTES:
            return ""
        root = ElementTree.fromstring(text)  # noqa: S314 - see the import
    except (ValueError, ElementTree.ParseError):
        return ""
    if root.tag != f"{_SVG}svg":
        return ""
    return text if all(_harmless(element) for element in root.iter()) else ""


def _harmless(element: ElementTree.Element) -> bool:
    name = element.tag.removeprefix(_SVG)
    if name not in _ELEMENTS or (name in _TEXT_ONLY and len(element)):
        return False
    return all(_harmless_attribute(key, value) for key, value in element.attrib.items())


def _harmless_attribute(key: str, value: str) -> bool:
    name = key.removeprefix(_XLINK)
    if name == "href":
        return _INNER.fullmatch(value) is not None
    if name == "style" or _ATTRIBUTE.fullmatch(name) is None:
        return False
    return _LOADING.search(_INNER_URL.sub("", value)) is None
