//! The socket layer on loopback: packets arrive unchanged, with the right metadata.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use crate::support::{batch, collect};
use srd_net::{Clock, Notice, PacketIo, PollMode, SendOutcome, UdpIo, UdpOptions, Wait};
use srd_proto::ids::Entropy;
use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::Ecn;

/// Longest time that a test waits for a packet.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(ip: &str, paths: u16) -> UdpIo {
    let mut options = UdpOptions::new(SocketAddr::new(ip.parse().unwrap(), 0));
    options.paths = paths;
    options.receive_buffer_bytes = 4 << 20;
    UdpIo::open(&options).unwrap()
}

#[test]
fn a_batch_arrives_segment_by_segment_in_both_families() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut a, mut b) = (open(ip, 4), open(ip, 1));
        let sizes: Vec<usize> = std::iter::repeat_n(1400, 20).chain([77]).collect();
        let sent = batch(b.local_address(), 3, &sizes);
        assert_eq!(a.send(std::slice::from_ref(&sent)).unwrap(), SendOutcome::All);
        let got = collect(&mut b, sizes.len());
        let bytes: Vec<_> = got.iter().map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(bytes, sent.1);
        let from = got[0].0.source;
        assert_eq!(from.port(), a.local_address().port() + 3);
        assert_eq!(from.ip(), a.local_address().ip());
    }
}

#[test]
fn one_socket_carries_both_families_and_each_peer_has_the_address_of_its_own() {
    let mut all = open("::", 4);
    let port = all.local_address().port();
    for ip in ["127.0.0.1", "::1"] {
        let mut peer = open(ip, 1);
        let here = SocketAddr::new(ip.parse().unwrap(), port);
        for ecn in [Ecn::NotEct, Ecn::Ect, Ecn::Ce] {
            let (mut there, mut back) =
                (batch(here, 0, &[900, 900]), batch(peer.local_address(), 3, &[1400; 3]));
            (there.0.ecn, back.0.ecn) = (ecn, ecn);
            peer.send(std::slice::from_ref(&there)).unwrap();
            let got = collect(&mut all, 2);
            assert_eq!((got[0].0.source, got[0].0.ecn), (peer.local_address(), ecn), "{ip}");
            assert_eq!(all.send(std::slice::from_ref(&back)).unwrap(), SendOutcome::All);
            let got = collect(&mut peer, 3);
            let wanted = SocketAddr::new(here.ip(), port + 3);
            assert_eq!((got[0].0.source, got[0].0.ecn), (wanted, ecn), "{ip}");
            let bytes: Vec<_> = got.into_iter().map(|(_, bytes)| bytes).collect();
            assert_eq!(bytes, back.1);
        }
    }
    assert_eq!(all.stats().send_failed, 0);
}

#[test]
fn segmentation_and_coalescing_save_system_calls() {
    let (mut a, mut b) = (open("127.0.0.1", 1), open("127.0.0.1", 1));
    if !a.segmentation() {
        println!("skipped: this kernel has no UDP segmentation offload");
        return;
    }
    let sizes = [8000; 8];
    // Coalescing begins with the first messages that arrive together.
    a.send(&[batch(b.local_address(), 0, &[100, 100, 100])]).unwrap();
    assert_eq!(collect(&mut b, 3).len(), 3);
    let before = (a.stats(), b.stats());
    a.send(&[batch(b.local_address(), 0, &sizes), batch(b.local_address(), 0, &sizes)]).unwrap();
    assert_eq!(collect(&mut b, 16).len(), 16);
    assert_eq!(a.stats().send_calls - before.0.send_calls, 1);
    assert_eq!(a.stats().sent_packets - before.0.sent_packets, 16);
    let messages = b.stats().received_messages - before.1.received_messages;
    assert_eq!(messages, 2, "loopback passes a batch in one piece");
    assert_eq!(b.stats().received_bytes - before.1.received_bytes, 128_000);
}

#[test]
fn many_small_segments_pass() {
    let (mut a, mut b) = (open("127.0.0.1", 1), open("127.0.0.1", 1));
    let sizes = vec![30; a.batch_segments_max()];
    a.send(&[batch(b.local_address(), 0, &sizes)]).unwrap();
    assert_eq!(collect(&mut b, sizes.len()).len(), sizes.len());
}

