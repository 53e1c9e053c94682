//! Parameters of the TCP model, with unit, default and source.

use srd_proto::time::Duration;

/// Algorithm of congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Congestion {
    /// NewReno's window rules (RFC 5681) over SACK recovery.
    Reno,
    /// CUBIC (RFC 9438) with HyStart, Linux's default.
    #[default]
    Cubic,
    /// DCTCP (RFC 8257), for switches that mark.
    Dctcp,
}

/// Rule by which the floor of the retransmission timeout applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RtoRule {
    /// Linux: RTO = srtt + max(rto_min, variation). The variation follows the largest deviation of
    /// a round trip instead of a mean deviation.
    #[default]
    Linux,
    /// RFC 6298: RTO = max(rto_min, srtt + 4 rttvar).
    Rfc6298,
}

/// Condition in which a segment below the full size waits for acknowledgements (Nagle's rule).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Nagle {
    /// A small segment never waits: the socket option TCP_NODELAY.
    Off,
    /// A small segment waits while an earlier small segment is unacknowledged: Minshall's form of
    /// the rule, as in Linux.
    #[default]
    Linux,
    /// A small segment waits while any data is unacknowledged (RFC 896).
    Rfc896,
}

/// Parameters of a TCP endpoint. The defaults are those of Linux at HZ=250.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// Algorithm of congestion control.
    pub congestion: Congestion,
    /// Largest IP packet, in bytes (MTU).
    pub mtu_bytes: u32,
    /// Length of the IP and TCP headers with timestamps, in bytes: the part of an MTU that is not
    /// payload.
    pub header_bytes: u32,
    /// Link-layer bytes that ports count in addition to the IP packet. The value is 14 for an
    /// Ethernet header alone, as a Linux `tbf` queue counts it, and 38 with FCS, preamble and gap.
    pub frame_bytes: u32,
    /// Initial window, in segments (RFC 6928).
    pub window_initial_segments: u32,
    /// Largest number of unacknowledged bytes. It models the receive window of the peer and the
    /// send buffer of this host.
    pub window_bytes_max: u64,
    /// Number of segments of one connection that leave back to back when several connections have
    /// data, as in one GSO super-packet.
    pub burst_segments_max: u32,
    /// Lower bound of the retransmission timeout. Linux: 200 ms (`tcp_rto_min_us`).
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout. Linux: 120 s.
    pub rto_max: Duration,
    /// Round trip that the handshake measured when it established the connection before the run;
    /// zero if it was not measured. Only the timeouts use it.
    pub rtt_assumed: Duration,
    /// Timeout before the first round-trip sample (RFC 6298 section 2).
    pub rto_initial: Duration,
    /// Rule by which `rto_min` applies.
    pub rto_rule: RtoRule,
    /// Number of timeouts in a row after which a connection fails. Linux: 15 (`tcp_retries2`).
    pub retries_max: u32,
    /// Time added to two round trips for the tail probe's timer, and to RACK's reorder timer.
    /// Linux: 2 ms (`TCP_TIMEOUT_MIN_US`). Zero gives the formulas of RFC 8985.
    pub timer_floor: Duration,
    /// Granularity of all timers: a timer fires at the first tick after its deadline. Linux: 1/HZ.
    /// With zero, timers are exact.
    pub timer_tick: Duration,
    /// Whether the sender uses tail loss probes (RFC 8985 section 7).
    pub tail_probe: bool,
    /// Longest delay of an acknowledgement. Linux: 40 ms (`TCP_DELACK_MIN`). With zero, every
    /// segment is acknowledged at once.
    pub ack_delay: Duration,
    /// Number of acknowledgements that are sent without delay, at the start of a connection and
    /// after disorder. Linux: 16.
    pub ack_quick: u32,
    /// Whether connections are interactive (Linux's pingpong mode: a receiver sends a reply to the
    /// data that it reads). An interactive receiver delays every acknowledgement of data in order:
    /// until a second full segment arrives, or for `ack_delay`.
    pub interactive: bool,
    /// Condition in which a segment below the full size waits for acknowledgements.
    pub nagle: Nagle,
    /// Number of bytes that the application writes at a time. With zero, it writes the whole flow
    /// at once.
    pub write_bytes: u64,
    /// Time from one write of the application to the next.
    pub write_gap: Duration,
    /// Whether CUBIC leaves slow start before a loss (HyStart).
    pub hystart: bool,
    /// Whether data packets are ECN-capable. With DCTCP they always are.
    pub ecn: bool,
    /// Whether a SYN and its reply precede the data, which costs one round trip.
    pub handshake: bool,
    /// Upper bound of the random time after which an idle host begins to send; zero disables this
    /// jitter. Without jitter, the hosts of a simulator are in step with the queues that they fill,
    /// and some flows meet a full queue every time (Floyd and Jacobson, "On traffic phase effects",
    /// 1992). A jitter of one packet's time on the bottleneck is enough.
    pub jitter_max: Duration,
    /// Seed of the jitter. Every host has an independent stream of random numbers.
    pub seed: u64,
    /// Whether a new flow reuses an idle connection to its destination, as an application with
    /// long-lived connections does. The connection keeps its window, threshold, round-trip time and
    /// port. If it was idle for longer than the RTO, the window restarts (RFC 5681 section 4.1).
    pub reuse_connections: bool,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            mtu_bytes: 9000,
            header_bytes: 52,
            frame_bytes: 14,
            window_initial_segments: 10,
            window_bytes_max: 4 << 20,
            burst_segments_max: 7,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            rtt_assumed: Duration::from_micros(100),
            rto_initial: Duration::from_secs(1),
            rto_rule: RtoRule::default(),
            retries_max: 15,
            timer_floor: Duration::from_millis(2),
            timer_tick: Duration::from_millis(4),
            tail_probe: true,
            ack_delay: Duration::from_millis(40),
            ack_quick: 16,
            interactive: false,
            nagle: Nagle::default(),
            write_bytes: 0,
            write_gap: Duration::ZERO,
            hystart: true,
            ecn: false,
            handshake: false,
            jitter_max: Duration::from_micros(1),
            seed: 1,
            reuse_connections: false,
        }
    }
}

