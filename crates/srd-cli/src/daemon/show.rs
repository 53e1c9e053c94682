//! Text output of `srd status`, `srd stats` and `srd paths`.

use crate::units;
use srd_chart::Table;
use srd_daemon::config::Mode;
use srd_daemon::control::Stats;
use srd_daemon::snapshot::{
    ControllerSnapshot, ExpressState, PathCounts, PeerSnapshot, PeerState, Snapshot,
    refused_in_words,
};

/// Returns the state of the interface and its peers as text.
pub(super) fn status(snapshot: &Snapshot) -> String {
    let mut text = facts(snapshot);
    let complaint = snapshot.controller.as_ref().and_then(complaint);
    if snapshot.peers.is_empty() {
        let why = match (&complaint, &snapshot.controller) {
            (Some(complaint), _) => complaint.as_str(),
            (None, Some(of)) if of.last_contact_s.is_none() => {
                "no peers yet: the controller has not answered since the start"
            }
            (None, Some(_)) => "no peers: the controller has no other host at present",
            (None, None) => match (snapshot.is_alone(), snapshot.mode) {
                (true, _) => "`srd card status` shows the instances",
                (false, Mode::Cloud) => {
                    "no other hosts: add a [[peer]] with `host` to the configuration, then srd \
                     reload"
                }
                (false, _) => "no peers: add a [[peer]] to the configuration, then srd reload",
            },
        };
        return format!("{text}\n{why}");
    }
    let names = [
        "peer",
        "state",
        "express",
        "sent",
        "received",
        "rtt",
        "queueing",
        "again",
        "paths",
        "handshake",
        "endpoint",
    ];
    let mut table = Table::new(names);
    for peer in &snapshot.peers {
        table.row([
            peer.name.clone(),
            peer.state.to_string(),
            express(peer),
            units::rate(peer.tx_bps as f64),
            units::rate(peer.rx_bps as f64),
            if peer.rtt_us > 0.0 { micros(peer.rtt_us) } else { "-".into() },
            micros(peer.queue_delay_us),
            peer.retransmissions.to_string(),
            passing_paths(peer.paths),
            peer.last_handshake_s.map_or_else(|| "-".into(), |s| format!("{} ago", span(s))),
            endpoint(peer),
        ]);
    }
    text += &format!("\n\n{table}");
    let interface = &snapshot.interface;
    let down = snapshot
        .interface_down
        .then(|| format!("{interface} is down: nothing passes until `ip link set {interface} up`"));
    let refused = snapshot.peers.iter().filter_map(refused);
    let of_peers = snapshot.peers.iter().filter_map(note).chain(refused);
    let notes: Vec<String> = down.into_iter().chain(complaint).chain(of_peers).collect();
    if notes.is_empty() { text } else { format!("{}\n\n{}", text.trim_end(), notes.join("\n")) }
}

/// Returns a remark on a peer: why it does not answer, or which share of its paths passes packets.
/// `None` if there is nothing to remark.
fn note(peer: &PeerSnapshot) -> Option<String> {
    if let Some(problem) = &peer.problem_text {
        return Some(format!("{}: {problem}", peer.name));
    }
    let paths = &peer.paths;
    if peer.state != PeerState::Up || paths.assumed_bad == 0 {
        return None;
    }
    Some(format!(
        "{}: {} of {} paths pass; on the others packets were lost again and again: a link or \
         switch is dead, a firewall passes some UDP ports only, or a host was too busy for its \
         packets, and the paths pass again soon (`srd paths {}`)",
        peer.name,
        paths.passing,
        paths.all(),
        peer.name
    ))
}

/// Returns a remark on the controller: why this host is not connected, and since when for this
/// reason. `None` if it is connected, or at the first attempt.
pub(super) fn complaint(controller: &ControllerSnapshot) -> Option<String> {
    let problem = controller.problem_text.as_ref()?;
    Some(match controller.problem_since_s {
        Some(seconds) => format!("controller, for {}: {problem}", span(seconds)),
        None => format!("controller: {problem}"),
    })
}

/// Returns the state of the connection to the controller as text.
fn controller(controller: &ControllerSnapshot) -> String {
    let ControllerSnapshot { address, state, since_s, generation, .. } = controller;
    let contact = match controller.last_contact_s {
        Some(seconds) => format!("last contact {} ago", span(seconds)),
        None => "no contact since the start".to_owned(),
    };
    let since = span(*since_s);
    format!("controller {address}: {state} for {since}, {contact}, generation {generation}")
}

