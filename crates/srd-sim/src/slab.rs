//! The packets that exist: slots of one vector, reused last-freed first, which keeps the
//! hottest in the cache.

use crate::node::Packet;

/// A pool of packet slots.
#[derive(Debug, Default)]
pub struct Slab {
    slots: Vec<Packet>,
    free: Vec<u32>,
}

impl Slab {
    /// Takes a slot. Its content is whatever it last held.
    #[inline]
    pub fn take(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.slots.push(Packet::empty());
        u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 packets exist at once")
    }

    /// Gives a slot back. Its payload is released, its memory kept.
    #[inline]
    pub fn give(&mut self, slot: u32) {
        self.slots[slot as usize].release();
        self.free.push(slot);
    }

    /// The packet in a slot.
    #[inline]
    pub fn packet(&mut self, slot: u32) -> &mut Packet {
        &mut self.slots[slot as usize]
    }

    /// The packet in a slot, to look at.
    #[inline]
    pub fn peek(&self, slot: u32) -> &Packet {
        &self.slots[slot as usize]
    }

    /// Packets that exist now.
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
