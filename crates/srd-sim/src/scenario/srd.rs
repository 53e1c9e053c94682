//! Parameters of SRD in a scenario. Absent parameters have the defaults of the SRD core, adapted to
//! the network: the link's speed, the base round trip and the packet size.

use serde::{Deserialize, Serialize};
use srd_proto::{Config, Duration, Protection, Spray};

use super::{ScenarioError, Transport, set, set_us};
use crate::engine::topology::Topology;
use crate::engine::world::ACK_BYTES;
use crate::machines::rank::IDLE_HIBERNATE;
use crate::machines::srd_node::SrdNodeConfig;

/// Parameters of [`srd_proto::Config`], and of the application that uses the endpoint.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the names and meanings are those of the core's configuration
pub struct SrdKnobs {
    pub paths: Option<u16>,
    pub spray_burst_packets: Option<u8>,
    pub delay_target_percent: Option<u32>,
    pub delay_target_min_us: Option<f64>,
    pub window_initial_bytes: Option<u64>,
    pub window_max_percent: Option<u32>,
    pub rate_rules: Option<bool>,
    pub receiver_share: Option<bool>,
    pub credit_percent: Option<u32>,
    pub unsolicited_percent: Option<u32>,
    pub ack_packets: Option<u16>,
    pub ack_bytes: Option<u32>,
    pub ack_delay_us: Option<f64>,
    pub ack_tuples_max: Option<u8>,
    pub rto_min_us: Option<f64>,
    pub rto_max_us: Option<f64>,
    pub peer_timeout_us: Option<f64>,
    pub idle_hibernate_us: Option<f64>,
    pub rtt_initial_us: Option<f64>,
    pub link_gbps: Option<f64>,
    pub wire_overhead_bytes: Option<u16>,
    pub window_packets_max: Option<u16>,
    pub send_queue_datagrams_max: Option<u32>,
    pub ecn: Option<bool>,
    /// Whether packets are encrypted, with a key that all hosts share.
    pub encrypt: Option<bool>,
    /// Whether receivers compare the arrived bytes with the sent bytes.
    #[serde(default)]
    pub check_payload: bool,
    /// Whether the application sends failed datagrams again.
    #[serde(default)]
    pub resend_failed: bool,
    /// Number of receive buffers of each host; absent means unlimited buffers.
    pub receive_buffers: Option<u32>,
}

impl SrdKnobs {
    /// Returns the configuration of every host in a network.
    ///
    /// # Errors
    /// If a parameter is out of range.
    pub(super) fn node(
        &self,
        transport: Transport,
        topology: &Topology,
        packet_bytes: u16,
        seed: u64,
    ) -> Result<SrdNodeConfig, ScenarioError> {
        let mut config = Config::default();
        set(&mut config.wire_overhead_bytes, self.wire_overhead_bytes);
        let full = u32::from(packet_bytes);
        config.packet_bytes_max = packet_bytes.saturating_sub(config.wire_overhead_bytes);
        config.link_rate_bps = topology.host_rate_bps(0);
        let rtt_ps = topology.diameter_rtt_ps(full, ACK_BYTES.into());
        config.rtt_initial = Duration::from_nanos(rtt_ps / 1000);
        config.spray = match transport {
            Transport::SrdSingle => Spray::Single,
            Transport::SrdBlind => Spray::Oblivious,
            _ => Spray::Adaptive,
        };
        if transport == Transport::Efa {
            config.idle_hibernate = IDLE_HIBERNATE;
        }
        // Every host may be a peer of every other one.
        config.peers_max = config.peers_max.max(topology.hosts);
        // The queue has space for a few datagrams of each of a hundred flows to one peer.
        config.send_queue_datagrams_max = 8192;
        self.apply(&mut config);
        config.check().map_err(|e| ScenarioError(format!("`srd`: {e}")))?;
        Ok(SrdNodeConfig {
            endpoint: config,
            seed,
            check_payload: self.check_payload,
            resend_failed: self.resend_failed,
            receive_buffers: self.receive_buffers,
        })
    }

    fn apply(&self, config: &mut Config) {
        set(&mut config.paths, self.paths);
        set(&mut config.spray_burst_packets, self.spray_burst_packets);
        set(&mut config.delay_target_percent, self.delay_target_percent);
        set_us(&mut config.delay_target_min, self.delay_target_min_us);
        set(&mut config.window_initial_bytes, self.window_initial_bytes);
        set(&mut config.window_max_percent, self.window_max_percent);
        set(&mut config.rate_rules, self.rate_rules);
        set(&mut config.receiver_share, self.receiver_share);
        set(&mut config.credit_percent, self.credit_percent);
        set(&mut config.unsolicited_percent, self.unsolicited_percent);
        set(&mut config.ack_packets, self.ack_packets);
        set(&mut config.ack_bytes, self.ack_bytes);
        set_us(&mut config.ack_delay, self.ack_delay_us);
        set(&mut config.ack_tuples_max, self.ack_tuples_max);
        set_us(&mut config.rto_min, self.rto_min_us);
        set_us(&mut config.rto_max, self.rto_max_us);
        set_us(&mut config.peer_timeout, self.peer_timeout_us);
        set_us(&mut config.idle_hibernate, self.idle_hibernate_us);
        set_us(&mut config.rtt_initial, self.rtt_initial_us);
        set(&mut config.window_packets_max, self.window_packets_max);
        set(&mut config.send_queue_datagrams_max, self.send_queue_datagrams_max);
        set(&mut config.ecn, self.ecn);
        if let Some(gbps) = self.link_gbps {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
            let rate_bps = (gbps * 1e9).round() as u64;
            config.link_rate_bps = rate_bps;
        }
        if self.encrypt == Some(true) {
            config.protection = Protection::JobKey([7; 32]);
        }
    }
}
