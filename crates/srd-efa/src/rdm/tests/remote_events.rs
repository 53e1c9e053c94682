//! Events at the peer for transfers of several requests.

use super::*;

const KEY: u64 = 77;
const BASE: u64 = 0x7000_0000;
const RAM: u64 = RAM_BYTES as u64 / 2;
const SIZE: u64 = 1 << 20;

fn net() -> Net {
    let with = Net::with(2, Config { report_remote: true, ..config() });
    let mut net = Net { wire: bad_wire(), ..with };
    let access = Access { local_write: false, remote_write: true, remote_read: true };
    let shared = Shared { region: 1, addr: BASE, length: SIZE, rkey: KEY, access };
    net.nodes[1].rdm.share(shared).unwrap();
    net.fill(0, 0, SIZE, 5);
    net
}

/// Starts a transfer of two local and two remote pieces, cut at different offsets, and runs until
/// the peer has an event. Returns the event.
fn two_by_two(
    net: &mut Net,
    read: bool,
    until: Until,
    length: u64,
    data: Option<u64>,
) -> OperationCompletion {
    let to = net.peer(0, 1);
    let (cut, half) = (length / 3, length / 2);
    let local = [Iov { addr: 0, length: cut }, Iov { addr: cut, length: length - cut }];
    let far = |offset, length| RmaIov { addr: BASE + offset, length, rkey: KEY };
    let remote = [far(0, half), far(half, length - half)];
    let (local, remote) = (&local[..], &remote[..]);
    let rma = Rma { to, read, local, remote, data, context: 1, until, signaled: true };
    net.on(0, |rdm, world| rdm.rma(world, rma)).unwrap();
    for _ in 0..10_000 {
        net.run_us(50);
        if let Some(first) = net.done(1).pop() {
            return first;
        }
    }
    panic!("{length} bytes: the peer was told of nothing");
}

#[test]
fn regression_a_write_in_pieces_is_told_once_when_all_of_it_stands_there() {
    let (sent, copied) = (Until::Transmitted, Until::Injected);
    let injected = [600, 601, 602, 603, 604, 605].map(|length| (copied, length));
    let cases = [(sent, 3000), (sent, 40_000), (sent, 500_000)].into_iter().chain(injected);
    for (until, length) in cases {
        for data in [None, Some(9)] {
            let mut net = net();
            let told = two_by_two(&mut net, false, until, length, data);
            assert_eq!((told.kind, told.data), (Kind::RemoteWrite, data), "{length}");
            assert!(net.bytes(1, RAM, length) == net.bytes(0, 0, length), "{length}");
            net.run_ms(300);
            assert!(net.done(1).is_empty(), "{length} {data:?}");
            assert_eq!(net.outcomes(0), [(Kind::Write, 1, Outcome::Ok)]);
        }
    }
}

#[test]
fn regression_a_read_in_pieces_is_told_once() {
    for length in [3000, 40_000, 500_000] {
        let mut net = net();
        let told = two_by_two(&mut net, true, Until::Transmitted, length, None);
        assert_eq!(told.kind, Kind::RemoteRead, "{length}");
        net.run_ms(300);
        assert!(net.done(1).is_empty(), "{length}");
        assert_eq!(net.outcomes(0), [(Kind::Read, 1, Outcome::Ok)]);
    }
}
