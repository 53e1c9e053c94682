//! The parameters of an endpoint, with unit, default and bounds. [`Config::check`] checks them
//! once.

use core::net::IpAddr;

use zeroize::Zeroize as _;

use crate::error::ConfigError;
use crate::time::Duration;

/// A microsecond in nanoseconds. Bounds of times in the table of [`Config::check`] are multiples of
/// this unit.
const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;
const DAY: u64 = 86_400 * S;

/// Maximum number of addresses of one peer, and of local addresses of an endpoint.
pub const ADDRESSES_MAX: usize = 4;

const WINDOW_PACKETS_LEAST: u64 = 128;
const WINDOW_PACKETS_MOST: u64 = 4096;

/// Mode of authentication and encryption of an endpoint's packets.
#[derive(Clone, Debug)]
pub enum Protection {
    /// Packets are neither authenticated nor encrypted. This mode is for trusted fabrics and
    /// simulation only.
    Plain,
    /// One key that all members of a job have: 32 uniformly random bytes. Packets are authenticated
    /// and encrypted. Any member can impersonate any other (S21).
    JobKey([u8; 32]),
    /// Each node has a static key pair (Noise IK). The value is the private key of this endpoint.
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

    /// Overwrites the key in memory with zeros.
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
    /// The node accepts only peers that the application added with their public key.
    Known,
    /// The node accepts any peer that proves possession of its key. The key distinguishes peers,
    /// but does not show to whom it belongs.
    Anyone,
}

/// Rule by which the path of the next packet is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spray {
    /// Prefers paths that were confirmed recently; otherwise takes the next path in a rotation that
    /// has no penalty.
    Adaptive,
    /// Takes the next path in a rotation, even if packets on this path were lost.
    Oblivious,
    /// Uses one path. A retransmission timeout selects another entropy value for it.
    Single,
}