impl TcpConfig {
    /// Returns the configuration of DCTCP. The marking threshold is a setting of the switches.
    #[must_use]
    pub fn dctcp() -> Self {
        Self { congestion: Congestion::Dctcp, ecn: true, ..Self::default() }
    }

    /// Returns the largest payload of a segment, in bytes.
    pub const fn mss_bytes(&self) -> u32 {
        self.mtu_bytes - self.header_bytes
    }

    /// Returns the number of bytes that a segment with this payload occupies on a link.
    pub const fn wire_bytes(&self, payload_bytes: u32) -> u32 {
        payload_bytes + self.header_bytes + self.frame_bytes
    }

    /// Whether data packets are sent as ECN-capable.
    pub fn ecn_capable(&self) -> bool {
        self.ecn || self.congestion == Congestion::Dctcp
    }

    /// Panics if a value of the configuration is out of range.
    pub fn check(&self) {
        assert!(self.mtu_bytes > self.header_bytes, "an MTU holds more than headers");
        assert!(
            self.mtu_bytes + self.frame_bytes <= 65_535,
            "an IP packet and its frame are at most 65,535 bytes"
        );
        assert!(self.window_initial_segments > 0, "a window holds a segment");
        assert!(self.burst_segments_max > 0, "a burst holds a segment");
        assert!(
            self.window_bytes_max >= u64::from(self.mss_bytes())
                && self.window_bytes_max <= 1 << 30,
            "the window is between a segment and 1 GiB"
        );
        assert!(
            self.write_bytes == 0 || self.write_gap > Duration::ZERO,
            "writes are apart from each other"
        );
        assert!(self.rto_min > Duration::ZERO, "the retransmission timeout is not zero");
        assert!(self.rto_min <= self.rto_max && self.rto_initial <= self.rto_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_sound_and_jumbo_segments_are_8948_bytes() {
        let config = TcpConfig::default();
        config.check();
        assert_eq!(config.mss_bytes(), 8948);
        assert_eq!(config.wire_bytes(8948), 9014);
        assert!(!config.ecn_capable());
        assert!(TcpConfig::dctcp().ecn_capable());
    }
}