#[test]
fn every_ecn_value_is_carried_in_both_families() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut a, mut b) = (open(ip, 1), open(ip, 1));
        for ecn in [Ecn::NotEct, Ecn::Ect, Ecn::Ce] {
            let mut sent = batch(b.local_address(), 0, &[100]);
            sent.0.ecn = ecn;
            a.send(&[sent]).unwrap();
            assert_eq!(collect(&mut b, 1)[0].0.ecn, ecn);
        }
    }
}

/// Sends packets until one has the time of its arrival instead of the time of its reading: the
/// kernel starts to stamp packets some time after the first socket requests it.
fn await_stamps(from: &mut UdpIo, to: &mut UdpIo) {
    let margin = Duration::from_millis(1);
    let until = from.clock().now() + PATIENCE;
    loop {
        let before = from.clock().now();
        from.send(&[batch(to.local_address(), 0, &[100])]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let read_at = to.clock().now();
        let received_at = collect(to, 1)[0].0.received_at;
        assert!(received_at + margin >= before);
        if received_at + Duration::from_millis(10) < read_at {
            return;
        }
        assert!(read_at < until, "the stamp is the time of reading");
    }
}

#[test]
fn arrival_is_stamped_by_the_kernel_not_when_read() {
    let (mut a, mut b) = (open("127.0.0.1", 1), open("127.0.0.1", 1));
    await_stamps(&mut a, &mut b);
}

#[test]
fn without_segmentation_every_packet_goes_alone() {
    let mut options = UdpOptions::new("127.0.0.1:0".parse().unwrap());
    options.segmentation = false;
    let (mut a, mut b) = (UdpIo::open(&options).unwrap(), open("127.0.0.1", 1));
    assert!(!a.segmentation());
    let sent = batch(b.local_address(), 9, &[1000, 1000, 1000, 10]);
    a.send(std::slice::from_ref(&sent)).unwrap();
    let bytes: Vec<_> = collect(&mut b, 4).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(bytes, sent.1);
    assert_eq!(b.stats().received_messages, 4);
}

#[test]
fn a_packet_larger_than_the_interface_is_reported_and_later_ones_pass() {
    let (mut a, mut b) = (open("127.0.0.1", 1), open("127.0.0.1", 1));
    let to = b.local_address();
    // Loopback passes 65,536 bytes including headers, but UDP has a limit of 65,507 bytes.
    assert_eq!(a.send(&[batch(to, 0, &[65_520]), batch(to, 0, &[500])]).unwrap(), SendOutcome::All);
    assert_eq!(collect(&mut b, 1)[0].1.len(), 500);
    assert_eq!(a.stats().send_too_large, 1);
    let notice = a.take_notice().unwrap();
    assert!(matches!(notice, Notice::PacketTooLarge { packet_bytes: 65_520, .. }));
    let text = notice.to_string();
    assert!(text.contains("65000 bytes") && text.contains("packet_bytes_max"), "{text}");
}

#[test]
fn a_wait_ends_at_its_deadline_in_every_mode() {
    for poll in [PollMode::Block, PollMode::Spin, PollMode::Adaptive(Duration::from_micros(30))] {
        let mut io = open("127.0.0.1", 1);
        io.set_poll(poll);
        let start = io.clock().now();
        let until = start + Duration::from_millis(3);
        assert_eq!(io.receive(Wait::until(until), |_, _, _| ()).unwrap(), 0);
        let took = io.clock().now().since(start);
        assert!(took >= Duration::from_millis(3) && took < PATIENCE, "{took:?}");
    }
}

#[test]
fn a_call_from_another_thread_ends_a_wait_in_every_mode() {
    for poll in [PollMode::Block, PollMode::Spin] {
        let mut io = open("127.0.0.1", 1);
        io.set_poll(poll);
        let waker = io.waker().unwrap();
        let caller = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            waker.wake();
        });
        let start = io.clock().now();
        assert_eq!(io.receive(Wait::until(Instant::FAR_FUTURE), |_, _, _| ()).unwrap(), 0);
        assert!(io.clock().now().since(start) < PATIENCE);
        caller.join().unwrap();
        // The wake-up is used up: the next wait lasts its full time.
        let until = io.clock().now() + Duration::from_millis(5);
        io.receive(Wait::until(until), |_, _, _| ()).unwrap();
        assert!(io.clock().now() >= until);
    }
}

