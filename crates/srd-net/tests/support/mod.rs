//! Support of tests of back ends and endpoints: packets that can be distinguished, and transfers
//! that check each.
#![allow(dead_code)] // each test program uses only a part

pub(crate) mod veth;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use srd_net::{Endpoint, PacketIo, Wait};
use srd_proto::ids::Entropy;
use srd_proto::transmit::{Ecn, PacketMeta, Transmit};

/// Longest time that a step of a test may take, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a batch with segments of these sizes.
pub(crate) fn batch(to: SocketAddr, path: u16, sizes: &[usize]) -> (Transmit, Vec<Vec<u8>>) {
    let segments: Vec<Vec<u8>> = sizes
        .iter()
        .enumerate()
        .map(|(i, n)| (0..*n).map(|j| u8::try_from((i * 31 + j) % 251).unwrap()).collect())
        .collect();
    let transmit = Transmit {
        destination: to,
        entropy: Entropy(path),
        ecn: Ecn::Ect,
        segment_bytes: sizes[0],
        segments: sizes.len(),
        total_bytes: sizes.iter().sum(),
        control: false,
    };
    (transmit, segments)
}

/// Receives until `count` packets have arrived or the time `patience` has passed.
pub(crate) fn collect_for(
    io: &mut impl PacketIo,
    count: usize,
    patience: Duration,
) -> Vec<(PacketMeta, Vec<u8>)> {
    let mut got = Vec::new();
    let nanos = u64::try_from(patience.as_nanos()).unwrap();
    let until = io.clock().now() + srd_proto::Duration::from_nanos(nanos);
    while got.len() < count && io.clock().now() < until {
        io.receive(Wait::until(until), |_, meta, bytes| got.push((meta, bytes.to_vec()))).unwrap();
    }
    got
}

/// Receives until `count` packets have arrived or [`PATIENCE`] has passed.
pub(crate) fn collect(io: &mut impl PacketIo, count: usize) -> Vec<(PacketMeta, Vec<u8>)> {
    collect_for(io, count, PATIENCE)
}

/// Returns a payload that contains its number.
pub(crate) fn numbered(i: u32, bytes: usize) -> Bytes {
    let mut payload = vec![u8::try_from(i % 251).unwrap(); bytes.max(4)];
    payload[..4].copy_from_slice(&i.to_be_bytes());
    Bytes::from(payload)
}

/// Returns the number in a payload.
pub(crate) fn number(payload: &Bytes) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().unwrap())
}

/// Sends `count` datagrams from `a` to `b` while receiving. Checks that each arrives once and
/// unchanged.
pub(crate) fn transfer(a: &Endpoint, b: &Endpoint, count: u32, bytes: usize) {
    let peer = a.connect(b.local_address()).unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for i in 0..count {
                peer.send(numbered(i, bytes)).unwrap();
            }
            peer.flush(PATIENCE).unwrap();
            assert_eq!(peer.failures(), 0);
        });
        let mut seen = HashSet::new();
        for _ in 0..count {
            let got = b.recv_timeout(PATIENCE).unwrap();
            let Some(got) = got else {
                panic!("{} of {count} came: {:?} {:?}", seen.len(), a.report(), b.report());
            };
            let i = number(&got.payload);
            assert_eq!(got.payload, numbered(i, bytes));
            assert!(seen.insert(i), "datagram {i} came twice");
        }
        sender.join().unwrap();
    });
    assert!(b.try_recv().unwrap().is_none());
}
