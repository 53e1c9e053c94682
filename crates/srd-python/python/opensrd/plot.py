"""Figures fit for a paper, by matplotlib: of what results hold, and nothing else.

Every function takes results of `simulate` (or a table of them, as a sweep has) and axes if there
are some already, and returns the axes. What was not recorded is a `NoData` that names the setting
which records it. A transport has the same colour in every figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional, Union

from .result import Result
from .sweep import Sweep
from .table import Table, need

Source = Union[Result, Sweep, Table]

#: Okabe and Ito's colours, which most people can tell apart, also in print.
COLOURS = {
    "srd": "#0072B2",
    "efa": "#56B4E9",
    "srd-single": "#009E73",
    "srd-blind": "#CC79A7",
    "express": "#E69F00",
    "roce": "#F0E442",
    "roce-pfc": "#882255",
    "tcp": "#D55E00",
    "dctcp": "#000000",
    "blast": "#999999",
}
#: Sizes of one column of a paper, and letters that can be read there.
STYLE = {
    "figure.figsize": (3.5, 2.4),
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
}
#: Lines of one figure at most; a sample of more.
LINES_MAX = 24
#: Lines that a legend names at most, and those of which it stands among the lines.
LEGEND_MAX = 8
LEGEND_INSIDE_MAX = 2


class NoData(ValueError):
    """Results do not hold what is to be drawn."""


def style() -> Any:
    """A context in which figures look as in a paper: ``with plot.style(): ...``."""
    return need("matplotlib").rc_context(STYLE)


def completion_cdf(source: Source, ax: Any = None, *, by_ideal: bool = False) -> Any:
    """The share of flows that were done by a time, of each transport; with `by_ideal` the time is
    in parts of each flow's ideal."""
    column = "slowdown" if by_ideal else "fct_us"
    flows = _table(source, "flows", "flows that end (bytes other than 'endless')")
    ax = _axes(ax)
    drawn = False
    for transport, rows in _by(flows, "transport"):
        times = sorted(value for value in rows[column] if value is not None)
        if times:
            shares = [(n + 1) / len(times) for n in range(len(times))]
            ax.step(times, shares, where="post", label=transport, color=_colour(transport))
            drawn = True
    if not drawn:
        raise NoData("no flow was done: `bytes` other than 'endless', or a later `horizon_us`")
    if not by_ideal:
        ideals = {round(value, 6) for value in flows["ideal_us"]}
        if len(ideals) == 1:
            ax.axvline(ideals.pop(), color="black", linestyle=":", label="ideal")
    ax.set_xscale("log")
    _plain_numbers(ax.xaxis)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("completion time / ideal" if by_ideal else "flow completion time (µs)")
    ax.set_ylabel("share of flows")
    ax.legend()
    return ax


