//! The SRD side of the incast, in which all flows of a round start at one moment.
//!
//! Contexts are created before the first round and used in all rounds, like TCP's connections. In
//! each round, all flows of all senders are queued at one moment. A flow is complete when its
//! sender has received the last acknowledgement.

use super::srd_probe::{NAP, RECEIVER, Setup, WIRE_OVERHEAD_BYTES, address, datagram};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use srd_lab::probe::Pair;
use srd_lab::{Fabric, Family, HostId};
use srd_net::{Application, Context, LocalEndpoint};
use srd_proto::{Delivery, Duration, Event, Instant, PeerId, Status};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time;

/// Time between the decision to start a round and its start. Within this time every sender must
/// have read the start time.
const LEAD: Duration = Duration::from_millis(30);
/// Interval at which an idle sender checks whether a round has been scheduled.
const LOOK: Duration = Duration::from_millis(2);
/// Number of probes through the idle network; the shortest round trip is the base round trip.
const PINGS: u16 = 20;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub(super) struct SrdIncast {
    pub(super) senders: Vec<HostId>,
    pub(super) flows_per_sender: u16,
    pub(super) receiver: HostId,
    pub(super) bytes: u64,
    pub(super) rounds: usize,
    pub(super) gap: time::Duration,
    pub(super) limit: time::Duration,
}

/// Completion times of the flows of all rounds, and the ideal time.
#[derive(Clone, Debug)]
pub(super) struct SrdIncastResult {
    pub(super) ideal_ms: f64,
    pub(super) rounds_ms: Vec<Vec<Option<f64>>>,
}

/// State that all senders and the receiver share.
struct Course {
    /// Start time of the current round in nanoseconds of the monotonic clock; 0 before the first
    /// round.
    start_ns: AtomicU64,
    over: AtomicBool,
}

/// Runs the rounds of an incast. Ends early if a round has unfinished flows.
fn run_some(fabric: &Fabric, setup: &Setup, incast: &SrdIncast) -> Result<SrdIncastResult> {
    let course = Course { start_ns: AtomicU64::new(0), over: AtomicBool::new(false) };
    let (ready, wait_ready) = mpsc::channel::<usize>();
    let (done, wait_done) = mpsc::channel::<Vec<Option<f64>>>();
    thread::scope(|scope| {
        let receiver = {
            let (course, ready) = (&course, ready.clone());
            scope.spawn(move || {
                fabric.within(incast.receiver, || receive(fabric, setup, incast, course, ready))?
            })
        };
        let payload_bytes = wait_ready.recv_timeout(time::Duration::from_secs(5));
        let mut senders = Vec::new();
        if payload_bytes.is_ok() {
            for host in &incast.senders {
                let (course, ready, done) = (&course, ready.clone(), done.clone());
                senders.push(scope.spawn(move || {
                    fabric
                        .within(*host, || send(fabric, setup, incast, *host, course, ready, done))?
                }));
            }
        }
        drop((ready, done));
        let conducted = conduct(incast, &course, &wait_ready, &wait_done);
        course.over.store(true, Ordering::Release);
        for thread in senders.into_iter().chain([receiver]) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let payload_bytes = payload_bytes.map_err(|_| anyhow!("the receiver did not start"))?;
        Ok(SrdIncastResult {
            ideal_ms: ideal_ms(fabric, incast, payload_bytes)?,
            rounds_ms: conducted?,
        })
    })
}

/// Runs all rounds of an incast. After a round with unfinished flows, new endpoints are used.
pub(super) fn run(fabric: &Fabric, setup: &Setup, incast: &SrdIncast) -> Result<SrdIncastResult> {
    let mut all = run_some(fabric, setup, incast)?;
    while all.rounds_ms.len() < incast.rounds {
        let rounds = incast.rounds - all.rounds_ms.len();
        let rest = SrdIncast { rounds, ..incast.clone() };
        all.rounds_ms.extend(run_some(fabric, setup, &rest)?.rounds_ms);
    }
    Ok(all)
}

/// Starts one round after the other, and collects the completion times from the senders.
fn conduct(
    incast: &SrdIncast,
    course: &Course,
    ready: &mpsc::Receiver<usize>,
    done: &mpsc::Receiver<Vec<Option<f64>>>,
) -> Result<Vec<Vec<Option<f64>>>> {
    let clock = srd_net::Clock::new();
    for _ in &incast.senders {
        ready.recv().context("a sender did not start")?;
    }
    let mut rounds = Vec::new();
    for _ in 0..incast.rounds {
        thread::sleep(incast.gap);
        course.start_ns.store((clock.now() + LEAD).as_nanos(), Ordering::Release);
        let mut round = Vec::new();
        for _ in &incast.senders {
            round.extend(done.recv().context("a sender stopped")?);
        }
        let unfinished = round.contains(&None);
        rounds.push(round);
        if unfinished {
            // Data of unfinished flows would disturb the next round.
            break;
        }
    }
    Ok(rounds)
}

