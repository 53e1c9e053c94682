"""Results of a sweep on disk: one file per point and format, whole or not there.

A file is written beside its place and moved into it, so that a sweep that is killed leaves no
half of a file under its name. What got there by other ways and is not whole, or is the result of
another point, is not believed. The directory may be one that others write to: what is no regular
file is not opened, and nothing is written through a link.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Optional, Union

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
            columns = read(self._path(key, table), _head(key, table))
            if columns is None:
                return None
            found[table] = columns
        return found

    def save(self, key: str, point: Mapping[str, Any], columns: Columns) -> None:
        """Keeps the results of a key."""
        write = _write_parquet if self._format == "parquet" else _write_jsonl
        for table in self._tables:
            path = self._path(key, table)
            head = {**_head(key, table), "overrides": to_plain(point)}
            # A name that nobody can have put a link under.
            fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            try:
                with open(fresh, "xb") as file:
                    write(file, head, columns[table])
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(fresh, path)
            except OSError as error:
                if error.filename is None:
                    error.filename = os.fspath(path)
                raise
            finally:
                fresh.unlink(missing_ok=True)

    def _path(self, key: str, table: str) -> Path:
        return self._directory / f"{key}.{table}.{self._format}"


def _head(key: str, table: str) -> dict[str, Any]:
    """What a file says of itself, by which it is known for what it is."""
    return {"opensrd": _native.__version__, "key": key, "table": table}


def _is_of(head: Any, wanted: Mapping[str, Any]) -> bool:
    return isinstance(head, Mapping) and wanted.items() <= head.items()


def _open(path: Path) -> IO[bytes]:
    """A regular file. Nothing else is waited for, such as a queue that nobody writes to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


def _write_jsonl(file: IO[bytes], head: dict[str, Any], columns: dict[str, list[Any]]) -> None:
    rows = Table(columns).to_dicts()
    for line in ({**head, "columns": list(columns)}, *rows, {"end": len(rows)}):
        file.write(json.dumps(line).encode() + b"\n")


def _read_jsonl(path: Path, wanted: Mapping[str, Any]) -> Optional[dict[str, list[Any]]]:
    try:
        with _open(path) as file:
            text = file.read().decode()
        head, *rows = [json.loads(line) for line in text.splitlines()]
        if not text.endswith("\n") or rows.pop() != {"end": len(rows)}:
            return None
        names = head["columns"]
        if not _is_of(head, wanted) or any(row.keys() != set(names) for row in rows):
            return None
        return {name: [row[name] for row in rows] for name in names}
    except (
        OSError,
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return None


def _write_parquet(file: IO[bytes], head: dict[str, Any], columns: dict[str, list[Any]]) -> None:
    parquet = need("pyarrow.parquet")
    table = Table(columns).to_arrow().replace_schema_metadata({"opensrd": json.dumps(head)})
    parquet.write_table(table, file)


def _read_parquet(path: Path, wanted: Mapping[str, Any]) -> Optional[dict[str, list[Any]]]:
    pyarrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    try:
        with _open(path) as file:
            table = parquet.read_table(file)
        head = json.loads((table.schema.metadata or {})[b"opensrd"])
        if not _is_of(head, wanted):
            return None
        columns: dict[str, list[Any]] = table.to_pydict()
        return columns
    except (OSError, ValueError, KeyError, RecursionError, pyarrow.ArrowException):
        return None
