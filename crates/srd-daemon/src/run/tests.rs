//! Tests with daemons in this process. Control threads and workers are real; the network and the
//! interfaces are in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use srd_card::{Arrivals, Arrived, PeerSlot, Trailer};
use srd_net::{IoWaker, LocalEndpoint, MemoryIo, MemoryNet, MemoryOptions};
use srd_proto::Config as CoreConfig;

use super::control::{Control, Parts};
use super::crew::Crew;
use super::orders::{self, Batch, Change, NewPeer, Order, Orders, WorkerWaker};
use super::resolve::Resolver;
use super::tapped::Tapped;
use super::waker::Waker;
use super::worker::hosts::{Hosts, NoHosts};
use super::worker::publish::Publisher;
use super::worker::{Port, Worker};
use crate::config::{Config, Mode, ReloadReport};
use crate::handover::state::Belongings;
use crate::pages::page::Page;
use crate::pages::peer::PeerPage;
use crate::pages::{About, Pages};
use crate::plane::{self, Command, Detail, PathsOf, PeerNumber, PlaneHandle, oneshot};
use crate::snapshot::{PeerState, Snapshot};

/// Longest time that a test waits for an event.
const LONG: Duration = Duration::from_secs(60);

/// Results of reading from an interface in memory, which a test can select: a frame, an error, or a
/// panic.
const WORKS: u8 = 0;
pub(super) const IS_GONE: u8 = 1;
const PANICS: u8 = 2;

/// An interface in memory, as one worker uses it.
pub(super) struct MemoryPort {
    from_guest: Receiver<Vec<u8>>,
    to_guest: Sender<Vec<u8>>,
    does: Arc<AtomicU8>,
}

impl Port for MemoryPort {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.does.load(Ordering::Relaxed) {
            WORKS => Ok(self.from_guest.try_recv().ok()),
            IS_GONE => Err(io::Error::from_raw_os_error(Errno::BADFD.raw_os_error())),
            _ => panic!("as a test wants"),
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.to_guest.send(frame.to_vec()).map_err(io::Error::other)
    }
}

/// The guest's end of a worker's interface, with which a test sends and receives frames.
pub(super) struct GuestEnd {
    to_host: Sender<Vec<u8>>,
    from_host: Receiver<Vec<u8>>,
    pub(super) does: Arc<AtomicU8>,
    waker: Arc<IoWaker>,
}

/// A daemon of a test, with its interfaces in memory.
pub(super) struct Host {
    handle: PlaneHandle,
    pages: Arc<Pages>,
    guests: Vec<GuestEnd>,
    pub(super) orders: Vec<Orders>,
    control: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Returns the outer address of worker `worker` of daemon `host`. In these tests every worker is a
/// node of its own, with an address of its own.
pub(super) fn outer(host: u8, worker: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 7471 + 100 * u16::try_from(worker).unwrap()))
}

pub(super) fn configuration(host: u8, peers: &[(&str, SocketAddr, &str)]) -> Config {
    let mut text = format!(
        "[interface]\nmode = \"overlay\"\naddress = [\"10.77.0.{host}/24\"]\n\
         listen = \"192.0.2.{host}:7471\"\nprotection = \"plain\"\n"
    );
    for (name, endpoint, allowed) in peers {
        text += &format!(
            "[[peer]]\nname = \"{name}\"\nendpoint = \"{endpoint}\"\nallowed = [\"{allowed}\"]\n"
        );
    }
    Config::parse(&text, Path::new("srd0.toml")).unwrap_or_else(|e| panic!("{e}"))
}

