//! The AF_XDP back end over a veth: packets pass, they bypass the kernel if they should, and faults
//! are reported. Needs root, to make network namespaces.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::veth::{INTERFACE, Pair};
use crate::support::{PATIENCE, batch, collect, collect_for};
use srd_net::xdp::{Why, XdpError, XdpIo, XdpOptions, suits};
use srd_net::{PacketIo, PollMode, SendOutcome, UdpIo, UdpOptions, Undelivered, Wait};
use srd_proto::time::{Duration as Span, Instant};
use srd_proto::transmit::{Ecn, Transmit};

const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

fn udp_options(ip: &str) -> UdpOptions {
    let mut options = UdpOptions::new(SocketAddr::new(ip.parse().unwrap(), 0));
    options.paths = 4;
    options.receive_buffer_bytes = 4 << 20;
    options
}

/// Opens a back end. The kernel releases a queue some time after its socket is closed.
fn xdp(pair: &Pair, end: usize, ip: &str, change: impl FnOnce(&mut XdpOptions) + Send) -> XdpIo {
    let mut options = XdpOptions::new(udp_options(ip));
    change(&mut options);
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match pair.within(end, || XdpIo::open(&options)) {
            Ok(io) => return io,
            Err(XdpError::QueueTaken { .. } | XdpError::Occupied { .. })
                if std::time::Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(why) => panic!("{why}"),
        }
    }
}

/// Sends batches. If there is no free frame, waits until the kernel has returned frames.
fn send_all(io: &mut XdpIo, mut batches: Vec<(Transmit, Vec<Vec<u8>>)>) {
    let patience = io.clock().now() + Span::from_secs(PATIENCE.as_secs());
    while let SendOutcome::Blocked { batches: done } = io.send(&batches).unwrap() {
        batches.drain(..done);
        let until = io.clock().now() + Span::from_millis(20);
        assert!(until < patience, "the interface takes nothing");
        io.receive(Wait { until, writable: true }, |_, _, _| {}).unwrap();
    }
}

fn udp(pair: &Pair, end: usize, ip: &str) -> UdpIo {
    pair.within(end, || UdpIo::open(&udp_options(ip))).unwrap()
}

