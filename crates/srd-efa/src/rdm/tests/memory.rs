//! Reads, writes and atomic operations.

use super::shares::*;
use super::*;
use crate::rdm::rma::arithmetic::apply;

#[test]
fn reads_and_writes_of_every_length_and_in_pieces_arrive() {
    for own in [false, true] {
        let mut net = Net::bad(2);
        let (node, to) = if own { (0, net.peer(0, 0)) } else { (1, net.peer(0, 1)) };
        share(&mut net, node, all());
        net.nodes[0].rdm.bounds.read_bytes_max = 150_000;
        net.fill(0, 0, 500_000, 5);
        for length in [0u64, 8, 1400, 40_000, 500_000] {
            let cut = length / 3;
            let local = [Iov { addr: 0, length: cut }, Iov { addr: cut, length: length - cut }];
            let half = length / 2;
            let to_there = [remote(100, half), remote(100 + half, length - half)];
            go(&mut net, rma(to, false, &local, &to_there)).unwrap();
            net.run_ms(300);
            assert_eq!(net.outcomes(0), [(Kind::Write, 1, Outcome::Ok)], "{length}");
            assert!(there(&net, node, 100, length) == net.bytes(0, 0, length), "{length}");
            let back = [Iov { addr: 2 << 20, length }];
            go(&mut net, rma(to, true, &back, &to_there)).unwrap();
            net.run_ms(300);
            assert_eq!(net.outcomes(0), [(Kind::Read, 1, Outcome::Ok)], "{length}");
            assert!(net.bytes(0, 2 << 20, length) == net.bytes(0, 0, length), "{length}");
        }
        assert!(net.nodes.iter().all(|node| node.rdm.is_quiet()));
    }
}

#[test]
fn data_of_a_write_is_told_once_when_all_of_it_stands_there() {
    for (length, data) in
        [(0u64, 5), (8, u64::MAX), (100_000, 7), (100_000, u64::MAX), (400_000, 9)]
    {
        let mut net = Net::bad(2);
        let to = net.peer(0, 1);
        share(&mut net, 1, all());
        net.nodes[0].rdm.bounds.read_bytes_max = 150_000;
        net.fill(0, 0, length, 5);
        let (local, remote) = ([Iov { addr: 0, length }], [remote(0, length)]);
        go(&mut net, Rma { data: Some(data), ..rma(to, false, &local, &remote) }).unwrap();
        let mut done = Vec::new();
        while done.is_empty() {
            net.run_us(50);
            done = net.done(1);
        }
        assert!(there(&net, 1, 0, length) == net.bytes(0, 0, length));
        assert_eq!((done[0].kind, done[0].data), (Kind::RemoteWrite, Some(data)));
        assert_eq!((done[0].length, done[0].signaled), (length, true));
        net.run_ms(100);
        assert!(net.done(1).is_empty());
        assert_eq!(net.outcomes(0), [(Kind::Write, 1, Outcome::Ok)]);
    }
}

#[test]
fn an_injected_write_ends_at_once_and_peers_transfers_are_told_if_asked_for() {
    let mut net = Net::with(2, Config { report_remote: true, ..config() });
    let to = net.peer(0, 1);
    share(&mut net, 1, all());
    net.fill(0, 0, 1000, 5);
    let sent = net.bytes(0, 0, 1000).to_vec();
    let (local, far) = ([Iov { addr: 0, length: 1000 }], [remote(0, 1000)]);
    let injected = Rma { until: Until::Injected, ..rma(to, false, &local, &far) };
    go(&mut net, injected).unwrap();
    assert_eq!(net.outcomes(0), [(Kind::Write, 1, Outcome::Ok)]);
    net.fill(0, 0, 1000, 6);
    net.run_ms(10);
    assert!(there(&net, 1, 0, 1000) == sent);
    let (long, far) = ([Iov { addr: 0, length: 100_000 }], [remote(0, 100_000)]);
    go(&mut net, rma(to, false, &long, &far)).unwrap();
    net.run_ms(50);
    go(&mut net, rma(to, true, &long, &far)).unwrap();
    net.run_ms(50);
    let told: Vec<_> = net.done(1).iter().map(|d| (d.kind, d.length, d.signaled)).collect();
    assert_eq!(
        told,
        [
            (Kind::RemoteWrite, 1000, false),
            (Kind::RemoteWrite, 100_000, false),
            (Kind::RemoteRead, 100_000, false)
        ]
    );
    assert_eq!(net.outcomes(0).len(), 2);
}

