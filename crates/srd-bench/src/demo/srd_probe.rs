//! Runs SRD between hosts of a fabric, in one process with one clock. Every endpoint has a thread
//! inside of its host's namespace. The threads block while they have nothing to do, so that they do
//! not take processor time from each other.

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use srd_lab::priority::FifoThread;
use srd_lab::{Fabric, Family, HostId};
use srd_net::{Application, BindOptions, Context, LocalEndpoint};
use srd_proto::{
    Class, Datagram, Delivery, Duration, Event, PeerId, Protection, Qpn, ReceiveBuffers, Status,
};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{self, Instant};

/// The port of every endpoint.
const PORT: u16 = 7471;
/// The queue pair of every receiver.
pub(super) const RECEIVER: Qpn = Qpn(1);
/// Longest time that an endpoint waits for packets, after which it checks whether the measurement
/// has ended.
pub(super) const NAP: Duration = Duration::from_millis(10);
/// Number of datagrams of the one flow that are queued or in flight.
const OUTSTANDING: u32 = 1024;
/// Bytes that the fabric's ports count for each packet in addition to the UDP payload: Ethernet 14,
/// IPv4 20, UDP 8.
pub(super) const WIRE_OVERHEAD_BYTES: u16 = 42;

/// Real-time priority (SCHED_FIFO) of the threads of SRD's endpoints.
const FIFO_PRIORITY: u8 = 10;

/// Options for the endpoints of a fabric.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) protection: Protection,
    /// Number of source ports of each endpoint: several for each spine, so that all spines get
    /// about equal traffic.
    pub(super) paths: u16,
}

impl Setup {
    /// Creates the options. Unless `plain` is set, they contain a random key for this run.
    pub(super) fn new(plain: bool) -> Result<Self> {
        let protection = if plain {
            Protection::Plain
        } else {
            let key = srd_net::clock::seed().context("no random numbers from the kernel")?;
            Protection::JobKey(key)
        };
        Ok(Self { protection, paths: 64 })
    }

    /// Creates an endpoint in a host. The calling thread must be inside of the host's namespace.
    pub(super) fn bind(&self, fabric: &Fabric, host: HostId) -> Result<Endpoint> {
        let mut options = BindOptions::at(address(fabric, host)?);
        let config = &mut options.config;
        config.protection = self.protection.clone();
        config.paths = self.paths;
        config.link_rate_bps = u64::from(fabric.config().host_rate_mbps) * 1_000_000;
        config.wire_overhead_bytes = WIRE_OVERHEAD_BYTES;
        let mut endpoint =
            LocalEndpoint::bind(&options).with_context(|| format!("SRD in {host}"))?;
        endpoint.open_qp(RECEIVER, ReceiveBuffers::Unlimited);
        // The kernel's TCP runs in interrupts, and so before other programs. Real-time priority
        // gives SRD the same advantage. If it is not permitted, the measurement runs without it.
        let priority = srd_lab::priority::fifo(FIFO_PRIORITY).ok();
        Ok(Endpoint { endpoint, _priority: priority })
    }
}

/// An endpoint whose thread has real-time priority, if that is permitted.
pub(super) struct Endpoint {
    endpoint: LocalEndpoint,
    _priority: Option<FifoThread>,
}

impl Deref for Endpoint {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.endpoint
    }
}

impl DerefMut for Endpoint {
    fn deref_mut(&mut self) -> &mut LocalEndpoint {
        &mut self.endpoint
    }
}

/// Returns the address and port at which a host's endpoint receives.
pub(super) fn address(fabric: &Fabric, host: HostId) -> Result<SocketAddr> {
    Ok(SocketAddr::new(fabric.host_address(host, Family::V4)?, PORT))
}

/// Returns a datagram of a flow. Each flow is a queue pair of the sender.
pub(super) fn datagram(flow: u16, payload: Bytes) -> Datagram {
    Datagram {
        src_qpn: Qpn(RECEIVER.0 + 1 + flow),
        dst_qpn: RECEIVER,
        imm: 0,
        payload,
        class: Class::Bulk,
        user: flow.into(),
    }
}

/// Parameters of one long flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) from: HostId,
    pub(super) to: HostId,
    pub(super) lasts: time::Duration,
    pub(super) interval_ms: u64,
}

/// For each interval: its start in milliseconds, and the bytes that arrived in it.
pub(super) type Intervals = Vec<(u64, u64)>;

