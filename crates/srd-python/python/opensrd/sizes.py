"""Distributions of flow sizes, by name or from a file of lines ``bytes,cumulative probability``."""

from __future__ import annotations

import os
from typing import Union

from ._native import Sizes

#: Those that the simulator knows by name.
NAMES = ("web-search", "data-mining", "hadoop", "ali-storage")


def find(name: Union[str, "os.PathLike[str]"]) -> Sizes:
    """The distribution of a name, or of a CSV file: its `points`, `mean_bytes`, and
    `sample(count, seed)`.

    Raises `ScenarioError` for a name that is none, and for a file that is no distribution.
    """
    return Sizes(os.fspath(name))


__all__ = ["NAMES", "Sizes", "find"]