#[test]
fn what_a_key_does_not_allow_fails_and_touches_nothing() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    share(&mut net, 1, Access { remote_read: true, ..Access::default() });
    assert_eq!(
        net.nodes[1].rdm.share(Shared { region: 1, addr: 0, length: 1, rkey: KEY, access: all() }),
        Err(Refused::Invalid),
        "the key is taken"
    );
    let local = [Iov { addr: 0, length: 100 }];
    let wrong = [
        (true, RmaIov { rkey: KEY + 1, ..remote(0, 100) }, None),
        (true, RmaIov { rkey: 1, ..remote(0, 100) }, None),
        (true, RmaIov { rkey: 0, ..remote(0, 100) }, None),
        (true, remote(SIZE - 99, 100), None),
        (true, RmaIov { addr: BASE - 1, ..remote(0, 100) }, None),
        (false, remote(0, 100), None),
        (false, remote(0, 100), Some(5)),
    ];
    for (read, far, data) in wrong {
        go(&mut net, Rma { data, ..rma(to, read, &local, &[far]) }).unwrap();
        net.run_ms(20);
        let done = net.done(0);
        assert_eq!(done.iter().map(|d| d.outcome).collect::<Vec<_>>(), [Outcome::BadKey]);
    }
    assert!(net.done(1).is_empty());
    net.nodes[1].rdm.unshare(KEY);
    go(&mut net, rma(to, true, &local, &[remote(0, 100)])).unwrap();
    net.run_ms(20);
    assert_eq!(net.outcomes(0), [(Kind::Read, 1, Outcome::BadKey)]);
    assert_eq!(net.nodes[1].rdm.lent(), 0);
}

#[test]
fn memory_taken_back_while_a_peer_reads_it_is_lent_until_the_transport_lets_go() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    share(&mut net, 1, all());
    let (local, far) = ([Iov { addr: 0, length: SIZE }], [remote(0, SIZE)]);
    go(&mut net, rma(to, true, &local, &far)).unwrap();
    net.run_us(150);
    net.nodes[1].rdm.unshare(KEY);
    assert_eq!(net.nodes[1].rdm.lent(), 1);
    net.run_ms(100);
    assert_eq!(net.outcomes(0), [(Kind::Read, 1, Outcome::BadKey)]);
    assert_eq!(net.nodes[1].rdm.lent(), 0);
}

type Three<'a> = (&'a [Iov], &'a [Iov], &'a [Iov]);

fn ask(
    net: &mut Net,
    what: (AtomicOp, Datatype),
    iov: Three<'_>,
    far: &[RmaIov],
) -> Result<(), Refused> {
    let to = Peer(0);
    net.on(0, |rdm, world| rdm.atomic(world, atomic(to, what, iov, far)))
}

fn atomic<'a>(
    to: Peer,
    (op, datatype): (AtomicOp, Datatype),
    iov: Three<'a>,
    remote: &'a [RmaIov],
) -> Atomic<'a> {
    let (operand, compare, result) = iov;
    let until = Until::Delivered;
    Atomic { to, op, datatype, operand, compare, result, remote, context: 2, until, signaled: true }
}

