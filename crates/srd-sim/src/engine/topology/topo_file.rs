//! Parser of htsim's topology files (`.topo`).
//!
//! ```text
//! Nodes 128
//! Tiers 3
//! Podsize 16
//! Tier 0
//! Downlink_speed_Gbps 100
//! Radix_Down 4
//! ...
//! ```
//! Keys are not case-sensitive, and `#` starts a comment. Speeds, and queue limits if given, are
//! read from the file; htsim has them on its command line.

use std::fmt;

use super::clos::{ClosSpec, TierSpec};

/// Reason why a topology file was refused: line number and description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Number of the line, from 1; 0 if the error concerns the file as a whole.
    pub line: usize,
    /// Description of the error, with a solution.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for ParseError {}

const KEYS: &str = "nodes, tiers, podsize, tier, downlink_speed_gbps, radix_down, radix_up, \
                    queue_down, queue_up, oversubscribed, bundle, switch_latency_ns, \
                    downlink_latency_ns";

/// Values of one tier, as given in the file.
#[derive(Clone, Copy, Default)]
struct TierLines {
    line: usize,
    speed_bps: Option<u64>,
    radix_down: Option<u32>,
    radix_up: Option<u32>,
    queue_down_bytes: Option<u64>,
    queue_up_bytes: Option<u64>,
    oversubscribed: Option<u32>,
    bundle: Option<u32>,
    switch_latency_ns: Option<u64>,
    link_latency_ns: Option<u64>,
}

#[derive(Default)]
struct Lines {
    nodes: Option<u32>,
    tier_count: Option<u32>,
    pod_hosts: Option<u32>,
    tiers: [TierLines; 3],
    current: Option<usize>,
}

/// Longest delay that a topology file may set: one second, in nanoseconds.
const LATENCY_NS_MAX: u64 = 1_000_000_000;

/// Parses the text of a `.topo` file.
///
/// # Errors
/// The first line that cannot be parsed, or numbers that are missing or contradict each other.
pub fn parse(text: &str) -> Result<ClosSpec, ParseError> {
    let mut lines = Lines::default();
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let content = raw.split('#').next().unwrap_or("").trim();
        if is_dragonfly(content) {
            return Err(ParseError { line, what: NO_DRAGONFLY.to_owned() });
        }
        if content.is_empty() {
            continue;
        }
        let mut words = content.split_whitespace();
        let (Some(key), Some(value), None) = (words.next(), words.next(), words.next()) else {
            let what = format!("`{content}` is not of the form `key value`");
            return Err(ParseError { line, what });
        };
        lines
            .set(line, &key.to_ascii_lowercase(), value)
            .map_err(|what| ParseError { line, what })?;
    }
    lines.finish()
}

const NO_DRAGONFLY: &str = "a dragonfly is not simulated: describe a fat tree or leaves and \
                            spines, by `Nodes`, `Tiers 2` or `Tiers 3`, `Podsize` and a `Tier` \
                            for each; or write a scenario whose [topology] has the kind \
                            \"fat-tree\" or \"leaf-spine\"";

/// Whether a line belongs to a dragonfly network: it contains the word, or one of the parameters of
/// a dragonfly (hosts of a router, routers of a group, and links of a router to other groups).
fn is_dragonfly(content: &str) -> bool {
    let content = content.to_ascii_lowercase();
    let key = content.split_whitespace().next().unwrap_or_default();
    content.contains("dragonfly")
        || content.contains("dragon_fly")
        || matches!(key, "p" | "a" | "h" | "groups" | "routers_per_group" | "hosts_per_router")
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is not a number that `{key}` can have"))
}

fn once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    if place.is_some() {
        return Err(format!("`{key}` is given twice: keep one"));
    }
    *place = Some(value);
    Ok(())
}

