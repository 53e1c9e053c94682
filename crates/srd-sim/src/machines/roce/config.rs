//! Parameters of the RoCE model, with unit, default and source.

use srd_proto::time::Duration;

/// Link speed for which the DCQCN paper gives its values, in bits per second.
pub const PAPER_BPS: u64 = 40_000_000_000;

/// Length of an acknowledgement or a notification on the wire, in bytes: the shortest Ethernet
/// frame.
pub const REPLY_BYTES: u32 = 64;

/// Parameters of DCQCN. The defaults are those of the paper's testbed (Zhu et al., SIGCOMM 2015),
/// with rates scaled to the link's speed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DcqcnConfig {
    /// Weight of a notification in the estimate of congestion (g): 1/256.
    pub gain: f64,
    /// Time without a notification after which the estimate of congestion decays: 55 us.
    pub alpha_timer: Duration,
    /// Time between two steps of the timer that raises the rate: 55 us.
    pub rate_timer: Duration,
    /// Bytes between two steps of the counter that raises the rate: 10 MB.
    pub rate_bytes: u64,
    /// Number of steps of fast recovery (F): 5.
    pub fast_steps: u32,
    /// Step of the additive increase of the rate: 40 Mb/s for a link of 40 Gb/s.
    pub additive_bps: u64,
    /// Step of the hyper increase of the rate: ten times the additive increase, as in IEEE
    /// 802.1Qau. The paper gives no value.
    pub hyper_bps: u64,
    /// Lower bound of the rate: a thousandth of the link's speed, as in htsim.
    pub rate_min_bps: u64,
}

impl DcqcnConfig {
    /// Returns the default parameters for a link of this speed.
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

/// Parameters of a host with RoCE.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoceConfig {
    /// Number of bytes of a full packet on the wire.
    pub packet_bytes: u32,
    /// Number of header bytes in a packet: Ethernet with its FCS 18, IPv4 20, UDP 8, BTH 12, ICRC
    /// 4.
    pub header_bytes: u32,
    /// Speed of the host's link in bits per second. Connections start at this rate.
    pub line_bps: u64,
    /// Parameters of rate control; `None` if only pauses slow a sender.
    pub dcqcn: Option<DcqcnConfig>,
    /// Shortest time between two notifications that a receiver sends for one connection: 50 us in
    /// the paper.
    pub cnp_gap: Duration,
    /// Largest number of packets that one acknowledgement covers.
    pub ack_packets: u32,
    /// Time without an acknowledgement after which a sender retransmits everything unacknowledged.
    /// Verbs programs commonly set 14, which is 4.096 us times 2^14.
    pub timeout: Duration,
    /// Number of timeouts in a row after which a connection fails: 7.
    pub retries_max: u32,
    /// Largest number of unacknowledged packets of a connection: half of the 24-bit number space.
    pub window_packets: u64,
}

impl RoceConfig {
    /// Returns the default configuration of a host with this link.
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

    /// Returns the number of payload bytes in a full packet.
    pub fn payload_bytes(&self) -> u32 {
        self.packet_bytes - self.header_bytes
    }

    /// Checks that all values are in range.
    ///
    /// # Errors
    /// A description of the invalid value, and a solution.
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
