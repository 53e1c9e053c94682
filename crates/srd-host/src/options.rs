//! Options for opening a [`crate::Host`].

use std::net::SocketAddr;

use srd_net::BindOptions;
use srd_proto::config::Protection;
use srd_proto::{Config, Duration};

/// Time for which an acknowledgement waits for an answer that can carry it. Applications wait for
/// the completions of their sends, one window at a time; an answer takes less than this time.
const ACK_DELAY: Duration = Duration::from_micros(25);
/// Number of bytes after which the first run of packets of a message ends, so that its receiver
/// copies them while the sender passes the rest to the kernel.
const RUN_FIRST_BYTES: u16 = 32_000;
/// Idle time after which a peer's context releases its tables. Jobs have thousands of peers, and
/// exchange messages with few of them at the same time.
const IDLE_HIBERNATE: Duration = Duration::from_secs(1);
/// Largest number of peers of an endpoint: as many as the transport can number.
const PEERS_MAX: u32 = 1_000_000;

/// Options for opening a [`crate::Host`].
#[derive(Clone)]
pub struct Options {
    /// Local address; port zero means any free port.
    pub address: SocketAddr,
    /// UDP payload bytes of the largest packet; `None` means the size that the interface passes.
    pub packet_bytes_max: Option<u16>,
    /// Number of paths to each peer.
    pub paths: u16,
    /// Speed of the link in bits per second. `None`: the speed that the system reports for the
    /// interface, which is wrong for virtual interfaces. Zero: unknown.
    pub link_rate_bps: Option<u64>,
    /// Key that all endpoints of a job share. Without a key nothing is encrypted, and every host
    /// that reaches the port is trusted.
    pub job_key: Option<[u8; 32]>,
    /// Whether packets to endpoints of this machine and the same user go through memory.
    pub shared_memory: bool,
    /// Time after which operations to a peer fail if the peer has never answered.
    pub answer_timeout: Duration,
    /// Time without a packet after which a peer that has answered before counts as lost.
    pub peer_timeout: Duration,
    /// Largest number of operations that are in progress at the same time.
    pub operations_max: u32,
    /// Largest number of posted receives of each sort (with and without tags).
    pub receives_max: u32,
}

/// Description of the text form of a key.
pub const KEY_FORM: &str = "a key is 64 hexadecimal digits, as `openssl rand -hex 32` writes them";

/// Command that prints a new key.
pub const MAKE_KEY: &str = "openssl rand -hex 32";

/// Parses a key from a text. White space around the key is ignored. Returns `None` if the text is
/// not a key ([`KEY_FORM`]).
#[must_use]
pub fn read_key(text: &str) -> Option<[u8; 32]> {
    let text = text.trim().as_bytes();
    let mut key = [0; 32];
    if text.len() != 2 * key.len() {
        return None;
    }
    let digit = |at: u8| char::from(at).to_digit(16);
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(key)
}

/// The debug output omits the key, because it may be logged.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Options");
        f.field("address", &self.address).field("encrypted", &self.job_key.is_some());
        f.finish_non_exhaustive()
    }
}

impl Options {
    /// Returns the default options at an address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            packet_bytes_max: None,
            paths: 64,
            link_rate_bps: None,
            job_key: None,
            shared_memory: true,
            answer_timeout: Duration::from_secs(30),
            peer_timeout: Duration::from_secs(10),
            operations_max: 4096,
            receives_max: 1 << 16,
        }
    }

    /// Returns the time after which an idle peer is removed. It is longer than any time for which
    /// peers wait for each other: after an endpoint has removed a peer, it would handle the peer's
    /// retransmissions as packets of a new run.
    fn idle_reclaim(&self) -> Duration {
        let longest = self.peer_timeout.max(self.answer_timeout);
        Config::sockets().idle_reclaim.max(longest.times(2))
    }

    pub(crate) fn bind(&self) -> BindOptions {
        let mut config = Config {
            paths: self.paths,
            answer_timeout: self.answer_timeout,
            peer_timeout: self.peer_timeout,
            idle_hibernate: IDLE_HIBERNATE,
            // Peers exist as long as the endpoint, and may restart.
            peers_max: PEERS_MAX,
            idle_reclaim: self.idle_reclaim(),
            ack_delay: ACK_DELAY,
            ack_delay_interactive: ACK_DELAY,
            interactive_bytes_max: 65_000,
            run_first_bytes: RUN_FIRST_BYTES,
            protection: self.job_key.map_or(Protection::Plain, Protection::JobKey),
            ..Config::sockets()
        };
        if let Some(bytes) = self.packet_bytes_max {
            config.packet_bytes_max = bytes;
        }
        if let Some(bps) = self.link_rate_bps {
            config.link_rate_bps = bps;
            config.egress_pacing = true;
        }
        BindOptions {
            link_rate_from_interface: self.link_rate_bps.is_none(),
            paths_anywhere: true,
            config,
            packet_bytes_from_interface: self.packet_bytes_max.is_none(),
            ..BindOptions::at(self.address)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_remembered_for_longer_than_it_may_be_silent() {
        let usual = Options::at("127.0.0.1:0".parse().unwrap());
        assert_eq!(usual.bind().config.idle_reclaim, Duration::from_secs(60));
        for (peer, answer) in [(3600, 1), (1, 3600)] {
            let peer_timeout = Duration::from_secs(peer);
            let answer_timeout = Duration::from_secs(answer);
            let patient = Options { peer_timeout, answer_timeout, ..usual.clone() };
            assert_eq!(patient.bind().config.idle_reclaim, Duration::from_secs(7200));
        }
    }
}
