//! Memory of the endpoints in tests.

use std::vec;
use std::vec::Vec;

use bytes::Bytes;

use crate::memory::Memory;

/// Memory of one vector: addresses are offsets. Region 0 is the whole vector, region 1 its second
/// half.
pub(crate) struct Ram(pub(crate) Vec<u8>);

impl Ram {
    /// Creates memory that contains zeros.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![0; bytes])
    }

    fn at(&self, region: u64, offset: u64) -> usize {
        let half = if region == 0 { 0 } else { self.0.len() / 2 };
        usize::try_from(offset).unwrap() + half
    }
}

impl Memory for Ram {
    fn read(&mut self, region: u64, offset: u64, bytes: usize) -> Bytes {
        let at = self.at(region, offset);
        Bytes::copy_from_slice(&self.0[at..at + bytes])
    }

    fn write(&mut self, region: u64, offset: u64, bytes: &[u8]) {
        let at = self.at(region, offset);
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
