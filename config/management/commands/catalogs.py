"""manage.py catalogs: gathers the texts of code and templates into locale/ and compiles them. Babel does it all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.translation.template import templatize

_PACKAGES = ("config", "orders", "payments", "templates")
_KEYWORDS: dict[str, Any] = {
    "_": None,
    "_now": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
}
_SOURCE_LANGUAGE = "en"


class Command(BaseCommand):
    help = "Updates and compiles the catalogs of texts. What is not translated yet is counted."

    def handle(self, *args: Any, **options: Any) -> None:
        root, found = settings.BASE_DIR, gather(settings.BASE_DIR)
        for language, _name in settings.LANGUAGES:
            catalog = updated(root, language, found)
            po = catalog_file(root, language)
            po.parent.mkdir(parents=True, exist_ok=True)
            po.write_bytes(as_po(catalog))
            po.with_suffix(".mo").write_bytes(as_mo(catalog))
            left = [message.id for message in catalog if message.id and not is_translated(message)]
            self.stdout.write(f"{language}: {len(catalog)} texts, {len(left)} to translate")


def catalog_file(root: Path, language: str) -> Path:
    return root / "locale" / language / "LC_MESSAGES" / "django.po"


def gather(root: Path) -> Catalog:
    """Every text that code or templates ask a translation for."""
    catalog = Catalog(charset="utf-8", fuzzy=False)
    for path in _sources(root):
        method, source = "python", path.read_bytes()
        if path.suffix != ".py":
            source = templatize(source.decode(), origin=str(path)).encode()
        where = path.relative_to(root).as_posix()
        for _line, message, _comments, context in extract(method, BytesIO(source), keywords=_KEYWORDS):
            catalog.add(message, locations=[(where, None)], context=context)  # type: ignore[list-item]
    return catalog


def _sources(root: Path) -> Iterator[Path]:
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in {".py", ".html", ".txt"}:
                yield path


def read(root: Path, language: str) -> Catalog:
    """The catalog as it is kept."""
    with catalog_file(root, language).open("rb") as file:
        return read_po(file, locale=language, charset="utf-8")


def updated(root: Path, language: str, found: Catalog) -> Catalog:
    """The kept catalog with exactly the texts that are asked for. Nothing is guessed."""
    kept = read(root, language) if catalog_file(root, language).exists() else Catalog(locale=language)
    catalog = Catalog(locale=language, project="Holdfast", version="1", charset="utf-8", fuzzy=False)
    catalog.header_comment = "# Texts of Holdfast. `manage.py catalogs` keeps them in step with the code."
    for message in found:
        if not message.id:
            continue
        known = kept.get(message.id, message.context)
        text = known.string if known else ""
        if language == _SOURCE_LANGUAGE:
            text = message.id
        catalog.add(
            message.id, text, locations=message.locations, flags=message.flags, context=message.context
        )
    return catalog


def is_translated(message: Message) -> bool:
    texts = message.string if isinstance(message.string, tuple | list) else [message.string]
    return all(texts)


def as_po(catalog: Catalog) -> bytes:
    """Without dates and line numbers, so that only texts make differences."""
    out = BytesIO()
    write_po(out, catalog, omit_header=False, include_lineno=False, sort_output=True, width=100)
    lines = out.getvalue().splitlines(keepends=True)
    noise = (
        b'"POT-Creation-Date',
        b'"PO-Revision-Date',
        b'"Last-Translator',
        b'"Language-Team',
        b'"Generated-By',
    )
    return b"".join(line for line in lines if not line.startswith(noise))


def as_mo(catalog: Catalog) -> bytes:
    out = BytesIO()
    catalog.creation_date = catalog.revision_date = datetime(2000, 1, 1, tzinfo=UTC)  # same texts, same bytes
    write_mo(out, catalog)
    return out.getvalue()