/// Configuration of an endpoint. [`Config::default`] is for a 100 Gb/s fabric with delays of
/// microseconds; [`Config::sockets`] is for kernel sockets.
#[derive(Clone, Debug)]
pub struct Config {
    /// Mode of authentication and encryption of every packet.
    pub protection: Protection,
    /// Set of peers that the endpoint accepts. It matters only if `protection` is `Static`.
    pub admission: Admission,
    /// The well-known UDP port at which we receive. The greeting contains it, because the source
    /// port of a packet belongs to the packet's path. Range: 1..=65,535.
    pub local_port: u16,
    /// Number of local IP addresses from which packets leave. Entropy value `i` uses address `i`
    /// modulo this number. Range: 1..=4.
    pub local_addresses: u8,
    /// Largest UDP payload of a packet, header and tag included. Range: 256..=65,000.
    pub packet_bytes_max: u16,
    /// The IP address of this machine, if peers at it are on this machine too. Packets to such a
    /// peer pass no network interface, so `own_packet_bytes_max` may exceed `packet_bytes_max`, the
    /// limit of the interface. `None`: `packet_bytes_max` applies to every peer.
    pub own_ip: Option<IpAddr>,
    /// Largest UDP payload of a packet to a peer at `own_ip`. A value below `packet_bytes_max`,
    /// such as 0, means `packet_bytes_max`. Range: 0..=65,000.
    pub own_packet_bytes_max: u16,
    /// Rate of our own link in bits per second. Zero: the rate is unknown, and the endpoint
    /// estimates it from the delivery rate.
    pub link_rate_bps: u64,
    /// Whether data leaves the endpoint no faster than `link_rate_bps`, if that is known. Switch
    /// this on if the endpoint is the only user of its link and the host does not keep the queue of
    /// the interface short.
    pub egress_pacing: bool,
    /// Bytes of a packet above the Ethernet layer in addition to its UDP payload: the bytes of the
    /// IP and UDP headers, or the value that an emulated link counts. Egress pacing uses it. Range:
    /// 0..=200.
    pub wire_overhead_bytes: u16,
    /// Round-trip time that is assumed before the first measurement. Range: 100 ns..=10 s.
    pub rtt_initial: Duration,
    /// Rule by which the path of each packet is chosen.
    pub spray: Spray,
    /// Number of paths (entropy values) per context. Range: 1..=256.
    pub paths: u16,
    /// Maximum number of consecutive packets on one path. A run is also limited to a quarter of the
    /// window, to the bytes that leave in 50 us, and to 64 KB. Range: 1..=64.
    pub spray_burst_packets: u8,
    /// Target queueing delay as a percentage of the base round trip. Range: 5..=400.
    pub delay_target_percent: u32,
    /// Lower bound of the target queueing delay, about twice the timing jitter of the host. The
    /// bandwidth-delay product is the link rate times the base round trip and this time. Range:
    /// 0..=1 s.
    pub delay_target_min: Duration,
    /// Initial congestion window of a context, in bytes. Zero means 2.25 bandwidth-delay products.
    /// Range: 0..=4 GiB.
    pub window_initial_bytes: u64,
    /// Upper bound of the congestion window, as a percentage of the bandwidth-delay product. Range:
    /// 50..=1000.
    pub window_max_percent: u32,
    /// Whether the two rules about rates from the SRD paper apply in addition (rule C17 of
    /// `docs/spec/srd.md`): congestion if the network delivers less than the endpoint sends, and a
    /// limit of the sending rate beside the window. They are for comparisons.
    pub rate_rules: bool,
    /// Whether this endpoint, while several peers send to it, divides the rate of its link among
    /// them by credit limits.
    pub receiver_share: bool,
    /// Upper bound of the unused credit of all senders together, as a percentage of this receiver's
    /// bandwidth-delay product. Range: 50..=400.
    pub credit_percent: u32,
    /// Bytes that a sender may have in flight before the receiver's first packet arrives, as a
    /// percentage of the bandwidth-delay product. A small value costs a message that is longer a
    /// round trip, once in the life of a context, and keeps the first bursts of a crowd of senders
    /// short (`docs/perf-notes.md`, 2026-11-29). Range: 1..=400.
    pub unsolicited_percent: u32,
    /// Number of unacknowledged received packets at which an acknowledgement is sent at once.
    /// Range: 1..=256.
    pub ack_packets: u16,
    /// Number of unacknowledged received bytes at which an acknowledgement is sent at once. Range:
    /// 1..=16 MiB.
    pub ack_bytes: u32,
    /// Maximum time from the arrival of a packet to its acknowledgement. Range: 0..=1 s.
    pub ack_delay: Duration,
    /// Maximum time from the arrival of a packet of interactive mode to its acknowledgement. In
    /// this mode our next data packet already shows the peer that its packet arrived. A value below
    /// `ack_delay` means `ack_delay`. Range: 0..=1 s.
    pub ack_delay_interactive: Duration,
    /// Largest datagram, header included, that may be sent in interactive mode, and largest payload
    /// that an acknowledgement may accompany. More than 512 suits applications that send messages
    /// and wait for the answers: the last datagram of a message is then of this mode, too, and the
    /// answer carries the acknowledgement. Range: 512..=65,000.
    pub interactive_bytes_max: u16,
    /// Number of bytes after which the first run of packets ends, if no packet is in flight. With a
    /// short first run, an idle receiver begins to process a message while its sender still writes
    /// the rest. Range: 512..=65,000.
    pub run_first_bytes: u16,
    /// Maximum number of observations (PSN, delay and mark of a packet) in one acknowledgement.
    /// Range: 1..=16.
    pub ack_tuples_max: u8,
    /// Lower bound of the retransmission timeout. It exceeds the delay of an answer behind a full
    /// port of a switch (160 us with 2 MB at 100 Gb/s, 340 us measured with 8 MB): a shorter
    /// timeout declares packets lost that only wait in the queue of the switch. Range: 1 us..=10 s.
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout, which doubles while nothing is acknowledged.
    /// Range: `rto_min`..=60 s.
    pub rto_max: Duration,
    /// Longest silence of a peer that has to answer a packet, before it is declared down. Range: 1
    /// ms..=1 day.
    pub peer_timeout: Duration,
    /// Longest silence of a peer that has to answer a packet and has never answered, before it is
    /// declared down. Zero means `peer_timeout`. Range: 1 ms..=1 day.
    pub answer_timeout: Duration,
    /// Idle time, at least 100 us, after which a context sends a probe. If a packet was sent to the
    /// peer and the peer has been silent since then, a probe is sent after a quarter of this time,
    /// and after each further eighth of it. [`Duration::MAX`] means never.
    pub keepalive: Duration,
    /// Idle time after which a context releases its memory. It must be longer than the
    /// `peer_timeout` of this endpoint and of any peer, otherwise a datagram that is retransmitted
    /// later could be delivered twice.
    pub idle_reclaim: Duration,
    /// Idle time, at least 100 us, after which a context hibernates: it releases its sender's
    /// tables, which are created again for its next datagram. [`Duration::MAX`] means never. If
    /// contexts hibernate, `idle_reclaim` does not apply to peers that the application named.
    /// Contexts with a keepalive do not hibernate.
    pub idle_hibernate: Duration,
    /// Number of times that a datagram is sent again after it was refused for lack of a receive
    /// buffer (RNR), before it fails; 7 means without limit, as in EFA. Range: 0..=7.
    pub rnr_retries: u8,
    /// Maximum number of peers of an endpoint. Range: 1..=1,000,000.
    pub peers_max: u32,
    /// Maximum number of flows with waiting datagrams to one peer. A flow is the datagrams of one
    /// queue pair in one class. Range: 1..=65,536.
    pub flows_max: u32,
    /// Maximum number of datagrams per peer that wait or are in flight. Range: 1..=1,048,576.
    pub send_queue_datagrams_max: u32,
    /// Maximum number of unreliable datagrams per peer that wait. Range: 1..=65,536.
    pub unreliable_queue_datagrams_max: u32,
    /// PSN window: maximum distance between the floor and the newest PSN of a peer, for sending and
    /// for receiving. Range: powers of two, 128..=4096.
    pub window_packets_max: u16,
    /// Number of events that the application has not polled, at which the endpoint refuses sends.
    /// Range: 1..=2^30.
    pub events_max: u32,
    /// Number of openings per second beyond which strangers must return a cookie. Range:
    /// 0..=1,000,000.
    pub handshakes_per_second_max: u32,
    /// Number of packets that are sealed under one key before it is replaced. Range: 1..=2^48.
    pub key_packets_max: u64,
    /// Time after which a key in use is replaced. Range: 100 us..=1 day.
    pub key_lifetime: Duration,
    /// Whether data packets are sent as ECN-capable (ECT(0)).
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
            rate_rules: false,
            receiver_share: true,
            credit_percent: 150,
            unsolicited_percent: 150,
            ack_packets: 4,
            ack_bytes: 16_384,
            ack_delay: Duration::from_nanos(1500),
            ack_delay_interactive: Duration::from_nanos(1500),
            interactive_bytes_max: 512,
            run_first_bytes: 65_000,
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
    /// Defaults for kernel UDP sockets. They differ from [`Config::default`] in longer runs of
    /// packets on one path, so that segmentation offload is effective, in one acknowledgement per
    /// batch, and in minimum times above the host's scheduling jitter.
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

