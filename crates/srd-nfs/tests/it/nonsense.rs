//! Random invalid records, sent to both halves over sockets: a connection with an invalid record is
//! closed, and nothing else happens.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // a test may fail loudly

use crate::support::{Server, WAIT, call, eventually, listen, reply, target};
use srd_nfs::accept::Acceptor;
use srd_nfs::dial::Dialer;
use srd_nfs::limits::Limits;
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::{client, record, serve};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// Largest number of records on a connection.
const ON_A_CONNECTION: u64 = 64;

/// SplitMix64: a seed always gives the same records.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// Returns a record that is valid, slightly changed, cut, or random.
    fn record(&mut self) -> Vec<u8> {
        let bytes_max = 1 + self.below(300);
        let mut bytes = call(self.next() as u32, self.below(bytes_max) as usize).bytes().to_vec();
        match self.below(8) {
            0 | 1 => {}
            // Changes the kind of the message, or its transaction number.
            2 => bytes[4 + self.below(8) as usize] ^= 1 << self.below(8),
            // Changes the mark: a longer or shorter fragment, or not the last fragment.
            3 => bytes[self.below(4) as usize] ^= 1 << self.below(8),
            4 => bytes.truncate(self.below(bytes.len() as u64) as usize),
            // Splits the record into fragments.
            5 => {
                let message = bytes.split_off(4);
                bytes.clear();
                let (first, rest) = message.split_at(self.below(message.len() as u64) as usize);
                bytes.extend((first.len() as u32).to_be_bytes());
                bytes.extend(first);
                bytes.extend((rest.len() as u32 | 1 << 31).to_be_bytes());
                bytes.extend(rest);
            }
            6 => {
                bytes = [&(self.below(200) as u32 | 1 << 31).to_be_bytes()[..], &self.bytes(200)]
                    .concat()
            }
            _ => {
                let count = self.below(40);
                bytes = self.bytes(count);
            }
        }
        bytes
    }
}

/// Returns both halves, each with its counters and whether it parses records. The half beside the
/// server only forwards bytes: whether it counts a connection that the server closes as failed
/// depends on timing.
fn halves(server: &Server) -> [(Acceptor, Metrics, bool); 2] {
    let to = target(server.address);
    let dialer = || Arc::new(Dialer::new(to.clone(), None, Pacing::default()).unwrap());
    let limits = Limits::default();
    let options =
        client::Options { limits, connections_max: 4, pacing: Pacing::default(), any_user: true };
    let (near, far) = (Metrics::default(), Metrics::default());
    let client_half = client::start(listen(), dialer(), &options, &near).unwrap();
    // All connections come from one address.
    let limits = Limits { address_clients_max: usize::MAX, ..limits };
    let options = serve::Options { limits, any_user: true, ..Default::default() };
    let server_half = serve::start(listen(), dialer(), None, options, &far);
    [(client_half, near, true), (server_half.unwrap(), far, false)]
}

/// Writes records until the other side ends the connection, and returns their number.
fn pour(half: &Acceptor, chance: &mut Chance) -> u64 {
    let mut stream = TcpStream::connect(half.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let count = 1 + chance.below(ON_A_CONNECTION);
    for written in 0..count {
        if stream.write_all(&chance.record()).is_err() {
            return written + 1;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = [0; 4096];
    loop {
        match stream.read(&mut replies) {
            Ok(0) => return count,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is ended in time");
                return count;
            }
        }
    }
}

fn nonsense(records: u64, seed: u64) {
    let server = Server::echo();
    for (half, metrics, looks_at_records) in halves(&server) {
        let good = TcpStream::connect(half.address().unwrap()).unwrap();
        good.set_read_timeout(Some(WAIT)).unwrap();
        let answers = |xid| {
            (&good).write_all(call(xid, 100).bytes()).unwrap();
            let answer = record::read(&mut &good, 1 << 20).unwrap().expect("a reply");
            assert_eq!(answer, reply(&call(xid, 100)));
        };
        answers(1);
        let mut chance = Chance(seed);
        let mut poured = 0;
        while poured < records {
            poured += pour(&half, &mut chance);
        }
        answers(2);
        // A connection is counted, and its slot freed, only after its client has seen its end.
        if looks_at_records {
            eventually("some are closed for what they sent", || metrics.clients_failed.get() > 0);
        }
        eventually("places are given back", || metrics.clients.get() <= 1);
    }
}

#[test]
fn a_connection_that_brings_nonsense_is_closed_and_nothing_else_happens() {
    nonsense(5_000, 1);
}

#[test]
#[ignore = "a million records: minutes, with --release"]
fn a_million_records_close_their_connections_and_nothing_else_happens() {
    nonsense(1_000_000, 2);
}
