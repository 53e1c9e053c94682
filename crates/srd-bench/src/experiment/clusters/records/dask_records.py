"""Sorts or joins records of 100 bytes with Dask, and says whether what came out is what went in.

Arguments: the scheduler, sort or join, records, partitions, records of a first round that is not
counted, workers.
"""

import sys
import time

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

COLUMNS = 11  # of 8 bytes, beside a key of 8 and one of 4: 100 bytes a record


def records(part, rows, salt):
    """A part of a table: the keys of all tables are the same, in another order each."""
    random = np.random.default_rng(part)
    columns = {"k": random.integers(0, 1 << 62, rows)}
    random.shuffle(columns["k"])
    fill = np.random.default_rng([part, salt])
    for number in range(COLUMNS):
        columns[f"{'ab'[salt]}{number}"] = fill.integers(0, 1 << 62, rows)
    columns[f"{'ab'[salt]}x"] = fill.integers(0, 1 << 31, rows, dtype=np.int32)
    return pd.DataFrame(columns)


def table(rows, parts, salt):
    size = rows // parts
    sizes = [size + (part < rows % parts) for part in range(parts)]
    meta = records(0, 2, salt)
    return dd.from_map(records, range(parts), sizes, salt=salt, meta=meta)


def digest(frame):
    """A sum over the records, whatever their order; of a joined one over both halves alike."""
    if not len(frame):
        return 0
    total = np.zeros(len(frame), dtype=np.uint64)
    for name in sorted(frame.columns):
        mixed = frame[name].to_numpy().astype(np.uint64) + np.uint64(hash_of(name))
        total = (total ^ mixed) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(29)
    return int(total.sum(dtype=np.uint64))


def hash_of(name):
    value = 1469598103934665603
    for byte in name.encode():
        value = ((value ^ byte) * 1099511628211) % (1 << 64)
    return value


def look(frame):
    keys = frame["k"].to_numpy()
    ordered = bool((keys[1:] >= keys[:-1]).all())
    first, last = (int(keys[0]), int(keys[-1])) if len(keys) else (None, None)
    return pd.DataFrame(
        {
            "rows": [len(frame)],
            "sum": pd.array([digest(frame)], dtype="uint64"),
            "first": [first],
            "last": [last],
            "ordered": [ordered],
        }
    )


def both(part, rows):
    return records(part, rows, 0).merge(records(part, rows, 1), on="k")


def run(work, rows, parts):
    a = table(rows, parts, 0)
    if work == "sort":
        out = a.sort_values("k", npartitions=parts)
    else:
        out = a.merge(table(rows, parts, 1), on="k", npartitions=parts, broadcast=False)
    meta = look(records(0, 2, 0))
    begun = time.monotonic()
    seen = out.map_partitions(look, meta=meta).compute()
    seconds = time.monotonic() - begun
    filled = seen[seen["rows"] > 0]
    ordered = True
    if work == "sort":
        borders = (filled["first"].to_numpy()[1:] >= filled["last"].to_numpy()[:-1]).all()
        ordered = bool(borders) and bool(filled["ordered"].all())
        wanted = a
    else:
        size = rows // parts
        sizes = [size + (part < rows % parts) for part in range(parts)]
        wanted = dd.from_map(both, range(parts), sizes, meta=both(0, 2))
    sums = wanted.map_partitions(look, meta=meta).compute()["sum"]
    total = lambda column: sum(int(one) for one in column) % (1 << 64)
    print(
        f"RESULT seconds={seconds:.3f} rows={int(seen['rows'].sum())} sum={total(seen['sum'])} "
        f"wanted={total(sums)} ordered={str(ordered).lower()}",
        flush=True,
    )


def main():
    address, work, rows, parts, warm_up, workers = sys.argv[1:]
    dask.config.set({"dataframe.shuffle.method": "p2p", "dataframe.convert-string": False})
    with Client(address) as client:
        client.wait_for_workers(int(workers), timeout=60)
        run(work, int(warm_up), int(parts))
        run(work, int(rows), int(parts))


if __name__ == "__main__":
    main()
