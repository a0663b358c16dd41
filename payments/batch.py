"""Rows of several tables in one statement, so that a transaction's writes cost one round trip.

Django composes each INSERT and UPDATE; they are joined as parts of one WITH. All parts see the tables as they
were before the statement: a row that one part inserts is not there for another.
"""

from __future__ import annotations

from typing import Any, Self

from django.db import connection, models
from django.db.models.constants import OnConflict
from django.db.models.sql.subqueries import InsertQuery, UpdateQuery

_Statement = tuple[str, tuple[Any, ...]]


class Batch:
    """Collects rows and writes them when its block ends without an exception. For one thread.

    Rows are read at the end of the block, so what is changed meanwhile is written as it then is. A row that
    others of the batch refer to needs its key before.
    """

    def __init__(self) -> None:
        self._new: dict[tuple[type[models.Model], bool], list[models.Model]] = {}
        self._changed: list[models.Model] = []

    def insert(self, *rows: models.Model, ignore_conflicts: bool = False) -> None:
        """New rows. With `ignore_conflicts` one that is there already is left as it is."""
        for row in rows:
            self._new.setdefault((type(row), ignore_conflicts), []).append(row)

    def save(self, row: models.Model) -> None:
        """All columns of an existing row, or of one that is new in this batch."""
        known = [*self._changed, *(new for rows in self._new.values() for new in rows)]
        if not any(row is other for other in known):
            self._changed.append(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self._write()

    def _write(self) -> None:
        parts = [_insert(model, rows, ignore) for (model, ignore), rows in self._new.items()]
        parts += [_update(row) for row in self._changed]
        if not parts:
            return
        names = ", ".join(f"part{place} AS ({sql})" for place, (sql, _) in enumerate(parts))
        with connection.cursor() as cursor:
            cursor.execute(f"WITH {names} SELECT 1", [value for _, values in parts for value in values])


def save(row: models.Model, batch: Batch | None) -> None:
    """Writes an existing row, with the batch if there is one."""
    if batch is None:
        row.save()
    else:
        batch.save(row)


def insert(row: models.Model, batch: Batch | None, *, ignore_conflicts: bool = False) -> None:
    """Writes a new row, with the batch if there is one."""
    if batch is None:
        type(row)._base_manager.bulk_create([row], ignore_conflicts=ignore_conflicts)
    else:
        batch.insert(row, ignore_conflicts=ignore_conflicts)


def _insert(model: type[models.Model], rows: list[models.Model], ignore_conflicts: bool) -> _Statement:
    keyed = rows[0].pk is not None
    fields = [field for field in model._meta.concrete_fields if keyed or not field.primary_key]
    query = InsertQuery(model, on_conflict=OnConflict.IGNORE if ignore_conflicts else None)
    query.insert_values(fields, rows)
    ((sql, values),) = query.get_compiler(connection=connection).as_sql()
    return sql, tuple(values)


def _update(row: models.Model) -> _Statement:
    query: UpdateQuery = type(row)._base_manager.filter(pk=row.pk).query.chain(UpdateQuery)  # type: ignore[assignment]
    fields = [field for field in row._meta.concrete_fields if not field.primary_key]
    query.add_update_fields([(field, None, field.pre_save(row, False)) for field in fields])
    sql, values = query.get_compiler(connection=connection).as_sql()
    return sql, tuple(values)