/// Makes both kernels resolve the hardware address of the other end. The table of neighbours is
/// shared by all namespaces of the machine: while other tests fill it, packets are lost.
fn acquaint(a: &mut impl PacketIo, b: &mut impl PacketIo) {
    for _ in 0..3 {
        pass_one(a, b);
        pass_one(b, a);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a packet until it arrives, and receives the other packets that have arrived.
fn pass_one(from: &mut impl PacketIo, to: &mut impl PacketIo) {
    let until = std::time::Instant::now() + PATIENCE;
    let (mut sent, mut came) = (0, 0);
    while came == 0 {
        assert!(std::time::Instant::now() < until, "{:?} {:?}", from.stats(), to.stats());
        from.send(&[batch(to.local_address(), 0, &[1])]).unwrap();
        sent += 1;
        came = collect_for(to, 1, Duration::from_millis(500)).len();
    }
    // The other packets are lost or late.
    if came < sent {
        collect_for(to, sent - came, Duration::from_secs(2));
    }
    while to.receive(Wait::NOT, |_, _, _| {}).unwrap() > 0 {}
}

#[test]
fn batches_pass_the_kernel_both_ways_in_both_families() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    for [ip_a, ip_b] in [V4, V6] {
        let mut a = xdp(&pair, 0, ip_a, |_| {});
        let mut b = xdp(&pair, 1, ip_b, |_| {});
        assert!(a.is_native() && !a.is_zero_copy());
        assert_eq!(a.packet_bytes_max(), if ip_a == V4[0] { 1472 } else { 1452 });
        acquaint(&mut a, &mut b);
        let before = (a.xdp_stats(), b.xdp_stats());
        let sizes: Vec<usize> = std::iter::repeat_n(1400, 20).chain([77]).collect();
        for (path, ecn) in [(3, Ecn::NotEct), (2, Ecn::Ect), (1, Ecn::Ce)] {
            let mut sent = batch(b.local_address(), path, &sizes);
            sent.0.ecn = ecn;
            assert_eq!(a.send(std::slice::from_ref(&sent)).unwrap(), SendOutcome::All);
            let got = collect(&mut b, sizes.len());
            let bytes: Vec<_> = got.iter().map(|(_, bytes)| bytes.clone()).collect();
            assert_eq!(bytes, sent.1);
            let port = a.local_address().port() + path;
            let source = SocketAddr::new(a.local_address().ip(), port);
            assert!(got.iter().all(|(meta, _)| (meta.source, meta.ecn) == (source, ecn)));
        }
        let (sent, received) = (a.xdp_stats(), b.xdp_stats());
        assert_eq!(sent.sent_packets - before.0.sent_packets, 63);
        assert_eq!(received.received_packets - before.1.received_packets, 63);
        assert_eq!(received.received_by_kernel, before.1.received_by_kernel);
        assert_eq!((received.dropped_checksum, received.dropped_malformed), (0, 0));
    }
}

#[test]
fn sockets_and_af_xdp_understand_each_other() {
    for generic in [false, true] {
        let Some(pair) = Pair::new(1500, 1) else { return };
        for [ip_a, ip_b] in [V4, V6] {
            let mut a = xdp(&pair, 0, ip_a, |options| options.generic = generic);
            let mut b = udp(&pair, 1, ip_b);
            assert_eq!(a.is_native(), !generic);
            acquaint(&mut a, &mut b);
            let sizes: Vec<usize> = std::iter::repeat_n(1000, 30).chain([1]).collect();
            let to_b = batch(b.local_address(), 2, &sizes);
            a.send(std::slice::from_ref(&to_b)).unwrap();
            let got: Vec<_> = collect(&mut b, sizes.len()).into_iter().map(|(_, b)| b).collect();
            assert_eq!(got, to_b.1, "the kernel finds nothing wrong with our packets");
            // Sent without segmentation, with a checksum that is left to a device that does not
            // exist.
            let to_a = batch(a.local_address(), 2, &sizes);
            b.send(std::slice::from_ref(&to_a)).unwrap();
            let mut got: Vec<_> =
                collect(&mut a, sizes.len()).into_iter().map(|(_, b)| b).collect();
            got.sort();
            let mut expected = to_a.1.clone();
            expected.sort();
            assert_eq!(got, expected);
            let stats = a.xdp_stats();
            if generic {
                assert!(stats.received_by_kernel >= 31, "{stats:?}");
            } else {
                assert!(stats.received_partial_checksum >= 31, "{stats:?}");
            }
        }
    }
}

#[test]
fn large_packets_take_several_frames_or_the_way_through_the_kernel() {
    let Some(pair) = Pair::new(9000, 1) else { return };
    for several in [true, false] {
        let change = |options: &mut XdpOptions| options.several_frames = several;
        let (mut a, mut b) = (xdp(&pair, 0, V4[0], change), xdp(&pair, 1, V4[1], change));
        assert_eq!(a.packet_bytes_max(), if several { 8972 } else { 3798 });
        acquaint(&mut a, &mut b);
        for size in [3798, 3799, 4053, 4054, 4055, 8150, 8972] {
            let sent = batch(b.local_address(), 1, &[size, size, size - 1]);
            let before = b.xdp_stats();
            a.send(std::slice::from_ref(&sent)).unwrap();
            let mut got: Vec<_> = collect(&mut b, 3).into_iter().map(|(_, bytes)| bytes).collect();
            got.sort();
            let mut expected = sent.1.clone();
            expected.sort();
            assert!(got == expected, "{size}: {:?}", b.xdp_stats());
            let past = b.xdp_stats().received_packets - before.received_packets;
            let expected = if several || size <= 3798 { 3 } else { 0 };
            assert!(past == expected || size == 3799, "{size}: {past} {several}");
        }
        let too_large = batch(b.local_address(), 0, &[8973]);
        // The size that works is looked up in the namespace of the thread.
        assert_eq!(pair.within(0, || a.send(&[too_large])).unwrap(), SendOutcome::All);
        assert!(a.take_notice().unwrap().to_string().contains("8972"));
    }
}

#[test]
fn when_every_frame_is_in_use_packets_are_lost_and_counted_and_later_ones_pass() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut a = xdp(&pair, 0, V4[0], |_| {});
    let mut b = xdp(&pair, 1, V4[1], |options| options.receive_frames = 128);
    acquaint(&mut a, &mut b);
    let until = std::time::Instant::now() + PATIENCE;
    for sent in (1..=10).map(|batches: u64| 50 * batches) {
        a.send(&[batch(b.local_address(), 1, &[100; 50])]).unwrap();
        // Waits until the kernel has processed all of them before more follow: the queue of a veth
        // is short.
        let lost = sent.saturating_sub(128);
        loop {
            let stats = b.xdp_stats();
            let dropped = stats.dropped_no_frame + stats.dropped_ring_full;
            if dropped == lost {
                break;
            }
            let in_time = std::time::Instant::now() < until;
            assert!(dropped < lost && in_time, "{lost} of {sent} are lost: {stats:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(collect(&mut b, 128).len(), 128);
    assert_eq!(collect_for(&mut b, 1, Duration::from_millis(50)).len(), 0, "the rest was lost");
    a.send(&[batch(b.local_address(), 1, &[100; 50])]).unwrap();
    assert_eq!(collect(&mut b, 50).len(), 50);
}

#[test]
fn an_interface_that_is_down_loses_packets_and_blocks_nobody() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut a = xdp(&pair, 0, V4[0], |options| options.send_frames = 128);
    let mut b = xdp(&pair, 1, V4[1], |_| {});
    acquaint(&mut a, &mut b);
    let to = b.local_address();
    // There will never be enough frames for this batch, so it goes through the kernel.
    let before = a.xdp_stats().batches_to_kernel;
    send_all(&mut a, vec![batch(to, 1, &[10; 100]), batch(to, 1, &[10; 29])]);
    assert_eq!(a.xdp_stats().batches_to_kernel, before);
    a.send(&[batch(to, 1, &[5000])]).unwrap();
    assert_eq!(a.xdp_stats().batches_to_kernel, before + 1, "too large");
    assert_eq!(collect(&mut b, 129).len(), 129);
    pair.ip(0, &["link", "set", INTERFACE, "down"]);
    for i in 0..20 {
        // The change is read by a check at intervals; before the check, frames fill the ring.
        let sent = a.send(&[batch(to, i % 4, &[100; 50])]).unwrap();
        if sent != SendOutcome::All {
            let until = a.clock().now() + Span::from_millis(20);
            a.receive(Wait { until, writable: true }, |_, _, _| {}).unwrap();
        }
    }
    assert_eq!(a.send(&[batch(to, 0, &[100])]).unwrap(), SendOutcome::All);
    assert!(a.refusal(to).is_some(), "the kernel says why");
    assert!(a.xdp_stats().doorbells_refused > 0, "{:?}", a.xdp_stats());
    pair.ip(0, &["link", "set", INTERFACE, "up"]);
    let until = std::time::Instant::now() + PATIENCE;
    let mut got = 0;
    while got == 0 && std::time::Instant::now() < until {
        a.send(&[batch(to, 0, &[333])]).unwrap();
        a.receive(Wait::NOT, |_, _, _| {}).unwrap();
        let came = collect_for(&mut b, 200, Duration::from_millis(50));
        got = came.iter().filter(|(_, bytes)| bytes.len() == 333).count();
    }
    assert!(got > 0, "{:?}", a.xdp_stats());
}

/// Regression: while frames waited for an interface that was down, each sleep ended after 200 us.
#[test]
fn regression_an_interface_that_is_down_wakes_its_thread_rarely() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut a = xdp(&pair, 0, V4[0], |_| {});
    let mut b = xdp(&pair, 1, V4[1], |_| {});
    acquaint(&mut a, &mut b);
    let to = b.local_address();
    pair.ip(0, &["link", "set", INTERFACE, "down"]);
    a.send(&[batch(to, 1, &[100; 50])]).unwrap();
    assert!(a.xdp_stats().doorbells_refused > 0, "{:?}", a.xdp_stats());
    let before = a.stats().sleeps;
    let end = a.clock().now() + Span::from_secs(1);
    while a.clock().now() < end {
        a.receive(Wait::until(end), |_, _, _| {}).unwrap();
    }
    let sleeps = a.stats().sleeps - before;
    assert!(sleeps < 300, "{sleeps} sleeps in a second");
}

#[test]
fn what_the_program_leaves_to_the_kernel_arrives_all_the_same() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut a = xdp(&pair, 0, V4[0], |_| {});
    let to = a.local_address();
    // Larger than the MTU of the interface: the kernel fragments and reassembles it.
    let socket = pair.within(1, || std::net::UdpSocket::bind("10.77.0.2:7000")).unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    let got = loop {
        socket.send_to(&[5; 4000], to).unwrap();
        let got = collect_for(&mut a, 1, Duration::from_millis(500));
        if !got.is_empty() {
            break got;
        }
        assert!(std::time::Instant::now() < until, "{:?}", a.xdp_stats());
    };
    let (stats, count) = (a.xdp_stats(), got.len() as u64);
    let received = (stats.received_by_kernel, stats.received_packets);
    assert_eq!((got[0].1.len(), received), (4000, (count, 0)));
    // To a port that is not the base port: the kernel handles the packet.
    let answer = pair.within(1, || {
        let socket = std::net::UdpSocket::bind("10.77.0.2:7001").unwrap();
        socket.connect((to.ip(), 1)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send(&[1]).unwrap();
        socket.recv(&mut [0; 10]).unwrap_err().kind()
    });
    assert_eq!(answer, std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn the_port_unreachable_of_a_packet_that_went_past_the_kernel_is_heard() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut a = xdp(&pair, 0, V4[0], |_| {});
    let mut b = xdp(&pair, 1, V4[1], |_| {});
    acquaint(&mut a, &mut b);
    let gone = b.local_address();
    drop(b);
    let until = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < until {
        let before = a.xdp_stats();
        a.send(&[batch(gone, 3, &[100])]).unwrap();
        let past = a.xdp_stats().sent_packets - before.sent_packets;
        if past == 0 {
            // The neighbour is not known at this moment: this packet went through the kernel.
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        for _ in 0..100 {
            a.receive(Wait::until(a.clock().now() + Span::from_millis(5)), |_, _, _| {}).unwrap();
            let now = a.clock().now();
            if let Some(told) = a.take_undelivered(now) {
                assert_eq!((past, told.0), (1, gone), "it went past the kernel");
                assert!(matches!(told.1, Undelivered::Unreachable(_)));
                return;
            }
        }
    }
    panic!("nothing was told");
}

#[test]
fn a_neighbour_that_changes_its_hardware_address_in_silence_is_found_again() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    // The kernel checks neighbours earlier than by default.
    for variable in ["delay_first_probe_time=1", "base_reachable_time_ms=500", "ucast_solicit=1"] {
        pair.set(0, &format!("net.ipv4.neigh.{INTERFACE}.{variable}"));
    }
    let mut a = xdp(&pair, 0, V4[0], |_| {});
    // The kernel of the other end, which has a socket, drops packets for the old address, and does
    // not announce the new address.
    let mut b = udp(&pair, 1, V4[1]);
    acquaint(&mut a, &mut b);
    // Waits until checks of the kernel that are in progress end.
    let known = |pair: &Pair| {
        let neighbours = pair.neighbours(0);
        let mut words = neighbours.split_whitespace().skip_while(|word| *word != "lladdr");
        words.nth(1).map(str::to_owned)
    };
    let until = std::time::Instant::now() + PATIENCE;
    let old = loop {
        if let Some(old) = known(&pair) {
            break old;
        }
        // A check without an answer in time has failed.
        assert!(std::time::Instant::now() < until, "the neighbour is not found");
        acquaint(&mut a, &mut b);
    };
    let entry = [V4[1], "lladdr", old.as_str(), "dev", INTERFACE, "nud", "stale"];
    pair.ip(0, &[&["neigh", "replace"], &entry[..]].concat());
    pair.ip(1, &["link", "set", INTERFACE, "address", "02:00:00:00:77:02"]);
    let until = std::time::Instant::now() + PATIENCE;
    let mut got = 0;
    while got == 0 && std::time::Instant::now() < until {
        a.send(&[batch(b.local_address(), 1, &[100])]).unwrap();
        a.receive(Wait::NOT, |_, _, _| {}).unwrap();
        got = collect_for(&mut b, 1, Duration::from_millis(50)).len();
    }
    assert_eq!(got, 1, "{:?}", a.xdp_stats());
}

#[test]
fn waits_end_by_time_by_call_and_by_packet_in_every_mode() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut a = xdp(&pair, 0, V4[0], |_| {});
    let mut b = xdp(&pair, 1, V4[1], |_| {});
    acquaint(&mut a, &mut b);
    for poll in [PollMode::Block, PollMode::Spin, PollMode::Adaptive(Span::from_micros(30))] {
        b.set_poll(poll);
        let start = b.clock().now();
        assert_eq!(b.receive(Wait::until(start + Span::from_millis(3)), |_, _, _| ()).unwrap(), 0);
        let took = b.clock().now().since(start);
        let most = Span::from_secs(PATIENCE.as_secs());
        assert!(took >= Span::from_millis(3) && took < most, "{took:?}");

        let waker = b.waker().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            let forever = Wait::until(Instant::FAR_FUTURE);
            assert_eq!(b.receive(forever, |_, _, _| ()).unwrap(), 0);
        });

        let to = b.local_address();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                a.send(&[batch(to, 0, &[77])]).unwrap();
            });
            assert_eq!(b.receive(Wait::until(Instant::FAR_FUTURE), |_, _, _| ()).unwrap(), 1);
        });
    }
    assert!(b.stats().sleeps > 0);
}

