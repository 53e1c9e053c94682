//! The report as text for the user.
#![allow(clippy::cast_possible_truncation)] // rates, times and counts, far below 2^64

use srd_card::limits::FlowKind;
use srd_card::profile::InstanceType;
use srd_watch::text::{bytes, rate, time};

use crate::analysis::rates::Rates;
use crate::choose::{Choices, Use, Verdict, limit};
use crate::needs::TrafficSummary;
pub use crate::output::number::count;
use crate::output::report::Report;
use crate::traffic::Kind;

/// Text that is shown in place of instance types if no packet was captured.
pub(crate) const NO_PACKETS: &str =
    "no packets were seen: look while there is traffic (--for), or at another interface";
/// Largest number of instance families that are listed.
const FAMILIES_LISTED: usize = 12;
/// Largest number of flows, and of tunnels, that are listed.
const LISTED: usize = 8;
/// Width of a line of advice, in characters.
const WIDTH: usize = 100;
const LENGTHS: [&str; 3] = ["1 ms", "1 s", "60 s"];
/// Explanation of the mark `*` beside figures.
pub(crate) const NO_WHOLE_PERIOD: &str = "* the mean of what was seen: no whole period";
pub(crate) const ESTIMATED: &str = "~ of a limit that EC2 does not publish, and that is estimated";

/// Returns the whole report as text.
pub fn report(report: &Report) -> String {
    let Report { seen, kinds, choices, advice } = report;
    // The result comes first: the type that suffices, and the changes to make.
    let mut text = heading(seen);
    text += &types(choices, seen);
    text += "\nBefore you pay for more\n";
    for advice in advice {
        text += &wrapped(&format!("  {:<12}", advice.about), &advice.text);
    }
    if advice.is_empty() {
        text += "  nothing to change\n";
    }
    text += "\nTraffic\n";
    for found in kinds {
        text += &wrapped(&format!("  {:<17}", kind_name(found.kind)), &found.text);
    }
    if kinds.is_empty() {
        text += "  nothing that stands out\n";
    }
    text += &flows(seen);
    text += &rates(seen);
    text += &connections(seen);
    text
}

/// Returns the name of a kind of traffic.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Whale => "whale",
        Kind::TunnelOneFlow => "tunnel, one flow",
        Kind::TunnelOpaque => "tunnel, opaque",
        Kind::SingleFlow => "single flow",
        Kind::FewFlows => "few flows",
        Kind::ManyFlows => "many flows",
        Kind::ShortLived => "short-lived",
        Kind::LongLived => "long-lived",
        Kind::Bursts => "bursts",
        Kind::SmallPackets => "small packets",
    }
}

