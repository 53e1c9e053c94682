//! The parameters of an endpoint, with unit, default and bounds. [`Config::check`] checks them
//! once.

use core::net::IpAddr;

use zeroize::Zeroize as _;

use crate::error::ConfigError;
use crate::time::Duration;

/// Units of time, in nanoseconds.
const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;
const DAY: u64 = 86_400 * S;

/// Maximum number of addresses of one peer, and of local addresses of an endpoint.
pub const ADDRESSES_MAX: usize = 4;

const WINDOW_PACKETS_LEAST: u64 = 128;
const WINDOW_PACKETS_MOST: u64 = 4096;

/// Protection of an endpoint's packets.
#[derive(Clone, Debug)]
pub enum Protection {
    /// Neither authenticated nor encrypted. For trusted fabrics and simulation only.
    Plain,
    /// A key that every member of a job has, 32 uniformly random bytes. Packets are authenticated
    /// and encrypted. Any member can impersonate any other (S21).
    JobKey([u8; 32]),
    /// A static key pair for each node (Noise IK). This is our private key.
    Static([u8; 32]),
}

impl Drop for Protection {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl Protection {
    /// Whether packets are protected.
    pub const fn is_on(&self) -> bool {
        !matches!(self, Self::Plain)
    }

    /// Overwrites the key.
    fn wipe(&mut self) {
        match self {
            Self::Plain => {}
            Self::JobKey(key) | Self::Static(key) => key.zeroize(),
        }
    }
}

/// Set of peers that a node with a static key accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Only peers that were added with their public key.
    Known,
    /// Any peer that has a key. Peers are distinguished by their keys; the owners of the keys are
    /// unknown.
    Anyone,
}

/// Rule by which the path of the next packet is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spray {
    /// Paths that were confirmed recently first, then the next path without a penalty in a
    /// rotation.
    Adaptive,
    /// The next path in a rotation, whatever its state.
    Oblivious,
    /// One path. A retransmission timeout selects another entropy value for it.
    Single,
}

