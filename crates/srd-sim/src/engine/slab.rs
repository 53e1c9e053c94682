//! Storage of all packets in the simulation: slots of one vector. The slot that was freed last is
//! reused first, because it is most likely in the cache.

use crate::engine::node::Packet;

/// A pool of packet slots.
#[derive(Debug, Default)]
pub struct Slab {
    slots: Vec<Packet>,
    free: Vec<u32>,
}

impl Slab {
    /// Takes a free slot and returns its number. The slot still has its previous content.
    #[inline]
    pub fn take(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.slots.push(Packet::empty());
        u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 packets exist at once")
    }

    /// Returns a slot to the pool. Releases the payload of its packet, and keeps the slot's own
    /// memory.
    #[inline]
    pub fn give(&mut self, slot: u32) {
        self.slots[slot as usize].release();
        self.free.push(slot);
    }

    /// Returns the packet in a slot, to be changed.
    #[inline]
    pub fn packet(&mut self, slot: u32) -> &mut Packet {
        &mut self.slots[slot as usize]
    }

    /// Returns the packet in a slot, to be read.
    #[inline]
    pub fn peek(&self, slot: u32) -> &Packet {
        &self.slots[slot as usize]
    }

    /// Returns the number of slots in use: packets that are in the network now.
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
