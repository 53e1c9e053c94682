//! Settings of a host's endpoint and sockets that follow from the configuration.

use srd_net::UdpOptions;
use srd_proto::{Config as CoreConfig, Duration, Protection as CoreProtection};

use crate::config::{Interface, Protection};

/// Time without received packets after which an idle context sends a probe. While the context sends
/// data, a quarter of this time applies. Together with [`PEER_TIMEOUT`] this is less than a second:
/// after that time the failure of a host is detected, and transparent mode uses plain packets
/// again.
const KEEPALIVE: Duration = Duration::from_millis(300);
/// Time without an answer after which a peer is down. During this time some fifteen probes are sent
/// on different paths. Pauses of this daemon itself do not count.
const PEER_TIMEOUT: Duration = Duration::from_millis(600);
/// Largest number of handshakes per second with unknown hosts, and separately with hosts that have
/// returned a cookie. Each handshake takes 0.1 to 0.3 ms of a worker's time. If a thousand nodes of
/// a cluster start at once, all handshakes are finished in five seconds.
const HANDSHAKES_PER_SECOND_MAX: u32 = 200;
/// Bytes of the receive buffers of the sockets, for packets that arrive while the thread that reads
/// them does other work or does not run.
const RECEIVE_BUFFER_BYTES: u32 = 32 << 20;
/// Bytes of the greeting in the first packets of a context without encryption.
#[allow(clippy::cast_possible_truncation)] // sixteen
const GREETING_BYTES: u16 = srd_proto::wire::greeting::GREETING_BYTES as u16;

/// Returns the settings of the endpoint. `packet_bytes` is the number of UDP payload bytes that fit
/// into one packet; without encryption, the greeting takes a part of them.
#[must_use]
pub(super) fn core(interface: &Interface, packet_bytes: u16) -> CoreConfig {
    let mut core = CoreConfig::sockets();
    core.protection = match &interface.protection {
        Protection::Encrypted(key) => CoreProtection::Static(key.bytes()),
        Protection::Plain => CoreProtection::Plain,
    };
    core.paths = interface.paths;
    core.keepalive = KEEPALIVE;
    core.peer_timeout = PEER_TIMEOUT;
    core.handshakes_per_second_max = HANDSHAKES_PER_SECOND_MAX;
    core.idle_reclaim = Duration::MAX;
    let greeting = if core.protection.is_on() { 0 } else { GREETING_BYTES };
    core.packet_bytes_max = packet_bytes.saturating_sub(greeting);
    let known = || interface.listens().map(|at| srd_net::link::local_rate(at.ip())).sum();
    core.link_rate_bps = interface.link_rate_bps.or_else(known).unwrap_or(0);
    core
}

/// Returns the settings of the UDP sockets.
#[must_use]
pub(super) fn sockets(interface: &Interface) -> UdpOptions {
    let mut sockets = UdpOptions::new(interface.listen);
    sockets.further.clone_from(&interface.listen_further);
    sockets.paths = interface.paths;
    sockets.receive_buffer_bytes = RECEIVE_BUFFER_BYTES;
    sockets.dscp = interface.dscp;
    sockets
}
