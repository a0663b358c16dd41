"""Pictures from the catalog: what may be put into a page, and what may not."""

import pytest

from orders.pictures import safe_svg
from sandbox.products import products

NS = 'xmlns="http://www.w3.org/2000/svg"'


@pytest.mark.parametrize("sku", products())
def test_every_picture_of_the_demo_may_be_shown(sku):
    picture = products()[sku]["image_svg"]
    assert safe_svg(picture) == picture


@pytest.mark.parametrize(
    "inner",
    [
        '<path d="M0 0" fill="url(#sky)"/>',
        '<use href="#a"/>',
        '<use xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="#a"/>',
        "<title>Rope &lt;12 mm&gt;</title>",
    ],
)
def test_references_inside_the_picture_are_fine(inner):
    picture = f"<svg {NS}>{inner}</svg>"
    assert safe_svg(picture) == picture


@pytest.mark.parametrize(
    "inner",
    [
        "<script>alert(1)</script>",
        "<foreignObject><b>x</b></foreignObject>",
        '<path onload="x()"/>',
        '<path ONLOAD="x()"/>',
        '<path hx-get="/ops/" hx-trigger="load"/>',
        '<path data-hx-get="/ops/"/>',
        '<path style="fill:red"/>',
        '<path class="button"/>',
        '<use href="https://evil.example/a.svg#a"/>',
        '<use href="data:image/svg+xml,x#a"/>',
        '<use xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="//evil.example/#a"/>',
        '<a href="javascript:alert(1)"><path/></a>',
        '<a href="&#106;avascript:alert(1)"><path/></a>',
        '<image href="#a"/>',
        "<style>@import 'x'</style>",
        '<animate attributeName="href" to="javascript:x"/>',
        '<path fill="url(https://evil.example/)"/>',
        '<path fill="URL (https://evil.example/)"/>',
        '<path fill="u\\72l(https://evil.example/)"/>',
        '<path fill="url(#a) url(https://evil.example/)"/>',
        "<title><path/></title>",
        "<h:b xmlns:h='http://www.w3.org/1999/xhtml'>x</h:b>",
        "<!-- x -->",
        "<![CDATA[<script>]]>",
        "<?xml-stylesheet href='x'?>",
        '<path xml:base="https://evil.example/"/>',
    ],
)
def test_behaviour_and_outside_references_drop_the_picture(inner):
    assert safe_svg(f"<svg {NS}>{inner}</svg>") == ""


@pytest.mark.parametrize(
    "picture",
    [
        None,
        7,
        "",
        "rope",
        "<svg/>",
        f"<svg {NS}>",
        f"<g {NS}/>",
        '<html xmlns="http://www.w3.org/1999/xhtml"/>',
        f"<svg {NS}>\ud800</svg>",
        f"<svg {NS}>\0</svg>",
        f"<svg {NS}><title>{'x' * 4096}</title></svg>",
        f"<svg {NS}><title>{'я' * 2100}</title></svg>",
        f'<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg {NS}>&a;</svg>',
    ],
    ids=range(13),
)
def test_what_is_no_small_svg_picture_is_dropped(picture):
    assert safe_svg(picture) == ""