/// Configuration of an endpoint. [`Config::default`] is for a 100 Gb/s fabric with links of
/// microseconds; [`Config::sockets`] is for kernel sockets.
#[derive(Clone, Debug)]
pub struct Config {
    /// Protection of every packet.
    pub protection: Protection,
    /// Peers that are accepted, with static keys.
    pub admission: Admission,
    /// The well-known UDP port at which we receive. The greeting contains it, because data leaves
    /// from other ports. 1..=65,535.
    pub local_port: u16,
    /// Local addresses from which packets leave, in turns over the entropies. 1..=4.
    pub local_addresses: u8,
    /// Largest UDP payload of a packet, header and tag included. 256..=65,000.
    pub packet_bytes_max: u16,
    /// An IP address of this machine, if peers at it are on this machine too. Packets to them use
    /// no interface, so the limit of an interface in `packet_bytes_max` does not apply to them.
    pub own_ip: Option<IpAddr>,
    /// Largest UDP payload of a packet to a peer at `own_ip`. Zero: the same as for all other
    /// peers. 0..=65,000.
    pub own_packet_bytes_max: u16,
    /// Rate of our own link, bits per second. Zero: unknown, estimated from delivery.
    pub link_rate_bps: u64,
    /// Whether data leaves the endpoint no faster than `link_rate_bps`, if that is known. Switch
    /// this on if the endpoint is the only user of its link and the host does not keep the queue of
    /// the interface short.
    pub egress_pacing: bool,
    /// Bytes of a packet on the wire in addition to its UDP payload (IP and UDP; on emulated links,
    /// the bytes that they count). 0..=200.
    pub wire_overhead_bytes: u16,
    /// Round-trip time assumed before the first measurement. 100 ns..=10 s.
    pub rtt_initial: Duration,
    /// Rule by which paths are chosen.
    pub spray: Spray,
    /// Number of paths (entropy values) per context. 1..=256.
    pub paths: u16,
    /// Maximum number of consecutive packets on one path. A run is also limited to a quarter of the
    /// window, to the bytes that leave in 50 us, and to 64 KB. 1..=64.
    pub spray_burst_packets: u8,
    /// Target queueing delay as a percentage of the base round trip. 5..=400.
    pub delay_target_percent: u32,
    /// Least target queueing delay: twice the host's own timing jitter. It counts as transit time
    /// in the bandwidth-delay product. 0..=1 s.
    pub delay_target_min: Duration,
    /// Window of a new context, in bytes; zero: 2.25 bandwidth-delay products. 0..=4 GiB.
    pub window_initial_bytes: u64,
    /// Largest window, as a percentage of the bandwidth-delay product. 50..=1000.
    pub window_max_percent: u32,
    /// Whether a receiver with several senders shares its link by credit.
    pub receiver_share: bool,
    /// Receiver's outstanding credit, as a percentage of its bandwidth-delay product. 50..=400.
    pub credit_percent: u32,
    /// Maximum number of packets before an acknowledgement is sent. 1..=256.
    pub ack_packets: u16,
    /// Maximum number of bytes before an acknowledgement is sent. 1..=16 MiB.
    pub ack_bytes: u32,
    /// Maximum time from an arrival to its acknowledgement. 0..=1 s.
    pub ack_delay: Duration,
    /// Maximum time from an arrival to its acknowledgement in interactive mode, in which the peer's
    /// answer shows that the packet arrived. A value below `ack_delay` means `ack_delay`. 0..=1 s.
    pub ack_delay_interactive: Duration,
    /// Path tuples per acknowledgement. 1..=16.
    pub ack_tuples_max: u8,
    /// Lower bound of the retransmission timeout. It exceeds the delay of an answer behind a full
    /// port of a switch (160 us with 2 MB at 100 Gb/s, 340 us measured with 8 MB): a shorter
    /// timeout declares everything in flight lost while it only waits. 1 us..=10 s.
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout's back-off. `rto_min`..=60 s.
    pub rto_max: Duration,
    /// Longest silence of a peer, with data outstanding, before it is declared down. 1 ms..=1 day.
    pub peer_timeout: Duration,
    /// Longest silence of a peer that has never answered, before it is declared down; zero means
    /// `peer_timeout`. 1 ms..=1 day.
    pub answer_timeout: Duration,
    /// Silence after which an idle context sends a probe, at least 100 us. After a packet was sent
    /// to the peer a quarter of this time counts instead, and an eighth between probes.
    /// [`Duration::MAX`]: never.
    pub keepalive: Duration,
    /// Idle time after which a context releases its memory. It must be longer than `peer_timeout`,
    /// ours and any peer's, otherwise a datagram that is retransmitted after it could be delivered
    /// again.
    pub idle_reclaim: Duration,
    /// Idle time, at least 100 us, after which a context hibernates: it releases the tables of its
    /// sender and keeps the state that the protocol needs later. With this parameter, contexts with
    /// peers that the application named are never reclaimed. [`Duration::MAX`]: never. Contexts
    /// with a keepalive do not hibernate.
    pub idle_hibernate: Duration,
    /// RNR verdicts before a datagram fails; 7 means without limit, as in EFA. 0..=7.
    pub rnr_retries: u8,
    /// Peers per endpoint. 1..=1,000,000.
    pub peers_max: u32,
    /// Queue pairs that may send to one peer, counted separately in each class. 1..=65,536.
    pub flows_max: u32,
    /// Datagrams that may wait or be in flight per peer. 1..=1,048,576.
    pub send_queue_datagrams_max: u32,
    /// Unreliable datagrams that may wait per peer. 1..=65,536.
    pub unreliable_queue_datagrams_max: u32,
    /// PSN window: maximum distance between the floor and the newest PSN of a peer, for sending and
    /// for receiving. A power of two, 128..=4096.
    pub window_packets_max: u16,
    /// Events that may wait in an endpoint before it refuses sends. 1..=2^30.
    pub events_max: u32,
    /// New contexts per second beyond which strangers must return a cookie. 0..=1,000,000.
    pub handshakes_per_second_max: u32,
    /// Packets sealed under one key before it is replaced. 1..=2^48.
    pub key_packets_max: u64,
    /// Lifetime of a key before it is replaced. 100 us..=1 day.
    pub key_lifetime: Duration,
    /// Whether data packets are sent as ECN-capable (ECT).
    pub ecn: bool,
    /// Whether contexts discover the largest packet size that the fabric passes.
    pub mtu_discovery: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protection: Protection::Plain,
            admission: Admission::Known,
            local_port: 7471,
            local_addresses: 1,
            packet_bytes_max: 8900,
            own_ip: None,
            own_packet_bytes_max: 0,
            link_rate_bps: 100_000_000_000,
            egress_pacing: false,
            wire_overhead_bytes: 28,
            rtt_initial: Duration::from_micros(14),
            spray: Spray::Adaptive,
            paths: 128,
            spray_burst_packets: 1,
            delay_target_percent: 100,
            delay_target_min: Duration::ZERO,
            window_initial_bytes: 0,
            window_max_percent: 400,
            receiver_share: true,
            credit_percent: 150,
            ack_packets: 4,
            ack_bytes: 16_384,
            ack_delay: Duration::from_nanos(1500),
            ack_delay_interactive: Duration::from_nanos(1500),
            ack_tuples_max: 4,
            rto_min: Duration::from_micros(400),
            rto_max: Duration::from_secs(1),
            peer_timeout: Duration::from_secs(5),
            answer_timeout: Duration::ZERO,
            keepalive: Duration::MAX,
            idle_reclaim: Duration::from_secs(60),
            idle_hibernate: Duration::MAX,
            rnr_retries: 7,
            peers_max: 16_384,
            flows_max: 4096,
            send_queue_datagrams_max: 256,
            unreliable_queue_datagrams_max: 256,
            window_packets_max: 1024,
            events_max: 1 << 20,
            handshakes_per_second_max: 1000,
            key_packets_max: 1 << 26,
            key_lifetime: Duration::from_secs(120),
            ecn: true,
            mtu_discovery: false,
        }
    }
}