def slowdown_by_size(
    source: Source, ax: Any = None, *, quantile: float = 0.99, bins: int = 10
) -> Any:
    """A quantile of completion time over ideal, by flow size: of each size where there are few,
    else of `bins` bins with equally many flows each."""
    if not 0 < quantile <= 1 or bins < 1:
        raise ValueError(f"quantile={quantile} is in (0, 1], bins={bins} at least 1")
    flows = _table(source, "flows", "flows that end (bytes other than 'endless')")
    ax = _axes(ax)
    drawn = False
    for transport, rows in _by(flows, "transport"):
        pairs = zip(rows["bytes"], rows["slowdown"])
        done = sorted((size, value) for size, value in pairs if value is not None)
        if done:
            points = [_quantile(group, quantile) for group in _groups(done, bins)]
            sizes, values = zip(*points)
            ax.plot(sizes, values, marker="o", ms=3, label=transport, color=_colour(transport))
            drawn = True
    if not drawn:
        raise NoData("no flow was done: `bytes` other than 'endless', or a later `horizon_us`")
    ax.axhline(1, color="black", linestyle=":", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_yscale("log")
    _plain_numbers(ax.yaxis)
    ax.set_xlabel("flow size (bytes)")
    ax.set_ylabel(f"p{100 * quantile:g} of time / ideal")
    ax.legend()
    return ax


def paths(source: Source, ax: Any = None, *, transport: Optional[str] = None) -> Any:
    """What each recorded port sent over time: the share of each path. Of one transport."""
    loads = _table(source, "loads", "measure.interval_us and measure.loads, as [\"leaf0->spine\"]")
    return _over_time(_one(loads, transport), "port", "gbps", 1.0, "load (Gb/s)", _axes(ax))


def queues(source: Source, ax: Any = None, *, transport: Optional[str] = None) -> Any:
    """The most bytes that waited at each recorded port over time. Of one transport."""
    table = _table(source, "queues", "measure.interval_us and measure.queues, as [\"tor0->host0\"]")
    one = _one(table, transport)
    return _over_time(one, "port", "bytes", 1e-3, "waiting at the port (kB)", _axes(ax))


def goodput(source: Source, ax: Any = None, *, transport: Optional[str] = None) -> Any:
    """Each flow's goodput over time. Of one transport."""
    table = _table(source, "goodput", "measure.interval_us and measure.flows = true")
    one = _one(table, transport)
    return _over_time(one, "id", "gbps", 1.0, "goodput of a flow (Gb/s)", _axes(ax))


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    pyplot = need("matplotlib.pyplot")
    with style():
        return pyplot.subplots(layout="constrained")[1]


def _colour(transport: str) -> str:
    return COLOURS.get(transport, "#444444")


def _table(source: Source, name: str, setting: str) -> Table:
    if isinstance(source, Sweep):
        try:
            table = source.table(name)
        except KeyError:
            raise NoData(f"the sweep keeps no {name}: tables=('summary', {name!r})") from None
    else:
        table = source if isinstance(source, Table) else getattr(source, name)
    if len(table) == 0:
        raise NoData(f"the results hold no {name}: set {setting}")
    return table


def _by(table: Table, column: str) -> Iterable[tuple[Any, Table]]:
    for value in dict.fromkeys(table[column]):
        yield value, table.where(**{column: value})


def _one(table: Table, transport: Optional[str]) -> Table:
    """The rows of one transport and seed: lines of several would be drawn over each other."""
    transports = list(dict.fromkeys(table["transport"]))
    if transport is None and len(transports) > 1:
        raise ValueError(f"which transport? transport= one of {', '.join(transports)}")
    chosen = table.where(transport=transport or transports[0])
    if len(chosen) == 0:
        raise NoData(f"no transport {transport!r}; there are {', '.join(transports)}")
    return chosen.where(seed=chosen["seed"][0])


def _over_time(
    table: Table, key: str, value: str, scale: float, label: str, ax: Any
) -> Any:
    lines: dict[Any, tuple[list[float], list[float]]] = {}
    for name, at_us, number in zip(table[key], table["at_us"], table[value]):
        times, values = lines.setdefault(name, ([], []))
        times.append(at_us)
        values.append(number * scale)
    stride = -(-len(lines) // LINES_MAX)
    for name in list(lines)[::stride]:
        ax.plot(*lines[name], label=f"flow {name}" if key == "id" else name, linewidth=0.9)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time (µs)")
    ax.set_ylabel(label)
    ax.set_title(table["transport"][0])
    if len(lines) <= LEGEND_INSIDE_MAX:
        ax.legend()
    elif len(lines) <= LEGEND_MAX:
        # Beside the lines, which fill the axes.
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    return ax


def _plain_numbers(axis: Any) -> None:
    """Labels 1, 2 and 5 of each decade of a logarithmic axis: more of them run into each other."""

    def label(value: float, _: Any) -> str:
        return f"{value:,.10g}"

    def label_some(value: float, _: Any) -> str:
        return label(value, _) if f"{value:e}"[0] in "25" else ""

    ticker = need("matplotlib.ticker")
    axis.set_major_formatter(ticker.FuncFormatter(label))
    axis.set_minor_formatter(ticker.FuncFormatter(label_some))


def _groups(
    done: list[tuple[int, float]], bins: int
) -> Iterable[list[tuple[int, float]]]:
    sizes = sorted({size for size, _ in done})
    if len(sizes) <= bins:
        return [[pair for pair in done if pair[0] == size] for size in sizes]
    bounds = [len(done) * n // bins for n in range(bins + 1)]
    return [done[low:high] for low, high in zip(bounds, bounds[1:]) if high > low]


def _quantile(group: list[tuple[int, float]], quantile: float) -> tuple[float, float]:
    """The middle size, and the quantile of the slowdowns by nearest rank."""
    values = sorted(value for _, value in group)
    rank = max(1, -int(-len(values) * quantile // 1))
    return group[len(group) // 2][0], values[min(rank, len(values)) - 1]
