//! Our own link. Data leaves no faster than it carries, so that what has to wait waits in the
//! endpoint, where acknowledgements pass it and peers take turns, and not in a queue of the
//! host's, where both would stand behind it.

use alloc::collections::VecDeque;

use crate::config::Config;
use crate::ids::PeerId;
use crate::pacer::Pacer;
use crate::time::Instant;
use crate::transmit::Transmit;

/// What Ethernet adds to an IP packet on the wire: preamble, header, check sequence and gap.
const ETHERNET_BYTES: u64 = 38;
/// Packets of full size that may leave at once, beside what leaves while the host's timers are
/// late.
const BURST_PACKETS: u64 = 2;

/// When the link takes more, and who waits for it.
#[derive(Debug)]
pub(crate) struct Egress {
    /// `None`: the link's rate is not known, or the host's queue is somebody else's care.
    pacer: Option<Pacer>,
    overhead_bytes: u64,
    /// Peers with data that only the link holds up, each once. Bound: the peers.
    pub(crate) waiting: VecDeque<PeerId>,
}

impl Egress {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let rate_bps = config.link_rate_bps;
        let pacer = (config.egress_pacing && rate_bps > 0).then(|| {
            let late_ns = u128::from(config.delay_target_min.as_nanos());
            let late_bytes = u128::from(rate_bps) * late_ns / 8_000_000_000;
            let late_bytes = u64::try_from(late_bytes).unwrap_or(u64::MAX);
            let burst = BURST_PACKETS * u64::from(config.packet_bytes_max) + late_bytes;
            let mut pacer = Pacer::new(now);
            pacer.set_pace(rate_bps, burst);
            pacer
        });
        let overhead_bytes = u64::from(config.wire_overhead_bytes) + ETHERNET_BYTES;
        Self { pacer, overhead_bytes, waiting: VecDeque::new() }
    }

    /// Whether data may leave now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.next_departure() <= now)
    }

    /// When those that wait may go on.
    pub(crate) fn opens_at(&self) -> Option<Instant> {
        let pacer = self.pacer.as_ref().filter(|_| !self.waiting.is_empty())?;
        Some(pacer.next_departure())
    }

    /// A batch left. Packets that did not have to wait take their part of the link, too.
    pub(crate) fn on_sent(&mut self, now: Instant, batch: &Transmit) {
        if let Some(pacer) = &mut self.pacer {
            let overhead = self.overhead_bytes * batch.segments as u64;
            pacer.on_sent(now, batch.total_bytes as u64 + overhead);
        }
    }
}
