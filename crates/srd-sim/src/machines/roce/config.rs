//! Every parameter of RoCE, with unit, default and source.

use srd_proto::time::Duration;

/// Link speed for which the DCQCN paper gives its values.
pub const PAPER_BPS: u64 = 40_000_000_000;

/// Bytes of an acknowledgement or a notification on the wire: the shortest Ethernet frame.
pub const REPLY_BYTES: u32 = 64;

/// Parameters of DCQCN: those of the paper's testbed (Zhu et al., SIGCOMM 2015). Speeds and bytes
/// of queues are scaled with the link's speed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DcqcnConfig {
    /// Weight of a notification in the estimate of congestion (g): 1/256.
    pub gain: f64,
    /// Time without a notification after which the estimate decays: 55 us.
    pub alpha_timer: Duration,
    /// Time between two steps of the timer that raises the rate: 55 us.
    pub rate_timer: Duration,
    /// Bytes between two steps of the counter that raises the rate: 10 MB.
    pub rate_bytes: u64,
    /// Steps of fast recovery (F): 5.
    pub fast_steps: u32,
    /// Additive increase: 40 Mb/s at 40 Gb/s.
    pub additive_bps: u64,
    /// Hyper increase: ten times the additive increase, as in IEEE 802.1Qau; the paper gives no
    /// value.
    pub hyper_bps: u64,
    /// Lower bound of the rate: a thousandth of the link's speed, as in htsim.
    pub rate_min_bps: u64,
}

impl DcqcnConfig {
    /// The parameters for a link of this speed.
    pub fn of_link(line_bps: u64) -> Self {
        let thousandth = (line_bps / 1000).max(1);
        Self {
            gain: 1.0 / 256.0,
            alpha_timer: Duration::from_micros(55),
            rate_timer: Duration::from_micros(55),
            rate_bytes: 10_000_000,
            fast_steps: 5,
            additive_bps: thousandth,
            hyper_bps: 10 * thousandth,
            rate_min_bps: thousandth,
        }
    }
}

/// Limits and constants of a host.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoceConfig {
    /// Bytes of a full packet on the wire.
    pub packet_bytes: u32,
    /// Bytes of headers in a packet: Ethernet with its FCS 18, IPv4 20, UDP 8, BTH 12, ICRC 4.
    pub header_bytes: u32,
    /// Speed of the host's link, at which connections start.
    pub line_bps: u64,
    /// Rate control; without it only pauses slow a sender.
    pub dcqcn: Option<DcqcnConfig>,
    /// Shortest time between two notifications of a receiver for one connection: 50 us in the
    /// paper.
    pub cnp_gap: Duration,
    /// Largest number of packets that one acknowledgement covers.
    pub ack_packets: u32,
    /// Time without an acknowledgement after which a sender goes back. Verbs programs commonly set
    /// 14, which is 4.096 us times 2^14.
    pub timeout: Duration,
    /// Timeouts in a row after which a connection fails: 7.
    pub retries_max: u32,
    /// Largest number of unacknowledged packets of a connection: half of the 24-bit number space.
    pub window_packets: u64,
}

impl RoceConfig {
    /// The configuration of a host with this link.
    pub fn of_link(line_bps: u64, packet_bytes: u32) -> Self {
        Self {
            packet_bytes,
            header_bytes: 62,
            line_bps,
            dcqcn: Some(DcqcnConfig::of_link(line_bps)),
            cnp_gap: Duration::from_micros(50),
            ack_packets: 8,
            timeout: Duration::from_nanos(4096 << 14),
            retries_max: 7,
            window_packets: 1 << 23,
        }
    }

    /// Payload of a full packet.
    pub fn payload_bytes(&self) -> u32 {
        self.packet_bytes - self.header_bytes
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// Describes the fault, and a remedy.
    pub fn check(&self) -> Result<(), String> {
        let dcqcn = self.dcqcn.unwrap_or_else(|| DcqcnConfig::of_link(self.line_bps));
        let positive = |at: Duration| at > Duration::ZERO;
        if self.packet_bytes <= self.header_bytes {
            return Err(format!("a packet must have more than {} bytes", self.header_bytes));
        }
        if self.ack_packets == 0 || !positive(self.timeout) || self.window_packets == 0 {
            return Err("`ack_packets` and `timeout_us` must be above zero".to_owned());
        }
        if !(0.0..=1.0).contains(&dcqcn.gain) {
            return Err(format!("`gain` must be between 0 and 1, not {}", dcqcn.gain));
        }
        if !positive(dcqcn.alpha_timer) || !positive(dcqcn.rate_timer) || dcqcn.rate_bytes == 0 {
            return Err("the timers and the byte counter of DCQCN must be above zero".to_owned());
        }
        if dcqcn.rate_min_bps == 0 || dcqcn.rate_min_bps > self.line_bps {
            return Err(
                "`rate_min_mbps` must be above zero and at most the link's speed".to_owned()
            );
        }
        Ok(())
    }
}