/// Runs one flow, and at the same time calls `meanwhile` with the start time of the flow.
pub(super) fn single_flow<T>(
    fabric: &Fabric,
    setup: &Setup,
    flow: &Flow,
    meanwhile: impl FnOnce(Instant) -> Result<T>,
) -> Result<(Intervals, T)> {
    let over = AtomicBool::new(false);
    let (ready, wait_ready) = mpsc::channel();
    let (go, wait_go) = mpsc::channel::<Instant>();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let started = fabric.within(flow.to, || receive(fabric, setup, flow, ready, wait_go));
            over.store(true, Ordering::Release);
            started?
        });
        // If the receiver could not start, joining its thread below returns the error.
        let sender = wait_ready.recv().ok().map(|()| {
            let start = Instant::now();
            let _ = go.send(start);
            let sender =
                scope.spawn(|| fabric.within(flow.from, || send(fabric, setup, flow, &over))?);
            (sender, meanwhile(start))
        });
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let Some((sender, done)) = sender else {
            return Err(received.err().unwrap_or_else(|| anyhow!("the receiver did not start")));
        };
        sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).context("sender")?;
        Ok((received.context("receiver")?, done?))
    })
}

/// A receiving application that counts the bytes that arrive in each interval.
struct Buckets {
    bytes: Vec<u64>,
    start: Instant,
    interval: time::Duration,
}

impl Application for Buckets {
    fn delivered(&mut self, _: &mut Context<'_>, delivery: Delivery<'_>) {
        let index = self.start.elapsed().as_nanos() / self.interval.as_nanos().max(1);
        let bucket = usize::try_from(index).ok().and_then(|index| self.bytes.get_mut(index));
        if let Some(bucket) = bucket {
            *bucket += delivery.payload.len() as u64;
        }
    }
}

fn receive(
    fabric: &Fabric,
    setup: &Setup,
    flow: &Flow,
    ready: mpsc::Sender<()>,
    go: mpsc::Receiver<Instant>,
) -> Result<Intervals> {
    let mut endpoint = setup.bind(fabric, flow.to)?;
    let _ = ready.send(());
    let start = go.recv().context("the sender did not start")?;
    let interval = time::Duration::from_millis(flow.interval_ms);
    let count = flow.lasts.as_nanos() / interval.as_nanos().max(1);
    let bytes = vec![0; usize::try_from(count).context("that many intervals")?];
    let mut buckets = Buckets { bytes, start, interval };
    while start.elapsed() < flow.lasts {
        endpoint.poll(NAP, &mut buckets).context("the SRD socket broke")?;
    }
    Ok((0..).zip(buckets.bytes).map(|(n, bytes)| (n * flow.interval_ms, bytes)).collect())
}

/// A sending application that keeps a fixed number of datagrams queued or in flight.
struct Sender {
    peer: PeerId,
    payload: Bytes,
    outstanding: u32,
    failed: Option<Status>,
}

impl Sender {
    fn fill(&mut self, mut send: impl FnMut(PeerId, Datagram) -> bool) {
        while self.outstanding < OUTSTANDING {
            if !send(self.peer, datagram(0, self.payload.clone())) {
                break;
            }
            self.outstanding += 1;
        }
    }
}

impl Application for Sender {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        if let Event::Completed { status, .. } = event {
            self.outstanding -= 1;
            if status == Status::Ok {
                self.fill(|to, datagram| context.send(to, datagram).is_ok());
            } else {
                self.failed = Some(status);
            }
        }
    }
}

fn send(fabric: &Fabric, setup: &Setup, flow: &Flow, over: &AtomicBool) -> Result<()> {
    let mut endpoint = setup.bind(fabric, flow.from)?;
    let peer = endpoint.connect(address(fabric, flow.to)?).map_err(|e| anyhow!("{e}"))?;
    let payload = Bytes::from(vec![7; endpoint.payload_bytes_max()]);
    let mut sender = Sender { peer, payload, outstanding: 0, failed: None };
    sender.fill(|to, datagram| endpoint.send(to, datagram).is_ok());
    while !over.load(Ordering::Acquire) {
        endpoint.poll(NAP, &mut sender).context("the SRD socket broke")?;
        if let Some(status) = sender.failed {
            bail!("a datagram failed: {status:?}");
        }
    }
    tracing::info!(stats = ?endpoint.core().stats(), peer = ?endpoint.core().peer_stats(peer));
    Ok(())
}