#[test]
fn every_atomic_operation_does_what_it_says_to_a_peers_elements_and_to_our_own() {
    for own in [false, true] {
        let mut net = Net::bad(2);
        let (node, to) = if own { (0, net.peer(0, 0)) } else { (1, net.peer(0, 1)) };
        share(&mut net, node, all());
        for op in AtomicOp::ALL {
            for datatype in Datatype::ALL {
                let length = 3 * datatype.bytes() as u64;
                let ram = RAM as u64;
                net.fill(node, ram, length, 7);
                net.fill(0, 0, length, 8 + datatype.bytes() as u64);
                net.fill(0, 1000, length, 7); // comparands equal to the elements
                let before = there(&net, node, 0, length).to_vec();
                let piece = |addr| [Iov { addr, length }];
                let (s, c, r) = (piece(0), piece(1000), piece(2000));
                let none: &[Iov] = &[];
                let s: &[Iov] = if op == AtomicOp::Read { none } else { &s };
                let c: &[Iov] = if op.compares() { &c } else { none };
                let cut = datatype.bytes() as u64;
                let far = [remote(0, cut), remote(cut, length - cut)];
                let request = atomic(to, (op, datatype), (s, c, &r), &far);
                let asked = net.on(0, |rdm, world| rdm.atomic(world, request));
                if !op.is_defined(datatype) {
                    assert_eq!(asked, Err(Refused::Invalid));
                    continue;
                }
                asked.unwrap();
                net.run_ms(20);
                assert_eq!(net.outcomes(0), [(Kind::FetchAtomic, 2, Outcome::Ok)]);
                assert!(net.bytes(0, 2000, length) == before, "{op:?} {datatype:?}");
                let mut expected = before.clone();
                apply(op, datatype, &mut expected, net.bytes(0, 0, length), &before);
                assert!(there(&net, node, 0, length) == expected, "{op:?} {datatype:?}");
            }
        }
    }
}

/// Compares single elements of each type with results that are calculated in another way than in
/// the code.
#[test]
fn arithmetic_agrees_with_plain_sums_on_chosen_numbers() {
    let int = |op, d: i32, s: i32, c: i32| {
        let mut e = d.to_ne_bytes();
        apply(op, Datatype::Int32, &mut e, &s.to_ne_bytes(), &c.to_ne_bytes());
        i32::from_ne_bytes(e)
    };
    let table = [
        (AtomicOp::Min, -5, 3, 0, -5),
        (AtomicOp::Max, -5, 3, 0, 3),
        (AtomicOp::Sum, i32::MAX, 1, 0, i32::MIN),
        (AtomicOp::Prod, -7, 6, 0, -42),
        (AtomicOp::LogicalOr, 0, 9, 0, 1),
        (AtomicOp::LogicalAnd, 4, 0, 0, 0),
        (AtomicOp::LogicalXor, 4, 9, 0, 0),
        (AtomicOp::BitOr, 0b0101, 0b0011, 0, 0b0111),
        (AtomicOp::BitAnd, 0b0101, 0b0011, 0, 0b0001),
        (AtomicOp::BitXor, 0b0101, 0b0011, 0, 0b0110),
        (AtomicOp::Read, 8, 0, 0, 8),
        (AtomicOp::Write, 8, 4, 0, 4),
        (AtomicOp::Cswap, 8, 4, 8, 4),
        (AtomicOp::Cswap, 8, 4, 7, 8),
        (AtomicOp::CswapNe, 8, 4, 7, 4),
        (AtomicOp::CswapLe, 8, 4, 8, 4),
        (AtomicOp::CswapLe, 8, 4, 9, 8),
        (AtomicOp::CswapLt, 8, 4, 8, 8),
        (AtomicOp::CswapLt, 8, 4, 7, 4),
        (AtomicOp::CswapGe, 8, 4, 8, 4),
        (AtomicOp::CswapGe, 8, 4, 7, 8),
        (AtomicOp::CswapGt, 8, 4, 9, 4),
        (AtomicOp::CswapGt, 8, 4, 8, 8),
        (AtomicOp::Mswap, 0b1100, 0b1010, 0b0110, 0b1010),
    ];
    for (op, d, s, c, expected) in table {
        assert_eq!(int(op, d, s, c), expected, "{op:?} {d} {s} {c}");
    }
    let pair = |re: f32, im: f32| [re.to_ne_bytes(), im.to_ne_bytes()].concat();
    let mut e = pair(1.0, 2.0);
    apply(AtomicOp::Prod, Datatype::FloatComplex, &mut e, &pair(3.0, -1.0), &[]);
    assert_eq!(e, pair(5.0, 5.0), "(1 + 2i)(3 - i)");
    let mut e = (-3i128).to_ne_bytes();
    apply(AtomicOp::Max, Datatype::Uint128, &mut e, &5u128.to_ne_bytes(), &[]);
    assert_eq!(e, (-3i128).to_ne_bytes(), "without a sign it is the larger");
    let mut e = f64::NAN.to_ne_bytes();
    apply(AtomicOp::Min, Datatype::Double, &mut e, &1f64.to_ne_bytes(), &[]);
    assert!(f64::from_ne_bytes(e).is_nan(), "nothing is less than what is no number");
}

