//! **A node**: state that the endpoints of one process have in common.
//!
//! A node has one endpoint for each thread that processes packets: a **shard**. Shards share no
//! peers, queues or timers, so no call on one shard waits for another shard. This module contains
//! the state that belongs to the node and not to a thread: the configuration, the epoch, and the
//! two budgets that all shards use, the rate of the link and the receiver's share.
//!
//! A context is between one shard here and one shard of the peer's node. The highest bits of a
//! context number are the number of the shard that assigned it. So a packet identifies the shard
//! that it is for: [`shard_of`]. In a node of one shard the shared state is not used.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::config::Config;
use crate::error::ConfigError;
use crate::ids::Epoch;
use crate::time::{Duration, Instant};
use crate::wire::{HEADER_BYTES, Kind, VERSION, handshake, u32_at};

/// Maximum number of shards of a node.
pub const SHARDS_MAX: u8 = 1 << SHARD_BITS;
/// Number of highest bits of a context number that identify the shard that assigned it.
pub const SHARD_BITS: u32 = 4;
/// Position of the lowest bit of the shard's number in a context number.
const SHARD_SHIFT: u32 = 32 - SHARD_BITS;
/// Mask of the shard's number in a context number.
const SHARD_MASK: u32 = u32::MAX << SHARD_SHIFT;

/// State that the shards of a node have in common.
#[derive(Debug)]
pub struct Node {
    pub(crate) config: Config,
    pub(crate) epoch: Epoch,
    shards: u8,
    /// Time until which the link is leased, in nanoseconds. The shards lease the link in turns, so
    /// that all together send no faster than the link. A shard writes the time once for a lease of
    /// many packets, not for each packet.
    link_sold_ns: AtomicU64,
    /// Sum of the numbers of senders that the shards last reported. A shard writes it when its
    /// number changes.
    senders: AtomicU32,
}

impl Node {
    /// Creates a node with this number of shards. `epoch` must be larger than the epoch of any
    /// earlier run at the same address.
    ///
    /// # Errors
    /// Returns the first parameter that is out of range. The number of shards counts as a
    /// parameter.
    pub fn new(config: Config, epoch: Epoch, shards: u8) -> Result<Self, ConfigError> {
        config.check()?;
        if shards == 0 || shards > SHARDS_MAX {
            let (value, max) = (shards.into(), SHARDS_MAX.into());
            return Err(ConfigError { field: "shards", value, min: 1, max });
        }
        let (link_sold_ns, senders) = (AtomicU64::new(0), AtomicU32::new(0));
        Ok(Self { config, epoch, shards, link_sold_ns, senders })
    }

    /// Returns the number of shards of the node.
    pub fn shards(&self) -> u8 {
        self.shards
    }

    /// Returns the configuration of the node.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the node has several shards, which share the link rate and the receiver's credit.
    pub(crate) fn is_sharded(&self) -> bool {
        self.shards > 1
    }

    /// Leases the link for the duration `time`, beginning now or, if the link is leased, at the end
    /// of the last lease. Returns the end of the new lease.
    pub(crate) fn lease_link(&self, now: Instant, time: Duration) -> Instant {
        let until = |sold: u64| sold.max(now.as_nanos()).saturating_add(time.as_nanos());
        let sell = |sold| Some(until(sold));
        let before = self.link_sold_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sell);
        // The closure always returns a value, so the update always succeeds.
        Instant::from_nanos(until(before.unwrap_or_else(|sold| sold)))
    }

    /// Time until which the link is leased.
    pub(crate) fn link_sold_until(&self) -> Instant {
        Instant::from_nanos(self.link_sold_ns.load(Ordering::Relaxed))
    }
}

/// The number of senders that one shard has reported to its node. When the shard ends, its number
/// is set to zero.
#[derive(Debug)]
pub(crate) struct SenderCount {
    node: Arc<Node>,
    said: u32,
}

