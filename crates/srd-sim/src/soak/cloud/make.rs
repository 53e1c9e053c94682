//! Random clouds for the soak, as the text of a `vpc.toml`, and their changes.
//!
//! There are three clouds of four interfaces. The clouds `a` and `b` have equal addresses; `a` and
//! `c` may be peered. The cloud `a` has an internet gateway with an elastic address, and a NAT
//! gateway.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use srd_vpc::object::World;

use super::super::dice::Dice;

pub(super) const CLOUDS: [&str; 3] = ["a", "b", "c"];
/// Number of interfaces of each cloud.
pub(super) const INTERFACES: u32 = 4;
const GROUPS: u32 = 3;
/// Name of the host of all gateways.
pub(super) const EDGE: &str = "edge";

/// Parts of the clouds that change during a run: groups, ACLs, memberships, peering.
#[derive(Clone)]
pub(super) struct Knobs {
    groups: Vec<[Vec<String>; 2]>,
    lists: Vec<[Vec<String>; 2]>,
    members: Vec<BTreeSet<u32>>,
    peered: bool,
}

/// Parts of the clouds that do not change.
#[derive(Clone)]
pub(super) struct Places {
    /// For each interface, the number of the interface's host.
    pub(super) hosts: Vec<u32>,
    /// For each interface, whether ENA Express is on, and whether it is on for UDP.
    pub(super) express: Vec<[bool; 2]>,
}

fn rules(dice: &mut Dice, cloud: &str, way: &str) -> Vec<String> {
    if dice.percent(40) {
        let everywhere = if dice.percent(50) { "0.0.0.0/0" } else { "10.0.0.0/8" };
        return vec![format!("all {way} {everywhere}")];
    }
    let rule = |dice: &mut Dice| {
        let traffic = dice.pick(&["all", "tcp 80", "tcp 1-1000", "udp 53", "udp", "icmp", "tcp"]);
        match dice.between(0, 3) {
            0 => format!("{traffic} {way} group {cloud}-g{}", dice.between(0, GROUPS - 1)),
            1 => format!("{traffic} {way} 0.0.0.0/0"),
            _ => {
                let block = dice.pick(&["10.0.0.0/24", "10.0.1.0/24", "10.1.0.0/16", "10.0.0.0/8"]);
                format!("{traffic} {way} {block}")
            }
        }
    };
    let all: BTreeSet<String> = (0..dice.between(0, 4)).map(|_| rule(dice)).collect();
    all.into_iter().collect()
}

fn entries(dice: &mut Dice, way: &str) -> Vec<String> {
    let mut all = Vec::new();
    for number in 1..=dice.pick(&[0, 0, 1, 3]) {
        let verdict = if dice.percent(60) { "deny" } else { "allow" };
        let traffic = dice.pick(&["all", "tcp 80", "udp", "icmp", "tcp 40000-65535"]);
        let block = dice.pick(&["10.0.0.0/24", "10.1.0.0/16", "0.0.0.0/0", "10.0.1.4/30"]);
        all.push(format!("{number} {verdict} {traffic} {way} {block}"));
    }
    all.extend(dice.percent(85).then(|| format!("100 allow all {way} 0.0.0.0/0")));
    all
}