#[test]
fn each_queue_has_a_socket_of_its_own() {
    let Some(pair) = Pair::new(1500, 2) else { return };
    let open = |end: usize| {
        let first = xdp(&pair, end, V4[end], |_| {});
        let mut options = XdpOptions::new(udp_options(V4[end]));
        options.queue = 1;
        pair.within(end, move || {
            let second = first.join(&options).unwrap();
            (first, second)
        })
    };
    let (mut a0, mut a1) = open(0);
    let (mut b0, mut b1) = open(1);
    assert_eq!((a1.local_address(), a1.paths()), (a0.local_address(), a0.paths()));
    // Without a known next hop, and without sockets, a batch is lost; the kernel is made to resolve
    // the address.
    let lost = batch(b1.local_address(), 0, &[100]);
    assert_eq!(a1.send(std::slice::from_ref(&lost)).unwrap(), SendOutcome::All);
    assert_eq!(a1.xdp_stats().lost_no_way, 1);
    pass_one(&mut a0, &mut b0);
    pass_one(&mut a1, &mut b1);
    let before = (b0.xdp_stats(), b1.xdp_stats());
    // A veth preserves the queue number of sent packets.
    for (from, to) in [(&mut a0, &mut b0), (&mut a1, &mut b1)] {
        let sent = batch(to.local_address(), 2, &[500; 20]);
        from.send(std::slice::from_ref(&sent)).unwrap();
        let got: Vec<_> = collect(to, 20).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(got, sent.1);
    }
    for (io, before) in [(&b0, before.0), (&b1, before.1)] {
        assert_eq!(io.xdp_stats().received_packets - before.received_packets, 20);
        assert_eq!(io.xdp_stats().received_by_kernel, 0);
    }
    drop(a1);
    assert!(pair.has_program(0));
    drop(a0);
    // The program is removed with the last queue.
    pair.await_no_program(0);
}