impl Config {
    /// Defaults for kernel UDP sockets: longer runs on a path, so that segmentation offload is
    /// effective, acknowledgements for whole batches, and minimum times above the host's scheduling
    /// jitter.
    pub fn sockets() -> Self {
        Self {
            link_rate_bps: 0,
            rtt_initial: Duration::from_micros(200),
            spray_burst_packets: 64,
            delay_target_percent: 100,
            delay_target_min: Duration::from_micros(100),
            window_initial_bytes: 128 * 1024,
            ack_packets: 64,
            ack_bytes: 256 * 1024,
            ack_delay: Duration::from_micros(100),
            ack_delay_interactive: Duration::from_micros(1000),
            rto_min: Duration::from_micros(1000),
            send_queue_datagrams_max: 8192,
            unreliable_queue_datagrams_max: 1024,
            window_packets_max: 4096,
            mtu_discovery: true,
            ..Self::default()
        }
    }

    /// E3c. Largest packet to a peer at this address, in UDP payload bytes, as far as this machine
    /// can derive it.
    pub fn packet_bytes_to(&self, ip: IpAddr) -> u16 {
        let own = self.own_ip == Some(ip);
        if own { self.packet_bytes_most() } else { self.packet_bytes_max }
    }

    /// Largest packet to any peer.
    pub fn packet_bytes_most(&self) -> u16 {
        self.packet_bytes_max.max(self.own_packet_bytes_max)
    }

    /// Longest silence of a peer, depending on whether it has answered before.
    pub(crate) fn patience(&self, has_received: bool) -> Duration {
        let known = has_received || self.answer_timeout == Duration::ZERO;
        if known { self.peer_timeout } else { self.answer_timeout }
    }

    /// Lateness of a call that counts as a pause of this endpoint: a quarter of the shortest time
    /// that a peer has to answer. A shorter pause leaves enough of that time.
    pub(crate) fn own_pause_min(&self) -> Duration {
        self.peer_timeout.min(self.patience(false)).over(4).max(Duration::from_millis(1))
    }

    /// Maximum wait of an acknowledgement that the sender did not request at once.
    pub(crate) fn ack_wait(&self, interactive: bool) -> Duration {
        if interactive { self.ack_delay.max(self.ack_delay_interactive) } else { self.ack_delay }
    }

