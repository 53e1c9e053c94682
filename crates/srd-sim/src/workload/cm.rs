//! Parser of htsim's connection matrices (`.cm`).
//!
//! ```text
//! Nodes 128
//! Connections 2
//! Triggers 1
//! 0->1 id 1 start 0 size 1000 send_done_trigger 7
//! 2->3 id 2 trigger 7 size 1000
//! trigger id 7 oneshot
//! ```
//! Different binaries of htsim use different units for `start`, so the caller selects the unit. The
//! counts must match the numbers of lines. `prio` is read and ignored; `msg` and `addon` are
//! refused.

use std::collections::BTreeMap;

use super::{FlowPlan, Start, TriggerId, TriggerKind, Workload};
use crate::engine::topology::Topology;
use crate::engine::topology::topo_file::ParseError;

/// Unit of the field `start` in a connection matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// Picoseconds, as in csg-htsim's NDP and EQDS.
    Picoseconds,
    /// Microseconds, as in uet-htsim and Swift.
    Microseconds,
}

/// A link that a connection matrix declares as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the tier of the switch, from the hosts up.
    pub tier: usize,
    /// Number of the switch within its tier.
    pub switch: u32,
    /// Number of the link among the switch's uplinks, or among the downlinks of a core switch.
    pub link: u32,
}

/// Contents of a connection matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matrix {
    /// Number of hosts that the matrix assumes.
    pub nodes: u32,
    /// Number of the line with the number of hosts, from 1.
    nodes_line: usize,
    /// Flows and triggers of the matrix.
    pub workload: Workload,
    /// Links that fail during the matrix's workload.
    pub failures: Vec<Failure>,
}

/// Latest time at which a flow may start: a day, in picoseconds.
const START_PS_MAX: f64 = 86_400e12;

#[derive(Default)]
struct Reader {
    nodes: Option<(usize, u32)>,
    connections: Option<usize>,
    triggers: Option<usize>,
    failures: Option<usize>,
    flows: Vec<(usize, FlowPlan)>,
    // By the number of a trigger in the file: its number in the workload, and its definition with
    // the line.
    named: BTreeMap<u32, (TriggerId, Option<(usize, TriggerKind)>)>,
    defined: usize,
    broken: Vec<Failure>,
}

/// Parses the text of a connection matrix (`.cm` file).
///
/// # Errors
/// The first line that cannot be parsed, or counts that do not match.
pub fn parse(text: &str, unit: TimeUnit) -> Result<Matrix, ParseError> {
    let mut reader = Reader::default();
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let content = raw.split('#').next().unwrap_or("");
        let words: Vec<&str> = content.split_whitespace().collect();
        if !words.is_empty() {
            reader.line(line, &words, unit).map_err(|what| ParseError { line, what })?;
        }
    }
    reader.finish()
}

fn number<T: std::str::FromStr>(key: &str, word: Option<&&str>) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("`{key}` needs a number after it"))?;
    word.parse().map_err(|_| format!("`{word}` is not a number that `{key}` can have"))
}

fn once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    if place.is_some() {
        return Err(format!("`{key}` is given twice: keep one"));
    }
    *place = Some(value);
    Ok(())
}

