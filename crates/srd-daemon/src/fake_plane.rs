//! A fake daemon that moves no packets, to test the interfaces of the daemon: a thread that answers
//! every command, and invented statistics.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::capture::{Captures, Direction, Taps};
use crate::config::{Config, ReloadReport};
use crate::plane::{
    Change, Command, Detail, PathsOf, PeerNumber, PlaneError, PlaneHandle, Statistics,
};
use crate::snapshot::{
    ControllerSnapshot, ControllerState, Counters, ExpressState, FlowSnapshot, PathCounts,
    PathSnapshot, PeerSnapshot, PeerState, Snapshot,
};

/// Interval at which running captures receive a packet.
const ROUND: Duration = Duration::from_millis(5);
/// Number of paths to each peer.
const PATHS: u16 = 16;

/// A fake control thread, which answers commands until this is dropped.
pub(crate) struct FakePlane {
    pub(crate) handle: PlaneHandle,
    changes: Arc<Mutex<Vec<Change>>>,
    thread: Option<JoinHandle<()>>,
}

impl FakePlane {
    pub(crate) fn start() -> Self {
        let rounds = Arc::new(Rounds::default());
        let (handle, commands) = PlaneHandle::new(Arc::new(|| {}), rounds.clone());
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        let thread = Some(thread::spawn(move || {
            run(&commands, &seen, &rounds.0);
            rounds.0.store(OVER, Ordering::Relaxed);
        }));
        Self { handle, changes, thread }
    }