/// Returns the ideal time in milliseconds: the time that all flows, with headers, need on the
/// receiver's link, and one base round trip.
fn ideal_ms(fabric: &Fabric, incast: &SrdIncast, payload_bytes: usize) -> Result<f64> {
    let pair = Pair { from: incast.senders[0], to: incast.receiver, family: Family::V4 };
    let mut base: Option<time::Duration> = None;
    for port in 0..PINGS {
        let rtt = fabric.ping(pair, 30_000 + port, time::Duration::from_millis(100))?;
        base = rtt.into_iter().chain(base).min();
    }
    let base = base.context("no probe came back from the receiver")?;
    let packet_bytes = fabric.config().mtu + u32::from(WIRE_OVERHEAD_BYTES) - 28;
    let headers = f64::from(packet_bytes) - payload_bytes as f64;
    let datagrams = incast.bytes.div_ceil(payload_bytes as u64) as f64;
    let flow_bytes = incast.bytes as f64 + datagrams * headers;
    let flows = incast.senders.len() as f64 * f64::from(incast.flows_per_sender);
    let rate_bps = f64::from(fabric.config().host_rate_mbps) * 1e6;
    Ok(flows * flow_bytes * 8.0 / rate_bps * 1e3 + base.as_secs_f64() * 1e3)
}

/// A receiving application that discards all datagrams.
struct Sink;

impl Application for Sink {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}
}

fn receive(
    fabric: &Fabric,
    setup: &Setup,
    incast: &SrdIncast,
    course: &Course,
    ready: mpsc::Sender<usize>,
) -> Result<()> {
    let mut endpoint = setup.bind(fabric, incast.receiver)?;
    let _ = ready.send(endpoint.payload_bytes_max());
    drop(ready);
    while !course.over.load(Ordering::Acquire) {
        endpoint.poll(NAP, &mut Sink).context("the receiver's SRD socket broke")?;
    }
    tracing::info!(receiver = ?endpoint.core().stats());
    Ok(())
}

/// The flows of one sender in the current round.
struct Flows {
    peer: PeerId,
    /// Payload of a full datagram (`full`), and of the last datagram of each flow (`last`).
    full: Bytes,
    last: Bytes,
    datagrams: u64,
    /// The next datagram to queue: its number within its flow, and the flow. The flows take turns.
    next: (u64, u16),
    /// For each flow, the number of its datagrams that are not yet acknowledged.
    pending: Vec<u64>,
    started: Instant,
    fct_ms: Vec<Option<f64>>,
    left: usize,
    failed: Option<Status>,
}

impl Flows {
    fn new(peer: PeerId, incast: &SrdIncast, payload_bytes: usize) -> Self {
        let bytes = incast.bytes.max(1);
        let datagrams = bytes.div_ceil(payload_bytes as u64);
        let rest = bytes - (datagrams - 1) * payload_bytes as u64;
        let full = Bytes::from(vec![7; payload_bytes]);
        let last = full.slice(..usize::try_from(rest).unwrap_or(payload_bytes));
        let flows = usize::from(incast.flows_per_sender);
        Self {
            peer,
            full,
            last,
            datagrams,
            next: (datagrams, 0),
            pending: vec![0; flows],
            started: Instant::ZERO,
            fct_ms: vec![None; flows],
            left: 0,
            failed: None,
        }
    }

    fn begin(&mut self, start: Instant) {
        self.next = (0, 0);
        self.pending.fill(self.datagrams);
        self.fct_ms.fill(None);
        self.left = self.pending.len();
        self.started = start;
    }

    /// Queues datagrams until all are queued or the transport's queue is full.
    fn fill(&mut self, mut send: impl FnMut(PeerId, srd_proto::Datagram) -> bool) {
        while self.next.0 < self.datagrams {
            let (number, flow) = self.next;
            let payload = if number + 1 == self.datagrams { &self.last } else { &self.full };
            if !send(self.peer, datagram(flow, payload.clone())) {
                break;
            }
            let wrapped = usize::from(flow) + 1 == self.pending.len();
            self.next = if wrapped { (number + 1, 0) } else { (number, flow + 1) };
        }
    }

