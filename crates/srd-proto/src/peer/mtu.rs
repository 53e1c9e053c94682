//! Path MTU: one padded probe of full size as a context begins. If the fabric swallows it,
//! three times over while smaller packets get through, a binary search finds the size that
//! works; it is reported, and datagrams that are too large for it fail instead of vanishing.

use super::{OutProbe, Peer, ProbeKind, Shared};
use crate::event::{Event, Status};
use crate::time::{Duration, Instant};

/// Unanswered probes of a size that condemn it.
const TRIES: u8 = 3;
/// What every path is taken to pass: the least IPv6 MTU less its headers.
const WORKS_MIN: u16 = 1232;
/// The search ends when it is this close.
const RESOLUTION: u16 = 16;

/// What is known of the size that the fabric passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mtu {
    /// UDP payload bytes known to pass.
    low: u16,
    /// The size under test.
    size: u16,
    /// UDP payload bytes known not to pass, or one more than is configured.
    high: u16,
    tries: u8,
    /// When to send the next probe; never, once the answer is known.
    pub probe_at: Instant,
}

impl Mtu {
    pub(crate) fn new(configured: u16, enabled: bool, now: Instant) -> Self {
        let low = WORKS_MIN.min(configured);
        let known = !enabled || low == configured;
        let probe_at = if known { Instant::FAR_FUTURE } else { now };
        let low = if known { configured } else { low };
        Self { low, size: configured, high: configured.saturating_add(1), tries: 0, probe_at }
    }

    /// The size to test now.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    fn wait(rtt: Duration) -> Duration {
        rtt.times(4).max(Duration::from_millis(2))
    }
}

impl Peer {
    /// A probe of the size under test leaves: when it will have been lost.
    pub(crate) fn on_mtu_probe_sent(&mut self, now: Instant) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        tx.mtu.probe_at = now + Mtu::wait(tx.rtt.smoothed());
    }

    /// Before a probe leaves: was the one before lost, while other packets got through?
    pub(crate) fn judge_mtu(&mut self, shared: &mut Shared<'_>) {
        let heard_at = self.heard_at;
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let size = tx.mtu.size;
        let mut sent_before = false;
        tx.probes.retain(|p: &OutProbe| {
            let same = p.kind == ProbeKind::Mtu(size);
            sent_before |= same && heard_at > p.sent_at;
            !same
        });
        if !sent_before {
            return;
        }
        tx.mtu.tries += 1;
        if tx.mtu.tries >= TRIES {
            tx.mtu.high = size;
            self.narrow_mtu(shared);
        }
    }

    /// A probe of `size` was answered.
    pub(crate) fn on_mtu_answer(&mut self, now: Instant, size: u16, shared: &mut Shared<'_>) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        if tx.mtu.probe_at == Instant::FAR_FUTURE {
            return;
        }
        tx.mtu.low = tx.mtu.low.max(size);
        tx.mtu.probe_at = now;
        self.narrow_mtu(shared);
    }

    /// A datagram of so many bytes was acknowledged: packets of its size pass, whatever became of
    /// probes.
    pub(crate) fn on_passed(&mut self, now: Instant, bytes: u16, shared: &mut Shared<'_>) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        if tx.mtu.probe_at == Instant::FAR_FUTURE {
            return;
        }
        let around = super::packet_overhead(shared.config) - super::DATAGRAM_HEADER_BYTES;
        let passed = bytes.saturating_add(u16::try_from(around).unwrap_or(0));
        if passed >= tx.mtu.size {
            self.on_mtu_answer(now, passed, shared);
        } else {
            tx.mtu.low = tx.mtu.low.max(passed);
        }
    }

    /// The next size to test, or the end of the search.
    fn narrow_mtu(&mut self, shared: &mut Shared<'_>) {
        let configured = shared.config.packet_bytes_max;
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let mtu = &mut tx.mtu;
        mtu.tries = 0;
        if mtu.low < configured && mtu.high - mtu.low > RESOLUTION {
            mtu.size = mtu.low + (mtu.high - mtu.low) / 2;
            return;
        }
        mtu.probe_at = Instant::FAR_FUTURE;
        if mtu.low < configured {
            let works_bytes = mtu.low;
            let peer = self.id;
            let event = Event::PathMtu { peer, works_bytes, configured_bytes: configured };
            shared.events.push_back(event);
            self.fail_oversize(works_bytes, shared);
        }
    }

    /// Fails what is known never to get through.
    fn fail_oversize(&mut self, works_bytes: u16, shared: &mut Shared<'_>) {
        let overhead = super::packet_overhead(shared.config);
        let limit = usize::from(works_bytes) - overhead;
        let Some(tx) = self.tx.as_deref_mut() else { return };
        for slot in tx.queue.slots(None) {
            let held = tx.queue.held(slot);
            let bytes = held.payload.len();
            if bytes <= limit {
                continue;
            }
            if let Some((id, user)) = tx.queue.finish(slot) {
                // It never arrived: for the receiver it was never queued.
                tx.queued_bytes -= (bytes + super::DATAGRAM_HEADER_BYTES) as u64;
                let status = Status::LocalBadLength;
                shared.events.push_back(Event::Completed { peer: self.id, id, user, status });
            }
        }
    }

    /// The most payload that one datagram to this peer carries.
    pub(crate) fn payload_bytes_max(&self, config: &crate::config::Config) -> usize {
        let size = match &self.tx {
            Some(tx) if tx.mtu.probe_at == Instant::FAR_FUTURE => tx.mtu.low,
            _ => config.packet_bytes_max,
        };
        usize::from(size) - super::packet_overhead(config)
    }
}
