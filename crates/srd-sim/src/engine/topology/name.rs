//! Names of hosts, switches and links, for scenarios and results.
//!
//! | name | selected links |
//! |---|---|
//! | `host5`, `tor2`, `spine3` | every link of that host or switch, both directions |
//! | `leaf0-spine3` | the link between the two, both directions, with all its parallels |
//! | `leaf0->spine3` | the link between the two, one direction, with all its parallels |
//! | `leaf0->spine3#1` | one of several parallel links |
//! | `core->agg` | all links from one tier to another |
//! | `core->agg:7` | link number 7 from one tier to another |
//! | `core->agg:0..4` | links number 0 to 3 from one tier to another |
//! | `all` | every link |
//!
//! Links between two tiers are numbered from 0, in the order of the lower switch. The parts `#` and
//! `:` belong to names of links between two ends, and all numbers must exist.

use std::ops::Range;

use super::{End, Topology, TopologyError};

/// Names that select a tier, by number of the tier from the hosts up.
const ALIASES: [&[&str]; 3] = [&["leaf", "tor", "side", "ring"], &["spine", "agg"], &["core"]];

/// The end of a link as a name describes it: a host or a switch, all hosts, or all switches of a
/// tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    One(End),
    Hosts,
    Tier(usize),
}

fn fail<T>(text: String) -> Result<T, TopologyError> {
    Err(TopologyError(text))
}

impl Topology {
    /// Returns the name of a host or switch.
    pub fn end_name(&self, end: End) -> String {
        match end {
            End::Host(host) => format!("host{host}"),
            End::Switch(switch) => {
                let tier = self.tiers.iter().rfind(|t| t.first <= switch);
                let tier = tier.expect("every switch is in a tier");
                format!("{}{}", tier.name, switch - tier.first)
            }
        }
    }

    /// Returns the name of a port, such as `leaf0->spine3` or `leaf0->spine3#1`.
    pub fn port_name(&self, port: u32) -> String {
        let link = &self.ports[port as usize];
        let name = format!("{}->{}", self.end_name(link.from), self.end_name(link.to));
        if link.parallel == 0 { name } else { format!("{name}#{}", link.parallel) }
    }

    /// Returns the ports that a name selects, in ascending order.
    ///
    /// # Errors
    /// If the name selects no link; the text contains valid names.
    pub fn select(&self, name: &str) -> Result<Vec<u32>, TopologyError> {
        let ports = self.select_unchecked(name.trim())?;
        if ports.is_empty() {
            return fail(format!("`{name}` names no link of this network"));
        }
        Ok(ports)
    }

    fn select_unchecked(&self, name: &str) -> Result<Vec<u32>, TopologyError> {
        if name == "all" {
            return Ok(self.port_numbers().collect());
        }
        let (pair, parallel) = match name.split_once('#') {
            Some((pair, n)) => (pair, Some(self.number(name, n)?)),
            None => (name, None),
        };
        let (pair, range) = match pair.split_once(':') {
            Some((pair, range)) => (pair, Some(self.range(name, range)?)),
            None => (pair, None),
        };
        let (from, to, both) = if let Some((from, to)) = pair.split_once("->") {
            (from, to, false)
        } else if let Some((from, to)) = pair.split_once('-') {
            (from, to, true)
        } else if parallel.is_some() || range.is_some() {
            return fail(format!(
                "`{name}` has one end; `#` and `:` select links between two, as in leaf->spine:0..2"
            ));
        } else {
            let one = self.end(pair)?;
            let touches = |p: &u32| {
                let port = &self.ports[*p as usize];
                self.matches(one, port.from) || self.matches(one, port.to)
            };
            return Ok(self.port_numbers().filter(touches).collect());
        };
        let (from, to) = (self.end(from)?, self.end(to)?);
        let mut ports: Vec<u32> = self
            .port_numbers()
            .filter(|&p| {
                let port = &self.ports[p as usize];
                self.matches(from, port.from)
                    && self.matches(to, port.to)
                    && parallel.is_none_or(|n| n == port.parallel)
            })
            .collect();
        if let Some(range) = range {
            ports.sort_by_key(|&p| self.lower_end_order(p));
            let all = ports.len();
            let Some(some) = ports.get(range) else {
                return fail(format!("`{name}`: there are {all} links, with numbers from 0"));
            };
            ports = some.to_vec();
        }
        if both {
            let reverse: Vec<u32> = ports.iter().map(|&p| self.ports[p as usize].reverse).collect();
            ports.extend(reverse);
        }
        ports.sort_unstable();
        ports.dedup();
        Ok(ports)
    }