/// Creates a control thread that does not run yet, and the other parts of its daemon.
pub(super) fn control(
    net: &MemoryNet,
    host: u8,
    workers: usize,
    config: Config,
) -> (Control, Receiver<Command>, Host) {
    let waker = Waker::default();
    let (mut crew, mut totals, mut all_orders, mut guests) =
        (Crew::default(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..workers {
        let io = net.node(outer(host, number), 8);
        let (worker, ends, guest, page) = worker(number, io, &waker, NoHosts);
        all_orders.push(ends.orders.clone());
        totals.push(page);
        guests.push(guest);
        crew.start(worker, ends, waker.clone()).unwrap();
    }
    let pages = Arc::new(Pages::new(about(), totals, all_orders.clone()));
    let woken = waker.clone();
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || woken.wake());
    let (handle, commands) = PlaneHandle::new(Arc::clone(&wake), pages.clone());
    let resolver = Resolver::start(Arc::new(|_| Err("no names here".into())), wake).unwrap();
    let pages_of = Arc::clone(&pages);
    let (belongings, known) = (Belongings::default(), BTreeMap::new());
    let parts =
        Parts { config, crew, pages: pages_of, waker, resolver, mtu: 1400, belongings, known };
    let control = Control::new(parts, None).unwrap();
    (control, commands, Host { handle, pages, guests, orders: all_orders, control: None })
}

impl Host {
    fn start(net: &MemoryNet, host: u8, workers: usize, config: Config) -> Self {
        let (mut control, commands, mut this) = control(net, host, workers, config);
        this.control = Some(std::thread::spawn(move || control.run(&commands).map(|_| ())));
        this
    }

    fn snapshot(&self) -> Snapshot {
        self.handle.snapshot(&Detail::default()).unwrap()
    }

    #[track_caller]
    fn wait(&self, what: &str, is: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let deadline = Instant::now() + LONG;
        loop {
            let snapshot = self.snapshot();
            if is(&snapshot) {
                return snapshot;
            }
            assert!(Instant::now() < deadline, "{what} does not come:\n{snapshot:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn reload(&self, config: &Config) -> Result<ReloadReport, String> {
        self.handle.change(|_| Ok(config.clone())).unwrap()
    }

    /// Sends changes to one worker only. Returns the number of changes that it refused.
    fn change_one(&self, worker: usize, changes: Vec<Change>) -> usize {
        let (done, answer) = oneshot();
        assert!(self.orders[worker].send(Order::Apply(Batch { changes, done })));
        answer.recv_timeout(LONG).unwrap().len()
    }

    /// Returns for each worker whether it has a peer with this address.
    fn knows(&self, address: SocketAddr) -> Vec<bool> {
        let stranger = PeerNumber(u32::MAX);
        let check = || vec![Change::CheckAddress(stranger, address)];
        (0..self.orders.len()).map(|worker| self.change_one(worker, check()) == 1).collect()
    }

    /// Stops the daemon and waits for its end. Returns an error if it had failed before.
    fn end(mut self) -> anyhow::Result<()> {
        let _ = self.handle.command(Command::Stop);
        self.control.take().unwrap().join().unwrap()
    }
}

/// A worker and the ends with which a test uses it.
type WithEnds<H> = (
    Worker<MemoryIo, MemoryPort, H>,
    orders::ControlEnds,
    GuestEnd,
    Arc<Page<crate::pages::totals::Totals>>,
);

pub(super) fn worker<H: Hosts>(
    number: usize,
    io: MemoryIo,
    control: &Waker,
    hosts: H,
) -> WithEnds<H> {
    let mut core = CoreConfig::sockets();
    core.protection = srd_proto::Protection::Plain;
    core.idle_reclaim = srd_proto::Duration::MAX;
    let mut endpoint = LocalEndpoint::over(Tapped::new(io), core).unwrap();
    let waker = endpoint.waker().unwrap();
    let (control, ends) = orders::queues(control.clone(), WorkerWaker::Io(Arc::clone(&waker)));
    let page = Arc::new(Page::default());
    let publisher = Publisher::new(Arc::clone(&page), endpoint.now());
    let ((to_host, from_guest), (to_guest, from_host)) = (mpsc::channel(), mpsc::channel());
    let does = Arc::<AtomicU8>::default();
    let port = MemoryPort { from_guest, to_guest, does: Arc::clone(&does) };
    let card = srd_card::Config { mtu: 1400, ..srd_card::Config::default() };
    let worker = Worker::new(number, endpoint, (port, hosts), card, ends, publisher);
    (worker, control, GuestEnd { to_host, from_host, does, waker }, page)
}

fn about() -> About {
    About {
        interface: "srd0".into(),
        file: String::new(),
        mode: Mode::Overlay,
        encrypted: false,
        listen: String::new(),
        mtu: 1400,
        paths: 8,
        link_rate_bps: 0,
        started_at: srd_net::Clock::new().now(),
    }
}

pub(super) fn net() -> MemoryNet {
    MemoryNet::new(MemoryOptions::default())
}

/// Returns a frame: an offload header, and a UDP packet from one guest to another.
fn frame(from: u8, to: u8) -> Vec<u8> {
    let mut frame = vec![0; 10];
    let mut header = [0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, from, 10, 77, 0, to];
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([0x9c, 0x40, 0, 80, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    frame
}

/// Starts two daemons with one worker each, and waits until they have a session with each other.
fn pair() -> [Host; 2] {
    let net = net();
    let hosts = [(1, "b", 2), (2, "a", 1)].map(|(host, name, other)| {
        let allowed = format!("10.77.0.{other}/32");
        let config = configuration(host, &[(name, outer(other, 0), &allowed)]);
        Host::start(&net, host, 1, config)
    });
    for host in &hosts {
        host.wait("an answer", |s| s.peers[0].state == PeerState::Up);
    }
    hosts
}

/// The names of hosts of clouds that a worker has added and not forgotten.
#[derive(Clone, Default)]
struct HostNames(Arc<Mutex<BTreeSet<String>>>);

impl Arrivals for HostNames {
    fn arrived(&mut self, _: Arrived, _: Trailer, _: &[u8]) {}
}

impl Hosts for HostNames {
    const MAY_EXIST: bool = true;

    fn at(&mut self, _: srd_proto::Instant) {}

    fn add(&mut self, _: PeerSlot, name: &Arc<str>, _: Option<SocketAddr>) {
        self.0.lock().unwrap().insert(name.to_string());
    }

    fn remove(&mut self, _: srd_proto::Instant, _: PeerSlot) {}

    fn forget(&mut self, name: &str) {
        self.0.lock().unwrap().remove(name);
    }

    fn event(&mut self, _: srd_proto::Instant, _: PeerSlot, _: &srd_proto::Event) {}
}

#[test]
fn regression_a_worker_forgets_the_name_of_a_host_that_no_peer_has_any_more() {
    let hosts = HostNames::default();
    let io = net().node(outer(1, 0), 8);
    let (worker, ends, _guest, _) = worker(0, io, &Waker::default(), hosts.clone());
    let orders = ends.orders.clone();
    let mut crew = Crew::default();
    crew.start(worker, ends, Waker::default()).unwrap();
    let apply = |changes: Vec<Change>| {
        let (done, answer) = oneshot();
        assert!(orders.send(Order::Apply(Batch { changes, done })));
        assert!(answer.recv_timeout(LONG).unwrap().is_empty());
        hosts.0.lock().unwrap().iter().cloned().collect::<Vec<_>>()
    };
    let add = |number: u8, host: Option<&str>| {
        let new = NewPeer {
            transport: srd_proto::PeerConfig {
                address: Some(outer(10 + number, 0)),
                ..Default::default()
            },
            allowed: Vec::new(),
            express: true,
            express_udp: true,
            cloud_host: host.map(Arc::from),
            page: Arc::new(PeerPage::new(1)),
        };
        Change::Add(PeerNumber(number.into()), Box::new(new))
    };
    let withdraw = |number| Change::Withdraw(PeerNumber(number));
    let both = || vec![withdraw(0), withdraw(1)];
    let with = |mut changes: Vec<Change>, more: [Change; 2]| {
        changes.extend(more);
        changes
    };
    assert_eq!(apply(vec![add(0, Some("a")), add(1, Some("b"))]), ["a", "b"]);
    // The same names at the other peer, in one reload.
    assert_eq!(apply(with(both(), [add(0, Some("b")), add(1, Some("a"))])), ["a", "b"]);
    // A name that moves on, and one that ends.
    assert_eq!(apply(with(both(), [add(0, Some("a")), add(1, Some("c"))])), ["a", "c"]);
    assert_eq!(apply(vec![withdraw(1), add(1, None)]), ["a"]);
    assert_eq!(apply(vec![Change::Remove(PeerNumber(0))]), Vec::<String>::new());
}

#[test]
fn regression_a_peer_that_calls_before_the_peers_are_known_is_no_stranger() {
    // Without encryption, a packet from the peer before its configuration would create an unknown
    // context, which would prevent adding the peer.
    let net = net();
    let caller = Host::start(&net, 2, 1, configuration(2, &[("a", outer(1, 0), "10.77.0.1/32")]));
    for _ in 0..20 {
        let config = configuration(1, &[("b", outer(2, 0), "10.77.0.2/32")]);
        Host::start(&net, 1, 1, config).end().unwrap();
    }
    caller.end().unwrap();
}

#[test]
fn packets_cross_and_pages_say_so() {
    let [a, b] = pair();
    let before = a.snapshot();
    a.guests[0].to_host.send(frame(1, 2)).unwrap();
    a.guests[0].waker.wake();
    let arrived = b.guests[0].from_host.recv_timeout(LONG).unwrap();
    assert_eq!(arrived[10..], frame(1, 2)[10..]);
    // The worker writes rows and totals at different times, so the test waits for both.
    let sent = |s: &Snapshot| s.peers[0].srd_tx_pkts + s.peers[0].plain_tx_pkts == 1;
    let all = |s: &Snapshot| s.counters.tx_pkts - before.counters.tx_pkts;
    let after = a.wait("the packet in the row and in the totals", |s| sent(s) && all(s) > 0);
    assert_eq!(all(&after), 1);
    b.wait("the packet in the totals", |s| s.counters.rx_pkts == 1);
    // A daemon notifies its peers of its end, so that they need not wait for the time-out.
    a.end().unwrap();
    let down = b.wait("goodbye", |s| s.peers[0].state == PeerState::Down);
    assert_eq!(down.peers[0].problem.as_deref(), Some("ended"));
    b.end().unwrap();
}

#[test]
fn a_peer_that_begins_anew_keeps_its_counters() {
    let [a, b] = pair();
    a.guests[0].to_host.send(frame(1, 2)).unwrap();
    a.guests[0].waker.wake();
    b.guests[0].from_host.recv_timeout(LONG).unwrap();
    let sent = |s: &Snapshot| s.peers[0].srd_tx_pkts + s.peers[0].plain_tx_pkts;
    a.wait("the packet in the row", |s| sent(s) == 1);
    let handshakes = a.snapshot().peers[0].handshakes;
    let transport = srd_proto::PeerConfig { address: Some(outer(2, 0)), ..Default::default() };
    let allowed = vec![srd_card::Prefix::new([10, 77, 0, 2].into(), 32).unwrap()];
    let page = Arc::new(PeerPage::new(1));
    let anew =
        NewPeer { transport, allowed, express: true, express_udp: true, cloud_host: None, page };
    let number = PeerNumber(0);
    let changes = vec![Change::Withdraw(number), Change::Add(number, Box::new(anew))];
    assert_eq!(a.change_one(0, changes), 0);
    let after = a.snapshot();
    assert!(sent(&after) == 1 && after.peers[0].handshakes >= handshakes, "{after:#?}");
    let back = a.wait("its answer", |s| s.peers[0].handshakes > handshakes);
    assert_eq!((sent(&back), back.peers[0].state), (1, PeerState::Up));
    a.end().unwrap();
    b.end().unwrap();
}

#[test]
fn a_reload_keeps_two_workers_alike_or_changes_nothing() {
    let [a, b, c, taken] = [2, 3, 4, 5].map(|host| outer(host, 0));
    let first = [("a", a, "10.77.0.2/32"), ("b", b, "10.77.0.3/32")];
    let host = Host::start(&net(), 1, 2, configuration(1, &first));
    assert_eq!(
        (host.knows(a), host.knows(b), host.knows(c)),
        (vec![true; 2], vec![true; 2], vec![false; 2])
    );
    // The reload removes one peer, adds another, and moves a prefix.
    let second = [("c", c, "10.77.0.2/32"), ("b", b, "10.77.0.3/32")];
    let report = host.reload(&configuration(1, &second)).unwrap();
    assert_eq!((report.added, report.removed), (vec!["c".to_owned()], vec!["a".to_owned()]));
    assert_eq!(
        (host.knows(a), host.knows(b), host.knows(c)),
        (vec![false; 2], vec![true; 2], vec![true; 2])
    );
    let names = |host: &Host| host.snapshot().peers.iter().map(|p| p.name.clone()).collect();
    let listed: Vec<String> = names(&host);
    assert_eq!(listed, ["c", "b"]);
    // Only the second worker has a peer at this address, and so refuses the new peer. The new peer
    // must then be removed from the first worker as well.
    let transport = srd_proto::PeerConfig { address: Some(taken), ..Default::default() };
    let page = Arc::new(PeerPage::new(2));
    let (allowed, express, express_udp) = (Vec::new(), true, true);
    let cloud_host = None;
    let other = NewPeer { transport, allowed, express, express_udp, cloud_host, page };
    let add = Change::Add(PeerNumber(900), Box::new(other));
    assert_eq!(host.change_one(1, vec![add]), 0);
    let third = [second[0], second[1], ("d", taken, "10.77.0.9/32")];
    let report = host.reload(&configuration(1, &third)).unwrap();
    assert!(report.added.is_empty() && report.failed[0].starts_with("d (cannot add"), "{report}");
    assert_eq!((host.knows(taken), host.knows(c)), (vec![false, true], vec![true; 2]));
    let listed: Vec<String> = names(&host);
    assert_eq!(listed, ["c", "b"]);
    // An error that the check of the configuration finds is refused before any change.
    let unfit = [("a", a, "10.77.0.2/32"), ("e", "10.77.0.8:1".parse().unwrap(), "10.77.0.5/32")];
    let mut config = configuration(1, &unfit[..1]);
    config.peers.push(crate::config::PeerSettings {
        endpoint: Some(unfit[1].1),
        name: "e".into(),
        ..config.peers[0].clone()
    });
    let refused = host.reload(&config).unwrap_err();
    assert!(refused.starts_with("nothing was changed"), "{refused}");
    assert_eq!((host.knows(a), host.knows(c)), (vec![false; 2], vec![true; 2]));
    host.end().unwrap();
}

/// In an earlier version the kill switch, which stayed on until a restart, left some of the
/// prefixes unguarded without a word.
#[test]
fn regression_a_reload_has_no_more_prefixes_than_the_running_kill_switch_guards() {
    let peers = [("a", outer(2, 0), "10.77.0.2/32")];
    let mut config = configuration(1, &peers);
    config.interface.kill_switch = true;
    let host = Host::start(&net(), 1, 1, config);
    let mut many = configuration(1, &peers);
    let far =
        |n: u32| ipnet::IpNet::from(std::net::IpAddr::from((0x0a4e_0000 + 2 * n).to_be_bytes()));
    many.peers[0].allowed = (0..=256).map(far).collect();
    let refused = host.reload(&many).unwrap_err();
    assert!(refused.contains("nothing was changed: `kill_switch` guards at most"), "{refused}");
    many.peers[0].allowed.pop();
    host.reload(&many).unwrap();
    host.end().unwrap();
}

#[test]
fn a_setting_is_in_every_worker_when_it_is_acknowledged() {
    let host = Host::start(&net(), 1, 2, configuration(1, &[("a", outer(2, 0), "10.77.0.2/32")]));
    assert_eq!(host.snapshot().counters.ena_srd_mode, 3);
    let off = plane::Change { express: Some(false), ..plane::Change::default() };
    host.handle.set(off).unwrap().unwrap();
    assert_eq!(host.snapshot().counters.ena_srd_mode, 2);
    let peer = Some("nobody".to_owned());
    let refused =
        host.handle.set(plane::Change { peer, express: Some(true), ..Default::default() });
    assert_eq!(refused.unwrap(), Err("there is no peer `nobody`".to_owned()));
    host.end().unwrap();
}

#[test]
fn many_changes_are_made_in_parts_and_all_are_made() {
    let peers: Vec<(String, SocketAddr, String)> =
        (0..200).map(|n| (format!("p{n}"), outer(9, n), format!("10.78.0.{n}/32"))).collect();
    let peers: Vec<_> = peers.iter().map(|(n, e, a)| (n.as_str(), *e, a.as_str())).collect();
    let host = Host::start(&net(), 1, 2, configuration(1, &peers[..100]));
    let report = host.reload(&configuration(1, &peers[50..])).unwrap();
    assert_eq!((report.added.len(), report.removed.len()), (100, 50));
    assert_eq!((host.knows(peers[0].1), host.knows(peers[199].1)), (vec![false; 2], vec![true; 2]));
    let detail = Detail { paths: PathsOf::Everybody, flows_max: 0 };
    let snapshot = host.handle.snapshot(&detail).unwrap();
    assert_eq!(snapshot.peers.len(), 150);
    assert!(snapshot.peers.iter().all(|peer| peer.path_reports.len() == 8));
    host.end().unwrap();
}

#[test]
fn regression_readers_do_not_reach_the_worker() {
    let peers: Vec<(String, String)> =
        (0..64).map(|n| (format!("p{n}"), format!("10.78.0.{n}/32"))).collect();
    let at = |n: usize| outer(9, n);
    let peers: Vec<_> =
        peers.iter().enumerate().map(|(n, (name, net))| (name.as_str(), at(n), &**net)).collect();
    let host = Host::start(&net(), 1, 1, configuration(1, &peers));
    let before = host.pages.totals().work.orders;
    for _ in 0..2000 {
        assert_eq!(host.snapshot().peers.len(), 64);
    }
    assert_eq!(host.pages.totals().work.orders, before, "orders that readers gave");
    // A worker makes the lists, so their number is limited for all readers together.
    let (began, threads) = (Instant::now(), 4);
    let asked = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while began.elapsed() < Duration::from_millis(300) {
                    let detail = Detail { paths: PathsOf::Nobody, flows_max: 10 };
                    host.handle.snapshot(&detail).unwrap();
                    *asked.lock().unwrap() += 1;
                }
            });
        }
    });
    let lists = u64::try_from(began.elapsed().as_millis() / 20).unwrap() + 1;
    host.wait("the last refresh", |_| host.pages.totals().work.orders >= before);
    let asked = *asked.lock().unwrap();
    assert!(asked <= lists && asked >= 1, "{asked} lists, at most {lists}");
    host.end().unwrap();
}

