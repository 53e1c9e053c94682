//! The interface to the application's memory.

use bytes::{Bytes, BytesMut};

/// The application's memory. Every access has been checked before this is called: the key is
/// valid, the range lies inside of the registration, and the access right is granted.
pub trait Memory {
    /// `bytes` bytes at `offset` of a registration, to be sent. Best by reference: what is
    /// returned may be kept until the datagram that carries it has been settled, even after its
    /// work request was flushed.
    fn read(&mut self, region: u64, offset: u64, bytes: usize) -> Bytes;

    /// Copies `bytes` bytes at `offset` of a registration behind what stands in `into`: for what
    /// is so small that a reference costs more. Worth overriding.
    fn append(&mut self, region: u64, offset: u64, bytes: usize, into: &mut BytesMut) {
        into.extend_from_slice(&self.read(region, offset, bytes));
    }

    /// Places received bytes at `offset` of a registration.
    fn write(&mut self, region: u64, offset: u64, bytes: &[u8]);
}

/// A scatter/gather element: a piece of registered memory (`ibv_sge`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Address of the first byte, as registered.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The registration's local key.
    pub lkey: u32,
}
