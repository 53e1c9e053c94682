"""Processes that run tasks: each reads tasks as lines of JSON and answers in kind.

Not a pool of `multiprocessing`: a fork copies locks of threads that it does not copy, and a fresh
start imports the user's program once more. These processes import this package and nothing else.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from . import _native
from .task import Columns, Task, run_task

_ERRORS = {"scenario": _native.ScenarioError, "simulator": _native.SimulatorError}


class WorkerDied(RuntimeError):
    """A process of a sweep ended in the middle of a point, perhaps for want of memory."""


def on_processes(tasks: list[Task], count: int) -> Iterator[tuple[int, Columns]]:
    """Runs tasks on so many processes, which end when this ends, however it does."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(tasks)):
        todo.put(number)
    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    processes = [_start() for _ in range(count)]
    feeders = [
        threading.Thread(target=_feed, args=(process, tasks, todo, done), daemon=True)
        for process in processes
    ]
    try:
        for feeder in feeders:
            feeder.start()
        for _ in tasks:
            number, answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            yield number, answer
    finally:
        for process in processes:
            process.kill()
        for process, feeder in zip(processes, feeders):
            process.wait()
            if feeder.ident is not None:
                feeder.join()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None, "both were asked for"
                _close(pipe)


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        pass  # an unsent task of a process that was ended


def _start() -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    # This very package, also where it was found by a path that a fresh interpreter does not have.
    here = str(Path(__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", "from opensrd.workers import main; main()"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)


def _feed(
    process: subprocess.Popen[bytes],
    tasks: list[Task],
    todo: queue.SimpleQueue[int],
    done: queue.SimpleQueue[tuple[int, Any]],
) -> None:
    """Gives a process one task after the other."""
    assert process.stdin is not None and process.stdout is not None, "both were asked for"
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            return
        task = tasks[number]
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            code = process.wait()
            done.put((number, WorkerDied(f"{task['origin']}: its process ended with {code}")))
            return
        answer = json.loads(line)
        if "error" in answer:
            kind = _ERRORS.get(answer["error"], RuntimeError)
            done.put((number, kind(_name(task, answer["text"]))))
            return
        done.put((number, answer["columns"]))


def _name(task: Task, text: str) -> str:
    """A message that says which point it is about."""
    return text if text.startswith(task["origin"]) else f"{task['origin']}: {text}"


def _answer(task: Task) -> dict[str, Any]:
    try:
        return {"columns": run_task(task)}
    except _native.ScenarioError as error:
        return {"error": "scenario", "text": str(error)}
    except _native.SimulatorError as error:
        return {"error": "simulator", "text": str(error)}
    except Exception as error:
        return {"error": "other", "text": f"{type(error).__name__}: {error}"}


#: `prctl`: the signal that a process gets when the one that started it has ended.
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """A run may take minutes, and nobody reads its result when the parent was killed."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(130)  # it ended meanwhile


def main() -> None:
    """A worker: from standard input to standard output, until there is no more."""
    _end_with_parent()
    try:
        for line in sys.stdin.buffer:
            sys.stdout.buffer.write(json.dumps(_answer(json.loads(line))).encode() + b"\n")
            sys.stdout.buffer.flush()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(130)  # the process that started this one knows already