/// Converts gigabits per second as decimal text to bits per second.
fn gigabits(key: &str, value: &str) -> Result<u64, String> {
    let gbps: f64 = number(key, value)?;
    if !(0.001..=100_000.0).contains(&gbps) {
        return Err(format!("`{key}` must be between 0.001 and 100000, not {value}"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 10^6..10^14
    Ok((gbps * 1e9).round() as u64)
}

fn latency(key: &str, value: &str) -> Result<u64, String> {
    let ns = number(key, value)?;
    if ns > LATENCY_NS_MAX {
        return Err(format!("`{key}` must be at most {LATENCY_NS_MAX}"));
    }
    Ok(ns)
}

impl Lines {
    fn set(&mut self, line: usize, key: &str, value: &str) -> Result<(), String> {
        match key {
            "nodes" => return once(&mut self.nodes, key, number(key, value)?),
            "tiers" => return once(&mut self.tier_count, key, number(key, value)?),
            "podsize" => return once(&mut self.pod_hosts, key, number(key, value)?),
            "tier" => {
                let tier: usize = number(key, value)?;
                let Some(place) = self.tiers.get_mut(tier) else {
                    return Err(format!("there are tiers 0, 1 and 2, but no tier {tier}"));
                };
                if place.line != 0 {
                    return Err(format!("tier {tier} began on line {} already", place.line));
                }
                place.line = line;
                self.current = Some(tier);
                return Ok(());
            }
            _ => {}
        }
        let known = KEYS.split(", ").any(|k| k.trim() == key);
        if !known {
            return Err(format!("unknown key `{key}`; the keys are {KEYS}"));
        }
        let Some(tier) = self.current.and_then(|t| self.tiers.get_mut(t)) else {
            return Err(format!("`{key}` belongs to a tier: put `Tier 0` before it"));
        };
        match key {
            "downlink_speed_gbps" => once(&mut tier.speed_bps, key, gigabits(key, value)?),
            "radix_down" => once(&mut tier.radix_down, key, number(key, value)?),
            "radix_up" => once(&mut tier.radix_up, key, number(key, value)?),
            "queue_down" => once(&mut tier.queue_down_bytes, key, number(key, value)?),
            "queue_up" => once(&mut tier.queue_up_bytes, key, number(key, value)?),
            "oversubscribed" => once(&mut tier.oversubscribed, key, number(key, value)?),
            "bundle" => once(&mut tier.bundle, key, number(key, value)?),
            "switch_latency_ns" => once(&mut tier.switch_latency_ns, key, latency(key, value)?),
            _ => once(&mut tier.link_latency_ns, key, latency(key, value)?),
        }
    }

    fn finish(self) -> Result<ClosSpec, ParseError> {
        let whole = |what: String| ParseError { line: 0, what };
        let need = |value: Option<u32>, key: &str| {
            value.ok_or_else(|| whole(format!("the file has no `{key}`")))
        };
        let hosts = need(self.nodes, "Nodes")?;
        let count = need(self.tier_count, "Tiers")?;
        if !(2..=3).contains(&count) {
            return Err(whole(format!("{count} tiers: only 2 and 3 are supported")));
        }
        let pod_hosts = match (self.pod_hosts, count) {
            (None, 2) => hosts,
            (pod, _) => need(pod, "Podsize")?,
        };
        let top = count as usize - 1;
        let mut tiers = Vec::new();
        for (n, lines) in self.tiers.iter().enumerate() {
            if n > top && lines.line != 0 {
                let what = format!("tier {n} is described, but the file says `Tiers {count}`");
                return Err(ParseError { line: lines.line, what });
            }
            if n <= top {
                let fail = |what: String| ParseError { line: lines.line, what };
                tiers.push(lines.tier(n, n == top).map_err(fail)?);
            }
        }
        for n in 0..top {
            check_oversubscription(n, &self.tiers[n], &tiers)?;
        }
        Ok(ClosSpec { hosts, pod_hosts, tiers })
    }
}

impl TierLines {
    fn tier(&self, n: usize, top: bool) -> Result<TierSpec, String> {
        if self.line == 0 {
            return Err(format!("tier {n} is not described"));
        }
        let radix_down = self.radix_down.ok_or(format!("tier {n} has no `Radix_Down`"))?;
        let over = self.oversubscribed.unwrap_or(1).max(1);
        let radix_up = match (top, self.radix_up) {
            (true, Some(up)) if up > 0 => {
                return Err(format!("tier {n} is the topmost: it has no `Radix_Up`"));
            }
            (true, _) => 0,
            (false, Some(up)) => up,
            (false, None) => radix_down / over,
        };
        Ok(TierSpec {
            down_bps: self.speed_bps.ok_or(format!("tier {n} has no `Downlink_speed_Gbps`"))?,
            radix_down,
            radix_up,
            bundle: self.bundle.unwrap_or(1),
            queue_up_bytes: self.queue_up_bytes,
            queue_down_bytes: self.queue_down_bytes,
            link_latency_ps: self.link_latency_ns.unwrap_or(1000) * 1000,
            switch_latency_ps: self.switch_latency_ns.unwrap_or(0) * 1000,
        })
    }
}

/// Checks that the key `Oversubscribed` does not contradict the radices and speeds.
fn check_oversubscription(
    n: usize,
    lines: &TierLines,
    tiers: &[TierSpec],
) -> Result<(), ParseError> {
    let Some(said) = lines.oversubscribed else { return Ok(()) };
    let (this, above) = (&tiers[n], &tiers[n + 1]);
    let down = u128::from(this.radix_down) * u128::from(this.down_bps);
    let up = u128::from(this.radix_up) * u128::from(above.down_bps);
    let by_radix = u64::from(this.radix_up) * u64::from(said) == u64::from(this.radix_down);
    if down == up * u128::from(said) || by_radix {
        return Ok(());
    }
    let what = format!(
        "tier {n} is `Oversubscribed {said}`, but has {} links down and {} up",
        this.radix_down, this.radix_up
    );
    Err(ParseError { line: lines.line, what })
}
