"""Running tasks: on processes, threads, an executor, Dask or Ray. The order of the results is
that in which they are done; each comes with the number of its task."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
from collections.abc import Iterator
from typing import Any, Optional

from . import _native
from .table import need
from .task import Columns, Task, run_task
from .workers import WorkerDied, on_processes

Done = Iterator[tuple[int, Columns]]


def run_tasks(executor: Any, tasks: list[Task], workers: Optional[int]) -> Done:
    """Runs tasks. An exception of a task names its point, and ends the others."""
    if not tasks:
        return iter(())
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    count = min(workers or _cores(), len(tasks))
    if executor == "processes":
        return on_processes(tasks, count)
    if executor == "serial":
        return ((n, _named(task)) for n, task in enumerate(tasks))
    if executor == "threads":
        return _on_own_threads(tasks, count)
    if isinstance(executor, concurrent.futures.Executor):
        return _on_executor(executor, tasks)
    if executor == "ray" or getattr(executor, "__name__", "") == "ray":
        return _on_ray(tasks)
    if type(executor).__module__.partition(".")[0] == "distributed":
        return _on_dask(executor, tasks)
    raise TypeError(
        f"executor={executor!r}: take 'processes', 'threads', 'serial', 'ray', an Executor of "
        "concurrent.futures, or a Client of Dask"
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _named(task: Task) -> Columns:
    """Runs a task; a message says which it was."""
    try:
        return run_task(task)
    except (_native.ScenarioError, _native.SimulatorError) as error:
        text, origin = str(error), task["origin"]
        if text.startswith(origin):
            raise
        raise type(error)(f"{origin}: {text}") from None


def _on_own_threads(tasks: list[Task], count: int) -> Done:
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        yield from _on_executor(pool, tasks)


def _on_executor(executor: concurrent.futures.Executor, tasks: list[Task]) -> Done:
    numbers = {executor.submit(_named, task): n for n, task in enumerate(tasks)}
    try:
        for future in concurrent.futures.as_completed(numbers):
            yield numbers[future], future.result()
    finally:
        for future in numbers:
            future.cancel()


def _on_dask(client: Any, tasks: list[Task]) -> Done:
    distributed = need("distributed")

    futures = [client.submit(_named, task, pure=False) for task in tasks]
    numbers = {future.key: n for n, future in enumerate(futures)}
    try:
        for future, columns in distributed.as_completed(futures, with_results=True):
            yield numbers[future.key], columns
    finally:
        client.cancel(futures)


def _on_ray(tasks: list[Task]) -> Done:
    """No task is cancelled: a cancellation that meets the end of its task ends the whole process
    in Ray's core. Instead, few are given to Ray ahead of time, and an exception leaves those."""
    ray = need("ray")

    if not ray.is_initialized():
        ray.init()
    remote = ray.remote(_named)
    open_: dict[Any, int] = {}
    waiting = iter(enumerate(tasks))
    while True:
        cores = int(ray.cluster_resources().get("CPU", 1))
        for number, task in itertools.islice(waiting, max(0, 2 * cores + 2 - len(open_))):
            open_[remote.remote(task)] = number
        if not open_:
            return
        ready, _ = ray.wait(list(open_), num_returns=1)
        for reference in ready:
            number = open_.pop(reference)
            try:
                columns = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            yield number, columns


__all__ = ["WorkerDied", "run_tasks"]
