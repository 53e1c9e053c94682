//! The device of an interface's TCP/IP stack: queues of packets in both directions.

use std::collections::VecDeque;

use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

/// Maximum size in bytes of a packet that the stack sends.
const MTU: usize = 1500;

/// Packets to the stack, and packets from the stack.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) into: VecDeque<Vec<u8>>,
    pub(super) out: Vec<Vec<u8>>,
}

pub(super) struct Received(Vec<u8>);
pub(super) struct TransmitToken<'a>(&'a mut Vec<Vec<u8>>);

impl smoltcp::phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl smoltcp::phy::TxToken for TransmitToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut packet = vec![0; length];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = TransmitToken<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, TransmitToken<'_>)> {
        let packet = self.into.pop_front()?;
        Some((Received(packet), TransmitToken(&mut self.out)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TransmitToken<'_>> {
        Some(TransmitToken(&mut self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::default();
        // A guest leaves the checksums of TCP and UDP to its device. Packets cannot be damaged on
        // this path.
        (checksum.tcp, checksum.udp) = (Checksum::Tx, Checksum::Tx);
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = MTU;
        all.checksum = checksum;
        all
    }
}
