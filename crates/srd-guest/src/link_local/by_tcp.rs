//! DNS queries to the machine's resolver over TCP (RFC 7766), for answers that are too long for a
//! datagram.
//!
//! Such queries are rare, so each one has a thread, for a few seconds at most. Bounds:
//! [`ASKED_MAX`] threads, and [`ASKED_OF_ONE_MAX`] for each instance.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use srd_vpc::id::InstanceId;

const ASKED_MAX: usize = 32;
const ASKED_OF_ONE_MAX: usize = 4;
/// Longest time for a query and its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of a query, and its answer or the error.
pub(super) type Came = (u64, io::Result<Vec<u8>>);

/// The queries over TCP that are under way.
#[derive(Debug)]
pub(super) struct ByTcp {
    asked: BTreeMap<u64, InstanceId>,
    sender: SyncSender<Came>,
    receiver: Receiver<Came>,
    wake: Arc<OwnedFd>,
}

impl ByTcp {
    pub(super) fn new() -> io::Result<Self> {
        let (sender, receiver) = sync_channel(ASKED_MAX);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { asked: BTreeMap::new(), sender, receiver, wake })
    }

    /// Returns the descriptor that is readable when an answer has arrived.
    pub(super) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    /// Sends a query on a new thread. Its answer is returned with `number`. Returns false if too
    /// many queries are under way, or the thread cannot be started.
    pub(super) fn ask(
        &mut self,
        number: u64,
        of: InstanceId,
        server: SocketAddr,
        query: Vec<u8>,
    ) -> bool {
        let of_one = self.asked.values().filter(|asked| **asked == of).count();
        if self.asked.len() >= ASKED_MAX || of_one >= ASKED_OF_ONE_MAX {
            return false;
        }
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        let work = move || {
            let came = ask(server, &query, Instant::now() + PATIENCE);
            // The channel and the descriptor fail only after the end of the card.
            let _ = sender.send((number, came));
            let _ = rustix::io::write(&wake, &1_u64.to_ne_bytes());
        };
        let is_started = thread::Builder::new().name("dns by tcp".into()).spawn(work).is_ok();
        if is_started {
            self.asked.insert(number, of);
        }
        is_started
    }

    /// Returns the answers that have arrived.
    pub(super) fn receive(&mut self) -> Vec<Came> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        let came: Vec<Came> = self.receiver.try_iter().collect();
        for (number, _) in &came {
            self.asked.remove(number);
        }
        came
    }
}

/// Sends a query, and waits for the answer until a time.
fn ask(server: SocketAddr, query: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    let rest = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        rest => Ok(rest),
    };
    let mut stream = TcpStream::connect_timeout(&server, rest()?)?;
    stream.set_write_timeout(Some(rest()?))?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    let mut whole = |mut into: &mut [u8]| -> io::Result<()> {
        while !into.is_empty() {
            stream.set_read_timeout(Some(rest()?))?;
            match stream.read(into)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => into = &mut into[length..],
            }
        }
        Ok(())
    };
    let mut length = [0; 2];
    whole(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    whole(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;
    use std::net::TcpListener;

    fn wait(by_tcp: &mut ByTcp) -> Vec<Came> {
        let began = Instant::now();
        loop {
            let came = by_tcp.receive();
            if !came.is_empty() {
                return came;
            }
            assert!(began.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_long_answer_comes_back_whole() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut by_tcp = ByTcp::new().unwrap();
        assert!(by_tcp.ask(7, InstanceId(1), server.local_addr().unwrap(), b"query".to_vec()));
        let (mut stream, _) = server.accept().unwrap();
        let mut query = [0; 7];
        stream.read_exact(&mut query).unwrap();
        assert_eq!(&query, b"\0\x05query");
        stream.write_all(&[0xff]).unwrap();
        stream.write_all(&[0xff]).unwrap();
        stream.write_all(&[9; 65_535]).unwrap();
        let came = wait(&mut by_tcp);
        assert_eq!((came.len(), came[0].0), (1, 7));
        assert_eq!(*came[0].1.as_ref().unwrap(), [9; 65_535]);
    }

    #[test]
    fn few_are_under_way_and_fewer_of_one_instance() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let mut by_tcp = ByTcp::new().unwrap();
        let mut number = 0;
        let mut ask = |by_tcp: &mut ByTcp, of| {
            number += 1;
            by_tcp.ask(number, InstanceId(of), address, b"query".to_vec())
        };
        let owners = u64::try_from(ASKED_MAX / ASKED_OF_ONE_MAX).unwrap();
        for of in 0..owners {
            assert!((0..ASKED_OF_ONE_MAX).all(|_| ask(&mut by_tcp, of)), "{of}");
            assert!(!ask(&mut by_tcp, of), "{of}");
        }
        assert!(!ask(&mut by_tcp, owners), "all places are taken");
        // One connection ends without an answer, and frees its entry.
        drop(server.accept().unwrap());
        let came = wait(&mut by_tcp);
        assert!(came.len() == 1 && came[0].1.is_err());
        assert!(ask(&mut by_tcp, owners));
    }
}