    fn completed(&mut self, now: Instant, user: u64) {
        let Some(flow) = usize::try_from(user).ok().filter(|f| *f < self.pending.len()) else {
            return;
        };
        self.pending[flow] = self.pending[flow].saturating_sub(1);
        if self.pending[flow] == 0 && self.fct_ms[flow].is_none() {
            self.fct_ms[flow] = Some(now.since(self.started).as_nanos() as f64 / 1e6);
            self.left -= 1;
        }
    }
}

impl Application for Flows {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::Completed { user, status: Status::Ok, .. } if self.left > 0 => {
                self.completed(context.now(), user);
                self.fill(|to, datagram| context.send(to, datagram).is_ok());
            }
            Event::Completed { status, .. } if status != Status::Ok => self.failed = Some(status),
            Event::Writable { .. } => self.fill(|to, datagram| context.send(to, datagram).is_ok()),
            _ => {}
        }
    }
}

fn send(
    fabric: &Fabric,
    setup: &Setup,
    incast: &SrdIncast,
    host: HostId,
    course: &Course,
    ready: mpsc::Sender<usize>,
    done: mpsc::Sender<Vec<Option<f64>>>,
) -> Result<()> {
    let mut endpoint = setup.bind(fabric, host)?;
    let to = address(fabric, incast.receiver)?;
    let peer = endpoint.connect(to).map_err(|e| anyhow!("{e}"))?;
    let payload_bytes = endpoint.payload_bytes_max();
    let mut flows = Flows::new(peer, incast, payload_bytes);
    greet(&mut endpoint, &mut flows).with_context(|| format!("{host} cannot reach {to}"))?;
    let _ = ready.send(payload_bytes);
    drop(ready);
    let mut before = 0;
    while let Some(start) = next_start(&mut endpoint, &mut flows, course, before)? {
        before = start.as_nanos();
        flows.begin(start);
        flows.fill(|to, datagram| endpoint.send(to, datagram).is_ok());
        let limit = start + Duration::from_nanos(u64::try_from(incast.limit.as_nanos())?);
        while flows.left > 0 && endpoint.now() < limit && !course.over.load(Ordering::Acquire) {
            endpoint.poll(NAP, &mut flows).context("the sender's SRD socket broke")?;
            if let Some(status) = flows.failed {
                bail!("a datagram of {host} failed: {status:?}");
            }
        }
        if flows.left > 0 {
            let peer = endpoint.core().peer_stats(peer);
            tracing::warn!(%host, unfinished = flows.left, ?peer);
        }
        flows.left = 0;
        if done.send(flows.fct_ms.clone()).is_err() {
            break;
        }
    }
    let (stats, peer) = (endpoint.core().stats(), endpoint.core().peer_stats(peer));
    tracing::info!(%host, ?stats, ?peer);
    Ok(())
}

/// Sends one small datagram and waits until it is acknowledged, so that the context exists.
fn greet(endpoint: &mut LocalEndpoint, flows: &mut Flows) -> Result<()> {
    flows.pending.fill(0);
    flows.pending[0] = 1;
    flows.left = 1;
    flows.started = endpoint.now();
    let hello = datagram(0, Bytes::from_static(b"hello"));
    endpoint.send(flows.peer, hello).map_err(|e| anyhow!("{e}"))?;
    let deadline = endpoint.now() + Duration::from_secs(5);
    while flows.left > 0 {
        endpoint.poll(NAP, flows).context("the sender's SRD socket broke")?;
        if let Some(status) = flows.failed {
            bail!("{RECEIVER:?} did not take a datagram: {status:?}");
        }
        if endpoint.now() > deadline {
            bail!("no answer within 5 s");
        }
    }
    Ok(())
}

/// Runs the endpoint until the next round starts, and returns its start time; `None` if there is no
/// further round. `before` is the start time of the previous round.
fn next_start(
    endpoint: &mut LocalEndpoint,
    flows: &mut Flows,
    course: &Course,
    before: u64,
) -> Result<Option<Instant>> {
    loop {
        let start = course.start_ns.load(Ordering::Acquire);
        if course.over.load(Ordering::Acquire) {
            return Ok(None);
        }
        let now = endpoint.now();
        let at = Instant::from_nanos(start);
        if start != before && at <= now {
            return Ok(Some(at));
        }
        let wait = if start == before { LOOK } else { at.since(now).min(LOOK) };
        endpoint.poll(wait, flows).context("the sender's SRD socket broke")?;
    }
}
