//! Text about a packet and its path through the card.

use std::fmt::Write;
use std::net::IpAddr;

use srd_guest::protocol::{TraceArrived, TraceHop};
use srd_vpc_file::words::StepRecord;

use super::packets::{End, Packet};

/// Returns the text about a packet. If the state of its flow decided about it, without a delay or
/// drop, the text is one line. Otherwise it contains the decision of each table, the delays, and a
/// remedy.
pub(super) fn text(packet: &Packet) -> String {
    let mut text = format!("{}  {}", clock(packet.unix_ns), head(&packet.arrived));
    let by_rules = packet.judged.as_ref().filter(|judged| judged.by_rules);
    let steps = packet.judged.iter().flat_map(|judged| &judged.steps);
    let is_held = !packet.waited_for.is_empty() || !packet.held.is_empty();
    if by_rules.is_none() && !is_held && !is_dropped(packet) {
        let _ = write!(text, "; {}", end(packet));
        return text;
    }
    for why in &packet.held {
        let _ = write!(text, "\n      held {why}");
    }
    for (number, StepRecord { at, says, passes }) in (1..).zip(steps) {
        let mark = if *passes { ' ' } else { '!' };
        let _ = write!(text, "\n  {mark}{number:>3}  {at}\n        {says}");
    }
    for limit in &packet.waited_for {
        let _ = write!(text, "\n      held up by a limit: {} ({})", limit.what, limit.counter);
    }
    let _ = write!(text, "\n      {}", end(packet));
    if let End::Refused(refusal) = &packet.end {
        let _ = write!(text, "\n      remedy: {}", refusal.remedy);
    }
    text
}

fn is_dropped(packet: &Packet) -> bool {
    matches!(packet.end, End::Refused(_) | End::OverLimit(_))
}

/// Returns the outcome of a packet, in one line.
pub(super) fn end(packet: &Packet) -> String {
    let took = time(packet.took_ns);
    match &packet.end {
        // The packet left at the time at which it arrived, so no time is shown.
        End::Gone(to) if packet.took_ns == 0 => hop(to),
        End::Gone(to) => format!("{}, after {took}", hop(to)),
        End::Refused(refusal) if packet.took_ns == 0 => {
            format!("DROPPED ({}): {}", refusal.cause, refusal.why)
        }
        End::Refused(refusal) => {
            format!("DROPPED after {took} ({}): {}", refusal.cause, refusal.why)
        }
        End::OverLimit(limit) => {
            format!("DROPPED after {took} by a limit: {} ({})", limit.what, limit.counter)
        }
        End::Waits => match packet.held.last() {
            Some(why) if packet.judged.is_none() => format!("still held {why}"),
            _ => String::from("still held up"),
        },
    }
}

/// Returns the outcome as the comment that Wireshark shows for the packet.
pub(super) fn comment(packet: &Packet) -> String {
    let mut text = end(packet);
    for limit in &packet.waited_for {
        let _ = write!(text, "; held up by {}", limit.counter);
    }
    for why in &packet.held {
        let _ = write!(text, "; held {why}");
    }
    if let End::Refused(refusal) = &packet.end {
        let _ = write!(text, "; remedy: {}", refusal.remedy);
    }
    text
}

fn head(arrived: &TraceArrived) -> String {
    let TraceArrived { instance, device, is_egress, source, destination, protocol, .. } = arrived;
    let TraceArrived { ports, is_fragment, bytes, packets, flow, .. } = arrived;
    let way = if *is_egress { "sends" } else { "gets" };
    let is_icmp = protocol.starts_with("icmp");
    let end = |address: &IpAddr, port: Option<u16>| match (address, port) {
        (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
        (address, Some(port)) => format!("{address}:{port}"),
        (address, None) => address.to_string(),
    };
    let at = |port: fn(&(u16, u16)) -> u16| ports.as_ref().filter(|_| !is_icmp).map(port);
    let (from, to) = (end(source, at(|ports| ports.0)), end(destination, at(|ports| ports.1)));
    let mut text = format!("{instance} {device} {way} {from} -> {to}  {protocol}");
    if let Some((kind, code)) = ports.filter(|_| is_icmp) {
        let _ = write!(text, " type {kind} code {code}");
    }
    let _ = write!(text, ", {bytes} bytes");
    if *packets > 1 {
        let _ = write!(text, " in {packets} packets");
    }
    if *is_fragment {
        text.push_str(", a fragment");
    }
    match flow {
        None => text.push_str(", new flow"),
        Some(flow) => {
            let tracked = if flow.is_tracked { "" } else { " (untracked)" };
            let _ = write!(text, ", {}{tracked}", flow.state);
        }
    }
    text
}

fn hop(to: &TraceHop) -> String {
    match to {
        TraceHop::Guest => String::from("delivered"),
        TraceHop::Interface { instance, device } => format!("to {instance} {device}"),
        TraceHop::Host { host, interface, express, plainly, waits } => {
            let way = match plainly {
                _ if *express => String::from(", by SRD"),
                Some(why) => format!(", plainly: {why}"),
                None => String::from(", plainly"),
            };
            format!("to {interface} on the host {host}{way}{}", wait(*waits))
        }
        TraceHop::Gateway { gateway, host, waits } => {
            format!("out by {gateway} on the host {host}{}", wait(*waits))
        }
        TraceHop::Nat { gateway, interface: Some(interface) } => {
            format!("by {gateway} to {interface}")
        }
        TraceHop::Nat { gateway, interface: None } => format!("back by {gateway}"),
        TraceHop::Service { service } => format!("to {service}"),
    }
}

/// Returns an addition to the text for a packet that waits on this host for a session with another
/// host.
fn wait(waits: bool) -> &'static str {
    if waits { "; WAITS here: there is no session with that host (`srd card status`)" } else { "" }
}

/// Formats the time of the day, in UTC.
fn clock(unix_ns: u64) -> String {
    let (seconds, micros) = (unix_ns / 1_000_000_000 % 86_400, unix_ns / 1000 % 1_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{micros:06}", seconds % 60)
}

fn time(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{} us", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}
