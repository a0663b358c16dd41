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
_ELEMENT_NAMES: Final = """
    svg g defs symbol use title desc path circle ellipse rect line polyline polygon text tspan
    linearGradient radialGradient stop clipPath mask pattern
"""
# A list of what is allowed, because pages give a meaning to attributes no list of bad ones knows (hx-get).
_ATTRIBUTE_NAMES: Final = """
    id viewBox version preserveAspectRatio width height x y x1 y1 x2 y2 dx dy cx cy r rx ry fx fy d points
    transform opacity color display visibility fill fill-opacity fill-rule stroke stroke-width
    stroke-opacity stroke-linecap stroke-linejoin stroke-dasharray stroke-dashoffset stroke-miterlimit
    paint-order vector-effect offset stop-color stop-opacity gradientUnits gradientTransform spreadMethod
    clip-path clip-rule clipPathUnits mask maskUnits maskContentUnits patternUnits patternContentUnits
    patternTransform font-family font-size font-style font-weight text-anchor dominant-baseline
    letter-spacing textLength lengthAdjust role aria-label aria-labelledby aria-hidden focusable
"""
_ELEMENTS: Final = frozenset(_ELEMENT_NAMES.split())
_ATTRIBUTES: Final = frozenset(_ATTRIBUTE_NAMES.split())
_TEXT_ONLY: Final = frozenset({"title", "desc"})  # an HTML parser reads what is inside as HTML
_INNER: Final = re.compile(r"#[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
_INNER_URL: Final = re.compile(r"url\(#[A-Za-z][A-Za-z0-9_-]*\)", re.ASCII)
_LOADING: Final = re.compile(r"\\|(url|image|image-set|src|element)\s*\(", re.IGNORECASE | re.ASCII)


def safe_svg(text: object) -> str:
    """Return `text` if it is a harmless SVG picture of at most 4 kB, otherwise an empty string."""
    if not isinstance(text, str) or len(text) > LARGEST_BYTES or "<!" in text or "<?" in text:
        return ""
    try:
        if len(text.encode()) > LARGEST_BYTES:
            return ""
        root = ElementTree.fromstring(text)  # noqa: S314 - no "<!", so no entities
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
    return name in _ATTRIBUTES and _LOADING.search(_INNER_URL.sub("", value)) is None
