"""Processes that run tasks: each reads tasks as lines of JSON and answers in kind.

Not a pool of `multiprocessing`: a fork copies locks of threads that it does not copy, and a fresh
start imports the user's program once more. These processes import this package and nothing else.

Answers come through a pipe of their own, so that what other code prints when an interpreter starts
is not taken for one. A process ends when the one that started it is gone, in the middle of a run, too.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from . import _native
from .task import Columns, Task, run_task

#: How often a process looks whether the one that started it is still there.
_LOOK_S = 0.5
_ERRORS = {"scenario": _native.ScenarioError, "simulator": _native.SimulatorError}


class WorkerDied(RuntimeError):
    """A process of a sweep ended in the middle of a point, perhaps for want of memory."""


def on_processes(tasks: list[Task], count: int) -> Iterator[tuple[int, Columns]]:
    """Runs tasks on so many processes, which end when this ends, however it does."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(tasks)):
        todo.put(number)
    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    workers: list[_Worker] = []
    feeders: list[threading.Thread] = []
    try:
        for _ in range(count):
            workers.append(_Worker())
            feed = (workers[-1], tasks, todo, done)
            feeders.append(threading.Thread(target=_feed, args=feed, daemon=True))
        for feeder in feeders:
            feeder.start()
        for _ in tasks:
            number, answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            yield number, answer
    finally:
        for worker in workers:
            worker.process.kill()
        for worker, feeder in zip(workers, feeders):
            worker.process.wait()
            if feeder.ident is not None:
                feeder.join()
            _close(worker.tasks)
            _close(worker.answers)


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        pass  # an unsent task of a process that was ended


class _Worker:
    """A process with the pipe of its tasks and that of its answers."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        # This very package, also where it was found by a path that a fresh interpreter does not have.
        here = str(Path(__file__).resolve().parent.parent)
        paths = [here, os.environ.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        ours, theirs = os.pipe()
        self.answers: IO[bytes] = os.fdopen(ours, "rb")
        # `-c` makes the current directory the first place of modules: a file there, such as json.py,
        # perhaps of another user, would be run in place of a module of this program.
        path = "import sys; '' in sys.path and sys.path.remove('')"
        program = f"{path}; from opensrd.workers import main; main()"
        command = [sys.executable, "-c", program, str(theirs), str(os.getpid())]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs,),
                env=environment,
            )
        except BaseException:
            self.answers.close()
            raise
        finally:
            os.close(theirs)
        assert self.process.stdin is not None, "it was asked for"
        self.tasks: IO[bytes] = self.process.stdin


def _feed(
    worker: _Worker,
    tasks: list[Task],
    todo: queue.SimpleQueue[int],
    done: queue.SimpleQueue[tuple[int, Any]],
) -> None:
    """Gives a process one task after the other."""
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            return
        task = tasks[number]
        try:
            worker.tasks.write(json.dumps(task).encode() + b"\n")
            worker.tasks.flush()
            line = worker.answers.readline()
        except (OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            code = worker.process.wait()
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


def _end_with(parent: int) -> None:
    """Ends this process once the one that started it is gone: nobody wants the answer."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(130)


def main() -> None:
    """A worker: from standard input to the pipe of answers, until there is no more."""
    pipe, parent = int(sys.argv[1]), int(sys.argv[2])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        with os.fdopen(pipe, "wb") as answers:
            for line in sys.stdin.buffer:
                answers.write(json.dumps(_answer(json.loads(line))).encode() + b"\n")
                answers.flush()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(130)  # the process that started this one knows already
