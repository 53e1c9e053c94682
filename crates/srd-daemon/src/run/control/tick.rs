//! Work once a second: rates, and lines of the log about peers. Contains also the texts that people
//! see at the start.

use ipnet::IpNet;
use srd_proto::{Duration, Instant};

use super::Control;
use crate::config::{Mode, Protection};
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
        format!("{} is up, {} peers", self.config.interface.name, self.peers.len())
    }

    /// Whether the prefixes behind peers stay unreachable after the daemon has ended.
    pub(crate) fn is_guarding(&self) -> bool {
        self.config.interface.kill_switch
    }

    /// Returns one line of text that describes the running daemon.
    pub(crate) fn introduction(&self) -> String {
        let interface = &self.config.interface;
        if interface.is_alone() {
            return format!("{} is up: instances only, no other hosts", interface.name);
        }
        let address = match interface.mode {
            Mode::Transparent => "transparent".to_owned(),
            Mode::Cloud => "instances only".to_owned(),
            Mode::Overlay => {
                let list: Vec<String> = interface.address.iter().map(IpNet::to_string).collect();
                list.join(", ")
            }
        };
        let protection = match interface.protection {
            Protection::Encrypted(_) => "encrypted",
            Protection::Plain => "NOT ENCRYPTED",
        };
        let (listen, peers) = (interface.listens_in_words(), self.peers.len());
        let some = if peers == 1 { "1 peer".to_owned() } else { format!("{peers} peers") };
        format!(
            "{} is up: {address}, {protection}, MTU {}, listening on {listen}, {some}",
            interface.name, self.mtu
        )
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

/// Bytes of inner packets sent to a peer, and received from it.
fn moved_bytes(figures: &PeerFigures) -> [u64; 2] {
    let t = &figures.traffic;
    [t.srd_tx_bytes + t.plain_tx_bytes, t.srd_rx_bytes + t.plain_rx_bytes]
}