    /// Checks all bounds.
    ///
    /// # Errors
    /// Returns the first parameter that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        // E4: Every queue has a limit
        for (field, value, min, max) in self.bounds() {
            if !(min..=max).contains(&value) {
                return Err(ConfigError { field, value, min, max });
            }
        }
        if !self.window_packets_max.is_power_of_two() {
            return Err(ConfigError {
                field: "window_packets_max (a power of two)",
                value: self.window_packets_max.into(),
                min: WINDOW_PACKETS_LEAST,
                max: WINDOW_PACKETS_MOST,
            });
        }
        Ok(())
    }

    /// Each number with its minimum and maximum. The pattern names every parameter, so that a new
    /// one without a bound does not compile.
    #[rustfmt::skip] // a table
    fn bounds(&self) -> [(&'static str, u64, u64, u64); 36] {
        let Self {
            protection: _, admission: _, spray: _, egress_pacing: _, receiver_share: _, ecn: _,
            mtu_discovery: _, own_ip: _, local_port, local_addresses, packet_bytes_max,
            own_packet_bytes_max, link_rate_bps,
            wire_overhead_bytes, rtt_initial, paths, spray_burst_packets, delay_target_percent,
            delay_target_min,
            window_initial_bytes, window_max_percent, credit_percent, ack_packets, ack_bytes,
            ack_delay, ack_delay_interactive, ack_tuples_max, rto_min, rto_max, peer_timeout,
            answer_timeout, keepalive, idle_reclaim, idle_hibernate, rnr_retries, peers_max,
            flows_max, send_queue_datagrams_max, unreliable_queue_datagrams_max, window_packets_max,
            events_max, handshakes_per_second_max, key_packets_max, key_lifetime,
        } = self;
        let ns = |d: &Duration| d.as_nanos();
        // Zero means `peer_timeout`.
        let answer_min = if *answer_timeout == Duration::ZERO { 0 } else { MS };
        [
            ("local_port", (*local_port).into(), 1, 65_535),
            ("local_addresses", (*local_addresses).into(), 1, ADDRESSES_MAX as u64),
            ("packet_bytes_max", (*packet_bytes_max).into(), 256, 65_000),
            ("own_packet_bytes_max", (*own_packet_bytes_max).into(), 0, 65_000),
            ("wire_overhead_bytes", (*wire_overhead_bytes).into(), 0, 200),
            ("link_rate_bps", *link_rate_bps, 0, 10_000_000_000_000),
            ("rtt_initial", ns(rtt_initial), 100, 10 * S),
            ("paths", (*paths).into(), 1, 256),
            ("spray_burst_packets", (*spray_burst_packets).into(), 1, 64),
            ("delay_target_percent", (*delay_target_percent).into(), 5, 400),
            ("delay_target_min", ns(delay_target_min), 0, S),
            ("window_initial_bytes", *window_initial_bytes, 0, 1 << 32),
            ("window_max_percent", (*window_max_percent).into(), 50, 1000),
            ("credit_percent", (*credit_percent).into(), 50, 400),
            ("ack_packets", (*ack_packets).into(), 1, 256),
            ("ack_bytes", (*ack_bytes).into(), 1, 1 << 24),
            ("ack_delay", ns(ack_delay), 0, S),
            ("ack_delay_interactive", ns(ack_delay_interactive), 0, S),
            ("ack_tuples_max", (*ack_tuples_max).into(), 1, 16),
            ("rto_min", ns(rto_min), US, 10 * S),
            ("rto_max", ns(rto_max), ns(rto_min), 60 * S),
            ("peer_timeout", ns(peer_timeout), MS, DAY),
            ("answer_timeout", ns(answer_timeout), answer_min, DAY),
            ("keepalive", ns(keepalive), 100 * US, u64::MAX),
            ("idle_reclaim", ns(idle_reclaim), ns(peer_timeout).saturating_add(1), u64::MAX),
            ("idle_hibernate", ns(idle_hibernate), 100 * US, u64::MAX),
            ("rnr_retries", (*rnr_retries).into(), 0, 7),
            ("peers_max", (*peers_max).into(), 1, 1_000_000),
            ("flows_max", (*flows_max).into(), 1, 65_536),
            ("send_queue_datagrams_max", (*send_queue_datagrams_max).into(), 1, 1 << 20),
            ("unreliable_queue_datagrams_max", (*unreliable_queue_datagrams_max).into(), 1, 65_536),
            // One bitmap word of the window stays free, so at least two are needed.
            ("window_packets_max", (*window_packets_max).into(), WINDOW_PACKETS_LEAST,
             WINDOW_PACKETS_MOST),
            ("events_max", (*events_max).into(), 1, 1 << 30),
            ("handshakes_per_second_max", (*handshakes_per_second_max).into(), 0, 1_000_000),
            ("key_packets_max", *key_packets_max, 1, 1 << 48),
            ("key_lifetime", ns(key_lifetime), 100 * US, DAY),
        ]
    }
}

#[cfg(test)]
mod tests;