    /// Returns the changes of settings that were requested so far.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FakePlane {
    fn drop(&mut self) {
        let _ = self.handle.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Source of statistics: every value grows with the number of the round, until the thread ends.
#[derive(Default)]
struct Rounds(AtomicU64);

/// Value of the counter of rounds after the thread has ended.
const OVER: u64 = u64::MAX;

impl Statistics for Rounds {
    fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError> {
        match self.0.load(Ordering::Relaxed) {
            OVER => Err(PlaneError::Gone),
            round => Ok(snapshot(round, detail)),
        }
    }
}

fn run(commands: &Receiver<Command>, changes: &Mutex<Vec<Change>>, round: &AtomicU64) {
    let (mut captures, mut taps) = (Captures::default(), Taps::default());
    loop {
        round.fetch_add(1, Ordering::Relaxed);
        let now = srd_net::Clock::new().now();
        taps.inner(now, Direction::Out, Some(PeerNumber(1)), &[0x45; 40]);
        match commands.recv_timeout(ROUND) {
            Ok(Command::Set { change, reply }) => {
                let is_refused = change.express == Some(false) && change.peer.is_none();
                changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
                reply.send(if is_refused { Err("not while it rains".into()) } else { Ok(()) });
            }
            Ok(Command::Running { reply }) => reply.send(Box::new(running())),
            Ok(Command::Reload { config, reply }) => {
                let added = config.peers.iter().map(|p| p.name.clone()).collect();
                reply.send(Ok(ReloadReport { added, ..ReloadReport::default() }));
            }
            Ok(Command::Capture { filter, reply }) => {
                let peer = filter.peer.as_ref().map(|_| PeerNumber(1));
                reply.send(captures.begin(&filter, peer, 1).map(|(ends, reader)| {
                    ends.into_iter().for_each(|tap| taps.add(tap));
                    reader
                }));
            }
            Ok(Command::Rekey { reply, .. }) => reply.send(Ok(())),
            Ok(Command::Describe { reply }) => reply.send(Err("this is a fake".into())),
            Ok(Command::HandOver { reply, .. }) => reply.send(Err("this is a fake".into())),
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Returns a configuration with one peer.
fn running() -> Config {
    let text = "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                protection = \"plain\"\n[[peer]]\nname = \"b\"\n\
                endpoint = \"192.0.2.2:7471\"\nallowed = [\"192.0.2.2\"]\n";
    Config::parse(text, Path::new("fake.toml")).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns a snapshot whose counters are larger in every round.
pub(crate) fn snapshot(round: u64, detail: &Detail) -> Snapshot {
    let peer = |name: &str, state, express| {
        let is_wanted = match &detail.paths {
            PathsOf::Nobody => false,
            PathsOf::Everybody => true,
            PathsOf::Peer(wanted) => wanted == name,
        };
        let is_up = state == PeerState::Up;
        let busy = if is_up { round } else { 0 };
        PeerSnapshot {
            name: name.to_owned(),
            public_key: Some(format!("{}key0{}=", name.repeat(4), "A".repeat(34))),
            endpoint: is_up.then(|| "192.0.2.2:7471".to_owned()),
            allowed: vec![format!("10.77.0.{}/32", name.len())],
            state,
            express,
            express_udp: is_up,
            express_tunnels: false,
            problem: (!is_up).then(|| "port-closed".to_owned()),
            problem_text: (!is_up).then(|| "nothing listens at the port".to_owned()),
            last_handshake_s: is_up.then_some(1.2),
            rtt_us: if is_up { 61.5 } else { 0.0 },
            queue_delay_us: if is_up { 3.25 } else { 0.0 },
            tx_bps: if is_up { 9_876_000_000 + busy * 1_000_000 } else { 0 },
            rx_bps: 12_000 * busy,
            srd_tx_pkts: 1000 * busy,
            srd_tx_bytes: 1_400_000 * busy,
            retransmissions: busy / 10,
            paths: PathCounts {
                good: PATHS - 2,
                skip: 1,
                assumed_bad: 1,
                denied: 0,
                passing: PATHS - 1,
            },
            path_reports: if is_wanted { paths(busy) } else { Vec::new() },
            ..PeerSnapshot::default()
        }
    };
    let flow = FlowSnapshot {
        peer: "b".into(),
        direction: "tx".into(),
        protocol: "tcp".into(),
        source: "10.77.0.1:40000".into(),
        destination: "10.77.0.2:80".into(),
        srd: true,
        bps: 9_876_000_000,
        pkts: 1000 * round,
        bytes: 1_400_000 * round,
    };
    Snapshot {
        version: "0.1.0".into(),
        interface: "srd0".into(),
        encrypted: true,
        public_key: Some(format!("{}=", "A".repeat(43))),
        listen: "0.0.0.0:7471".into(),
        mtu: 8900,
        paths: PATHS,
        workers: 1,
        uptime_s: round as f64 * 0.005,
        counters: Counters {
            ena_srd_mode: 3,
            ena_srd_tx_pkts: 1000 * round,
            ena_srd_eligible_tx_pkts: 1001 * round,
            retransmissions: round / 10,
            ..Counters::default()
        },
        drops: BTreeMap::from([("malformed".to_owned(), 2)]),
        peers: vec![
            peer("b", PeerState::Up, ExpressState::On),
            peer("c", PeerState::Down, ExpressState::Waiting),
        ],
        flows: vec![flow; detail.flows_max.min(1)],
        flows_total: 1,
        controller: Some(ControllerSnapshot {
            address: "192.0.2.9:4600".into(),
            fingerprint: "f".repeat(64),
            state: ControllerState::Disconnected,
            since_s: 30.0,
            last_contact_s: Some(31.0),
            generation: 7,
            problem: Some("other-controller".into()),
            problem_text: Some("another controller answers there".into()),
            problem_since_s: Some(29.0),
        }),
        ..Snapshot::default()
    }
}

fn paths(round: u64) -> Vec<PathSnapshot> {
    let path = |path: u16| {
        let state = match path {
            3 => "skip",
            7 => "assumed-bad",
            _ => "good",
        };
        let share = if state == "good" { 4 + u64::from(path % 3) } else { 0 };
        PathSnapshot {
            path,
            source_port: 7471 + path,
            source: format!("192.0.2.1:{}", 7471 + path),
            destination: "192.0.2.2:7471".into(),
            state: state.to_owned(),
            delay_us: f64::from(path % 5) * 4.5,
            sent_pkts: share * round,
            lost_pkts: if state == "good" { 0 } else { 12 },
        }
    };
    (0..PATHS).map(path).collect()
}
