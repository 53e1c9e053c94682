//! Tests of the rings between workers, and of the frames that move through them.

#[path = "../../../examples/cloud/mod.rs"]
mod cloud;

use super::*;
use crate::traffic::shares::{BYTES_MAX, FRAMES_MAX};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use srd_card::vpc::workers::Partition;
use srd_vpc::id::InstanceId;
use srd_vpc_file::Kind;

fn workers<const N: usize>() -> [Exchange; N] {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wakes: Vec<_> = (0..N).map(|_| Arc::new(eventfd(0, flags).unwrap())).collect();
    Exchange::among(&wakes).try_into().unwrap()
}

fn host(name: &str) -> Arc<str> {
    name.into()
}

fn send(from: &mut Exchange, to: u8, name: &str, bytes: &[u8]) {
    send_for(1, from, to, (name, bytes));
}

/// Sends a frame that counts to an interface.
fn send_for(eni: u64, from: &mut Exchange, to: u8, (name, bytes): (&str, &[u8])) {
    let owner = Owner::Interface(EniId(eni));
    from.send(to, (&host(name), false), owner, (Envelope::Arriving, bytes.to_vec()));
}

/// Returns all frames that wait for a worker, with their hosts.
fn all(of: &mut Exchange) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(mut taken) = of.take() {
        let Received { frames, hosts, .. } = &mut taken.received;
        for (host, count, _) in hosts.drain(..) {
            let some = frames.drain(..count);
            found.extend(some.map(|(_, frame)| (host.to_string(), frame)));
        }
        let resets = taken.resets.drain(..);
        found.extend(resets.map(|(eni, frame)| (format!("reset {}", eni.0), frame)));
        of.give_back(taken);
    }
    found
}

