//! Endpoints whose thread, process or machine does not run for a while.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use srd_net::{
    Clock, Endpoint, LocalEndpoint, MemoryIo, MemoryNet, MemoryOptions, PacketIo, Segments,
    SendOutcome, Wait,
};
use srd_proto::time::Instant;
use srd_proto::transmit::{PacketMeta, Transmit};
use srd_proto::{
    Class, Config, Datagram, Delivery, Duration as Span, Event, Qpn, ReceiveBuffers, Status,
};

use crate::support::PATIENCE;

/// Events that an application gets.
#[derive(Default)]
struct EventLog(Vec<Event>);

impl srd_net::Application for EventLog {
    fn delivered(&mut self, _: &mut srd_net::Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, _: &mut srd_net::Context<'_>, event: Event) {
        self.0.push(event);
    }
}

impl EventLog {
    fn ends(&self) -> usize {
        self.0.iter().filter(|event| matches!(event, Event::Completed { .. })).count()
    }

    fn assert_no_loss(&self) {
        for event in &self.0 {
            assert!(!matches!(event, Event::PeerDown { .. }), "{event:?}");
            if let Event::Completed { status, .. } = event {
                assert_eq!(*status, Status::Ok);
            }
        }
    }
}

fn datagram(bytes: usize) -> Datagram {
    Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(1),
        imm: 0,
        payload: Bytes::from(vec![7; bytes]),
        class: Class::Bulk,
        user: 1,
    }
}

#[test]
fn regression_what_has_arrived_counts_before_timers_after_a_stall() {
    let net = MemoryNet::new(MemoryOptions::default());
    let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 100));
    // Contexts expire within the pause, so the endpoint must process the answers first. The other
    // end, which answers, has a timeout longer than any pause of a thread of a busy machine.
    let config = Config {
        peer_timeout: Span::from_millis(2500),
        idle_reclaim: Span::from_millis(3000),
        ..Config::sockets()
    };
    let mut a = LocalEndpoint::over(net.node(address(1), 1), config.clone()).unwrap();
    let anyone = Config { admission: srd_proto::Admission::Anyone, ..config };
    let b = Endpoint::over(net.node(address(2), 1), anyone).unwrap();
    a.open_qp(Qpn(1), ReceiveBuffers::Unlimited);
    let peer = a.connect(address(2)).unwrap();
    let mut told = EventLog::default();
    for n in 1..=2 {
        for _ in 0..50 {
            a.send(peer, datagram(1000)).unwrap();
        }
        if n == 2 {
            // The datagrams leave, and the answers arrive but are not read.
            a.transmit(&mut told).unwrap();
            std::thread::sleep(Duration::from_millis(2700));
        }
        let end = std::time::Instant::now() + PATIENCE;
        while told.ends() < n * 50 {
            a.poll(Span::from_millis(100), &mut told).unwrap();
            assert!(std::time::Instant::now() < end, "{} of {} ended", told.ends(), n * 50);
        }
        told.assert_no_loss();
    }
    drop(b);
}

/// A back end that simulates a stall of its thread, once: it returns from a wait too late, after
/// packets have arrived. Its next wait lasts until the application has received something.
#[derive(Debug)]
struct Stalling {
    inner: MemoryIo,
    stall: Arc<Stall>,
    is_due: bool,
    /// Packets that have arrived during the stall.
    arrived: Vec<(PacketMeta, Vec<u8>)>,
    /// Whether the endpoint has taken the packets that arrived during the stall.
    is_taken: bool,
}

#[derive(Debug, Default)]
struct Stall {
    /// Whether the stall begins at the first wait for a timer after the next packet.
    is_armed: AtomicBool,
    has_arrived: AtomicBool,
    /// Whether the application received nothing in the longest time for which a test waits.
    was_late: AtomicBool,
}

/// Length in bytes of a datagram with data, in both directions. Every acknowledgement is shorter.
const MESSAGE_BYTES: usize = 1000;

