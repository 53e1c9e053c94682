#!/usr/bin/env python3
"""Random clouds by boto3, and real connections between their instances.

    sudo python3 crates/srd-control/tests/setups [--srd PROGRAM] [--setups N] [--seed SEED]
                                                 [--jobs N] [--only N]

Each set-up is a random cloud that calls of the EC2 API make in a server `srd control up`. Then
connections between its instances are tried: TCP with bytes in both directions, UDP, and echo
requests of ICMP. Each outcome is compared with two verdicts: that of the model, by the explanations
of the server and of `srd vpc explain`, and that of `reference.py`, which follows the documentation
of AWS and reads the answers of Describe actions only. Then the cloud is changed at random while its
instances run, and new connections and those that are still open are compared again.

A difference is printed with the seed, the calls and the verdicts. The exit status is 1 if there is
one. `--only N` repeats the set-up N of a seed.
"""

import argparse
import collections
import ipaddress
import json
import os
import random
import sys
import time

from concurrent.futures import ProcessPoolExecutor

import changes
import reference
import server as server_of
import traffic
from cloud import Cloud

# Changes of each cloud while it runs.
ROUNDS = 3
# New connections of a round, and connections that stay open for the next round.
TRIES = 36
KEPT = 12
# Explanations of a round that the program `srd vpc explain` repeats.
SAMPLES = 1
DATA_MAX = 3000


class SetUp:
    """One random cloud, its instances and their connections."""

    def __init__(self, server, name, counts):
        self.server, self.name, self.counts = server, name, counts
        self.dice = random.Random(name)
        self.cloud = Cloud(server.ec2, self.dice)
        self.network = traffic.Network()
        self.machines = {}
        self.kept = []
        self.used = set()
        self.differences = 0

    def run(self):
        try:
            self.cloud.make()
            self.counts["instances"] += len(self.cloud.instances)
            self.machines_begin()
            for n in range(ROUNDS):
                if n > 0:
                    self.cloud.calls.append(f"# change {n}")
                    changes.change(self.cloud)
                self.round()
        except Exception:
            print(f"set-up {self.name} has failed after these calls:")
            print("  " + "\n  ".join(self.cloud.calls), flush=True)
            print(self.server.read_log()[-4000:])
            raise
        finally:
            self.network.close()
            self.counts["calls"] += len(self.cloud.calls)
        ids = [one["id"] for one in self.cloud.instances]
        self.server.ec2.terminate_instances(InstanceIds=ids)

    def machines_begin(self):
        region = reference.Region(self.server.ec2)
        for one in self.cloud.instances:
            interface = region.interfaces[one["interface"]]
            addresses = region.addresses_of(interface)
            # Each instance serves most ports; the others refuse.
            tcp, udp = (self.dice.sample(self.cloud.ports, 4) for _ in range(2))
            namespace = f"srd-i-{one['id']}"
            self.machines[one["interface"]] = traffic.Machine(
                self.network, namespace, addresses, tcp, udp
            )

    def round(self):
        region = reference.Region(self.server.ec2)
        begun = [self.go_on(region, *kept) for kept in self.kept]
        begun = [one for one in begun if one]
        begun += [self.begin(region, *pair) for pair in self.pairs(region)]
        self.network.settle([attempt for attempt, *_ in begun])
        samples = self.dice.sample(range(len(begun)), min(SAMPLES, len(begun)))
        for n, (attempt, sender, packet, verdict, is_new) in enumerate(begun):
            self.compare(region, attempt, sender, packet, verdict, is_new, n in samples)
        passed = [
            (attempt, sender, packet, verdict)
            for attempt, sender, packet, verdict, _ in begun
            if attempt.outcome == traffic.PASSES and packet.protocol in ("tcp", "udp")
        ]
        self.kept = self.dice.sample(passed, min(KEPT, len(passed)))
        kept = [attempt for attempt, *_ in self.kept]
        for attempt, *_ in begun:
            if attempt not in kept:
                attempt.close()

    def pairs(self, region):
        """Pairs of a sender and a first packet, each of which has ports of its own."""
        interfaces = list(self.machines)
        for _ in range(TRIES):
            sender, receiver = self.dice.sample(interfaces, 2)
            own = self.machines[sender].addresses
            choices = list(self.machines[receiver].addresses)
            public = region.public(receiver, choices[0])
            if public and self.dice.random() < 0.6:
                choices = [public]
            destination = self.dice.choice(choices)
            sources = [one for one in own if one.version == destination.version]
            if not sources:
                destination, sources = self.machines[receiver].addresses[0], own[:1]
            source = sources[0]
            echo = "icmp" if source.version == 4 else "icmpv6"
            protocol = self.dice.choice(["tcp", "tcp", "udp", "udp", echo])
            while (port := self.dice.randint(32768, 60999)) in self.used:
                pass
            self.used.add(port)
            if protocol == echo:
                ports = (8 if source.version == 4 else 128, 0)
            else:
                ports = (port, self.dice.choice(self.cloud.ports))
            yield sender, reference.Packet(source, destination, protocol, ports), port

    def begin(self, region, sender, packet, port):
        """Begins a new connection."""
        verdict = region.connection(sender, packet)
        expected = self.expected(packet, verdict)
        ports = packet.ports if packet.protocol in ("tcp", "udp") else (port, 0)
        kind = traffic.KINDS[packet.protocol]
        attempt = kind(
            self.machines[sender], packet.source, packet.destination, ports, expected,
            data=self.data(),
        )
        return attempt, sender, packet, verdict, True

    def go_on(self, region, attempt, sender, packet, before):
        """Sends further bytes on a connection of the round before."""
        verdict = region.continues(sender, packet, before)
        if verdict is None:
            attempt.close()
            return None
        attempt.begin(traffic.PASSES if verdict.answered else traffic.SILENT, self.data())
        return attempt, sender, packet, verdict, False

    def data(self):
        return self.dice.randbytes(self.dice.randint(1, DATA_MAX))

    def expected(self, packet, verdict):
        """The outcome that the reference predicts for a new connection."""
        is_echo = packet.protocol.startswith("icmp")
        if verdict.arrival is None:
            return traffic.SILENT
        to = self.machines[verdict.arrival.interface]
        if is_echo or packet.ports[1] in {"tcp": to.tcp, "udp": to.udp}[packet.protocol]:
            return traffic.PASSES if verdict.answered else traffic.SILENT
        returns = verdict.error if packet.protocol == "udp" else verdict.answered
        return traffic.RESET if returns else traffic.SILENT

    def compare(self, region, attempt, sender, packet, verdict, is_new, is_sample):
        """Compares an outcome with the verdicts."""
        self.counts["new" if is_new else "continued"] += 1
        self.counts[packet.protocol] += 1
        self.counts[attempt.outcome] += 1
        explanations = []
        if is_new:
            explanations = self.explain(region, sender, packet, self.server.explain)
            self.counts["explained"] += 1
        models = {all(one["works"] for one in explanations)} if is_new else set()
        if is_new and is_sample:
            repeated = self.explain(region, sender, packet, self.server.explain_file)
            models.add(all(one["works"] for one in repeated))
            self.counts["samples"] += 1
        if attempt.outcome == attempt.expected and models <= {verdict.answered}:
            return
        self.differences += 1
        if self.differences == 1:
            print(f"set-up {self.name}:\n  " + "\n  ".join(self.cloud.calls))
        print(f"difference in set-up {self.name}: {packet} of {sender}, new: {is_new}")
        print(f"  connection: {attempt.outcome}")
        print(f"  reference:  {attempt.expected}: {verdict}")
        for one in explanations:
            print(f"  model:      works: {one['works']}: {json.dumps(one)}")
        sys.stdout.flush()

    def explain(self, region, sender, packet, explain):
        """The explanations of a connection. A public address needs two of them."""
        asked = (packet.protocol, packet.ports)
        found = [explain(sender, str(packet.destination), *asked)]
        if found[0]["works"] and region.owner_of_public(packet.destination):
            public = region.public(sender, packet.source)
            found.append(explain(str(public), str(packet.destination), *asked))
        return found


