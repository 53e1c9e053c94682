//! Parameters of RoCE in a scenario, and of the lossless switches in its network.

use serde::{Deserialize, Serialize};

use super::{ScenarioError, Transport, set, set_us};
use crate::engine::topology::Topology;
use crate::engine::world::{LosslessRules, PortRules, QueueSize};
use crate::machines::roce::config::PAPER_BPS;
use crate::machines::roce::{DcqcnConfig, RoceConfig};

/// Queue lengths in bytes at which marks begin and at which they are certain, for links of 40 Gb/s
/// (Zhu et al., SIGCOMM 2015).
const MARK_BYTES: [u64; 2] = [5_000, 200_000];
/// Share of packets that is marked just below the second value of [`MARK_BYTES`].
const MARK_SHARE: f64 = 0.01;

/// Parameters of [`RoceConfig`], [`DcqcnConfig`] and [`LosslessRules`] that a scenario may set.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoceKnobs {
    /// Whether switches pause their senders (PFC); true if absent. If false, switches drop packets.
    pub pfc: Option<bool>,
    /// Number of bytes of one link in a switch above which the link's sender is paused (XOFF).
    pub xoff_bytes: Option<u64>,
    /// Number of bytes of one link in a switch at or below which the pause ends (XON).
    pub xon_bytes: Option<u64>,
    /// Number of bytes above XOFF that a switch accepts before it drops packets.
    pub headroom_bytes: Option<u64>,
    /// Queue lengths in bytes for marking: marks begin at the first (Kmin) and are certain at the
    /// second (Kmax).
    pub mark_bytes: Option<[u64; 2]>,
    /// Share of packets that is marked (Pmax) when the queue is just shorter than Kmax.
    pub mark_share: Option<f64>,
    /// Shortest time between two congestion notifications for one flow, in microseconds.
    pub cnp_gap_us: Option<f64>,
    /// Weight of a congestion notification in DCQCN's estimate of congestion (g).
    pub gain: Option<f64>,
    /// Time in microseconds without a congestion notification after which DCQCN's estimate of
    /// congestion decays.
    pub alpha_timer_us: Option<f64>,
    /// Time between two increases of a rate by DCQCN's timer, in microseconds.
    pub rate_timer_us: Option<f64>,
    /// Number of bytes between two increases of a rate by DCQCN's byte counter.
    pub rate_bytes: Option<u64>,
    /// Number of steps of fast recovery in DCQCN (F).
    pub fast_steps: Option<u32>,
    /// Step of DCQCN's additive increase, in Mb/s; if absent, the model's step.
    pub additive_mbps: Option<f64>,
    /// Step of DCQCN's hyper increase, in Mb/s.
    pub hyper_mbps: Option<f64>,
    /// Lower bound of a flow's rate, in Mb/s.
    pub rate_min_mbps: Option<f64>,
    /// Largest number of packets that one acknowledgement covers.
    pub ack_packets: Option<u32>,
    /// Time in microseconds without an acknowledgement after which a sender retransmits.
    pub timeout_us: Option<f64>,
    /// Number of timeouts in a row after which a connection fails.
    pub retries_max: Option<u32>,
}

fn set_mbps(place: &mut u64, mbps: Option<f64>) {
    if let Some(mbps) = mbps {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
        let bps = (mbps * 1e6).round() as u64;
        *place = bps;
    }
}

/// Returns a number of bytes that is given for links of 40 Gb/s, scaled to another speed.
fn scaled(bytes: u64, line_bps: u64) -> u64 {
    let bytes = u128::from(bytes) * u128::from(line_bps) / u128::from(PAPER_BPS);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl RoceKnobs {
    /// Returns the rules of lossless switches; `None` if the transport needs no such switches.
    /// Writes the marking of DCQCN into `rules`.
    ///
    /// # Errors
    /// If a parameter is out of range.
    pub(super) fn lossless(
        &self,
        transport: Transport,
        topology: &Topology,
        rules: &mut PortRules,
    ) -> Result<Option<LosslessRules>, ScenarioError> {
        let fail = |what: &str| Err(ScenarioError(format!("`roce`: {what}")));
        if !matches!(transport, Transport::Roce | Transport::RocePfc) {
            return Ok(None);
        }
        rules.mark = None;
        if transport == Transport::Roce {
            let line_bps = topology.host_rate_bps(0);
            let default = MARK_BYTES.map(|bytes| scaled(bytes, line_bps));
            let [low, high] = self.mark_bytes.unwrap_or(default);
            rules.mark_share = self.mark_share.unwrap_or(MARK_SHARE);
            if low > high || !(0.0..=1.0).contains(&rules.mark_share) {
                return fail("marks need a lower and then a higher bound, and a share of 0 to 1");
            }
            rules.mark = Some((QueueSize::Bytes(low), QueueSize::Bytes(high)));
        }
        if self.pfc == Some(false) {
            return Ok(None);
        }
        if rules.trim {
            return fail("switches that trim do not pause: set `roce.pfc = false` or no `trim`");
        }
        let Self { xoff_bytes, xon_bytes, headroom_bytes, .. } = *self;
        Ok(Some(LosslessRules { xoff_bytes, xon_bytes, headroom_bytes }))
    }

    /// Returns the configuration of every host.
    ///
    /// # Errors
    /// If a parameter is out of range.
    pub(super) fn node(
        &self,
        transport: Transport,
        topology: &Topology,
        packet_bytes: u16,
    ) -> Result<RoceConfig, ScenarioError> {
        let line_bps = topology.host_rate_bps(0);
        let mut config = RoceConfig::of_link(line_bps, packet_bytes.into());
        set_us(&mut config.cnp_gap, self.cnp_gap_us);
        set(&mut config.ack_packets, self.ack_packets);
        set_us(&mut config.timeout, self.timeout_us);
        set(&mut config.retries_max, self.retries_max);
        let mut dcqcn = DcqcnConfig::of_link(line_bps);
        set(&mut dcqcn.gain, self.gain);
        set_us(&mut dcqcn.alpha_timer, self.alpha_timer_us);
        set_us(&mut dcqcn.rate_timer, self.rate_timer_us);
        set(&mut dcqcn.rate_bytes, self.rate_bytes);
        set(&mut dcqcn.fast_steps, self.fast_steps);
        set_mbps(&mut dcqcn.additive_bps, self.additive_mbps);
        set_mbps(&mut dcqcn.hyper_bps, self.hyper_mbps);
        set_mbps(&mut dcqcn.rate_min_bps, self.rate_min_mbps);
        config.dcqcn = (transport == Transport::Roce).then_some(dcqcn);
        config.check().map_err(|e| ScenarioError(format!("`roce`: {e}")))?;
        Ok(config)
    }
}