impl Stalling {
    /// Stalls until a datagram with data has arrived, and at least for the time `least`.
    fn stand_still(&mut self, least: Span) -> io::Result<()> {
        let began = self.clock().now();
        let has_pong = |arrived: &[(PacketMeta, Vec<u8>)]| {
            arrived.iter().any(|(_, bytes)| bytes.len() >= MESSAGE_BYTES)
        };
        let passed = |clock: &Clock| clock.now().since(began);
        while !has_pong(&self.arrived) || passed(self.clock()) < least {
            if passed(self.clock()) > Span::from_secs(5) {
                break;
            }
            let arrived = &mut self.arrived;
            self.inner.receive(Wait::NOT, |_, meta, bytes| arrived.push((meta, bytes.to_vec())))?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until the application has received something, because nothing else wakes it.
    fn wait_for_arrival(&mut self) {
        let end = self.clock().now() + Span::from_secs(20);
        while !self.stall.has_arrived.load(Ordering::SeqCst) {
            if self.clock().now() > end {
                self.stall.was_late.store(true, Ordering::SeqCst);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl PacketIo for Stalling {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        // Acknowledgements are shorter.
        let has_data = batches.iter().any(|(of, _)| of.total_bytes >= MESSAGE_BYTES);
        self.is_due |= has_data && self.stall.is_armed.swap(false, Ordering::SeqCst);
        self.inner.send(batches)
    }

    fn receive(
        &mut self,
        wait: Wait,
        mut each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        let left = wait.until.since(self.clock().now());
        let is_near = left > Span::ZERO && left < Span::from_millis(500);
        if is_near && std::mem::take(&mut self.is_due) {
            self.stand_still(left + Span::from_millis(20))?;
            return Ok(0);
        }
        if !self.arrived.is_empty() {
            let now = self.clock().now();
            let arrived = std::mem::take(&mut self.arrived);
            let count = arrived.len();
            self.is_taken = arrived.iter().any(|(_, bytes)| bytes.len() >= MESSAGE_BYTES);
            for (meta, mut bytes) in arrived {
                each(now, meta, &mut bytes);
            }
            return Ok(count);
        }
        if wait != Wait::NOT && std::mem::take(&mut self.is_taken) {
            self.wait_for_arrival();
        }
        self.inner.receive(wait, each)
    }

    inner_io!();
}

#[test]
fn regression_what_arrived_in_a_stall_does_not_wait_for_a_timer() {
    let net = MemoryNet::new(MemoryOptions::default());
    let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 100));
    let anyone = Config { admission: srd_proto::Admission::Anyone, ..Config::sockets() };
    let b = Endpoint::over(net.node(address(2), 1), anyone).unwrap();
    let stall = Arc::new(Stall::default());
    let io = Stalling {
        inner: net.node(address(1), 1),
        stall: stall.clone(),
        is_due: false,
        arrived: Vec::new(),
        is_taken: false,
    };
    let a = Endpoint::over(io, Config::sockets()).unwrap();
    let peer = a.connect(address(2)).unwrap();
    for _ in 0..5 {
        peer.send_acknowledged(Bytes::from_static(b"ping")).unwrap();
        let ping = b.recv_timeout(PATIENCE).unwrap().expect("a ping");
        stall.has_arrived.store(false, Ordering::SeqCst);
        stall.is_armed.store(true, Ordering::SeqCst);
        // The datagram makes a wait for an acknowledgement, which arrives together with the answer.
        peer.send(Bytes::from(vec![6; MESSAGE_BYTES])).unwrap();
        assert!(b.recv_timeout(PATIENCE).unwrap().is_some());
        ping.peer.send(Bytes::from(vec![7; MESSAGE_BYTES])).unwrap();
        assert!(a.recv_timeout(PATIENCE).unwrap().is_some());
        stall.has_arrived.store(true, Ordering::SeqCst);
        assert!(!stall.was_late.load(Ordering::SeqCst), "it waited with what it had received");
    }
}

/// Number of peers of the process that is stopped.
const PEERS: usize = 300;
/// Time for which the process is stopped: longer than the answer timeout of every peer.
const STOPPED: Duration = Duration::from_secs(5);
/// Largest number of attempts. On a busy machine, the stopped process may continue late; then the
/// test stops it again.
const STOPS_MAX: usize = 3;
/// Environment variable that is set in the process that is stopped.
const HUB: &str = "SRD_TEST_HUB";

/// Returns the options that the daemon uses, but with a longer answer timeout, because on a busy
/// machine the thread that drives all peers may not run for a while.
fn daemon_like() -> srd_net::BindOptions {
    let mut options = srd_net::BindOptions::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.config.paths = 1;
    options.config.peer_timeout = Span::from_secs(4);
    options.config.keepalive = Span::from_millis(200);
    options.config.idle_reclaim = Span::MAX;
    options.config.admission = srd_proto::Admission::Anyone;
    options.receive_buffer_bytes = 1 << 20;
    options.poll = srd_net::PollMode::Block;
    options
}

/// Runs the process that is stopped. The process reads port numbers, and sends to each port one
/// datagram at a time, until its input ends. Then it prints the number of peers that it has given
/// up.
#[test]
fn hub_process() {
    if std::env::var_os(HUB).is_none() {
        return;
    }
    let mut options = daemon_like();
    options.receive_buffer_bytes = 8 << 20;
    let mut hub = LocalEndpoint::bind(&options).unwrap();
    hub.open_qp(Qpn(1), ReceiveBuffers::Unlimited);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let ports: Vec<u16> = line.split_whitespace().map(|port| port.parse().unwrap()).collect();
    let connect = |port: &u16| hub.connect(SocketAddr::from(([127, 0, 0, 1], *port))).unwrap();
    let peers: Vec<_> = ports.iter().map(connect).collect();
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let at_end = ended.clone();
    std::thread::spawn(move || {
        std::io::stdin().read_line(&mut String::new()).unwrap();
        at_end.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    while !ended.load(std::sync::atomic::Ordering::SeqCst) {
        let mut told = EventLog::default();
        for peer in &peers {
            let waiting = hub.core().peer_stats(*peer).map_or(0, |stats| stats.queued_datagrams);
            if waiting == 0 {
                hub.send(*peer, datagram(200)).unwrap();
            }
        }
        let next = hub.now() + Span::from_millis(5);
        while hub.now() < next {
            hub.poll(next.since(hub.now()), &mut told).unwrap();
        }
    }
    let stats = hub.core().stats();
    println!("given up: {}, pauses: {}", stats.unresponsive_remote_events, stats.own_pauses);
}

/// Counts deliveries.
#[derive(Default)]
struct Count(usize);

impl srd_net::Application for Count {
    fn delivered(&mut self, _: &mut srd_net::Context<'_>, _: Delivery<'_>) {
        self.0 += 1;
    }
}

/// Polls every peer until each has received a new datagram. Returns the time that this took.
fn until_all_have_events(peers: &mut [LocalEndpoint]) -> Duration {
    let start = std::time::Instant::now();
    let mut events = vec![false; peers.len()];
    while events.contains(&false) {
        for (peer, events) in peers.iter_mut().zip(&mut events) {
            let mut count = Count::default();
            peer.poll(Span::ZERO, &mut count).unwrap();
            *events |= count.0 > 0;
        }
        let missing = events.iter().filter(|events| !**events).count();
        assert!(start.elapsed() < PATIENCE, "{missing} peers heard nothing");
    }
    start.elapsed()
}

#[test]
#[allow(unsafe_code, reason = "signals")]
fn a_process_that_was_stopped_gives_none_of_its_300_peers_up_and_goes_on_at_once() {
    use std::io::{Read, Write};
    let bind = |_| {
        let mut peer = LocalEndpoint::bind(&daemon_like()).unwrap();
        peer.open_qp(Qpn(1), ReceiveBuffers::Unlimited);
        peer
    };
    let mut peers: Vec<_> = (0..PEERS).map(bind).collect();
    let mut hub = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &crate::name_of(module_path!(), "hub_process"), "--nocapture"])
        .env(HUB, "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ports = peers.iter().map(|peer| peer.local_address().port().to_string());
    let line = ports.collect::<Vec<_>>().join(" ");
    let mut input = hub.stdin.take().unwrap();
    writeln!(input, "{line}").unwrap();
    until_all_have_events(&mut peers);
    let usual = (0..5).map(|_| until_all_have_events(&mut peers)).max().unwrap();
    // Far longer than an idle machine takes. A busy machine is equally slow without a stop, and may
    // not run for a while after a stop.
    let at_once = Duration::from_secs(1) + 4 * usual;
    let pid = i32::try_from(hub.id()).unwrap();
    let mut took: Vec<Duration> = Vec::new();
    while took.len() < STOPS_MAX && took.iter().all(|took| *took >= at_once) {
        // SAFETY: the signal goes to a child that was not waited for yet.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        let end = std::time::Instant::now() + STOPPED;
        while std::time::Instant::now() < end {
            for peer in &mut peers {
                peer.poll(Span::ZERO, &mut Count::default()).unwrap();
            }
        }
        // SAFETY: the signal goes to a child that was not waited for yet.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        took.push(until_all_have_events(&mut peers));
    }
    println!("all {PEERS} peers heard again {took:?} after each stop, {usual:?} without one");
    drop(input);
    let mut said = String::new();
    hub.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(hub.wait().unwrap().success());
    assert!(said.contains("given up: 0,"), "{said}");
    assert!(took.iter().any(|took| *took < at_once), "{took:?}, {usual:?} without a stop");
}

/// Regression: the process of a peer has ended, but its host still answers.
#[test]
fn regression_a_dead_peer_on_a_host_that_says_so_is_given_up_within_a_second() {
    for ip in ["127.0.0.1", "::1"] {
        for paths in [1, 16] {
            let mut options = srd_net::BindOptions::at(SocketAddr::new(ip.parse().unwrap(), 0));
            options.config.paths = paths;
            options.config.peer_timeout = Span::from_secs(30);
            options.config.admission = srd_proto::Admission::Anyone;
            let mut a = LocalEndpoint::bind(&options).unwrap();
            a.open_qp(Qpn(1), ReceiveBuffers::Unlimited);
            let mut b = LocalEndpoint::bind(&options).unwrap();
            b.open_qp(Qpn(1), ReceiveBuffers::Unlimited);
            let peer = a.connect(b.local_address()).unwrap();
            let mut told = EventLog::default();
            a.send(peer, datagram(1000)).unwrap();
            let end = std::time::Instant::now() + PATIENCE;
            while told.ends() < 1 {
                assert!(std::time::Instant::now() < end, "{:?}", a.io_stats());
                a.poll(Span::ZERO, &mut told).unwrap();
                b.poll(Span::ZERO, &mut Count::default()).unwrap();
            }
            // The sockets are closed without a Close, as those of a killed process.
            drop(b);
            a.send(peer, datagram(1000)).unwrap();
            let start = std::time::Instant::now();
            while told.ends() < 2 {
                assert!(start.elapsed() < PATIENCE, "{:?} {:?}", a.io_stats(), told.0);
                a.poll(Span::from_millis(100), &mut told).unwrap();
            }
            let took = start.elapsed();
            println!("{ip}, {paths} paths: {took:?}");
            assert_eq!(a.core().last_unreachable(peer), Some(srd_proto::Unreachable::Port));
            // One second, and the delay of a busy machine. The peer's own answer timeout is three
            // times as long.
            assert!(took < Duration::from_secs(10), "{took:?}");
        }
    }
}
