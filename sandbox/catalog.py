"""The catalog of products and prices; its contract is `catalog.openapi.yaml` beside this file."""

import dataclasses
import hashlib
import threading
from typing import Any

from sandbox.http import Request, Response
from sandbox.neighbour import Neighbour, NotFound, main
from sandbox.products import products

_LARGEST_PAGE = 100
_LARGEST_BATCH = 200
_LARGEST_PRICE = 99_999_999


class Catalog(Neighbour):
    """`GET /products`, `/products/{sku}`, `/products?ids=`. Thread-safe: products are replaced as a whole."""

    name = "catalog"

    def __init__(self, host: str = "127.0.0.1", port: int = 0, control_port: int = 0) -> None:
        self._products = products()
        self._lock = threading.Lock()
        super().__init__(host, port, control_port)

    def answer(self, request: Request) -> Response:
        segments = request.segments()
        if request.method != "GET" or not segments or segments[0] != "products" or len(segments) > 2:
            return Response.of({"error": "not found"}, 404)
        if len(segments) == 2:
            product = self._products.get(segments[1])
            found = Response.of(product) if product else Response.of({"error": "no such product"}, 404)
            return _tagged(found, request)
        try:
            body = self._batch(request.query) if "ids" in request.query else self._page(request.query)
        except ValueError as error:
            return Response.of({"error": str(error)}, 422)
        return _tagged(Response.of(body), request)

    def _batch(self, query: dict[str, str]) -> dict[str, Any]:
        wanted = list(dict.fromkeys(sku for sku in query["ids"].split(",") if sku))
        if not 1 <= len(wanted) <= _LARGEST_BATCH:
            raise ValueError(f"ids must name 1 to {_LARGEST_BATCH} products")
        known = self._products
        return {
            "products": [known[sku] for sku in wanted if sku in known],
            "missing": [sku for sku in wanted if sku not in known],
        }

    def _page(self, query: dict[str, str]) -> dict[str, Any]:
        limit = _whole(query, "limit", _LARGEST_PAGE, 1, _LARGEST_PAGE)
        offset = _whole(query, "offset", 0, 0, 1_000_000)
        words = query.get("q", "").casefold()
        texts = ("sku", "name", "name_ru", "description", "description_ru")
        hits = [
            product
            for product in self._products.values()
            if any(words in product[text].casefold() for text in texts)
        ]
        return {"products": hits[offset : offset + limit], "total": len(hits)}

    def control(self, request: Request) -> Response:
        segments = request.segments()
        if segments[:2] != ["_sandbox", "products"]:
            raise NotFound
        if request.method == "DELETE" and len(segments) == 2:
            self._products = products()
            return Response.of(list(self._products.values()))
        if request.method == "PUT" and len(segments) == 3:
            return Response.of(self._change(segments[2], request.json()))
        raise NotFound

    def _change(self, sku: str, wanted: Any) -> dict[str, Any]:
        """`{"price_minor": n, "name": "..."}`, either or both. Raises NotFound and ValueError."""
        with self._lock:
            if sku not in self._products:
                raise NotFound
            product = dict(self._products[sku])
            if strange := sorted(set(wanted) - {"price_minor", "name"}):
                raise ValueError(f"a product's {', '.join(strange)} cannot be changed")
            if "price_minor" in wanted:
                price = wanted["price_minor"]
                if type(price) is not int or not 0 <= price <= _LARGEST_PRICE:
                    raise ValueError(f"price_minor must be a whole number from 0 to {_LARGEST_PRICE}")
                product["price"] = {"amount_minor": price, "currency": "EUR"}
            if "name" in wanted:
                product["name"] = str(wanted["name"])
            self._products = {**self._products, sku: product}
            return product


def _whole(query: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise ValueError(f"{name} must be a whole number from {least} to {most}")
    return int(text)


def _tagged(response: Response, request: Request) -> Response:
    """With an entity tag, or 304 when the caller has this very content."""
    if response.status != 200:
        return response
    tag = f'"{hashlib.sha256(response.body).hexdigest()[:20]}"'
    headers = (("ETag", tag), ("Cache-Control", "no-cache"))
    known = [item.strip().removeprefix("W/") for item in request.headers.get("if-none-match", "").split(",")]
    if tag in known or known == ["*"]:
        return Response(304, b"", headers)
    return dataclasses.replace(response, headers=response.headers + headers)


if __name__ == "__main__":
    main("catalog", Catalog)