    /// Returns the first `n` links from core to aggregation switches, in the order of the
    /// aggregation switches. The option `-failed n` of htsim slows these links to a quarter of
    /// their speed.
    ///
    /// # Errors
    /// If the network has no core, or fewer links.
    pub fn first_core_links(&self, n: usize) -> Result<Vec<u32>, TopologyError> {
        if self.tiers.len() < 3 {
            return fail("only a three-tier network has core links".to_owned());
        }
        self.select_unchecked(&format!("core->agg:0..{n}"))
    }

    fn port_numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.ports.len()).expect("the number of ports is bounded")
    }

    /// Returns the key that orders the links between two tiers: by their lower end, then by its
    /// uplink.
    fn lower_end_order(&self, port: u32) -> (End, u32) {
        let link = &self.ports[port as usize];
        let back = &self.ports[link.reverse as usize];
        if link.from <= link.to { (link.from, port) } else { (back.from, link.reverse) }
    }

    fn matches(&self, named: Named, end: End) -> bool {
        match (named, end) {
            (Named::One(one), end) => one == end,
            (Named::Hosts, End::Host(_)) => true,
            (Named::Tier(tier), End::Switch(switch)) => {
                let tier = &self.tiers[tier];
                (tier.first..tier.first + tier.count).contains(&switch)
            }
            _ => false,
        }
    }

    fn number(&self, name: &str, text: &str) -> Result<u32, TopologyError> {
        match text.trim().parse() {
            Ok(n) => Ok(n),
            Err(_) => fail(format!("`{text}` in `{name}` is not a number")),
        }
    }

    fn range(&self, name: &str, text: &str) -> Result<Range<usize>, TopologyError> {
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (self.number(name, from)?, self.number(name, to)?),
            None => {
                let one = self.number(name, text)?;
                (one, one.saturating_add(1))
            }
        };
        Ok(from as usize..to as usize)
    }

    /// Parses the name of an end, such as `host5`, `tor2`, `host` or `tor`.
    fn end(&self, text: &str) -> Result<Named, TopologyError> {
        let text = text.trim();
        let letters = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &text[letters.len()..];
        let number = if digits.is_empty() { None } else { Some(self.number(text, digits)?) };
        if letters == "host" {
            return match number {
                None => Ok(Named::Hosts),
                Some(n) if n < self.hosts => Ok(Named::One(End::Host(n))),
                Some(n) => fail(format!("there is no host{n}: hosts are 0 to {}", self.hosts - 1)),
            };
        }
        let by_name = |names: &&[&str]| names.contains(&letters);
        let Some(tier) = ALIASES.iter().position(by_name).filter(|&t| t < self.tiers.len()) else {
            let known: Vec<_> = self.tiers.iter().map(|t| t.name).collect();
            return fail(format!(
                "`{text}` is neither a host nor a switch; this network has host, {}",
                known.join(", ")
            ));
        };
        match number {
            None => Ok(Named::Tier(tier)),
            Some(n) if n < self.tiers[tier].count => {
                Ok(Named::One(End::Switch(self.tiers[tier].first + n)))
            }
            Some(n) => fail(format!(
                "there is no {letters}{n}: they are 0 to {}",
                self.tiers[tier].count - 1
            )),
        }
    }
}
