//! Unreliable datagrams: each is sent once, on the path that its sender names, and does not wait
//! for window, credit or pacer. They are never acknowledged and never retransmitted. They belong to
//! the context's session, so they are sealed like all other packets. Their numbers are those of the
//! control space, whose replay window prevents that a recorded one is delivered again.
//!
//! Bound: `unreliable_queue_datagrams_max` datagrams wait per peer.

use bytes::Bytes;

use super::Peer;
use crate::config::Config;
use crate::crypto::Space;
use crate::error::{DropReason, SendError};
use crate::event::Datagram;
use crate::ids::{Entropy, PathId};
use crate::shared::Shared;
use crate::time::Instant;
use crate::transmit::TransmitBuf;
use crate::wire::greeting::GREETING_BYTES;
use crate::wire::unreliable::{UNRELIABLE_BYTES, Unreliable};
use crate::wire::{HEADER_BYTES, Kind, TAG_BYTES};

/// Number of the newest unreliable packets that a Reset may name.
const RESETTABLE: u64 = 1024;

/// Bytes of an unreliable datagram's packet in addition to the payload.
pub(crate) fn unreliable_overhead(config: &Config) -> usize {
    let tag = if config.protection.is_on() { TAG_BYTES } else { 0 };
    HEADER_BYTES + UNRELIABLE_BYTES + tag
}

impl Peer {
    /// Queues an unreliable datagram that is to leave on the path with this entropy.
    pub(crate) fn push_unreliable(
        &mut self,
        now: Instant,
        entropy: Entropy,
        datagram: Datagram,
        config: &Config,
    ) -> Result<(), SendError> {
        let tx = self.tx(config, now);
        // D15: Unreliable datagrams
        if tx.unreliable.len() >= config.unreliable_queue_datagrams_max as usize {
            return Err(SendError::QueueFull);
        }
        tx.unreliable.push_back((Entropy(entropy.0 % config.paths), datagram));
        Ok(())
    }

    /// Writes a batch of waiting unreliable datagrams that use one path, as many as fit.
    pub(crate) fn write_unreliable(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
    ) -> Option<Entropy> {
        let mut first: Option<PathId> = None;
        loop {
            let tx = self.tx.as_deref_mut()?;
            let Some((wanted, next)) = tx.unreliable.front() else { break };
            let path = tx.paths.pick_near(*wanted);
            let greeting = if self.greeted { 0 } else { GREETING_BYTES };
            let size = next.payload.len() + unreliable_overhead(&shared.node.config) + greeting;
            let joins = first.is_none_or(|first| {
                first == path && buf.has_room(size) && size <= buf.last_segment_bytes()
            });
            let short = first.is_some() && buf.last_segment_bytes() < buf.first_segment_bytes();
            if !joins || short {
                break;
            }
            let (_, datagram) = tx.unreliable.pop_front()?;
            if self.write_one_unreliable(now, shared, buf, &datagram).is_none() {
                break; // the key is used up; packets sealed before leave nevertheless
            }
            first = Some(path);
        }
        let path = first?;
        let tx = self.tx.as_deref_mut()?;
        let pause = tx.tail_wait().max(tx.rtt.smoothed());
        tx.paths.watch(now, path, pause);
        Some(tx.paths.entropy(path))
    }

    fn write_one_unreliable(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
        datagram: &Datagram,
    ) -> Option<()> {
        self.first_sent_at = self.first_sent_at.min(now);
        let number = self.next_control_number();
        let start = buf.head_start();
        let header = self.header(now, Kind::Unreliable, number, 0);
        self.begin(shared, buf, header);
        Unreliable { dst_qpn: datagram.dst_qpn.0, src_qpn: datagram.src_qpn.0, imm: datagram.imm }
            .encode(&mut buf.bytes);
        buf.bytes.extend_from_slice(&datagram.payload);
        shared.stats.unreliable_tx_pkts += 1;
        let tag_bytes = if shared.node.config.protection.is_on() { TAG_BYTES } else { 0 };
        let bytes = buf.bytes.len() - start + tag_bytes;
        let tx = self.tx.as_mut()?;
        tx.unreliable_sent = number + 1;
        tx.mtu.on_unreliable(now, u16::try_from(bytes).unwrap_or(u16::MAX));
        self.finish(buf, start, Space::Control, number, Bytes::new())
    }

    /// Whether one of the newest [`RESETTABLE`] unreliable packets has a number with these low 32
    /// bits.
    pub(crate) fn sent_unreliable(&self, number: u32) -> bool {
        let hibernated = self.hibernated.as_ref().map_or(0, |kept| kept.unreliable_sent());
        let sent = self.tx.as_ref().map_or(hibernated, |tx| tx.unreliable_sent);
        let number = crate::wire::expand(number, sent);
        number < sent && sent - number <= RESETTABLE
    }
}

/// Reads an unreliable datagram's fields and payload. `rest` is the payload if the packet arrived
/// in two parts.
pub(crate) fn read_unreliable<'a>(
    body: &'a [u8],
    rest: &'a [u8],
) -> Result<(Unreliable, &'a [u8]), DropReason> {
    let (fields, payload) = Unreliable::decode(body)?;
    Ok((fields, if payload.is_empty() { rest } else { payload }))
}
