"""Distributions of flow sizes."""

import opensrd
import pytest


@pytest.mark.parametrize("name", opensrd.sizes.NAMES)
def test_samples_follow_the_distribution(name):
    sizes = opensrd.sizes.find(name)
    assert sizes.points[-1][1] == 1.0
    sample = sizes.sample(100_000, seed=3)
    assert abs(sum(sample) / len(sample) / sizes.mean_bytes - 1) < 0.1
    assert sample == sizes.sample(100_000, seed=3) != sizes.sample(100_000, seed=4)


@pytest.mark.parametrize("count", [100_000_001, 10**12, 2**62])
def test_regression_more_sizes_than_there_is_memory_for_are_refused(count):
    with pytest.raises(ValueError, match="give at most 100000000"):
        opensrd.sizes.find("web-search").sample(count)


def test_a_distribution_of_a_file(tmp_path):
    file = tmp_path / "sizes.csv"
    file.write_text("bytes,cdf\n1000,0.5\n2000,1.0\n")
    sizes = opensrd.sizes.find(file)
    assert sizes.points == [(1000, 0.5), (2000, 1.0)] and sizes.mean_bytes == 1250
    file.write_text("1000,0.5\n")
    with pytest.raises(opensrd.ScenarioError, match="the last probability must be 1"):
        opensrd.sizes.find(file)
    with pytest.raises(opensrd.ScenarioError, match="`data-mining`, `hadoop`, `ali-storage` or a"):
        opensrd.sizes.find("memcached")


def test_the_names_are_those_of_the_simulator():
    network = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "leaf_hosts": 4}
    for name in opensrd.sizes.NAMES:
        work = {"kind": "poisson", "load": 0.5, "sizes": name, "duration_us": 1000.0}
        result = opensrd.simulate({"topology": network, "workload": [work]})
        assert len(result.flows) > 0
