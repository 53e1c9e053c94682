"""Results of a sweep on disk: one file per point and format, whole or not there.

A file is written beside its place and moved into it, so that a sweep that is killed leaves no
half of a file under its name. What got there by other ways and is not whole is not believed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from . import _native
from .scenario import to_plain
from .table import Table, need
from .task import Columns

FORMATS = ("jsonl", "parquet")


class Store:
    """A directory of results."""

    def __init__(
        self, directory: Union[str, "os.PathLike[str]"], format: str, tables: tuple[str, ...]
    ) -> None:
        if format not in FORMATS:
            raise ValueError(f"no format {format!r}; there are {', '.join(FORMATS)}")
        if format == "parquet":
            need("pyarrow")
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._format = format
        self._tables = tables

    def load(self, key: str) -> Optional[Columns]:
        """The results of a key; ``None`` if one of the tables is not there or not whole."""
        read = _read_parquet if self._format == "parquet" else _read_jsonl
        found: Columns = {}
        for table in self._tables:
            columns = read(self._path(key, table))
            if columns is None:
                return None
            found[table] = columns
        return found

    def save(self, key: str, point: Mapping[str, Any], columns: Columns) -> None:
        """Keeps the results of a key."""
        write = _write_parquet if self._format == "parquet" else _write_jsonl
        head = {"opensrd": _native.__version__, "key": key, "overrides": to_plain(point)}
        for table in self._tables:
            path = self._path(key, table)
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                write(fresh, {**head, "table": table}, columns[table])
                os.replace(fresh, path)
            finally:
                fresh.unlink(missing_ok=True)

    def _path(self, key: str, table: str) -> Path:
        return self._directory / f"{key}.{table}.{self._format}"


def _write_jsonl(path: Path, head: dict[str, Any], columns: dict[str, list[Any]]) -> None:
    rows = Table(columns).to_dicts()
    with open(path, "w", encoding="utf-8") as file:
        print(json.dumps({**head, "columns": list(columns)}), file=file)
        for row in rows:
            print(json.dumps(row), file=file)
        print(json.dumps({"end": len(rows)}), file=file)
        file.flush()
        os.fsync(file.fileno())


def _read_jsonl(path: Path) -> Optional[dict[str, list[Any]]]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        head, *rows = [json.loads(line) for line in text.splitlines()]
        if not text.endswith("\n") or rows.pop() != {"end": len(rows)}:
            return None
        return {name: [row[name] for row in rows] for name in head["columns"]}
    except (OSError, ValueError, IndexError, KeyError, TypeError, AttributeError):
        return None


def _write_parquet(path: Path, head: dict[str, Any], columns: dict[str, list[Any]]) -> None:
    parquet = need("pyarrow.parquet")
    table = Table(columns).to_arrow().replace_schema_metadata({"opensrd": json.dumps(head)})
    parquet.write_table(table, path)


def _read_parquet(path: Path) -> Optional[dict[str, list[Any]]]:
    pyarrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    try:
        columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
        return columns
    except (OSError, pyarrow.ArrowException):
        return None
