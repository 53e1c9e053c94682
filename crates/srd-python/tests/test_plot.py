"""Figures: what is drawn is what was measured."""

import subprocess
import sys

import opensrd
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

from opensrd import plot  # noqa: E402


@pytest.fixture(scope="module")
def result():
    from conftest import SMALL

    return opensrd.simulate(SMALL)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_completion_times(result):
    ax = plot.completion_cdf(result)
    for transport in ("srd", "tcp"):
        line = lines(ax)[transport]
        assert sorted(line.get_xdata()) == sorted(result.flows.where(transport=transport)["fct_us"])
        assert list(line.get_ydata()) == [0.25, 0.5, 0.75, 1.0]
    assert lines(ax)["ideal"].get_xdata()[0] == pytest.approx(result.flows["ideal_us"][0])
    assert "ideal" not in lines(plot.completion_cdf(result, by_ideal=True))


def overlaps(labels):
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    assert len(boxes) >= 3
    return [one for one, other in zip(boxes, boxes[1:]) if one.x1 > other.x0]


def test_regression_the_labels_of_a_logarithmic_axis_stand_apart():
    times = [123.0, 267.0, 300.0, 8117.9]
    flows = opensrd.Table(
        {"transport": ["tcp"] * 4, "fct_us": times, "ideal_us": [269.8] * 4, "slowdown": [1.0] * 4}
    )
    ax = plot.completion_cdf(flows)
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    labels = [
        label
        for which in ("major", "minor")
        for label in ax.get_xticklabels(which=which)
        if low <= label.get_position()[0] <= high
    ]
    labels.sort(key=lambda label: label.get_position()[0])
    assert not overlaps(labels)
    assert [label.get_text() for label in labels if label.get_text()] == [
        "100", "200", "500", "1,000", "2,000", "5,000", "10,000",
    ]


def test_regression_a_legend_of_many_ports_does_not_cover_them():
    ports = [f"leaf0->spine{n}" for n in range(8)]
    loads = opensrd.Table(
        {
            "transport": ["srd"] * 16,
            "seed": [1] * 16,
            "at_us": [0.0] * 8 + [10.0] * 8,
            "port": ports * 2,
            "gbps": [50.0] * 16,
        }
    )
    ax = plot.paths(loads)
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


def test_regression_plot_is_there_without_an_import_of_its_own():
    line = "import opensrd; opensrd.plot.style"
    assert subprocess.run([sys.executable, "-c", line]).returncode == 0


def test_regression_a_test_without_a_figure_runs_alone():
    alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(
        [*alone, "-k", "plot_is_there_without"], capture_output=True, text=True
    )
    assert run.returncode == 0 and "1 passed" in run.stdout, run.stdout


def test_slowdown_by_size():
    from conftest import SMALL

    sweep = opensrd.sweep(
        SMALL,
        {"workload.0.bytes": [4096, 65536]},
        executor="serial",
        tables=("summary", "flows"),
    )
    ax = plot.slowdown_by_size(sweep, quantile=1.0)
    line = lines(ax)["tcp"]
    assert list(line.get_xdata()) == [4096, 65536]
    of = sweep.flows.where(transport="tcp", bytes=65536)
    assert line.get_ydata()[1] == max(of["slowdown"])


def test_many_sizes_are_put_into_bins():
    flows = opensrd.Table(
        {
            "transport": ["srd"] * 100,
            "bytes": list(range(1, 101)),
            "slowdown": [float(n) for n in range(1, 101)],
        }
    )
    line = lines(plot.slowdown_by_size(flows, quantile=0.5, bins=4))["srd"]
    assert list(line.get_xdata()) == [13, 38, 63, 88]
    assert list(line.get_ydata()) == [13, 38, 63, 88]


def test_lines_over_time(result):
    ax = plot.queues(result, transport="tcp")
    of = result.queues.where(transport="tcp")
    assert list(lines(ax)["leaf0->host0"].get_xdata()) == of["at_us"]
    assert list(lines(ax)["leaf0->host0"].get_ydata()) == [b * 1e-3 for b in of["bytes"]]
    assert set(lines(plot.paths(result, transport="srd"))) == {"leaf0->spine0", "leaf0->spine1"}
    assert len(lines(plot.goodput(result, transport="srd"))) == 4
    with pytest.raises(ValueError, match="which transport\\? transport= one of srd, tcp"):
        plot.queues(result)


def test_what_was_not_recorded_is_not_drawn(small):
    bare = opensrd.simulate(small, measure={}, transport="srd")
    for draw, setting in (
        (plot.queues, "measure.queues"),
        (plot.paths, "measure.loads"),
        (plot.goodput, "measure.flows"),
    ):
        with pytest.raises(plot.NoData, match=setting):
            draw(bare)
    endless = opensrd.simulate(small, workload__0__bytes="endless", horizon_us=50.0)
    for draw in (plot.completion_cdf, plot.slowdown_by_size):
        with pytest.raises(plot.NoData, match="no flow was done"):
            draw(endless)
    with pytest.raises(plot.NoData, match="tables="):
        plot.completion_cdf(opensrd.sweep(small, {"seed": [1]}, executor="serial"))


def test_figures_are_written(result, tmp_path):
    ax = plot.completion_cdf(result)
    for suffix in ("pdf", "svg", "png"):
        ax.figure.savefig(tmp_path / f"f.{suffix}")
        assert (tmp_path / f"f.{suffix}").stat().st_size > 1000
