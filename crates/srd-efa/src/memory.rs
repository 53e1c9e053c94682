//! The interface to the application's memory.

use bytes::{Bytes, BytesMut};

/// The application's memory. The device has checked every access before it calls these functions:
/// the key is valid, the range lies inside the registration, and the access right is granted.
pub trait Memory {
    /// Returns `bytes` bytes at `offset` of a region, to be sent. If possible, the implementation
    /// returns a reference to the memory instead of a copy. The transport may keep the returned
    /// bytes until the datagram with them is settled, even after the work request was flushed.
    fn read(&mut self, region: u64, offset: u64, bytes: usize) -> Bytes;

    /// Appends a copy of `bytes` bytes at `offset` of a region to `into`. The device calls this
    /// function for small pieces, for which a reference costs more than a copy. Override it if a
    /// faster way exists.
    fn append(&mut self, region: u64, offset: u64, bytes: usize, into: &mut BytesMut) {
        into.extend_from_slice(&self.read(region, offset, bytes));
    }

    /// Places received bytes at `offset` of a region.
    fn write(&mut self, region: u64, offset: u64, bytes: &[u8]);
}

/// A scatter/gather element: a piece of registered memory (`ibv_sge`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Address of the first byte, in the address range that was registered.
    pub addr: u64,
    /// Length of the piece in bytes.
    pub length: u32,
    /// Local key of the registration.
    pub lkey: u32,
}