#[test]
fn a_second_program_or_socket_is_refused_politely_and_the_first_stays() {
    let Some(pair) = Pair::new(1500, 2) else { return };
    for generic in [false, true] {
        let a = xdp(&pair, 0, V4[0], |options| options.generic = generic);
        for (second_generic, queue) in [(false, 0), (false, 1), (true, 1)] {
            let mut options = XdpOptions::new(udp_options(V6[0]));
            (options.generic, options.queue) = (second_generic, queue);
            let open = || pair.within(0, || XdpIo::open(&options)).unwrap_err();
            let until = std::time::Instant::now() + PATIENCE;
            let mut refused = open();
            // The kernel frees queue 1 some time after the socket of the former attempt is closed.
            while queue == 1
                && matches!(refused, XdpError::QueueTaken { .. })
                && std::time::Instant::now() < until
            {
                std::thread::sleep(Duration::from_millis(10));
                refused = open();
            }
            let text = refused.to_string();
            if queue == 0 {
                assert!(matches!(refused, XdpError::QueueTaken { queue: 0, .. }), "{text}");
            } else {
                let XdpError::Occupied { interface } = &refused else { panic!("{text}") };
                assert_eq!(interface, "v0");
                assert!(text.contains("ip link show dev v0"), "{text}");
            }
            assert!(pair.has_program(0));
        }
        // The kernel removes a program some time after its owner has ended.
        drop(a);
        pair.await_no_program(0);
    }
}