/// Returns a remark on packets from the peer that were refused because of their source address;
/// `None` if there were no such packets.
fn refused(peer: &PeerSnapshot) -> Option<String> {
    let from = peer.refused_from.as_deref()?;
    Some(refused_in_words(&peer.name, peer.refused_pkts, from))
}

/// Returns the line about the node itself. Without an interface and other hosts, there is nothing
/// to encrypt, and no address.
fn headline(snapshot: &Snapshot) -> String {
    let Snapshot { interface, listen, mtu, paths, workers, .. } = snapshot;
    let up = span(snapshot.uptime_s);
    if snapshot.is_alone() {
        return format!("instances only: no interface, no other hosts, up {up}");
    }
    let protection = if snapshot.encrypted { "encrypted" } else { "NOT ENCRYPTED" };
    let mode = match snapshot.mode {
        Mode::Overlay => "overlay",
        Mode::Transparent => "transparent",
        Mode::Cloud => {
            return format!(
                "instances only: no interface, {protection}, listening on {listen}, {paths} paths \
                 per host, up {up}"
            );
        }
    };
    format!(
        "{interface}: {mode}, {protection}, listening on {listen}, MTU {mtu}, {paths} paths per \
         peer, workers {workers}, up {up}"
    )
}

/// Returns the facts that are the same for all peers, as text.
fn facts(snapshot: &Snapshot) -> String {
    let counters = &snapshot.counters;
    let mut rows = vec![headline(snapshot)];
    if let Some(key) = &snapshot.public_key {
        rows.push(format!("public key {key}"));
    }
    rows.extend(snapshot.controller.as_ref().map(controller));
    if snapshot.is_alone() {
        return rows.join("\n");
    }
    if snapshot.mode == Mode::Cloud {
        // ENA Express is a setting of each interface of an instance.
        rows.push(format!(
            "over SRD: {} packets sent, {} received",
            counters.ena_srd_tx_pkts, counters.ena_srd_rx_pkts
        ));
        return rows.join("\n");
    }
    let words = ["off", "on, without UDP", "off", "on"];
    let word = words[usize::try_from(counters.ena_srd_mode & 3).unwrap_or(0)];
    rows.push(format!(
        "express {word}: {} of {} eligible packets sent over SRD, {} received",
        counters.ena_srd_tx_pkts, counters.ena_srd_eligible_tx_pkts, counters.ena_srd_rx_pkts
    ));
    rows.join("\n")
}

/// Returns the counters in the form of `ethtool -S`.
pub(super) fn stats(stats: &Stats) -> String {
    let lines = stats.all().into_iter().map(|(name, value)| format!("\n     {name}: {value}"));
    lines.fold("NIC statistics:".to_owned(), |text, line| text + &line)
}

/// Returns all paths of a peer as text.
pub(super) fn paths(peer: &PeerSnapshot) -> String {
    let list = &peer.path_reports;
    let all: u64 = list.iter().map(|path| path.sent_pkts).sum();
    let head = format!(
        "{}: {}, express {}, {} paths pass packets",
        peer.name,
        peer.state,
        express(peer),
        passing_paths(peer.paths)
    );
    if list.is_empty() {
        return head + "\nno paths yet: nothing has been sent";
    }
    let mut table =
        Table::new(["path", "from", "to", "state", "queueing", "sent", "share", "lost"]);
    for path in list {
        let share = 100.0 * path.sent_pkts as f64 / all.max(1) as f64;
        table.row([
            path.path.to_string(),
            path.source.clone(),
            path.destination.clone(),
            // If the peer does not answer, the state of its paths is outdated.
            if peer.state == PeerState::Up { path.state.clone() } else { "unknown".into() },
            micros(path.delay_us),
            path.sent_pkts.to_string(),
            format!("{share:.1} %"),
            path.lost_pkts.to_string(),
        ]);
    }
    format!("{head}\n\n{table}")
}

