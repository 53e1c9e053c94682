//! Parameters of the TCP model in a scenario.

use serde::{Deserialize, Serialize};
use srd_proto::Duration;

use super::{ScenarioError, Transport, set, set_us};
use crate::engine::topology::Topology;
use crate::engine::world::ACK_BYTES;
use crate::machines::tcp::{Congestion, Nagle, RtoRule, TcpConfig};

/// Largest initial window in segments. The model's arithmetic, like Linux's, has 32 bits.
const WINDOW_SEGMENTS_MAX: u32 = 1_000_000;

/// Parameters of [`TcpConfig`] that a scenario may set.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the names and meanings are those of the model's configuration
pub struct TcpKnobs {
    /// Congestion control of the transports `tcp` and `express`: `cubic` or `reno`.
    pub congestion: Option<CongestionSpec>,
    pub header_bytes: Option<u32>,
    pub frame_bytes: Option<u32>,
    pub window_initial_segments: Option<u32>,
    pub window_bytes_max: Option<u64>,
    pub rto_min_us: Option<f64>,
    pub rto_max_us: Option<f64>,
    pub rto_initial_us: Option<f64>,
    /// Rule of the retransmission timeout: `linux` or `rfc6298`.
    pub rto_rule: Option<RtoRuleSpec>,
    pub rtt_assumed_us: Option<f64>,
    pub timer_floor_us: Option<f64>,
    pub timer_tick_us: Option<f64>,
    pub tail_probe: Option<bool>,
    pub ack_delay_us: Option<f64>,
    pub ack_quick: Option<u32>,
    pub interactive: Option<bool>,
    /// Form of Nagle's rule: `off`, `linux` or `rfc896`.
    pub nagle: Option<NagleSpec>,
    pub write_bytes: Option<u64>,
    pub write_gap_us: Option<f64>,
    pub hystart: Option<bool>,
    pub ecn: Option<bool>,
    pub handshake: Option<bool>,
    pub reuse_connections: Option<bool>,
}

/// Congestion control of the transports `tcp` and `express`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CongestionSpec {
    /// The window rules of CUBIC.
    Cubic,
    /// The window rules of NewReno.
    Reno,
}

/// Rule by which the retransmission timeout is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RtoRuleSpec {
    /// The rule of Linux.
    Linux,
    /// Rule of RFC 6298.
    Rfc6298,
}

/// Condition in which a segment below the full size waits (Nagle's rule).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NagleSpec {
    /// A small segment never waits.
    Off,
    /// A small segment waits while an earlier small segment is unacknowledged.
    Linux,
    /// A small segment waits while any data is unacknowledged.
    Rfc896,
}

impl TcpKnobs {
    /// Returns the configuration of every host. By default a full segment takes `packet_bytes` on
    /// the wire, of which 64 are headers.
    ///
    /// # Errors
    /// If a packet has no space for a payload, or a parameter is out of range.
    pub(super) fn node(
        &self,
        transport: Transport,
        topology: &Topology,
        packet_bytes: u16,
        seed: u64,
    ) -> Result<TcpConfig, ScenarioError> {
        let base = match transport {
            Transport::Dctcp => TcpConfig::dctcp(),
            _ => TcpConfig::default(),
        };
        let rtt_ps = topology.diameter_rtt_ps(packet_bytes.into(), ACK_BYTES.into());
        let rtt_assumed = Duration::from_nanos(rtt_ps / 1000);
        let mut config = TcpConfig { frame_bytes: 12, seed, rtt_assumed, ..base };
        set(&mut config.header_bytes, self.header_bytes);
        set(&mut config.frame_bytes, self.frame_bytes);
        config.mtu_bytes = u32::from(packet_bytes).saturating_sub(config.frame_bytes);
        if config.mtu_bytes <= config.header_bytes {
            return Err(ScenarioError(format!(
                "`tcp`: packets of {packet_bytes} bytes have no room beside {} of headers",
                config.header_bytes.saturating_add(config.frame_bytes)
            )));
        }
        if matches!(transport, Transport::Tcp | Transport::Express) {
            match self.congestion {
                Some(CongestionSpec::Reno) => config.congestion = Congestion::Reno,
                Some(CongestionSpec::Cubic) => config.congestion = Congestion::Cubic,
                None => {}
            }
        }
        match self.rto_rule {
            Some(RtoRuleSpec::Linux) => config.rto_rule = RtoRule::Linux,
            Some(RtoRuleSpec::Rfc6298) => config.rto_rule = RtoRule::Rfc6298,
            None => {}
        }
        set(&mut config.window_initial_segments, self.window_initial_segments);
        set(&mut config.window_bytes_max, self.window_bytes_max);
        set_us(&mut config.rto_min, self.rto_min_us);
        set_us(&mut config.rto_max, self.rto_max_us);
        set_us(&mut config.rto_initial, self.rto_initial_us);
        set_us(&mut config.rtt_assumed, self.rtt_assumed_us);
        set_us(&mut config.timer_floor, self.timer_floor_us);
        set_us(&mut config.timer_tick, self.timer_tick_us);
        set(&mut config.tail_probe, self.tail_probe);
        set_us(&mut config.ack_delay, self.ack_delay_us);
        set(&mut config.ack_quick, self.ack_quick);
        set(&mut config.interactive, self.interactive);
        match self.nagle {
            Some(NagleSpec::Off) => config.nagle = Nagle::Off,
            Some(NagleSpec::Linux) => config.nagle = Nagle::Linux,
            Some(NagleSpec::Rfc896) => config.nagle = Nagle::Rfc896,
            None => {}
        }
        set(&mut config.write_bytes, self.write_bytes);
        set_us(&mut config.write_gap, self.write_gap_us);
        if config.write_bytes > 0 && config.write_gap == Duration::ZERO {
            return Err(ScenarioError(
                "`tcp`: `write_bytes` needs a `write_gap_us` above zero".to_owned(),
            ));
        }
        set(&mut config.hystart, self.hystart);
        set(&mut config.ecn, self.ecn);
        set(&mut config.handshake, self.handshake);
        set(&mut config.reuse_connections, self.reuse_connections);
        if config.rto_min == Duration::ZERO
            || config.rto_min > config.rto_max
            || config.rto_initial > config.rto_max
            || !(1..=WINDOW_SEGMENTS_MAX).contains(&config.window_initial_segments)
            || !(u64::from(config.mss_bytes())..=1 << 30).contains(&config.window_bytes_max)
        {
            return Err(ScenarioError(
                "`tcp`: timeouts need 0 < rto_min <= rto_max and rto_initial <= rto_max, the \
                 window a segment to 1 GiB, and the initial window 1 to 1000000 segments"
                    .to_owned(),
            ));
        }
        Ok(config)
    }
}