/// Parses a start time and returns it in picoseconds.
fn start_ps(word: Option<&&str>, unit: TimeUnit) -> Result<u64, String> {
    let value: f64 = number("start", word)?;
    let ps = match unit {
        TimeUnit::Picoseconds => value,
        TimeUnit::Microseconds => value * 1e6,
    };
    if !(0.0..=START_PS_MAX).contains(&ps) {
        return Err(format!("`start` is {value}: it must lie between zero and one day"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the bounds above
    Ok(ps.round() as u64)
}

impl Reader {
    fn line(&mut self, line: usize, words: &[&str], unit: TimeUnit) -> Result<(), String> {
        let header = match words[0] {
            "Nodes" => {
                let nodes = number("Nodes", words.get(1))?;
                once(&mut self.nodes, "Nodes", (line, nodes))?;
                true
            }
            "Connections" => {
                once(&mut self.connections, "Connections", number("Connections", words.get(1))?)?;
                true
            }
            "Triggers" => {
                once(&mut self.triggers, "Triggers", number("Triggers", words.get(1))?)?;
                true
            }
            "Failures" => {
                once(&mut self.failures, "Failures", number("Failures", words.get(1))?)?;
                true
            }
            _ => false,
        };
        match words {
            _ if header && words.len() == 2 => Ok(()),
            _ if header => Err(format!(
                "one number belongs after `{}`: write each count on a line of its own",
                words[0]
            )),
            ["trigger", rest @ ..] => self.trigger(line, rest),
            ["failure", rest @ ..] => self.failure(line, rest),
            [pair, rest @ ..] if pair.contains("->") => self.connection(line, pair, rest, unit),
            _ => Err(format!(
                "`{}` begins no line that is known: Nodes, Connections, Triggers, Failures, \
                 SRC->DST, trigger, failure",
                words[0]
            )),
        }
    }

    /// Returns the number in the workload for the number of a trigger in the file.
    fn named(&mut self, name: u32) -> Result<TriggerId, String> {
        if name == 0 {
            return Err("trigger 0 is not allowed".to_owned());
        }
        let fresh = u32::try_from(self.named.len()).map_err(|_| "too many triggers")?;
        Ok(self.named.entry(name).or_insert((TriggerId(fresh), None)).0)
    }

    fn connection(
        &mut self,
        line: usize,
        pair: &str,
        rest: &[&str],
        unit: TimeUnit,
    ) -> Result<(), String> {
        let (src, dst) = pair.split_once("->").unwrap_or((pair, ""));
        let (src, dst) = (number("SRC->DST", Some(&src))?, number("SRC->DST", Some(&dst))?);
        let (mut start, mut trigger, mut size, mut id) = (None, None, None, None);
        let mut flow = FlowPlan::at(0, src, dst, 0);
        let mut words = rest.iter();
        while let Some(&key) = words.next() {
            match key {
                "start" => once(&mut start, key, start_ps(words.next(), unit)?)?,
                "size" => once(&mut size, key, number::<u64>(key, words.next())?)?,
                "id" => once(&mut id, key, number::<u32>(key, words.next())?)?,
                "trigger" => {
                    let name = number(key, words.next())?;
                    once(&mut trigger, key, self.named(name)?)?;
                }
                "send_done_trigger" => {
                    let name = number(key, words.next())?;
                    once(&mut flow.sent_trigger, key, self.named(name)?)?;
                }
                "recv_done_trigger" => {
                    let name = number(key, words.next())?;
                    once(&mut flow.received_trigger, key, self.named(name)?)?;
                }
                "prio" => {
                    number::<u32>(key, words.next())?;
                }
                "msg" | "addon" => {
                    return Err(format!(
                        "`{key}` (several messages on one connection) is not supported: give \
                         each message a connection of its own"
                    ));
                }
                _ => return Err(format!("unknown word `{key}`")),
            }
        }
        flow.start = match (start, trigger) {
            (Some(at_ps), None) => Start::At(at_ps),
            (None, Some(trigger)) => Start::On(trigger),
            (None, None) => return Err("neither `start` nor `trigger` is given".to_owned()),
            (Some(_), Some(_)) => return Err("both `start` and `trigger` are given".to_owned()),
        };
        flow.bytes = match size {
            None => return Err("`size` is missing".to_owned()),
            Some(0) => {
                return Err("`size` 0 is a flow without an end to htsim: write the bytes that it \
                            shall send, as many as the run lasts, or a workload of the kind \
                            \"background\" in a scenario"
                    .to_owned());
            }
            Some(u64::MAX) => return Err("`size` is too large".to_owned()),
            Some(bytes) => bytes,
        };
        flow.label = match id {
            Some(0) => return Err("`id` 0 is not allowed".to_owned()),
            Some(id) => id,
            None => 0,
        };
        if src == dst {
            return Err(format!("host {src} sends to itself"));
        }
        self.flows.push((line, flow));
        Ok(())
    }

    fn trigger(&mut self, line: usize, rest: &[&str]) -> Result<(), String> {
        let (mut name, mut kind, mut count) = (None, None, None);
        let mut words = rest.iter();
        while let Some(&key) = words.next() {
            match key {
                "id" => once(&mut name, key, number(key, words.next())?)?,
                "count" => once(&mut count, key, number::<u32>(key, words.next())?)?,
                "oneshot" => once(&mut kind, "a kind", TriggerKind::OneShot)?,
                "multishot" => once(&mut kind, "a kind", TriggerKind::MultiShot)?,
                "barrier" => once(&mut kind, "a kind", TriggerKind::Barrier(0))?,
                _ => return Err(format!("unknown word `{key}`")),
            }
        }
        let kind = match (kind, count) {
            (Some(TriggerKind::Barrier(_)), None | Some(0)) => {
                return Err("a barrier needs a `count` above zero".to_owned());
            }
            (Some(TriggerKind::Barrier(_)), Some(count)) => TriggerKind::Barrier(count),
            (Some(kind), _) => kind,
            (None, _) => return Err("a trigger is oneshot, multishot or barrier".to_owned()),
        };
        let name = name.ok_or("the trigger has no `id`")?;
        self.named(name)?;
        if let Some((_, place)) = self.named.get_mut(&name) {
            if let Some((before, _)) = place {
                return Err(format!("trigger {name} is defined on line {before} already"));
            }
            *place = Some((line, kind));
        }
        self.defined += 1;
        Ok(())
    }

    fn failure(&mut self, line: usize, rest: &[&str]) -> Result<(), String> {
        let (mut tier, mut switch, mut link) = (None, None, None);
        let mut words = rest.iter();
        while let Some(&key) = words.next() {
            match key {
                "switch_type" => {
                    let number = match words.next() {
                        Some(&"TOR") => 0,
                        Some(&"AGG") => 1,
                        Some(&"CORE") => 2,
                        other => {
                            let other = other.unwrap_or(&"");
                            return Err(format!("switch type `{other}`: TOR, AGG or CORE"));
                        }
                    };
                    once(&mut tier, key, number)?;
                }
                "switch_id" => once(&mut switch, key, number(key, words.next())?)?,
                "link_id" => once(&mut link, key, number(key, words.next())?)?,
                _ => return Err(format!("unknown word `{key}`")),
            }
        }
        let missing = "a failure needs switch_type, switch_id and link_id";
        let (Some(tier), Some(switch), Some(link)) = (tier, switch, link) else {
            return Err(missing.to_owned());
        };
        self.broken.push(Failure { line, tier, switch, link });
        Ok(())
    }

    fn finish(self) -> Result<Matrix, ParseError> {
        let whole = |what: String| ParseError { line: 0, what };
        let (nodes_line, nodes) =
            self.nodes.ok_or_else(|| whole("the file has no `Nodes`".to_owned()))?;
        let counts = [
            ("Connections", self.connections, self.flows.len()),
            ("Triggers", self.triggers.or(Some(0)), self.defined),
            ("Failures", self.failures.or(Some(0)), self.broken.len()),
        ];
        for (key, said, found) in counts {
            let said = said.ok_or_else(|| whole(format!("the file has no `{key}`")))?;
            if said != found {
                return Err(whole(format!(
                    "the file says `{key} {said}`, but has {found}: write `{key} {found}`, or add \
                     what is missing"
                )));
            }
        }
        for (line, flow) in &self.flows {
            if let Some(host) = [flow.src.0, flow.dst.0].into_iter().find(|&h| h >= nodes) {
                let what = format!("host {host}, but the file says `Nodes {nodes}`");
                return Err(ParseError { line: *line, what });
            }
        }
        let mut triggers = vec![TriggerKind::OneShot; self.named.len()];
        for (name, (id, kind)) in &self.named {
            let Some((_, kind)) = kind else {
                return Err(whole(format!("trigger {name} is used, but not defined")));
            };
            triggers[id.0 as usize] = *kind;
        }
        let flows = self.flows.into_iter().map(|(_, flow)| flow).collect();
        let workload = Workload { flows, triggers, ..Workload::default() };
        Ok(Matrix { nodes, nodes_line, workload, failures: self.broken })
    }
}

impl Matrix {
    /// Checks that a network has the hosts that the matrix assumes. A network may have more hosts.
    ///
    /// # Errors
    /// If the network has fewer hosts, with the line of the number.
    pub fn check_hosts(&self, hosts: u32) -> Result<(), ParseError> {
        let Self { nodes, nodes_line: line, .. } = *self;
        if nodes <= hosts {
            return Ok(());
        }
        let what = format!(
            "the file says `Nodes {nodes}`, but the network has {hosts} hosts: run it on a network \
             with {nodes} hosts or more"
        );
        Err(ParseError { line, what })
    }
}

impl Failure {
    /// Returns the name of the failed link in both directions, as scenarios use it.
    ///
    /// # Errors
    /// If the network does not have the switch or the link.
    pub fn link_name(&self, topology: &Topology) -> Result<String, ParseError> {
        let fail = |what: String| ParseError { line: self.line, what };
        let Some(tier) = topology.tiers.get(self.tier) else {
            return Err(fail(format!("the network has no tier {}", self.tier)));
        };
        if self.switch >= tier.count {
            return Err(fail(format!("there are {} {} switches", tier.count, tier.name)));
        }
        let switch = topology.switches[(tier.first + self.switch) as usize];
        let top = self.tier + 1 == topology.tiers.len();
        let (first, count) = if top { switch.ports_down() } else { switch.ports_up() };
        if self.link >= count {
            return Err(fail(format!("{}{} has {count} links", tier.name, self.switch)));
        }
        Ok(topology.port_name(first + self.link).replacen("->", "-", 1))
    }
}

#[cfg(test)]
mod tests;