pub(crate) fn heading(seen: &TrafficSummary) -> String {
    let mut text = format!(
        "{}: {} seen; {} packets, {} in, {} out\n",
        seen.name,
        time(seen.seen_ns),
        count(seen.packets as f64),
        bytes(seen.bytes.r#in as u64),
        bytes(seen.bytes.out as u64)
    );
    if seen.clock_set_back > 0 {
        text += &format!(
            "  the clock was set back {} times: what came later counts as later\n",
            seen.clock_set_back
        );
    }
    if seen.lost > 0 {
        text += &format!("  {} packets were not seen: --ring makes more room\n", seen.lost);
    }
    for line in seen.named_others.lines() {
        text += &format!("  {line}\n");
    }
    text
}

fn flows(seen: &TrafficSummary) -> String {
    let mut text = String::from("\nLargest flows\n");
    for flow in seen.flows.iter().take(LISTED) {
        let second = flow.second_bps_max.map_or("-".to_owned(), rate);
        text += &format!(
            "  {:>5.1} %  {:>10}  {:>12} in a second  {}\n",
            flow.share * 100.0,
            bytes(flow.bytes),
            second,
            flow.flow
        );
    }
    if seen.flows.is_empty() {
        text += "  none\n";
    }
    let shown = seen.tunnels.iter().take(LISTED);
    for tunnel in shown {
        let inner = match tunnel.inner_flows {
            Some(inner) => format!("about {inner} inside"),
            None => "what is inside cannot be seen".to_owned(),
        };
        text += &format!(
            "  {} {} > {}: {}, {} flow{} to the network, {inner}\n",
            tunnel.kind,
            tunnel.source,
            tunnel.destination,
            bytes(tunnel.bytes),
            tunnel.outer_flows,
            if tunnel.outer_flows == 1 { "" } else { "s" }
        );
    }
    text
}

fn rates(seen: &TrafficSummary) -> String {
    let mut text = format!(
        "\nRates                {:>10} {:>10} {:>10} {:>10}\n",
        "p50", "p99", "p99.9", "max"
    );
    let mut table = |name: &str, all: &[Rates; 3], show: &dyn Fn(f64) -> String| {
        for (length, of) in lengths(all) {
            let figures = [of.p50, of.p99, of.p999, of.max].map(show);
            let name = format!("{name}, {length}");
            text += &format!("  {name:<18}");
            figures.iter().for_each(|figure| text += &format!(" {figure:>10}"));
            text += "\n";
        }
    };
    let bps = |value: f64| rate(value as u64);
    table("in", &seen.rates_in, &bps);
    table("out", &seen.rates_out, &bps);
    table("packets/s", &seen.rates_packets, &count);
    table("connections/s", &seen.connections.rates, &count);
    if has_short(seen) {
        text += &format!("  {NO_WHOLE_PERIOD}\n");
    }
    text
}

/// Returns the rates for each length of periods, with the length as text. A length is marked if the
/// capture is shorter than one period of this length.
pub(crate) fn lengths(all: &[Rates; 3]) -> [(String, &Rates); 3] {
    [0, 1, 2].map(|n: usize| {
        let mark = if all[n].periods == 0 { "*" } else { "" };
        (format!("{}{mark}", LENGTHS[n]), &all[n])
    })
}

/// Whether the report marks any length of periods, because the capture is shorter than one period
/// of this length.
pub(crate) fn has_short(seen: &TrafficSummary) -> bool {
    let all = [&seen.rates_in, &seen.rates_out, &seen.rates_packets, &seen.connections.rates];
    all.into_iter().flatten().any(|of| of.periods == 0)
}

fn connections(seen: &TrafficSummary) -> String {
    let of = &seen.connections;
    let mut text = format!("\nConnections: {} began", count(of.began as f64));
    if let Some((half, most)) = of.life_ms {
        text += &format!(
            "; {} lived and ended, half within {half:.1} ms, 99 % within {most:.1} ms",
            count(of.ended as f64)
        );
    }
    text += "\n  places if all are tracked     ";
    text += "         most       at the end       in the end\n";
    for entries in &of.entries {
        let settled = entries.settled.map_or("-".to_owned(), |most| count(most as f64));
        let name = format!("{} ({} s)", entries.name, entries.timeouts_s.0);
        let (peak, last) = (count(entries.peak as f64), count(entries.last as f64));
        text += &format!("  {name:<29} {peak:>13} {last:>16} {settled:>16}\n");
    }
    if of.weight > 1 {
        text += &format!("  estimated from one in {} connections\n", of.weight);
    }
    text
}

fn types(choices: &Choices, seen: &TrafficSummary) -> String {
    let place = match choices.flows_to {
        FlowKind::Exterior => "flows may go anywhere",
        FlowKind::ClusterPlacementGroup => "both ends in one cluster placement group",
        FlowKind::Express => "flows over ENA Express",
    };
    let percent = seen.needs.headroom * 100.0;
    if seen.packets == 0 {
        return format!("\nInstance types\n  {NO_PACKETS}\n");
    }
    let mut text = format!("\nInstance types with {percent:.0} % of headroom; {place}\n");
    for verdict in &choices.asked {
        text += &asked(verdict);
    }
    if choices.families.is_empty() {
        let why = if choices.flow_too_fast {
            "none: one flow is too fast for every type"
        } else {
            "none of those looked at suffices"
        };
        text += &format!("  {why} ({} types)\n", choices.looked_at);
        return text + &nearest(choices);
    }
    text += &format!(
        "  {:<18} {:>5} {:>9}  {:<38} {}\n",
        "sufficient", "vCPUs", "memory", "first limit", "the next smaller one"
    );
    for choice in choices.families.iter().take(FAMILIES_LISTED) {
        let of = &choice.sufficient;
        let smaller = choice.smaller.as_ref().map_or_else(
            || "is none".to_owned(),
            |smaller| format!("{}: {}", smaller.name, lacking(smaller)),
        );
        let memory = format!("{} GiB", of.memory_mib / 1024);
        text += &format!(
            "  {:<18} {:>5} {:>9}  {:<38} {smaller}\n",
            of.name,
            of.vcpus,
            memory,
            used(of.first())
        );
    }
    if choices.families.len() > FAMILIES_LISTED {
        let more = choices.families.len() - FAMILIES_LISTED;
        text += &format!("  and {more} other families: --family picks, --json has all\n");
    }
    text += &nearest(choices);
    if text.contains('~') {
        text += &format!("  {ESTIMATED}\n");
    }
    text
}

/// Returns the result as a sentence: the types that suffice.
pub(crate) fn answer(choices: &Choices) -> String {
    let Some(choice) = choices.families.first() else {
        return if choices.flow_too_fast {
            "No type suffices: one flow is too fast for every one.".to_owned()
        } else {
            format!("None of the {} types looked at suffices.", choices.looked_at)
        };
    };
    let of = &choice.sufficient;
    let (vcpus, memory) = (of.vcpus, of.memory_mib / 1024);
    let mut text = format!(
        "{} suffices, the least of {}: {vcpus} vCPU{}, {memory} GiB; nearest to its limit is {}.",
        of.name,
        match choices.families.len() {
            1 => "its family".to_owned(),
            families => format!("{families} families"),
        },
        if vcpus == 1 { "" } else { "s" },
        used(of.first())
    );
    if let Some(smaller) = &choice.smaller {
        text += &format!(" {} would lack {}.", smaller.name, lacking(smaller));
    }
    text
}

/// Returns the list of nearest types, for families without a sufficient type, with the limits that
/// each type lacks.
fn nearest(choices: &Choices) -> String {
    let line = |of: &Verdict| format!("  nearest: {} lacks {}\n", of.name, lacking(of));
    choices.nearest.iter().map(line).collect()
}

/// Returns the text about an instance type that the user named.
fn asked(verdict: &Verdict) -> String {
    let word = if verdict.sufficient { "suffices" } else { "does not suffice" };
    let mut text = format!("  {}: {word}\n", verdict.name);
    let kind = InstanceType::find(verdict.name).ok();
    if let Some(generation) = kind.and_then(|kind| kind.generation()) {
        text += &format!("    {generation}\n");
    }
    for of in verdict.uses.iter().filter(|of| of.needs > 0.0) {
        let mark = match (of.exceeded, of.short) {
            (true, _) => "  EXCEEDED",
            (false, true) => "  within the headroom",
            _ => "",
        };
        text += &format!(
            "    {:<20} {:>14} of {:>14}  {:>6.1} %{mark}\n",
            of.limit,
            figure(of, of.needs),
            figure(of, of.has),
            of.share() * 100.0
        );
    }
    if let Some(credits_s) = verdict.credits_s {
        let left = time((credits_s * 1e9) as u64);
        text += &format!("    the mean is above the baseline: credits last about {left}\n");
    }
    text
}

/// Returns the needed share of a limit, such as `packets a second ~ 55 %`; `~` marks an estimate.
pub(crate) fn used(of: &Use) -> String {
    let mark = if of.estimate { " ~" } else { "" };
    format!("{}{mark} {:.0} %", of.limit, of.share() * 100.0)
}

/// Returns a text with the limits of a type that do not suffice.
pub(crate) fn lacking(verdict: &Verdict) -> String {
    let words: Vec<String> = verdict
        .lacks()
        .map(|of| if of.exceeded { used(of) } else { format!("{} (headroom)", used(of)) })
        .collect();
    words.join(", ")
}

/// Returns the amount `value` of a limit as text, with its unit.
pub(crate) fn figure(of: &Use, value: f64) -> String {
    match of.limit {
        limit::PACKETS => format!("{}/s", count(value)),
        limit::TRACKING => count(value),
        limit::CREDITS_IN | limit::CREDITS_OUT => format!("{:.0} Gbit", value / 1e9),
        _ if value.is_infinite() => "more".to_owned(),
        _ => rate(value as u64),
    }
}

/// Returns a paragraph with the heading `head`, in lines of [`WIDTH`] characters.
fn wrapped(head: &str, text: &str) -> String {
    let indent = " ".repeat(head.chars().count());
    let (mut lines, mut line) = (String::new(), head.trim_end_matches('\n').to_owned());
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += line.trim_end();
            lines += "\n";
            line.clone_from(&indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_asked_for_has_the_figures_of_its_card() {
        let of = |name: &'static str| {
            asked(&Verdict {
                name,
                vcpus: 2,
                memory_mib: 4096,
                sufficient: true,
                credits_s: None,
                uses: Vec::new(),
            })
        };
        let card = "c5.large: suffices\n    Nitro v2: 25 Gb/s and 2 times the packets/s of v1";
        assert!(of("c5.large").contains(card), "{}", of("c5.large"));
        let card = "Nitro v4: 200 Gb/s and 12 times the packets/s of v1 a card, encryption between";
        assert!(of("c7i.large").contains(card), "{}", of("c7i.large"));
    }

    #[test]
    fn lines_have_an_end() {
        let text = wrapped("  flow  ", &"word ".repeat(60));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("        word")), "{text}");
        assert_eq!(text.matches("word").count(), 60);
    }
}