#[test]
fn atomic_operations_of_a_peer_happen_in_their_order_and_each_once() {
    let mut net = Net::bad(3);
    share(&mut net, 0, all());
    let far = [remote(0, 8)];
    for node in 1..3 {
        let to = net.peer(node, 0);
        net.nodes[node].ram.0[0..8].copy_from_slice(&1u64.to_ne_bytes());
        for n in 0..100 {
            let one = [Iov { addr: 0, length: 8 }];
            let old = [Iov { addr: 100 + 8 * n, length: 8 }];
            let request = atomic(to, (AtomicOp::Sum, Datatype::Uint64), (&one, &[], &old), &far);
            net.on(node, |rdm, world| rdm.atomic(world, request)).unwrap();
        }
    }
    net.run_ms(500);
    let mut seen = Vec::new();
    for node in 1..3 {
        let old = net.bytes(node, 100, 800).chunks(8);
        let old: Vec<u64> = old.map(|b| u64::from_ne_bytes(b.try_into().unwrap())).collect();
        assert!(old.is_sorted(), "in the order of their sender");
        seen.extend(old);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<u64>>());
}

#[test]
fn an_atomic_operation_that_may_not_be_done_says_why() {
    let mut net = Net::new(2);
    assert_eq!(net.peer(0, 1), Peer(0));
    share(&mut net, 1, Access { remote_write: true, ..Access::default() });
    let (eight, none) = ([Iov { addr: 0, length: 8 }], &[][..]);
    let sum = (AtomicOp::Sum, Datatype::Uint64);
    ask(&mut net, sum, (&eight, none, none), &[remote(0, 8)]).unwrap();
    ask(&mut net, sum, (&eight, none, &eight), &[remote(0, 8)]).unwrap();
    ask(&mut net, sum, (&eight, none, none), &[remote(SIZE, 8)]).unwrap();
    net.run_ms(20);
    let outcomes: Vec<_> = net.done(0).iter().map(|d| d.outcome).collect();
    assert_eq!(outcomes, [Outcome::Ok, Outcome::BadKey, Outcome::BadKey], "no right to fetch");
    let invalid = Err(Refused::Invalid);
    assert_eq!(ask(&mut net, sum, (none, none, none), &[remote(0, 8)]), invalid);
    assert_eq!(ask(&mut net, sum, (&eight, &eight, none), &[remote(0, 8)]), invalid);
    assert_eq!(ask(&mut net, sum, (&eight, none, none), &[remote(0, 4), remote(4, 4)]), invalid);
    assert_eq!(ask(&mut net, sum, (none, none, none), &[]), invalid);
    let most = net.nodes[0].rdm.atomic_bytes_max(false);
    assert!(net.nodes[0].rdm.atomic_bytes_max(true) * 2 <= most);
    for (length, expected) in [(most, Ok(())), (most + 16, Err(Refused::TooLong))] {
        let many = [Iov { addr: 0, length }];
        let got = ask(&mut net, sum, (&many, none, none), &[remote(0, length)]);
        assert_eq!(got, expected);
    }
}