#[test]
fn options_out_of_range_and_unsuitable_addresses_are_refused_with_a_reason() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let refused = |change: &(dyn Fn(&mut XdpOptions) + Sync)| {
        let mut options = XdpOptions::new(udp_options(V4[0]));
        change(&mut options);
        pair.within(0, || XdpIo::open(&options)).unwrap_err().to_string()
    };
    assert!(refused(&|o| o.receive_frames = 1).contains("receive_frames"));
    assert!(refused(&|o| o.send_frames = 1 << 20).contains("send_frames"));
    assert!(refused(&|o| o.queue = 1000).contains("queue 1000"));
    assert!(refused(&|o| o.queue = 1).contains("binding"));
    assert!(refused(&|o| o.udp.further.push(V6[0].parse().unwrap())).contains("one local address"));
    let at = |ip: &str| ip.parse::<IpAddr>().unwrap();
    assert!(refused(&|o| o.udp.address.set_ip(at("0.0.0.0"))).contains("name its address"));
    assert!(refused(&|o| o.udp.address.set_ip(at("127.0.0.1"))).contains("loopback"));
    pair.ip(0, &["tuntap", "add", "dev", "t0", "mode", "tun"]);
    pair.ip(0, &["addr", "add", "10.80.0.1/24", "dev", "t0"]);
    pair.ip(0, &["link", "set", "t0", "up"]);
    assert!(refused(&|o| o.udp.address.set_ip(at("10.80.0.1"))).contains("not Ethernet"));
    let why = pair.within(0, || suits(at(V4[0]))).unwrap_err();
    assert!(matches!(&why, Why::NoZeroCopy { interface } if interface == INTERFACE), "{why}");
    pair.await_no_program(0);
}