#[test]
fn only_the_base_port_receives() {
    let (mut a, mut b) = (open("127.0.0.1", 1), open("127.0.0.1", 2));
    let mut elsewhere = b.local_address();
    elsewhere.set_port(elsewhere.port() + 1);
    a.send(&[batch(elsewhere, 0, &[100]), batch(b.local_address(), 0, &[200])]).unwrap();
    let got = collect(&mut b, 1);
    assert_eq!(got[0].1.len(), 200);
}

#[test]
fn a_port_in_use_is_named_in_the_error() {
    let a = open("127.0.0.1", 4);
    let mut options = UdpOptions::new(a.local_address());
    options.paths = 1;
    let error = UdpIo::open(&options).unwrap_err().to_string();
    assert!(error.contains(&a.local_address().to_string()) && error.contains("another"), "{error}");
}

#[test]
fn absurd_numbers_of_paths_are_refused() {
    let mut options = UdpOptions::new("127.0.0.1:0".parse().unwrap());
    for paths in [0, 257] {
        options.paths = paths;
        assert!(UdpIo::open(&options).is_err());
    }
    options.address.set_port(65_530);
    options.paths = 100;
    assert!(UdpIo::open(&options).unwrap_err().to_string().contains("65,535"));
}

#[test]
fn nobody_listening_is_no_error() {
    let gone = open("127.0.0.1", 1).local_address();
    let mut a = open("127.0.0.1", 2);
    for path in [0, 1, 0, 1] {
        assert_eq!(a.send(&[batch(gone, path, &[100])]).unwrap(), SendOutcome::All);
        a.receive(Wait::NOT, |_, _, _| ()).unwrap();
    }
}

#[test]
fn clocks_of_two_endpoints_are_one_axis() {
    let (a, b) = (Clock::new(), Clock::new());
    let first = a.now();
    assert!(b.now() >= first);
}

#[test]
fn a_thread_that_is_always_late_still_receives() {
    let (mut a, mut b) = (open("127.0.0.1", 1), open("127.0.0.1", 1));
    // This sleep ends only by time: the next wait begins without a call to receive.
    let until = b.clock().now() + Duration::from_millis(2);
    assert_eq!(b.receive(Wait::until(until), |_, _, _| {}).unwrap(), 0);
    assert_eq!(a.send(&[batch(b.local_address(), 0, &[100])]).unwrap(), SendOutcome::All);
    let mut got = 0;
    let patience = b.clock().now() + PATIENCE;
    while got == 0 && b.clock().now() < patience {
        // The timer was due long ago.
        got += b.receive(Wait::until(until), |_, _, _| {}).unwrap();
    }
    assert_eq!(got, 1);
}

/// Opens a back end with sockets at two loopback addresses.
fn open_two(paths: u16) -> UdpIo {
    let mut options = UdpOptions::new("127.0.0.1:0".parse().unwrap());
    options.further = vec!["127.0.0.2".parse().unwrap()];
    options.paths = paths;
    UdpIo::open(&options).unwrap()
}

#[test]
fn paths_take_turns_over_local_addresses_and_packets_are_received_at_each() {
    let (mut a, mut b) = (open_two(5), open_two(2));
    let base = a.local_address().port();
    assert_eq!((a.local_addresses(), a.paths()), (2, 5));
    for path in 0..5u16 {
        let local = u8::try_from(path % 2).unwrap();
        let to = b.local_address_at(local);
        assert_eq!((to.port(), to.ip()), (b.local_address().port(), [127, 0, 0, 1 + local].into()));
        let sent = batch(to, path, &[100 + usize::from(path)]);
        assert_eq!(a.send(std::slice::from_ref(&sent)).unwrap(), SendOutcome::All);
        let got = collect(&mut b, 1);
        assert_eq!((got.len(), got[0].1.clone()), (1, sent.1[0].clone()));
        let from = got[0].0.source;
        let expected = SocketAddr::new(a.local_address_at(local).ip(), base + path);
        assert_eq!((from, got[0].0.local), (expected, local));
        assert_eq!(a.source(Entropy(path), to), expected);
    }
}