fn is_awake(of: &Exchange) -> bool {
    let mut fds = [PollFd::new(&*of.own.wake, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn frames_arrive_in_order_with_the_host_that_has_sent_them() {
    let [mut a, mut b, mut c] = workers();
    for (name, byte) in [("x", 1), ("x", 2), ("y", 3)] {
        send(&mut a, 1, name, &[byte]);
    }
    a.send_reset(1, EniId(7), vec![4]);
    send(&mut c, 1, "z", &[5]);
    assert!(all(&mut b).is_empty(), "nothing was moved yet");
    a.flush();
    send(&mut a, 1, "x", &[6]);
    a.flush();
    c.flush();
    let frame = |name: &str, byte| (name.to_owned(), vec![byte]);
    let of_a = [frame("x", 1), frame("x", 2), frame("y", 3), frame("x", 6)];
    let got = all(&mut b);
    let names = ["reset 7", "z"];
    let first: Vec<_> = got.iter().filter(|(name, _)| !names.contains(&&**name)).cloned().collect();
    assert_eq!(first, of_a);
    assert!(got.contains(&frame("reset 7", 4)) && got.contains(&frame("z", 5)));
    assert_eq!((got.len(), all(&mut b).len(), all(&mut c).len()), (6, 0, 0));
    assert_eq!(a.take_dropped() + c.take_dropped(), 0);
}

#[test]
fn a_full_ring_drops_and_counts_and_takes_frames_again_when_it_was_read() {
    const SHARE: usize = FRAMES_MAX / 2;
    let [mut a, mut b] = workers();
    for _ in 0..SHARE + 3 {
        send(&mut a, 1, "x", &[1]);
    }
    assert_eq!(a.take_dropped(), 3, "those wait at the sender");
    a.flush();
    for _ in 0..5 {
        send(&mut a, 1, "x", &[2]);
    }
    a.flush();
    assert_eq!((a.take_dropped(), a.take_dropped()), (5, 0));
    // Another interface has its own share, at both places.
    for _ in 0..5 {
        send_for(2, &mut a, 1, ("y", &[3]));
    }
    a.flush();
    assert_eq!((all(&mut b).len(), a.take_dropped()), (SHARE + 5, 0));
    send(&mut a, 1, "x", &[3]);
    a.flush();
    assert_eq!((all(&mut b).len(), a.take_dropped()), (1, 0));
    // To a worker that does not exist, and to this worker itself.
    send(&mut a, 2, "x", &[4]);
    send(&mut a, 0, "x", &[4]);
    assert_eq!(a.take_dropped(), 2);
}

#[test]
fn the_bytes_in_a_ring_are_bounded_and_one_frame_always_passes() {
    let [mut a, mut b] = workers();
    let large = vec![0; BYTES_MAX / 4];
    for _ in 0..6 {
        send(&mut a, 1, "x", &large);
    }
    assert_eq!(a.take_dropped(), 4, "an interface has half of the ring");
    a.flush();
    send(&mut a, 1, "x", &large);
    a.flush();
    assert_eq!(a.take_dropped(), 1);
    assert_eq!(all(&mut b).len(), 2);
    send(&mut a, 1, "x", &vec![0; BYTES_MAX + 1]);
    a.flush();
    assert_eq!((all(&mut b).len(), a.take_dropped()), (1, 0));
}

/// Frames up to the size that is copied, and above it, move into an empty ring and into one with
/// frames. The ring uses its memory again.
#[test]
fn short_and_long_frames_keep_their_bytes_and_their_order() {
    let [mut a, mut b] = workers();
    let sizes = [0, 1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 3, 9000, 7];
    for round in 0..3 {
        let mut sent = Vec::new();
        for part in 0..3 {
            for (at, size) in sizes.into_iter().enumerate() {
                let frame = vec![u8::try_from(10 * part + at).unwrap(); size];
                send(&mut a, 1, "x", &frame);
                sent.push(frame);
            }
            a.flush();
        }
        let got: Vec<_> = all(&mut b).into_iter().map(|(_, frame)| frame).collect();
        assert!(got == sent, "round {round}");
    }
    assert_eq!(a.take_dropped(), 0);
}

/// A worker that takes only some frames of a ring has the rest later, in the same order.
#[test]
fn frames_that_are_taken_in_parts_keep_their_order_and_free_the_share() {
    let [mut a, mut b] = workers();
    let (mut got, x) = (Vec::new(), host("x"));
    for round in 0..3_u8 {
        for number in 0..10 {
            let frame = (Envelope::Arriving, vec![round, number]);
            a.send(1, (&x, false), Owner::Interface(EniId(1)), frame);
        }
        a.flush();
    }
    while let Some(mut taken) = b.take() {
        let Received { frames, hosts, .. } = &mut taken.received;
        let some = hosts[0].1.min(4);
        got.extend(frames.drain(..some).map(|(_, frame)| frame));
        hosts[0].1 -= some;
        if hosts[0].1 == 0 {
            hosts.remove(0);
        }
        b.give_back(taken);
    }
    let wanted = (0..3_u8).flat_map(|round| (0..10).map(move |number| vec![round, number]));
    assert!(got.into_iter().eq(wanted));
    for _ in 0..FRAMES_MAX / 2 {
        send(&mut a, 1, "x", &[1]);
    }
    a.flush();
    assert_eq!((all(&mut b).len(), a.take_dropped()), (FRAMES_MAX / 2, 0));
}

/// Returns the first of two workers, the exchange of the second one, and the interfaces of the
/// instances, which belong to the given workers.
fn first_of_two(owners: [u8; 2]) -> (Neighbours, Exchange, [EniId; 2]) {
    let file =
        srd_vpc_file::parse(&cloud::two_instances(["here"; 2]), std::path::Path::new("a test"))
            .unwrap();
    let number = |kind, name| file.names.number(kind, name).unwrap();
    let mut partition = Partition::new("here", 2);
    for (name, owner) in ["a", "b"].into_iter().zip(owners) {
        assert!(partition.assign(InstanceId(number(Kind::Instance, name)), owner));
    }
    let mut world = file.world.clone();
    partition.divide(&mut world, |_| 1);
    let [exchange, second] = workers();
    let redirect = Redirect::new(partition.view(0, &world));
    let enis = ["a", "b"].map(|name| EniId(number(Kind::Interface, name)));
    (Neighbours { redirect, exchange }, second, enis)
}

#[test]
fn frames_for_another_worker_cross_and_the_others_stay_with_their_hosts() {
    let (mut beside, mut other, [own, foreign]) = first_of_two([0, 1]);
    let (x, y) = (host("x"), host("y"));
    let mut received = Received::default();
    for _ in 0..3 {
        let wanted = [(&x, foreign, 1), (&x, own, 2), (&y, own, 3), (&y, foreign, 4), (&y, own, 5)];
        for (host, to, byte) in wanted {
            let envelope = Envelope::Between { from: EniId(900), to };
            received.push(host, true, (envelope, vec![byte]));
        }
        received.unknown = 7;
        beside.redirect(Instant::ZERO, &mut received);
        let stayed: Vec<u8> = received.frames.iter().map(|(_, frame)| frame[0]).collect();
        let hosts: Vec<_> = received.hosts.iter().map(|(of, count, _)| (&**of, *count)).collect();
        assert_eq!((stayed, hosts), (vec![2, 3, 5], vec![("x", 1), ("y", 2)]));
        assert_eq!(std::mem::take(&mut received.unknown), 7);
        beside.exchange.flush();
        assert_eq!(all(&mut other), [("x".to_owned(), vec![1]), ("y".to_owned(), vec![4])]);
        received.frames.clear();
        received.hosts.clear();
    }
    assert!(beside.exchange.staying.frames.capacity() >= 5, "the next call uses this memory");
    assert_eq!(beside.exchange.take_dropped(), 0);
}

/// The packets for one tenant, which arrived at the first worker, filled the queue to the second
/// one. Those for another tenant were dropped.
#[test]
fn regression_a_flood_through_the_redirection_leaves_other_tenants_their_share() {
    let (mut first, mut second, [a, b]) = first_of_two([1, 1]);
    let sender = host("there");
    for _ in 0..3 {
        let mut received = Received::default();
        for (to, count) in [(a, 2 * FRAMES_MAX), (b, 20)] {
            for _ in 0..count {
                let envelope = Envelope::Between { from: EniId(7), to };
                received.push(&sender, false, (envelope, vec![0; 100]));
            }
        }
        first.redirect(Instant::ZERO, &mut received);
        assert!(received.frames.is_empty() && received.hosts.is_empty());
        first.exchange.flush();
    }
    let mut counts = [0, 0];
    while let Some(mut taken) = second.take() {
        taken.received.hosts.clear();
        for (envelope, _) in taken.received.frames.drain(..) {
            let Envelope::Between { to, .. } = envelope else { panic!("{envelope:?}") };
            counts[usize::from(to == b)] += 1;
        }
        second.give_back(taken);
    }
    assert_eq!(counts, [FRAMES_MAX / 2, 60]);
    let dropped = 3 * (2 * FRAMES_MAX + 20) - counts[0] - counts[1];
    assert_eq!(first.exchange.take_dropped(), dropped as u64);
}

#[test]
fn a_worker_that_sleeps_is_woken_and_one_that_has_frames_does_not_sleep() {
    let [mut a, mut b] = workers();
    assert!(!b.rest() && !is_awake(&b));
    send(&mut a, 1, "x", &[1]);
    assert!(!is_awake(&b));
    a.flush();
    assert!(is_awake(&b));
    b.woken();
    assert!(b.rest(), "a frame waits");
    assert_eq!(all(&mut b).len(), 1);
    assert!(!b.rest());
    // A worker that does not sleep is not woken, which would cost a system call.
    b.woken();
    let mut count = [0; 8];
    let _ = rustix::io::read(&b.own.wake, &mut count);
    send(&mut a, 1, "x", &[2]);
    a.flush();
    assert!(!is_awake(&b));
}

/// Both ends use the ring at the same time, and no frame is lost, doubled or out of order.
#[test]
fn two_threads_exchange_frames_without_loss_while_there_is_space() {
    const FRAMES: u32 = 20_000;
    let [mut a, mut b] = workers();
    let sender = std::thread::spawn(move || {
        for number in 0..FRAMES {
            send(&mut a, 1, "x", &number.to_le_bytes());
            a.flush();
            // The receiver is never further behind than the ring allows.
            while a.outgoing[1]
                .as_ref()
                .is_some_and(|to| to.ring.waiting.lock().unwrap().len() > FRAMES_MAX / 4)
            {
                std::thread::yield_now();
            }
        }
        while a.rest() {
            std::thread::yield_now();
        }
        a.take_dropped()
    });
    let mut got = Vec::new();
    while got.len() < FRAMES as usize {
        let some = all(&mut b);
        if some.is_empty() {
            std::thread::yield_now();
        }
        got.extend(
            some.into_iter()
                .map(|(_, frame)| u32::from_le_bytes(<[u8; 4]>::try_from(&frame[..]).unwrap())),
        );
    }
    assert_eq!(sender.join().unwrap(), 0);
    assert!(got.into_iter().eq(0..FRAMES));
}