impl SenderCount {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, said: 0 }
    }

    /// Reports the number of senders of this shard. Returns the number of senders of the other
    /// shards.
    pub(crate) fn say(&mut self, senders: u32) -> u32 {
        if !self.node.is_sharded() {
            return 0;
        }
        let total = &self.node.senders;
        if senders != self.said {
            // Wrapping: a smaller number is added as a negative one.
            total.fetch_add(senders.wrapping_sub(self.said), Ordering::Relaxed);
            self.said = senders;
        }
        total.load(Ordering::Relaxed).wrapping_sub(self.said)
    }

    /// The number that this shard last reported.
    pub(crate) fn said(&self) -> u32 {
        self.said
    }
}

impl Drop for SenderCount {
    fn drop(&mut self) {
        self.say(0);
    }
}

/// Shard that assigned a context number.
pub(crate) const fn shard_of_context(context: u32) -> u8 {
    (context >> SHARD_SHIFT) as u8
}

/// Numbering of the contexts in one run of a shard. From the highest bits down a number consists of
/// the shard, a generation, and the peer's slot. A plain packet that names a context identifies the
/// run by this number alone. Therefore the first numbers of a run are random in all bits except the
/// shard's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextNumbers {
    shard: u8,
    /// Number of values that the bits of a context number for the slot can have, at least
    /// `peers_max`. Zero is not one of the values, so generations are counted in units of `slots`
    /// plus one.
    slots: u32,
    /// Number that is added to the peer's slot, modulo `slots`, to get the bits of a context number
    /// that identify the slot.
    slot: u32,
    /// Number that is added to the generation of the first context number of each slot.
    generation: u32,
}

impl ContextNumbers {
    /// Creates the numbering of contexts in one run of a shard, for at most `peers_max` peers.
    /// `random` differs in each run.
    #[allow(clippy::cast_possible_truncation)] // both halves are used
    pub(crate) const fn new(shard: u8, peers_max: u32, random: u64) -> Self {
        let slots = u32::MAX >> peers_max.leading_zeros();
        // H2a: Context numbers name a run
        Self { shard, slots, slot: (random >> 32) as u32 % slots, generation: random as u32 }
    }

    /// First context number for the peer in slot `index`. `random` changes the bits of the
    /// generation, so that the number does not reveal how old the run is.
    pub(crate) const fn first(self, random: u32, index: u32) -> u32 {
        let generation = random.wrapping_add(self.generation) & !self.slots & !SHARD_MASK;
        // W6: Zero is no context or port
        (self.shard as u32) << SHARD_SHIFT | generation | ((index + self.slot) % self.slots + 1)
    }

    /// Returns the context number that follows `context`: the same slot in the next generation.
    pub(crate) const fn next(self, context: u32) -> u32 {
        context & SHARD_MASK | context.wrapping_add(self.slots + 1) & !SHARD_MASK
    }

    /// Slot of the peer for which we assigned the number `context`. For zero, which is never
    /// assigned, the result is larger than any slot.
    pub(crate) const fn index(self, context: u32) -> u32 {
        match context & self.slots {
            0 => u32::MAX,
            bits if bits > self.slot => bits - 1 - self.slot,
            bits => bits - 1 + (self.slots - self.slot),
        }
    }
}

/// Whether `context` is newer than `than`, another context number of the same shard. The bits below
/// the shard's are compared by serial arithmetic (RFC 1982).
pub(crate) const fn is_newer_context(context: u32, than: u32) -> bool {
    let ahead = (context << SHARD_BITS).wrapping_sub(than << SHARD_BITS).cast_signed();
    shard_of_context(context) == shard_of_context(than) && ahead > 0
}

/// Returns the offset, from the beginning of a packet, of the context number that selects the
/// receiver's shard. The offset depends on the first byte of the packet, and on whether the packet
/// names the receiver's context. [`shard_of`] uses it; a filter in the kernel or on a network card
/// can do the same with one comparison and one load.
///
/// A packet that names the receiver's context is for the shard that assigned this context number. A
/// Retry repeats the number that the receiver put into its opening, so it is for the shard that
/// sent the opening. Any other packet carries a context number of its sender: shard `i` of the
/// sender contacts shard `i` of the receiver, modulo the receiver's number of shards.
pub const fn steering_offset(first_byte: u8, names_context: bool) -> usize {
    let kind = first_byte & 15;
    if names_context {
        4
    } else if kind == Kind::Hello as u8 || kind == Kind::Retry as u8 {
        HEADER_BYTES + handshake::COOKIE_BYTES
    } else {
        HEADER_BYTES
    }
}