/// Returns the peer's name, if it has one, and its address.
pub(super) fn endpoint(peer: &PeerSnapshot) -> String {
    let address = peer.endpoint.as_deref();
    match (&peer.endpoint_name, &peer.endpoint_error) {
        (None, _) => address.unwrap_or("not known yet").to_owned(),
        (Some(name), Some(error)) => format!("{name} (does not resolve: {error})"),
        (Some(name), None) => format!("{name} ({})", address.unwrap_or("not resolved yet")),
    }
}

/// Returns a text that describes which packets to the peer are sent over SRD.
pub(super) fn express(peer: &PeerSnapshot) -> String {
    match peer.express {
        ExpressState::On if peer.express_tunnels && peer.express_udp => "on, with tunnels".into(),
        ExpressState::On if peer.express_tunnels => "on, with tunnels, without UDP".into(),
        ExpressState::On if peer.express_udp => "on".into(),
        ExpressState::On => "on, without UDP".into(),
        ExpressState::Off => "off".into(),
        ExpressState::Waiting => "waiting for the peer".into(),
    }
}

/// Returns the number of paths that pass packets: `62/64`.
pub(super) fn passing_paths(paths: PathCounts) -> String {
    format!("{}/{}", paths.passing, paths.all())
}

/// Formats a time as `61.5 us` or `12.3 ms`.
pub(super) fn micros(us: f64) -> String {
    if us < 1000.0 { format!("{us:.1} us") } else { format!("{:.1} ms", us / 1000.0) }
}

