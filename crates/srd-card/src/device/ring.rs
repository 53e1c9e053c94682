//! Rings between guest and card. They are bounded, and their overflows are counted.
//!
//! Source: the ENA Linux driver. Sizes are powers of two.

use alloc::collections::VecDeque;
use core::fmt;

/// Direction in which packets pass a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// From the guest to the card.
    Tx,
    /// From the card to the guest.
    Rx,
}

impl Side {
    /// Smallest and largest number of entries that a ring of this direction may have (D4).
    pub fn bounds(self) -> (u32, u32) {
        match self {
            Self::Tx => (256, 1024),
            Self::Rx => (256, 16_384),
        }
    }
}

/// Error: a ring cannot have this size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeError {
    /// Direction of the ring.
    pub side: Side,
    /// Requested size, in entries.
    pub entries: u32,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.side.bounds();
        let Self { side, entries } = self;
        let way = match side {
            Side::Tx => "Tx",
            Side::Rx => "Rx",
        };
        write!(f, "a {way} ring of {entries}; give a power of two from {least} to {most}")
    }
}

impl core::error::Error for SizeError {}

/// Valid size of a ring, in entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RingSize(u32);

impl RingSize {
    /// Default size of a ring to the guest, as in the driver.
    pub const RX_DEFAULT: Self = Self(1024);
    /// Default size of a ring from the guest, without large headers.
    pub const TX_DEFAULT: Self = Self(1024);
    /// Default size of a ring from the guest with large headers, whose entries take twice the
    /// memory.
    pub const TX_WIDE_DEFAULT: Self = Self(512);

    /// Checks a size in entries (D4).
    ///
    /// # Errors
    /// [`SizeError`] if the size is not a power of two within [`Side::bounds`].
    pub fn new(side: Side, entries: u32) -> Result<Self, SizeError> {
        let (least, most) = side.bounds();
        let fits = entries.is_power_of_two() && (least..=most).contains(&entries);
        if fits { Ok(Self(entries)) } else { Err(SizeError { side, entries }) }
    }

    /// Returns the number of entries of the ring.
    pub fn entries(self) -> u32 {
        self.0
    }
}

/// A ring of packets. Bound: its size.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    items: VecDeque<T>,
    size: RingSize,
    overruns: u64,
}

impl<T> Ring<T> {
    /// Creates an empty ring.
    pub fn new(size: RingSize) -> Self {
        Self { items: VecDeque::new(), size, overruns: 0 }
    }

    /// Adds a packet at the end (D4).
    ///
    /// # Errors
    /// Returns the packet if the ring is full, and counts the overflow.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.items.len() >= self.size.0 as usize {
            self.overruns += 1;
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Removes and returns the packet that was added first.
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Number of packets in the ring.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Size of the ring.
    pub fn size(&self) -> RingSize {
        self.size
    }

    /// Number of packets that found the ring full: `rx_overruns` of a ring to the guest.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn sizes_are_powers_of_two_within_bounds() {
        for (side, good) in [(Side::Tx, [256, 512, 1024]), (Side::Rx, [256, 1024, 16_384])] {
            assert!(good.iter().all(|size| RingSize::new(side, *size).is_ok()));
        }
        for (side, bad) in [(Side::Tx, [0, 128, 2048]), (Side::Rx, [1000, 32_768, u32::MAX])] {
            assert!(bad.iter().all(|size| RingSize::new(side, *size).is_err()), "{bad:?}");
        }
        let error = RingSize::new(Side::Tx, 2048).unwrap_err().to_string();
        assert_eq!(error, "a Tx ring of 2048; give a power of two from 256 to 1024");
    }

    #[test]
    fn a_full_ring_counts_what_it_refuses() {
        let mut ring = Ring::new(RingSize::new(Side::Rx, 256).unwrap());
        let refused = (0..300).filter(|n| ring.push(*n).is_err()).count();
        assert_eq!((refused, ring.overruns(), ring.len()), (44, 44, 256));
        assert_eq!(ring.pop(), Some(0));
        assert!(ring.push(300).is_ok() && ring.push(301).is_err());
        assert_eq!((0..256).filter_map(|_| ring.pop()).last(), Some(300), "in their order");
        assert!(ring.is_empty());
    }

    /// A larger ring absorbs a burst that overflows a small ring.
    #[test]
    fn a_deeper_ring_absorbs_a_burst() {
        let lost = |entries| {
            let mut ring = Ring::new(RingSize::new(Side::Rx, entries).unwrap());
            (0..4000).filter(|n| ring.push(*n).is_err()).count()
        };
        assert_eq!((lost(1024), lost(4096)), (2976, 0));
    }
}