/// Returns the shard, of a node with `shards` shards, that has to process a received packet (H16).
/// Bytes that are no SRD packet go to the first shard, which counts them.
pub fn shard_of(packet: &[u8], shards: u8) -> u8 {
    let number = |at: usize| packet.get(at..at + 4).map_or(0, |_| u32_at(packet, at));
    let first = packet.first().copied().unwrap_or(0);
    let is_ours = first >> 4 == VERSION && packet.len() >= HEADER_BYTES;
    let context = number(steering_offset(first, number(4) != 0));
    if is_ours { shard_of_context(context) % shards.max(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_shard_are_ordered_and_others_are_not() {
        let numbers = ContextNumbers::new(3, 100, 5 << 32);
        let last = numbers.first(u32::MAX, 7);
        let first = numbers.next(last);
        assert_eq!(first, numbers.first(0, 7), "generations go round");
        assert_eq!([shard_of_context(first), shard_of_context(last)], [3, 3]);
        assert_eq!([numbers.index(first), numbers.index(last)], [7, 7]);
        assert!(is_newer_context(first, last));
        assert!(!is_newer_context(last, first));
        assert!(!is_newer_context(first, first));
        let other = ContextNumbers::new(4, 100, 5 << 32).first(1 << 20, 7);
        assert!(!is_newer_context(other, first));
    }

    #[test]
    fn a_number_tells_its_slot_wherever_the_run_begins_and_none_is_zero() {
        for peers_max in [1, 2, 3, 4, 16_384, 1_000_000] {
            for start in [0, 1, peers_max - 1, peers_max, 0xffff, 0xf_ffff, u32::MAX] {
                let numbers = ContextNumbers::new(0, peers_max, u64::from(start) << 32);
                for index in [0, peers_max / 2, peers_max - 1] {
                    let number = numbers.first(0, index);
                    assert_ne!(number, 0);
                    assert_eq!(numbers.index(number), index);
                    assert_eq!(numbers.index(numbers.next(number)), index);
                }
                assert_eq!(numbers.index(0), u32::MAX);
            }
        }
    }

    #[test]
    fn a_node_has_one_to_sixteen_shards() {
        let node = |shards| Node::new(Config::sockets(), Epoch(1), shards);
        assert!(node(0).is_err());
        assert!(node(SHARDS_MAX).is_ok());
        assert!(node(SHARDS_MAX + 1).is_err());
    }

    #[test]
    fn the_link_is_sold_once() {
        let node = Node::new(Config::sockets(), Epoch(1), 2).unwrap();
        let now = Instant::from_nanos(1_000);
        node.lease_link(now, Duration::from_nanos(500));
        node.lease_link(now, Duration::from_nanos(500));
        assert_eq!(node.link_sold_until(), Instant::from_nanos(2_000));
    }

    #[test]
    fn each_shard_hears_of_the_others_senders_until_they_end() {
        let node = Arc::new(Node::new(Config::sockets(), Epoch(1), 3).unwrap());
        let [mut a, mut b, mut c] = [(); 3].map(|()| SenderCount::new(node.clone()));
        assert_eq!((a.say(5), b.say(2), c.say(0)), (0, 5, 7));
        assert_eq!((a.say(1), b.say(2)), (2, 1));
        drop(b);
        assert_eq!((a.say(1), c.say(0)), (0, 1));
    }

    #[test]
    fn bytes_that_are_no_packet_are_for_the_first_shard() {
        for bytes in [&[][..], &[0x24; 3], &[0x14; 64], &[0xff; 64]] {
            assert_eq!(shard_of(bytes, 4), 0);
        }
        let mut data = [0; 40];
        data[0] = 0x21;
        data[4..8].copy_from_slice(&ContextNumbers::new(3, 1, 0).first(0, 0).to_be_bytes());
        assert_eq!((shard_of(&data, 4), shard_of(&data, 2)), (3, 1));
    }
}
