//! The example of `PacketIo`: a back end around another one, which loses every tenth batch.

use std::{io, net::SocketAddr, sync::Arc};

use srd_net::io::{IoStats, Notice, PacketIo, Segments, SendOutcome, Wait};
use srd_net::{Clock, IoWaker, MemoryNet, MemoryOptions};
use srd_proto::{Instant, PacketMeta, Transmit};

struct Lossy<I> {
    inner: I,
    batches: u64,
}

impl<I: PacketIo> PacketIo for Lossy<I> {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        for (sent, batch) in batches.iter().enumerate() {
            let is_lost = self.batches % 10 == 9;
            if !is_lost && self.inner.send(std::slice::from_ref(batch))? != SendOutcome::All {
                return Ok(SendOutcome::Blocked { batches: sent });
            }
            self.batches += 1;
        }
        Ok(SendOutcome::All)
    }

    fn receive(
        &mut self,
        wait: Wait,
        each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        self.inner.receive(wait, each)
    }

    fn clock(&self) -> &Clock {
        self.inner.clock()
    }
    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }
    fn paths(&self) -> u16 {
        self.inner.paths()
    }
    fn batch_segments_max(&self) -> usize {
        self.inner.batch_segments_max()
    }
    fn take_notice(&mut self) -> Option<Notice> {
        self.inner.take_notice()
    }
    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        self.inner.waker()
    }
}

#[test]
fn a_back_end_around_another_one() {
    let net = MemoryNet::new(MemoryOptions::default());
    let at = "10.0.0.1:7471".parse().unwrap();
    let lossy = Lossy { inner: net.node(at, 8), batches: 0 };
    assert_eq!((lossy.local_address(), lossy.paths()), (at, 8));
}
