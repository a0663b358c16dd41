from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sandbox import catalog as module
from sandbox.catalog import Catalog
from sandbox.control import Control, ControlError
from sandbox.products import products
from tests.sandbox.raw import Answer, Raw


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with Catalog() as running:
        yield running


def get(catalog: Catalog, path: str, **headers: str) -> Answer:
    with Raw(catalog.url) as client:
        return client.get(path, **headers)


def test_the_listing_is_paged_and_searched_in_both_languages(catalog: Catalog) -> None:
    page = get(catalog, "/products?limit=5&offset=20").json()
    assert (len(page["products"]), page["total"]) == (4, 24)
    assert [item["sku"] for item in get(catalog, "/products?q=LANTERN").json()["products"]] == ["LANTERN-BR"]
    word = "%D1%84%D0%BE%D0%BD%D0%B0%D1%80%D1%8C"  # фонарь
    assert get(catalog, f"/products?q={word}").json()["products"][0]["sku"] == "LANTERN-BR"


def test_a_batch_names_what_is_missing(catalog: Catalog) -> None:
    answer = get(catalog, "/products?ids=MUG-ANC,NOPE,BELL-15,MUG-ANC").json()
    assert [item["sku"] for item in answer["products"]] == ["MUG-ANC", "BELL-15"]
    assert answer["missing"] == ["NOPE"]


@pytest.mark.parametrize("query", ["ids=", "limit=0", "limit=x", "offset=-1", "limit=101"])
def test_a_senseless_query_is_422(catalog: Catalog, query: str) -> None:
    assert get(catalog, f"/products?{query}").status == 422


def test_one_product_or_404(catalog: Catalog) -> None:
    assert get(catalog, "/products/MUG-ANC").json()["price"] == {"amount_minor": 1250, "currency": "EUR"}
    assert get(catalog, "/products/NOPE").status == 404
    assert get(catalog, "/other").status == 404


def test_an_unchanged_listing_is_304_until_a_price_changes(catalog: Catalog) -> None:
    control = Control(catalog.control_url)
    tag = get(catalog, "/products").header("ETag") or ""
    unchanged = get(catalog, "/products", If_None_Match=tag)
    assert (unchanged.status, unchanged.body, unchanged.header("ETag")) == (304, b"", tag)
    control.call("PUT", "/_sandbox/products/MUG-ANC", {"price_minor": 1, "name": "Cup"})
    changed = get(catalog, "/products?ids=MUG-ANC", If_None_Match=tag).json()["products"][0]
    assert (changed["name"], changed["price"]["amount_minor"]) == ("Cup", 1)
    assert get(catalog, "/products", If_None_Match=tag).status == 200
    control.call("DELETE", "/_sandbox/products")
    assert get(catalog, "/products", If_None_Match=tag).status == 304


@pytest.mark.parametrize(
    "change", [{"price_minor": -1}, {"price_minor": 1.5}, {"price_minor": True}, {"sku": "X"}]
)
def test_a_senseless_change_is_refused(catalog: Catalog, change: dict[str, object]) -> None:
    with pytest.raises(ControlError, match="400"):
        Control(catalog.control_url).call("PUT", "/_sandbox/products/MUG-ANC", change)


@pytest.mark.parametrize("product", products().values(), ids=lambda product: str(product["sku"]))
def test_pictures_are_small_and_harmless_and_their_ids_unique(product: dict[str, str]) -> None:
    svg = product["image_svg"]
    root = ElementTree.fromstring(svg)
    assert len(svg) < 4096
    assert root.get("viewBox") == "0 0 320 240"
    names = {name.rpartition("}")[2] for element in root.iter() for name in (element.tag, *element.attrib)}
    assert not any(name.startswith("on") or name in ("script", "href", "style") for name in names)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert all(svg.count(f'"{name}"') == 1 for name in ids)
    others = [other["image_svg"] for other in products().values() if other["sku"] != product["sku"]]
    assert not any(f'id="{name}"' in other for name in ids for other in others)


def test_prices_are_between_3_and_400_euro() -> None:
    assert all(300 <= item["price"]["amount_minor"] <= 40_000 for item in products().values())


def test_the_contract_names_every_path_and_field() -> None:
    text = Path(module.__file__).with_name("catalog.openapi.yaml").read_text()
    for word in (
        "/products:",
        "/products/{sku}:",
        *products()["MUG-ANC"],
        "missing",
        "total",
        "If-None-Match",
    ):
        assert word in text