/// Function of the test that other tests run in a separate process.
const HOLDER: &str = "holds_the_program_until_it_is_killed";

fn start_holder(pair: &Pair, before: &[&str]) -> std::process::Child {
    let exe = std::env::current_exe().unwrap();
    std::process::Command::new("ip")
        .args(["netns", "exec", &pair.names[0]])
        .args(before)
        .arg(exe)
        .args(["--exact", &crate::name_of(module_path!(), HOLDER), "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "runs inside the namespace that another test makes"]
fn holds_the_program_until_it_is_killed() {
    match XdpIo::open(&XdpOptions::new(udp_options(V4[0]))) {
        Ok(_io) => std::thread::sleep(PATIENCE),
        Err(why) => println!("refused: {why}"),
    }
}

#[test]
fn nothing_stays_attached_after_kill_9() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut child = start_holder(&pair, &[]);
    let until = std::time::Instant::now() + PATIENCE;
    while !pair.has_program(0) {
        assert!(std::time::Instant::now() < until, "the program was not attached");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap(); // sends SIGKILL
    child.wait().unwrap();
    pair.await_no_program(0);
}

#[test]
fn a_missing_right_is_named() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    for (dropped, named) in [("-net_raw", "CAP_NET_RAW"), ("-net_admin,-sys_admin", "CAP_BPF")] {
        let bounding = format!("--bounding-set={dropped}");
        let output = start_holder(&pair, &["setpriv", &bounding]).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(named) && said.contains("io = \"udp\""), "{dropped}: {said}");
        pair.await_no_program(0);
    }
}