#[test]
fn an_interface_that_goes_ends_the_daemon_in_order() {
    let [a, b] = pair();
    a.guests[0].does.store(IS_GONE, Ordering::Relaxed);
    a.guests[0].waker.wake();
    let deadline = Instant::now() + LONG;
    while a.handle.snapshot(&Detail::default()).is_ok() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = format!("{:#}", a.end().unwrap_err());
    assert!(error.contains("the data plane: the interface srd0 was deleted"), "{error}");
    let down = b.wait("goodbye", |s| s.peers[0].state == PeerState::Down);
    assert_eq!(down.peers[0].problem.as_deref(), Some("ended"), "the worker said goodbye");
    b.end().unwrap();
}

#[test]
fn a_worker_that_panics_ends_the_daemon_and_the_others_say_goodbye() {
    let net = net();
    let other = configuration(2, &[("a", outer(1, 1), "10.77.0.1/32")]);
    let b = Host::start(&net, 2, 1, other);
    let a = Host::start(&net, 1, 2, configuration(1, &[("b", outer(2, 0), "10.77.0.2/32")]));
    a.wait("an answer", |s| s.peers[0].state == PeerState::Up);
    b.wait("an answer", |s| s.peers[0].state == PeerState::Up);
    a.guests[0].does.store(PANICS, Ordering::Relaxed);
    a.guests[0].waker.wake();
    let down = b.wait("goodbye", |s| s.peers[0].state == PeerState::Down);
    assert_eq!(down.peers[0].problem.as_deref(), Some("ended"));
    let error = format!("{:#}", a.end().unwrap_err());
    assert!(error.contains("has panicked"), "{error}");
    b.end().unwrap();
}

#[test]
fn a_capture_sees_packets_of_every_worker() {
    let net = net();
    let a = Host::start(&net, 1, 2, configuration(1, &[("b", outer(2, 0), "10.77.0.2/32")]));
    let filter = crate::capture::Filter { peer: Some("b".into()), ..Default::default() };
    let mut reader = a.handle.capture(filter).unwrap().unwrap();
    for guest in &a.guests {
        guest.to_host.send(frame(1, 2)).unwrap();
        guest.waker.wake();
    }
    let filter = crate::capture::Filter { count: Some(2), ..Default::default() };
    let mut file = Vec::new();
    let began = Instant::now();
    let is_over = || began.elapsed() > LONG;
    crate::capture::stream(&mut reader, "srd0", &filter, &mut file, is_over).unwrap();
    let copied = crate::capture::copy::copy(&mut &file[..], &mut Vec::new(), || false).unwrap();
    assert_eq!((copied.packets, copied.dropped), (2, 0));
    a.end().unwrap();
}