#[test]
fn a_sleep_ends_with_a_packet_at_any_local_address() {
    for local in 0..2 {
        let (mut a, mut b) = (open("127.0.0.1", 1), open_two(2));
        let to = b.local_address_at(local);
        let sender = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            a.send(&[batch(to, 0, &[77])]).unwrap();
        });
        b.set_poll(PollMode::Block);
        let got = collect(&mut b, 1);
        assert_eq!((got.len(), got[0].0.local), (1, local));
        sender.join().unwrap();
    }
}

/// Regression: packets were handed over address by address, so that packets of one address came
/// long after packets of other addresses that were sent later. Their sender considered them lost
/// (`docs/perf-notes.md`, 2026-11-24).
#[test]
fn regression_packets_to_several_local_addresses_come_in_the_order_of_their_arrival() {
    let (mut a, mut b) = (open("127.0.0.1", 1), open_two(2));
    await_stamps(&mut a, &mut b);
    // More packets than one call of the kernel returns, single ones and segmented ones.
    let turns =
        |n: usize| if n.is_multiple_of(3) { [100; 1].to_vec() } else { [1000; 20].to_vec() };
    // If a busy kernel still processes packets while the first address is read, these packets
    // arrive late.
    for attempt in 1..=5 {
        let mut sent = Vec::new();
        for n in 0..90_usize {
            let local = u8::try_from(n * n % 2).unwrap();
            let sizes = turns(n);
            let message = batch(b.local_address_at(local), 0, &sizes);
            sent.extend(message.1.iter().map(|packet| (local, packet.clone())));
            assert_eq!(a.send(&[message]).unwrap(), SendOutcome::All);
        }
        std::thread::sleep(std::time::Duration::from_millis(20) * attempt);
        let got = collect(&mut b, sent.len());
        let got: Vec<_> = got.into_iter().map(|(meta, packet)| (meta.local, packet)).collect();
        assert_eq!(got.len(), sent.len());
        let first_wrong = got.iter().zip(&sent).position(|(got, sent)| got != sent);
        if first_wrong.is_none() {
            return;
        }
        println!("attempt {attempt}: packet {first_wrong:?} came out of its turn");
    }
    panic!("packets never came in the order of their arrival");
}

#[test]
fn a_path_of_another_family_than_the_destination_leaves_from_the_next_address() {
    let mut options = UdpOptions::new("127.0.0.1:0".parse().unwrap());
    options.further = vec!["::1".parse().unwrap()];
    options.paths = 4;
    let mut a = UdpIo::open(&options).unwrap();
    for ip in ["127.0.0.1", "::1"] {
        let mut b = open(ip, 1);
        for path in 0..4 {
            a.send(&[batch(b.local_address(), path, &[10])]).unwrap();
            let got = collect(&mut b, 1);
            assert_eq!(got[0].0.source.ip().to_string(), ip);
        }
    }
}

#[test]
fn too_many_local_addresses_for_the_paths_or_at_all_are_refused() {
    let ip = |n: u8| std::net::IpAddr::from([127, 0, 0, n]);
    for (further, paths) in [(vec![ip(2)], 1), ((2..=5).map(ip).collect(), 64)] {
        let mut options = UdpOptions::new("127.0.0.1:0".parse().unwrap());
        (options.further, options.paths) = (further, paths);
        let refused = UdpIo::open(&options).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{refused}");
        assert!(refused.to_string().contains("local addresses"), "{refused}");
    }
}

#[test]
fn errors_of_packets_wait_up_to_a_limit() {
    let mut io = open("127.0.0.1", 1);
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let until = io.clock().now() + PATIENCE;
    // The error of a packet is read when the next packet is sent.
    while io.stats().undelivered < 150 {
        io.send(&[batch(closed, 0, &[1])]).unwrap();
        assert!(io.clock().now() < until, "{} errors", io.stats().undelivered);
    }
    let later = io.clock().now() + Duration::from_secs(1);
    let told = std::iter::from_fn(|| io.take_undelivered(later)).count();
    // 64 wait; those of the newest packets are read only now.
    assert!((64..=66).contains(&told), "{told} of {}", io.stats().undelivered);
}
