"""Tables: columns of one length, as Arrow, pandas, polars, or rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Columns that may lack values in all rows, where nothing else tells their type.
_FLOATS = {"start_us", "fct_us", "slowdown", "ideal_us", "at_us", "gbps"}
_INTEGERS = {"bytes", "id", "src", "dst", "seed", "delivered_bytes", "failed", "damaged"}


class Table:
    """Columns of one length by name. What is missing is ``None``."""

    def __init__(self, columns: Mapping[str, list[Any]]) -> None:
        self._columns = dict(columns)
        lengths = {len(values) for values in self._columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
        self._length = lengths.pop() if lengths else 0

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, column: str) -> list[Any]:
        try:
            return self._columns[column]
        except KeyError:
            names = ", ".join(self._columns)
            raise KeyError(f"no column {column!r}; there are {names}") from None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self.columns
        for row in zip(*self._columns.values()):
            yield dict(zip(names, row))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self._columns == other._columns

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Table of {self._length} rows: {', '.join(self._columns)}>"

    def where(self, **equal: Any) -> Table:
        """The rows whose columns have these values, as in ``flows.where(transport="srd")``."""
        tests = [(self[column], value) for column, value in equal.items()]
        keep = [n for n in range(self._length) if all(c[n] == v for c, v in tests)]
        return Table({name: [c[n] for n in keep] for name, c in self._columns.items()})

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns as lists."""
        return dict(self._columns)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows. Needs no other package."""
        return list(self)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``. Needs the package pyarrow."""
        pa = need("pyarrow")
        arrays = {}
        for name, values in self._columns.items():
            kind = None
            if name in _FLOATS:
                kind = pa.float64()
            elif name in _INTEGERS:
                kind = pa.uint64()
            arrays[name] = pa.array(values, type=kind)
        return pa.table(arrays)

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``. Needs the package pandas."""
        pd = need("pandas")
        frame = {}
        for name, values in self._columns.items():
            if name in _INTEGERS and None in values:
                frame[name] = pd.array(values, dtype="UInt64")
            elif name in _FLOATS:
                frame[name] = pd.Series(values, dtype="float64")
            else:
                frame[name] = values
        return pd.DataFrame(frame)

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``. Needs the package polars."""
        pl = need("polars")
        kinds = {name: pl.Float64 for name in _FLOATS & self._columns.keys()}
        kinds.update({name: pl.UInt64 for name in _INTEGERS & self._columns.keys()})
        return pl.DataFrame(self._columns, schema_overrides=kinds, infer_schema_length=None)

    def best(self) -> Any:
        """As pandas, else polars, else Arrow: the first that is installed; else rows."""
        for convert in (self.to_pandas, self.to_polars, self.to_arrow):
            try:
                return convert()
            except ImportError:
                continue
        return self.to_dicts()


def need(package: str) -> Any:
    """A package that this one does without as long as it is not asked for."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        text = f"{package} is not installed: pip install {package.partition('.')[0]}"
        raise ImportError(text) from error