def run(program, seed, numbers):
    """Runs set-ups in a server of their own. Returns the counts."""
    counts = collections.Counter()
    server = server_of.Server(program)
    try:
        for n in numbers:
            one = SetUp(server, f"{seed}-{n}", counts)
            one.run()
            server.reset()
            counts["set-ups"] += 1
            counts["differences"] += one.differences
    finally:
        code = server.end()
    if code != 0:
        raise RuntimeError(f"the server has ended with {code}")
    return counts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--srd", default="target/debug/srd", help="the program")
    parser.add_argument("--setups", type=int, default=200, help="number of set-ups")
    parser.add_argument("--seed", default="1", help="the seed of all set-ups")
    parser.add_argument("--only", type=int, help="run this set-up only")
    parser.add_argument("--jobs", type=int, default=4, help="number of servers at once")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("instances need root: run it with sudo")
    begun = time.monotonic()
    numbers = range(arguments.setups) if arguments.only is None else [arguments.only]
    jobs = max(1, min(arguments.jobs, len(numbers)))
    with ProcessPoolExecutor(jobs) as pool:
        shares = [numbers[first::jobs] for first in range(jobs)]
        all_of = [pool.submit(run, arguments.srd, arguments.seed, share) for share in shares]
        counts = sum((one.result() for one in all_of), collections.Counter())
    seconds = round(time.monotonic() - begun)
    print(
        f"{counts['set-ups']} set-ups with {counts['instances']} instances and {counts['calls']} "
        f"calls in {seconds} s\n"
        f"{counts['new']} new connections and {counts['continued']} that stayed open over a change:"
        f" {counts['tcp']} TCP, {counts['udp']} UDP, {counts['icmp']} ICMP, "
        f"{counts['icmpv6']} ICMPv6\n"
        f"{counts[traffic.PASSES]} pass, {counts[traffic.RESET]} get a reset or an error, "
        f"{counts[traffic.SILENT]} are dropped silently\n"
        f"{counts['explained']} explanations of the server, {counts['samples']} of srd vpc explain\n"
        f"{counts['differences']} differences"
    )
    sys.exit(1 if counts["differences"] else 0)


if __name__ == "__main__":
    main()
