//! **Acknowledges** received packets: in a separate packet, or in a data packet that leaves at this
//! time.

use alloc::vec::Vec;

use bytes::Bytes;

use super::{DATAGRAM_HEADER_BYTES, Peer, Refusal, Rx};
use crate::config::Config;
use crate::crypto::Space;
use crate::ids::Entropy;
use crate::shared::Shared;
use crate::time::Instant;
use crate::transmit::TransmitBuf;
use crate::wire::ack::{self, AckHead, SACK_WORDS_MAX, Verdict};
use crate::wire::{self, Kind};

/// Step, a prime, by which acknowledgements rotate over entropies. With a step of one, a group of
/// neighbouring dead paths would lose many acknowledgements in a row.
const ACK_STRIDE: u16 = 37;
/// Largest payload, in bytes, of a data packet that carries an acknowledgement as well, if other
/// datagrams wait behind it.
const BESIDE_PAYLOAD_MAX: usize = 512;
/// Maximum number of words of the bitmap of an acknowledgement in a data packet.
const BESIDE_SPAN_WORDS: usize = 4;
/// Bytes of the largest acknowledgement in a data packet. Its bitmap may need one word more than
/// [`BESIDE_SPAN_WORDS`], because it begins at a multiple of 64.
pub(super) const BESIDE_BYTES_MAX: usize =
    ack::ACK_BYTES + (BESIDE_SPAN_WORDS + 1) * 8 + ack::TUPLES_MAX * ack::TUPLE_BYTES;

/// Bytes of an acknowledgement that are available for verdicts, SACK words and tuples.
pub(super) fn ack_room(config: &Config) -> usize {
    let around = if config.protection.is_on() {
        crate::wire::TAG_BYTES
    } else {
        crate::wire::greeting::GREETING_BYTES
    };
    let fixed = crate::wire::HEADER_BYTES + around + ack::ACK_BYTES + ack::ECHO_BYTES;
    usize::from(config.packet_bytes_max) - fixed
}

impl Peer {
    /// Whether a data packet with this many bytes of payload also carries an acknowledgement, if
    /// the packet leaves now.
    pub(super) fn carries_ack(&self, payload_bytes: usize, config: &Config) -> bool {
        // A11: Ack within a Data packet
        let around = wire::TAG_BYTES.max(wire::greeting::GREETING_BYTES);
        let bytes = DATAGRAM_HEADER_BYTES + around + BESIDE_BYTES_MAX + payload_bytes;
        let is_last = self.tx.as_ref().is_some_and(|tx| tx.is_last(payload_bytes));
        let is_long = is_last && payload_bytes <= config.interactive_bytes_max.into();
        (payload_bytes <= BESIDE_PAYLOAD_MAX || is_long)
            && bytes <= config.packet_bytes_max.min(self.packet_bytes_max(config)).into()
            && self.rx.as_ref().is_some_and(|rx| rx.fits_beside())
    }

    /// Whether the last datagram that waits, the next of a run, also carries an acknowledgement.
    pub(super) fn ends_with_ack(&self, payload_bytes: usize, config: &Config) -> bool {
        usize::from(config.interactive_bytes_max) > BESIDE_PAYLOAD_MAX
            && self.tx.as_ref().is_some_and(|tx| tx.is_last(payload_bytes))
            && self.carries_ack(payload_bytes, config)
    }

    /// Makes an acknowledgement due that no packet of a complete answer could carry: the peer has
    /// the answer, and waits only for the acknowledgement.
    pub(super) fn acknowledge_after_answer(&mut self, config: &Config) {
        if usize::from(config.interactive_bytes_max) <= BESIDE_PAYLOAD_MAX {
            return;
        }
        if let Some(rx) = self.rx.as_mut() {
            rx.ack_now |= rx.unacked_packets > 0;
        }
    }

    /// Writes an acknowledgement in a separate packet.
    pub(super) fn write_ack(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
    ) -> Option<Entropy> {
        let number = self.next_control_number();
        let start = buf.head_start();
        let header = self.header(now, Kind::Ack, number, 0);
        self.begin(shared, buf, header);
        let rx = self.rx.as_mut()?;
        let answers = !rx.echoes.is_empty();
        rx.write(shared, &mut buf.bytes);
        let paths = self.tx.as_ref().map(|tx| &tx.paths);
        let avoided = |entropy| paths.is_some_and(|paths| paths.avoids(entropy));
        let count = shared.node.config.paths;
        let back = rx.return_path(self.address.port(), count, answers);
        let entropy = back.filter(|entropy| !avoided(*entropy)).unwrap_or_else(|| {
            let entropy = next_entropy(Entropy(rx.ack_entropy), count, avoided);
            rx.ack_entropy = entropy.0;
            entropy
        });
        shared.stats.ack_pkts += 1;
        self.finish(buf, start, Space::Control, number, Bytes::new())?;
        Some(entropy)
    }
}

