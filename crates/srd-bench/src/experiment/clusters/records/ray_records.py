"""Sorts records of 100 bytes with Ray, and says whether what came out is what went in.

Arguments: the head's address, records, blocks, records of a first round that is not counted,
workers.
"""

import sys
import time

import numpy as np
import ray
import ray.data

BYTES = 92  # beside a key of 8


def records(batch):
    keys = batch["id"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys ^= keys >> np.uint64(31)
    random = np.random.default_rng(int(batch["id"][0]))
    values = random.integers(0, 256, (len(keys), BYTES), dtype=np.uint8)
    return {"k": (keys >> np.uint64(1)).astype(np.int64), "v": values}


def look(batch):
    keys = batch["k"].astype(np.uint64)
    words = np.ascontiguousarray(batch["v"][:, :88]).view(np.uint64)
    total = keys.copy()
    for column in range(words.shape[1]):
        total = (total ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(29)
    total += batch["v"][:, 88:].sum(axis=1, dtype=np.uint64)
    ordered = bool((keys[1:] >= keys[:-1]).all())
    part = {
        "rows": len(keys),
        "sum": np.uint64(total.sum(dtype=np.uint64)),
        "first": batch["k"][0],
        "last": batch["k"][-1],
        "ordered": ordered,
    }
    return {name: np.array([value]) for name, value in part.items()}


def run(rows, blocks):
    made = ray.data.range(rows, override_num_blocks=blocks).map_batches(records, batch_size=None)
    begun = time.monotonic()
    out = made.sort("k").materialize()
    seconds = time.monotonic() - begun
    parts = out.map_batches(look, batch_size=None).take_all()
    wanted = made.map_batches(look, batch_size=None).take_all()
    borders = all(b["first"] >= a["last"] for a, b in zip(parts, parts[1:]))
    ordered = borders and all(part["ordered"] for part in parts)
    total = lambda all: sum(int(part["sum"]) for part in all) % (1 << 64)
    print(
        f"RESULT seconds={seconds:.3f} rows={sum(int(part['rows']) for part in parts)} "
        f"sum={total(parts)} wanted={total(wanted)} ordered={str(ordered).lower()}",
        flush=True,
    )


def main():
    address, rows, blocks, warm_up, workers = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    alive = sum(node["Alive"] for node in ray.nodes())
    assert alive == 1 + int(workers), f"{alive} nodes of {1 + int(workers)}"
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    run(int(warm_up), int(blocks))
    run(int(rows), int(blocks))
    ray.shutdown()


if __name__ == "__main__":
    main()