fn list(phrases: &[String]) -> String {
    let quoted: Vec<String> = phrases.iter().map(|phrase| format!("\"{phrase}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

impl Knobs {
    pub(super) fn new(dice: &mut Dice) -> Self {
        let mut knobs = Self {
            groups: Vec::new(),
            lists: Vec::new(),
            members: Vec::new(),
            peered: dice.percent(80),
        };
        for cloud in CLOUDS {
            for _ in 0..GROUPS {
                knobs.groups.push([rules(dice, cloud, "from"), rules(dice, cloud, "to")]);
            }
            for _ in 0..2 {
                knobs.lists.push([entries(dice, "from"), entries(dice, "to")]);
            }
            for _ in 0..INTERFACES {
                knobs.members.push(members(dice));
            }
        }
        knobs
    }

    /// Changes one random part.
    pub(super) fn change(&mut self, dice: &mut Dice) {
        let index = |dice: &mut Dice, of: usize| {
            dice.between(0, u32::try_from(of).expect("few") - 1) as usize
        };
        match dice.between(0, 9) {
            0..=3 => {
                let at = index(dice, self.groups.len());
                let cloud = CLOUDS[at / GROUPS as usize];
                self.groups[at] = [rules(dice, cloud, "from"), rules(dice, cloud, "to")];
            }
            4..=6 => {
                let at = index(dice, self.lists.len());
                self.lists[at] = [entries(dice, "from"), entries(dice, "to")];
            }
            7 | 8 => {
                let at = index(dice, self.members.len());
                self.members[at] = members(dice);
            }
            _ => self.peered = !self.peered,
        }
    }

    /// Returns the objects of the clouds.
    pub(super) fn world(&self, places: &Places) -> World {
        let text = self.text(places);
        let file = srd_vpc_file::parse(&text, Path::new("soak.toml"));
        file.unwrap_or_else(|error| panic!("the plan makes no cloud: {error}\n{text}")).world
    }

    fn text(&self, places: &Places) -> String {
        let mut text = format!(
            "[peering.ac]\nrequester = \"a\"\naccepter = \"c\"\nactive = {}\n\
             [internet_gateway.door]\nvpc = \"a\"\n\
             [elastic_address.of-nat]\npublic = \"198.51.100.1\"\n\
             [elastic_address.of-0]\npublic = \"198.51.100.2\"\ninterface = \"a-0\"\n\
             [nat_gateway.nat]\nsubnet = \"a-s0\"\nprivate = \"10.0.0.200\"\n\
             elastic_address = \"of-nat\"\n",
            self.peered
        );
        for (n, cloud) in CLOUDS.into_iter().enumerate() {
            self.cloud(&mut text, n, cloud, places);
        }
        text
    }

    fn cloud(&self, text: &mut String, n: usize, cloud: &str, places: &Places) {
        let second = u8::from(cloud == "c");
        writeln!(text, "[vpc.{cloud}]\ncidr = [\"10.{second}.0.0/16\"]").expect("a text");
        for k in 0..2 {
            let routes = match (cloud, k) {
                ("a", 0) => "\"0.0.0.0/0 to internet_gateway door\", \"10.1.0.0/16 to peering ac\"",
                ("a", _) => "\"0.0.0.0/0 to nat_gateway nat\", \"10.1.0.0/16 to peering ac\"",
                ("c", _) => "\"10.0.0.0/16 to peering ac\"",
                _ => "",
            };
            let [ingress, egress] = &self.lists[n * 2 + k];
            write!(
                text,
                "[route_table.{cloud}-r{k}]\nvpc = \"{cloud}\"\nroutes = [{routes}]\n\
                 [acl.{cloud}-l{k}]\nvpc = \"{cloud}\"\ningress = {}\negress = {}\n\
                 [subnet.{cloud}-s{k}]\nvpc = \"{cloud}\"\ncidr = \"10.{second}.{k}.0/24\"\n\
                 route_table = \"{cloud}-r{k}\"\nacl = \"{cloud}-l{k}\"\n",
                list(ingress),
                list(egress)
            )
            .expect("a text");
        }
        for k in 0..GROUPS as usize {
            let [ingress, egress] = &self.groups[n * GROUPS as usize + k];
            let (ingress, egress) = (list(ingress), list(egress));
            writeln!(
                text,
                "[group.{cloud}-g{k}]\nvpc = \"{cloud}\"\ningress = {ingress}\negress = {egress}"
            )
            .expect("a text");
        }
        for k in 0..INTERFACES as usize {
            let at = n * INTERFACES as usize + k;
            let groups: Vec<String> =
                self.members[at].iter().map(|group| format!("\"{cloud}-g{group}\"")).collect();
            let express = match places.express[at] {
                [false, _] => "",
                [true, false] => "express = true\n",
                [true, true] => "express = true\nexpress_udp = true\n",
            };
            write!(
                text,
                "[instance.{cloud}-{k}]\ntype = \"c7i.48xlarge\"\nhost = \"host{}\"\n\
                 [interface.{cloud}-{k}]\nsubnet = \"{cloud}-s{}\"\n\
                 address = [\"10.{second}.{}.{}\"]\ngroups = [{}]\ninstance = \"{cloud}-{k}\"\n\
                 {express}",
                places.hosts[at],
                k % 2,
                k % 2,
                4 + k,
                groups.join(", ")
            )
            .expect("a text");
        }
    }
}

fn members(dice: &mut Dice) -> BTreeSet<u32> {
    (0..dice.between(1, 2)).map(|_| dice.between(0, GROUPS - 1)).collect()
}