/// The next entropy in rotation that is not `avoided`; if all are avoided, the next entropy.
fn next_entropy(last: Entropy, count: u16, avoided: impl Fn(Entropy) -> bool) -> Entropy {
    // P11: Return path of Acks
    let next = |e: &Entropy| Some(Entropy((e.0 + ACK_STRIDE) % count));
    let mut rotation = core::iter::successors(next(&last), next).take(count.into());
    rotation.find(|e| !avoided(*e)).or_else(|| next(&last)).unwrap_or(last)
}

impl Rx {
    /// Returns the cumulative point, the number of SACK words, and the verdicts of an
    /// acknowledgement. If the verdict for a refused PSN does not fit, the acknowledgement treats
    /// this PSN as not arrived; a later acknowledgement contains the verdict.
    fn picture(&mut self, config: &Config, words: &mut [u64]) -> (u64, usize, Vec<Verdict>) {
        let count = self.verdicts.len();
        let room = ack_room(config) - self.tuples.len() * ack::TUPLE_BYTES;
        // D9: Verdicts are kept and repeated
        let listed = count.min(room / 2 / ack::VERDICT_BYTES).min(ack::VERDICTS_MAX);
        let words_max = ((room - listed * ack::VERDICT_BYTES) / 8).min(words.len());
        let words = &mut words[..words_max];
        #[allow(clippy::cast_possible_truncation)] // the wire carries the low half
        let wire = |r: Refusal| Verdict { psn: r.psn as u32, status: r.status as u8 };
        let at = |i: usize| (self.verdict_cursor + i) % count.max(1);
        let named = (0..listed).map(|i| wire(self.verdicts[at(i)])).collect();
        let hidden = || (listed..count).map(|i| self.verdicts[at(i)].psn);
        let cumulative = hidden().fold(self.received.cumulative(), u64::min);
        let n = self.received.sack(cumulative, words);
        for psn in hidden() {
            let word = usize::try_from(psn / 64 - cumulative / 64).unwrap_or(usize::MAX);
            if let Some(word) = words[..n].get_mut(word) {
                *word &= !(1 << (psn % 64));
            }
        }
        self.verdict_cursor = if listed < count { at(listed) } else { 0 };
        (cumulative, n, named)
    }

    /// Whether an acknowledgement should leave now.
    pub(crate) fn ack_is_due(&self, now: Instant) -> bool {
        self.ack_now || self.ack_due <= now
    }

    /// Whether there is a packet to acknowledge, and its acknowledgement fits into
    /// [`BESIDE_BYTES_MAX`].
    fn fits_beside(&self) -> bool {
        let span = self.received.highest() - self.received.cumulative();
        self.unacked_packets > 0
            && self.verdicts.is_empty()
            && self.echoes.is_empty()
            && span <= BESIDE_SPAN_WORDS as u64 * 64
    }

    /// Appends a complete acknowledgement. Afterwards another acknowledgement is due at once only
    /// if further probes wait for an answer.
    pub(super) fn write(&mut self, shared: &Shared, out: &mut Vec<u8>) {
        // A1: Contents of an Ack
        let mut words = [0; SACK_WORDS_MAX];
        let (cumulative, n, verdicts) = self.picture(&shared.node.config, &mut words);
        #[allow(clippy::cast_possible_truncation)] // modulo 2^32 on the wire
        let head = AckHead {
            cumulative: cumulative as u32,
            received_bytes: self.share.received as u32,
            credit_limit_bytes: self.share.credit_limit as u32,
            credit_limited: shared.share.binds(),
            senders: shared.senders(),
            echo: self.echoes.pop_front(),
        };
        ack::encode(out, &head, &words[..n], &self.tuples, &verdicts);
        self.tuples.clear();
        self.unacked_packets = 0;
        self.unacked_bytes = 0;
        self.ack_now = !self.echoes.is_empty();
        self.ack_due = Instant::FAR_FUTURE;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn rotation(count: u16, avoided: impl Fn(u16) -> bool) -> Vec<u16> {
        let mut last = Entropy(0);
        let mut all: Vec<u16> = (0..count)
            .map(|_| {
                last = next_entropy(last, count, |e| avoided(e.0));
                last.0
            })
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn acknowledgements_take_every_way_in_turns() {
        assert_eq!(rotation(64, |_| false), Vec::from_iter(0..64));
    }

    #[test]
    fn acknowledgements_pass_over_bad_ways_unless_all_are() {
        let used = rotation(64, |e| e % 4 == 1);
        assert!(used.iter().all(|e| e % 4 != 1));
        let ways = used.chunk_by(|a, b| a == b).count();
        assert_eq!(ways, 48, "all the others, some of them twice");
        assert_eq!(rotation(64, |_| true), Vec::from_iter(0..64));
    }
}
