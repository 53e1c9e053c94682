"""How far a sweep is: a bar where tqdm is installed, else lines."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional

from .table import need

#: Nothing is said about what is over sooner, and between two lines.
SILENT_S = 3.0
EVERY_S = 5.0


class Progress:
    """Tells on standard error."""

    def __init__(self, points: int, found: int, speak: bool) -> None:
        self._points = points
        self._done = found
        self._speak = speak
        self._bar: Optional[Any] = None
        self._said = time.monotonic() + SILENT_S - EVERY_S

    def __enter__(self) -> Progress:
        if self._speak and self._done < self._points:
            try:
                tqdm = need("tqdm.auto").tqdm
            except ImportError:
                if self._done:
                    print(f"[{self._done}/{self._points}] found", file=sys.stderr)
            else:
                self._bar = tqdm(total=self._points, initial=self._done, unit="run")
        return self

    def step(self, what: str) -> None:
        """One more is done."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(1)
            return
        now = time.monotonic()
        if self._speak and now - self._said >= EVERY_S:
            self._said = now
            print(f"[{self._done}/{self._points}] {what}", file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
