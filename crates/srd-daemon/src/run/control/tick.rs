//! Work once a second: rates, and lines of the log about peers. Contains also the texts that people
//! see at the start.

use ipnet::IpNet;
use srd_proto::{Duration, Instant};

use super::Control;
use crate::config::{Interface, Mode, Protection};
use crate::pages::peer::PeerFigures;
use crate::run::peer_log::{PeerLog, Shown};
use crate::run::problems;
use crate::units::rate_bps;

/// Time between two ticks at which a warning is logged: this program, not its peers, was stopped in
/// between.
const STOOD_STILL: Duration = Duration::from_secs(5);

impl Control {
    /// Returns the status text for systemd.
    pub(crate) fn readiness(&self) -> String {
        readiness(&self.config.interface, self.peers.len())
    }

    /// Whether the prefixes behind peers stay unreachable after the daemon has ended.
    pub(crate) fn is_guarding(&self) -> bool {
        self.config.interface.kill_switch
    }

    /// Returns one line of text that describes the running daemon.
    pub(crate) fn introduction(&self) -> String {
        introduction(&self.config.interface, self.mtu, self.peers.len())
    }

    pub(super) fn tick(&mut self, now: Instant) {
        // A tick may come late, so rates are computed from the real time between two ticks.
        let elapsed = now.since(self.ticked_at);
        self.ticked_at = now;
        if elapsed >= STOOD_STILL {
            tracing::warn!(
                "this program stood still for {} s: it was stopped, or the machine was",
                elapsed.as_nanos() / 1_000_000_000
            );
        }
        self.log_peers(now);
        self.look_up(now);
        for peer in &mut self.peers {
            let figures = peer.figures();
            peer.log_passing(&figures);
            peer.log_size(&figures);
            peer.log_move(&figures);
            peer.log_refused(now, &figures);
            let bytes = moved_bytes(&figures);
            let rate = |at: usize| {
                let moved = bytes[at].saturating_sub(peer.before[at]);
                rate_bps(moved, elapsed.as_nanos())
            };
            peer.page.set_rates([rate(0), rate(1)]);
            peer.before = bytes;
        }
    }

    /// Logs which peers came up and went down.
    fn log_peers(&mut self, now: Instant) {
        let mut log: PeerLog = std::mem::take(&mut self.log);
        let show = |name: &str| {
            let peer = self.peers.iter().find(|peer| peer.settings.name == name);
            let figures = peer.map(super::Peer::figures).unwrap_or_default();
            Shown {
                name: match figures.known_addresses().next() {
                    Some(address) => format!("{name} ({address})"),
                    None => format!("{name} (no address known yet)"),
                },
                problem: peer.and_then(|peer| {
                    let host = peer.settings.host.as_ref();
                    let error = peer.lookup.as_ref().map_or("", |lookup| lookup.error.as_str());
                    problems::of_peer(&figures, host, error)
                }),
            }
        };
        let lines = log.lines(now, show);
        self.log = log;
        for line in lines {
            if line.is_warning {
                tracing::warn!("{}", line.text);
            } else {
                tracing::info!("{}", line.text);
            }
        }
    }
}

/// Returns the status text for systemd. A node without an interface has hosts in place of peers.
fn readiness(interface: &Interface, peers: usize) -> String {
    match interface.mode {
        Mode::Cloud => format!("instances run, {}", counted(peers, "other host")),
        Mode::Overlay | Mode::Transparent => format!("{} is up, {peers} peers", interface.name),
    }
}

/// Returns the line of the log that describes a daemon at its start.
fn introduction(interface: &Interface, mtu: u16, peers: usize) -> String {
    if interface.is_alone() {
        return "instances run: no interface, no other hosts".to_owned();
    }
    let protection = match interface.protection {
        Protection::Encrypted(_) => "encrypted",
        Protection::Plain => "NOT ENCRYPTED",
    };
    let (listen, name) = (interface.listens_in_words(), &interface.name);
    let address = match interface.mode {
        Mode::Cloud => {
            let hosts = counted(peers, "other host");
            return format!(
                "instances run: no interface, {protection}, listening on {listen}, {hosts}"
            );
        }
        Mode::Transparent => "transparent".to_owned(),
        Mode::Overlay => {
            let list: Vec<String> = interface.address.iter().map(IpNet::to_string).collect();
            list.join(", ")
        }
    };
    let some = counted(peers, "peer");
    format!("{name} is up: {address}, {protection}, MTU {mtu}, listening on {listen}, {some}")
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Bytes of inner packets sent to a peer, and received from it.
fn moved_bytes(figures: &PeerFigures) -> [u64; 2] {
    let t = &figures.traffic;
    [t.srd_tx_bytes + t.plain_tx_bytes, t.srd_rx_bytes + t.plain_rx_bytes]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn interface(text: &str) -> Interface {
        Config::parse(text, Path::new("srd0.toml")).unwrap().interface
    }

    /// The log of a card was that `srd0` is up, which did not exist.
    #[test]
    fn regression_a_node_without_an_interface_names_none_at_its_start() {
        let alone = interface("[cloud]\n");
        assert_eq!(introduction(&alone, 8900, 0), "instances run: no interface, no other hosts");
        assert_eq!(readiness(&alone, 0), "instances run, 0 other hosts");
        let text = "[interface]\nlisten = \"192.0.2.1:7471\"\nprotection = \"plain\"\n";
        let hosts = interface(&format!("{text}mode = \"cloud\"\n[cloud]\n"));
        let said = introduction(&hosts, 1400, 1);
        assert!(said.starts_with("instances run: no interface, NOT ENCRYPTED,"), "{said}");
        assert!(said.ends_with("192.0.2.1:7471 (UDP ports up to 7534), 1 other host"), "{said}");
        let overlay = interface(&format!("{text}address = [\"10.77.0.1/24\"]\n"));
        let said = introduction(&overlay, 1400, 2);
        assert!(said.starts_with("srd0 is up: 10.77.0.1/24, NOT ENCRYPTED, MTU 1400,"), "{said}");
        assert!(said.ends_with(", 2 peers"), "{said}");
        assert_eq!(readiness(&overlay, 2), "srd0 is up, 2 peers");
    }
}