/// Formats a time as `3 s`, `12 min`, `7.5 h` or `3.1 days`.
pub(super) fn span(s: f64) -> String {
    if s < 90.0 {
        format!("{s:.0} s")
    } else if s < 5400.0 {
        format!("{:.0} min", s / 60.0)
    } else if s < 172_800.0 {
        format!("{:.1} h", s / 3600.0)
    } else {
        format!("{:.1} days", s / 86_400.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_daemon::snapshot::{ControllerState, Counters, PathSnapshot};
    use std::collections::BTreeMap;

    #[test]
    fn stats_have_the_form_of_ethtool() {
        let counters = Counters { ena_srd_mode: 3, ena_srd_rx_pkts: 7, ..Counters::default() };
        let drops = BTreeMap::from([("replay".to_owned(), 1)]);
        let text = stats(&Stats { interface: "srd0".into(), counters, drops });
        let begin = "NIC statistics:\n     ena_srd_mode: 3\n     ena_srd_tx_pkts: 0\n     \
                     ena_srd_eligible_tx_pkts: 0\n     ena_srd_rx_pkts: 7\n     \
                     ena_srd_resource_utilization: 0\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.ends_with("\n     drop_replay: 1"), "{text}");
    }

    #[test]
    fn status_warns_of_what_is_not_encrypted_and_lists_peers() {
        let empty = status(&Snapshot::default());
        assert!(empty.contains("NOT ENCRYPTED") && empty.contains("srd reload"), "{empty}");
        let peer = PeerSnapshot {
            name: "b".into(),
            express: ExpressState::Waiting,
            paths: PathCounts { good: 50, skip: 10, assumed_bad: 4, denied: 0, passing: 60 },
            last_handshake_s: Some(125.0),
            ..PeerSnapshot::default()
        };
        let text = status(&Snapshot { peers: vec![peer], ..Snapshot::default() });
        let row = text.lines().last().unwrap();
        for word in ["b", "connecting", "waiting for the peer", "60/64", "2 min ago", "not known"] {
            assert!(row.contains(word), "{word}: {text}");
        }
    }

    /// The status of such a node was `srd0: NOT ENCRYPTED, listening on 127.0.0.1:0`.
    #[test]
    fn regression_a_node_without_sockets_is_neither_unencrypted_nor_at_an_address() {
        let alone = Snapshot { mode: Mode::Cloud, interface: "srd0".into(), ..Snapshot::default() };
        assert_eq!(
            status(&alone),
            "instances only: no interface, no other hosts, up 0 s\n`srd card status` shows the \
             instances"
        );
        let hosts = Snapshot { listen: "192.0.2.1:7471".into(), encrypted: true, ..alone };
        let text = status(&hosts);
        assert!(text.contains("no interface, encrypted, listening on 192.0.2.1:7471"), "{text}");
        for word in ["srd0", "MTU", "express"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        assert!(text.ends_with("add a [[peer]] with `host` to the configuration, then srd reload"));
    }

    #[test]
    fn status_says_why_a_peer_does_not_answer_and_how_many_paths_pass() {
        let down = PeerSnapshot {
            name: "c".into(),
            state: PeerState::Down,
            problem: Some("port-closed".into()),
            problem_text: Some("nothing listens at the port".into()),
            ..PeerSnapshot::default()
        };
        let some = PeerSnapshot {
            name: "b".into(),
            state: PeerState::Up,
            paths: PathCounts { good: 20, skip: 12, assumed_bad: 32, denied: 0, passing: 32 },
            ..PeerSnapshot::default()
        };
        let text = status(&Snapshot { peers: vec![down, some], ..Snapshot::default() });
        assert!(
            text.contains("\n\nc: nothing listens at the port\nb: 32 of 64 paths pass"),
            "{text}"
        );
    }

    #[test]
    fn status_says_from_which_address_packets_of_a_peer_are_refused() {
        let up = PeerSnapshot {
            name: "b".into(),
            state: PeerState::Up,
            refused_pkts: 7,
            refused_from: Some("10.1.0.2".into()),
            ..PeerSnapshot::default()
        };
        let text = status(&Snapshot { peers: vec![up], ..Snapshot::default() });
        let wanted = "\n\nrefused: 7 packets from 10.1.0.2 (not in allowed of peer b): add";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn status_shows_the_controller_and_why_the_host_is_not_connected() {
        let connected = ControllerSnapshot {
            address: "192.0.2.9:4600".into(),
            state: ControllerState::Connected,
            since_s: 700.0,
            last_contact_s: Some(2.0),
            generation: 7,
            ..ControllerSnapshot::default()
        };
        let text = |controller: &ControllerSnapshot, peers| {
            let controller = Some(controller.clone());
            status(&Snapshot { controller, peers, ..Snapshot::default() })
        };
        let wanted = "\ncontroller 192.0.2.9:4600: connected for 12 min, last contact 2 s ago, \
                      generation 7\n";
        let alone = text(&connected, Vec::new());
        assert!(alone.contains(wanted), "{alone}");
        // The text was that no other host has enrolled, also after the others were removed.
        assert!(
            alone.ends_with("\nno peers: the controller has no other host at present"),
            "{alone}"
        );
        let starting = ControllerSnapshot { last_contact_s: None, ..connected.clone() };
        let starting = text(&starting, Vec::new());
        assert!(
            starting.ends_with("the controller has not answered since the start"),
            "{starting}"
        );
        let other = ControllerSnapshot {
            state: ControllerState::Disconnected,
            last_contact_s: None,
            problem: Some("other-controller".into()),
            problem_text: Some("the controller there does not have the fingerprint".into()),
            problem_since_s: Some(60.0),
            ..connected
        };
        let wanted = "disconnected for 12 min, no contact since the start";
        for peers in [Vec::new(), vec![PeerSnapshot::default()]] {
            let text = text(&other, peers);
            assert!(text.contains(wanted), "{text}");
            assert!(
                text.ends_with(
                    "\ncontroller, for 60 s: the controller there does not have the fingerprint"
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn paths_show_their_share() {
        let path = |path, sent_pkts| PathSnapshot {
            path,
            sent_pkts,
            state: "good".into(),
            ..PathSnapshot::default()
        };
        let path_reports = vec![path(0, 30), path(1, 10)];
        let up = PeerSnapshot { path_reports, state: PeerState::Up, ..PeerSnapshot::default() };
        let text = paths(&up);
        assert!(text.contains("good"), "{text}");
        let down = paths(&PeerSnapshot { state: PeerState::Down, ..up });
        assert!(!down.contains("good") && down.contains("unknown"), "{down}");
        assert!(text.contains("75.0 %") && text.contains("25.0 %"), "{text}");
        assert!(paths(&PeerSnapshot::default()).contains("nothing has been sent"));
    }

    #[test]
    fn times_read_well() {
        assert_eq!((micros(61.54), micros(12_345.0)), ("61.5 us".into(), "12.3 ms".into()));
        let spans = [3.0, 700.0, 27_000.0, 270_000.0].map(span);
        assert_eq!(spans, ["3 s", "12 min", "7.5 h", "3.1 days"]);
    }
}