    /// Largest packet to a peer at this address, in UDP payload bytes (E3c). A smaller limit of the
    /// route to the address is not considered.
    pub fn packet_bytes_to(&self, ip: IpAddr) -> u16 {
        let own = self.own_ip == Some(ip);
        if own { self.packet_bytes_most() } else { self.packet_bytes_max }
    }

    /// Largest packet to any peer, in UDP payload bytes.
    pub fn packet_bytes_most(&self) -> u16 {
        self.packet_bytes_max.max(self.own_packet_bytes_max)
    }

    /// Longest silence of a peer that has to answer a packet, before it is given up.
    /// `has_received`: the peer has answered in this context.
    pub(crate) fn patience(&self, has_received: bool) -> Duration {
        let known = has_received || self.answer_timeout == Duration::ZERO;
        if known { self.peer_timeout } else { self.answer_timeout }
    }

    /// Minimum lateness of a call that counts as a pause of this endpoint itself and not as silence
    /// of its peers: a quarter of the shortest time that a peer has to answer.
    pub(crate) fn own_pause_min(&self) -> Duration {
        self.peer_timeout.min(self.patience(false)).over(4).max(Duration::from_millis(1))
    }

    /// Maximum delay of an acknowledgement that the sender did not request at once. `interactive`:
    /// all packets to be acknowledged are of interactive mode.
    pub(crate) fn ack_wait(&self, interactive: bool) -> Duration {
        if interactive { self.ack_delay.max(self.ack_delay_interactive) } else { self.ack_delay }
    }

    /// Checks that each parameter is in its range.
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

    /// Each numeric parameter as name, value, minimum and maximum. The pattern names all fields of
    /// the configuration, so that a new field without a bound does not compile.
    #[rustfmt::skip] // a table
    fn bounds(&self) -> [(&'static str, u64, u64, u64); 39] {
        let Self {
            protection: _, admission: _, spray: _, egress_pacing: _, rate_rules: _,
            receiver_share: _, ecn: _, mtu_discovery: _, own_ip: _, local_port, local_addresses,
            packet_bytes_max,
            own_packet_bytes_max, link_rate_bps,
            wire_overhead_bytes, rtt_initial, paths, spray_burst_packets, delay_target_percent,
            delay_target_min,
            window_initial_bytes, window_max_percent, credit_percent, unsolicited_percent,
            ack_packets, ack_bytes, ack_delay, ack_delay_interactive, interactive_bytes_max,
            run_first_bytes, ack_tuples_max, rto_min, rto_max,
            peer_timeout,
            answer_timeout, keepalive, idle_reclaim, idle_hibernate, rnr_retries, peers_max,
            flows_max, send_queue_datagrams_max, unreliable_queue_datagrams_max, window_packets_max,
            events_max, handshakes_per_second_max, key_packets_max, key_lifetime,
        } = self;
        let ns = |d: &Duration| d.as_nanos();
        // An `answer_timeout` of zero means `peer_timeout`.
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
            ("unsolicited_percent", (*unsolicited_percent).into(), 1, 400),
            ("ack_packets", (*ack_packets).into(), 1, 256),
            ("ack_bytes", (*ack_bytes).into(), 1, 1 << 24),
            ("ack_delay", ns(ack_delay), 0, S),
            ("ack_delay_interactive", ns(ack_delay_interactive), 0, S),
            ("interactive_bytes_max", (*interactive_bytes_max).into(), 512, 65_000),
            ("run_first_bytes", (*run_first_bytes).into(), 512, 65_000),
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
