"""The dataclasses know every key of the simulator, and no other."""

import dataclasses
import re

import opensrd
import pytest
from opensrd import faults, topology, workload
from opensrd.simulate import resolve

TABLES = {
    "queue": "Queue",
    "measure": "Measure",
    "srd": "Srd",
    "tcp": "Tcp",
    "roce": "Roce",
    "card": "Card",
}
NETWORK = {"kind": "dumbbell", "side_hosts": 2}


def fields(kind):
    return {one.name.rstrip("_") for one in dataclasses.fields(kind)}


def kinds(module):
    return [k for k in vars(module).values() if dataclasses.is_dataclass(k)]


def known(scenario):
    """The keys that the simulator offers in place of one that it does not know."""
    with pytest.raises(opensrd.ScenarioError) as error:
        resolve(scenario, {})
    offered = str(error.value).split("unknown field", 1)[1]
    return set(re.findall(r"`([^`]+)`", offered)) - {"surprise"}


@pytest.mark.parametrize("key", TABLES)
def test_tables(key):
    there = known({"topology": NETWORK, key: {"surprise": 1}})
    assert fields(getattr(opensrd, TABLES[key])) == there


def test_scenario():
    assert fields(opensrd.Scenario) == known({"topology": NETWORK, "surprise": 1})


@pytest.mark.parametrize("kind", kinds(topology), ids=lambda k: k.__name__)
def test_topologies(kind):
    assert fields(kind) == known({"topology": {"kind": kind.kind, "surprise": 1}})


@pytest.mark.parametrize("kind", kinds(workload), ids=lambda k: k.__name__)
def test_workloads(kind):
    work = {"kind": kind.kind, "surprise": 1}
    assert fields(kind) == known({"topology": NETWORK, "workload": [work]})


@pytest.mark.parametrize("kind", kinds(faults), ids=lambda k: k.__name__)
def test_faults(kind):
    fault = {"kind": kind.kind, "surprise": 1}
    assert fields(kind) == known({"topology": NETWORK, "fault": [fault]})


@pytest.mark.parametrize(
    ("key", "module"), [("topology", topology), ("workload", workload), ("fault", faults)]
)
def test_no_kind_is_missing(key, module):
    one = {"kind": "surprise"}
    scenario = {"topology": NETWORK, key: one if key == "topology" else [one]}
    with pytest.raises(opensrd.ScenarioError) as error:
        resolve(scenario, {})
    offered = str(error.value).split("unknown variant", 1)[1]
    there = set(re.findall(r"`([^`]+)`", offered)) - {"surprise"}
    assert {kind.kind for kind in kinds(module)} == there
