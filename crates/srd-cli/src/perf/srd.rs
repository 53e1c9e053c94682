//! SRD in `srd perf`: workers, each with one thread and one shard of the endpoint. No datagram is
//! passed from one thread to another.

use super::intervals::Intervals;
use super::keys::Key;
use super::params::{Mode, Params};
use super::received::Received;
use super::report::Rtt;
use super::running::Running;
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use srd_net::{Application, BindOptions, Context, LocalEndpoint, PollMode};
use srd_proto::config::Admission;
use srd_proto::{
    Class, Datagram, Delivery, DownReason, DropReason, Duration, Event, PeerId, Protection, Qpn,
    ReceiveBuffers, Status,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{self, Instant};

/// Queue pair at which the server receives, and first queue pair from which the client sends.
const QPN: Qpn = Qpn(1);
/// Maximum number of datagrams that are queued or in flight, over all streams of all workers.
const OUTSTANDING: u16 = 2048;
/// Maximum time for which an endpoint sleeps. A worker then checks whether to stop.
const NAP: Duration = Duration::from_millis(50);
/// Maximum interval at which the main thread checks its workers.
const LOOK: time::Duration = time::Duration::from_millis(50);
/// Number of low bits of a datagram's `user` value that contain the number of its stream. The other
/// bits contain the datagram's size.
const STREAM_BITS: u32 = 16;
/// Maximum time without an acknowledgement (bulk) or an answer (rr), after which a run fails.
const STUCK: time::Duration = time::Duration::from_secs(10);
/// Maximum time for which the end of a run waits until the last datagrams are acknowledged.
const DRAIN: time::Duration = time::Duration::from_secs(3);

/// Opens an endpoint with one shard for each worker.
pub(super) fn bind(
    local: SocketAddr,
    params: &Params,
    protection: Protection,
    workers: u8,
) -> Result<Vec<LocalEndpoint>> {
    let mut options = BindOptions::at(local);
    options.config.protection = protection;
    options.config.paths = params.paths;
    // The server has a fixed base port, and other programs may use the ports after it. So its paths
    // may use any ports.
    options.paths_anywhere = local.port() != 0;
    options.config.link_rate_bps = params.link_rate_bps;
    // Any client may measure if it has the required key or, without encryption, if it can reach the
    // server.
    options.config.admission = Admission::Anyone;
    options.poll = if params.busy_poll { PollMode::Spin } else { PollMode::Block };
    let mut endpoints = LocalEndpoint::bind_shards(&options, workers)
        .with_context(|| format!("SRD cannot use {local}"))?;
    for endpoint in &mut endpoints {
        endpoint.open_qp(QPN, ReceiveBuffers::Unlimited);
    }
    Ok(endpoints)
}

fn datagram(payload: Bytes, stream: u16) -> Datagram {
    let src_qpn = Qpn(QPN.0 + stream);
    let user = u64::from(stream) | (payload.len() as u64) << STREAM_BITS;
    Datagram { src_qpn, dst_qpn: QPN, imm: 0, payload, class: Class::Bulk, user }
}

/// Receives data from the client's address, and in rr mode answers it, until the client has
/// finished or a worker fails.
pub(super) fn serve(
    endpoints: &mut [LocalEndpoint],
    client: IpAddr,
    params: &Params,
    running: &Running,
) -> Result<Received> {
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = endpoints
            .iter_mut()
            .map(|endpoint| {
                scope.spawn(|| {
                    let done = || running.is_over() || failed.load(Ordering::Relaxed);
                    let received = serve_shard(endpoint, client, params, running, done);
                    failed.fetch_or(received.is_err(), Ordering::Relaxed);
                    received
                })
            })
            .collect();
        let mut all = Ok(Received::default());
        for worker in workers {
            match worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(one) => {
                    if let Ok(all) = &mut all {
                        all.merge(one);
                    }
                }
                Err(error) => all = all.and(Err(error)),
            }
        }
        all
    })
}

fn serve_shard(
    endpoint: &mut LocalEndpoint,
    client: IpAddr,
    params: &Params,
    running: &Running,
    done: impl Fn() -> bool,
) -> Result<Received> {
    srd_net::raw::timer_slack_minimum();
    let answer = params.mode == Mode::RequestResponse;
    let mut sink = Sink { client, bytes: 0, answer, refused: None };
    let mut received = Received::default();
    while !done() {
        endpoint.poll(NAP, &mut sink).context("the SRD socket broke")?;
        if sink.bytes > 0 {
            received.add(std::mem::take(&mut sink.bytes));
            running.arrived();
        }
        if let Some(reason) = sink.refused.take() {
            bail!("cannot answer: {reason}");
        }
    }
    tell_stats(endpoint);
    Ok(received)
}

/// Returns the number of packets that were rejected because they were made with another key.
pub(super) fn unauthentic(endpoints: &[LocalEndpoint]) -> u64 {
    let of = |endpoint: &LocalEndpoint| {
        let drops = endpoint.core().stats().drops;
        let all = DropReason::ALL.iter().zip(drops);
        all.filter(|(reason, _)| **reason == DropReason::Unauthentic)
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    endpoints.iter().map(of).sum()
}

/// Logs the counters of the transport and its sockets. They are shown with `-v`.
fn tell_stats(endpoint: &LocalEndpoint) {
    // Debug form: all counters with their names.
    tracing::info!("{:?}, {:?}", endpoint.core().stats(), endpoint.io_stats());
}

/// Application of the server's endpoint: counts bytes, and in rr mode answers.
struct Sink {
    /// IP address of the client, from the control connection.
    client: IpAddr,
    /// Bytes that arrived since the worker's last poll.
    bytes: u64,
    answer: bool,
    refused: Option<srd_proto::SendError>,
}

impl Application for Sink {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        // A measurement has one client. So datagrams from other addresses are ignored, even with a
        // valid key.
        let from = context.core().address_of(delivery.peer);
        if from.is_none_or(|from| from.ip().to_canonical() != self.client) {
            return;
        }
        self.bytes += delivery.payload.len() as u64;
        if self.answer {
            let payload = Bytes::copy_from_slice(delivery.payload);
            if let Err(error) = context.send(delivery.peer, datagram(payload, 0)) {
                self.refused = Some(error);
            }
        }
    }
}

/// The client's end of a measurement.
pub(super) struct Client {
    workers: Vec<Worker>,
    /// Whether the user gave no size, so that datagrams are as large as the network permits.
    any_size: bool,
}

/// A shard of the client's endpoint, with the server as its peer.
struct Worker {
    endpoint: LocalEndpoint,
    peer: PeerId,
    server: SocketAddr,
}

impl Drop for Worker {
    fn drop(&mut self) {
        tell_stats(&self.endpoint);
        // Debug form: all counters with their names.
        tracing::info!("{:?}", self.endpoint.core().peer_stats(self.peer));
    }
}

/// State that the workers of a client share.
#[derive(Default)]
struct Shared {
    acknowledged_bytes: AtomicU64,
    /// Whether the workers have to stop, because the time is over or a worker failed.
    stop: AtomicBool,
}

impl Client {
    /// Opens the client's endpoint, and adds the server as a peer to each of its shards.
    pub(super) fn open(
        near: SocketAddr,
        server: SocketAddr,
        params: &Params,
        protection: Protection,
        server_key: Option<Key>,
    ) -> Result<Self> {
        let endpoints = bind(SocketAddr::new(near.ip(), 0), params, protection, params.workers)?;
        let mut workers = Vec::new();
        for mut endpoint in endpoints {
            let peer = endpoint.connect_with_key(server, server_key).map_err(|e| anyhow!("{e}"))?;
            workers.push(Worker { endpoint, peer, server });
        }
        Ok(Self { workers, any_size: params.size_bytes == 0 })
    }

    /// Returns the maximum number of bytes that one datagram carries.
    pub(super) fn payload_bytes_max(&self) -> u64 {
        let most = self.workers.iter().map(|worker| worker.endpoint.payload_bytes_max() as u64);
        most.min().unwrap_or(0)
    }

    /// Returns the share of the data packets that were retransmissions, from 0 to 1.
    pub(super) fn retransmitted_share(&self) -> f64 {
        let stats = self.workers.iter().map(|worker| worker.endpoint.core().stats());
        let (again, all) = stats.fold((0, 0), |(again, all), stats| {
            (again + stats.retrans_pkts, all + stats.data_pkts)
        });
        again as f64 / all.max(1) as f64
    }

    /// Sends data for the duration of the measurement. Returns the number of payload bytes that
    /// were acknowledged.
    pub(super) fn send_bulk(
        &mut self,
        params: &Params,
        intervals: &mut Intervals<'_>,
    ) -> Result<u64> {
        let time = time::Duration::from_millis(params.time_ms);
        let outstanding = OUTSTANDING / u16::from(params.workers.max(1));
        let (shared, any_size) = (Shared::default(), self.any_size);
        thread::scope(|scope| {
            let workers: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| {
                    scope.spawn(|| {
                        let result = worker.send_bulk(params, any_size, outstanding, &shared);
                        shared.stop.fetch_or(result.is_err(), Ordering::Relaxed);
                        result
                    })
                })
                .collect();
            let mut outcome = Ok(());
            while outcome.is_ok()
                && intervals.elapsed() < time
                && !shared.stop.load(Ordering::Relaxed)
            {
                let left = time.saturating_sub(intervals.elapsed());
                thread::sleep(intervals.until_due().min(left).min(LOOK));
                outcome = intervals.tick(shared.acknowledged_bytes.load(Ordering::Relaxed));
            }
            shared.stop.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            outcome.map(|()| shared.acknowledged_bytes.load(Ordering::Relaxed))
        })
    }

    /// Sends one request and receives its answer; adds the round-trip time to `rtt`.
    pub(super) fn exchange(&mut self, payload: &Bytes, rtt: &mut Rtt) -> Result<()> {
        let Some(worker) = self.workers.first_mut() else { bail!("a client without a worker") };
        worker.exchange(payload, rtt)
    }
}

impl Worker {
    /// Sends until `shared.stop` is set, then waits until the outstanding datagrams are
    /// acknowledged.
    fn send_bulk(
        &mut self,
        params: &Params,
        any_size: bool,
        outstanding_max: u16,
        shared: &Shared,
    ) -> Result<()> {
        srd_net::raw::timer_slack_minimum();
        let mut sender = Sender {
            peer: self.peer,
            whole: Bytes::from(vec![7; params.size()]),
            payload: Bytes::from(vec![7; params.size()]),
            any_size,
            streams: params.streams,
            outstanding: 0,
            outstanding_max,
            acknowledged_bytes: 0,
            last: Instant::now(),
            refill: true,
            failed: None,
        };
        sender.fill(|to, datagram| self.endpoint.send(to, datagram).is_ok());
        while !shared.stop.load(Ordering::Relaxed) {
            self.poll(&mut sender, shared)?;
        }
        sender.refill = false;
        let end = Instant::now() + DRAIN;
        while sender.outstanding > 0 && Instant::now() < end {
            self.poll(&mut sender, shared)?;
        }
        Ok(())
    }

    fn poll(&mut self, sender: &mut Sender, shared: &Shared) -> Result<()> {
        self.endpoint.poll(NAP, sender).context("the SRD socket broke")?;
        if let Some(failure) = sender.failed.take() {
            return Err(self.explain(failure));
        }
        let bytes = std::mem::take(&mut sender.acknowledged_bytes);
        if bytes > 0 {
            shared.acknowledged_bytes.fetch_add(bytes, Ordering::Relaxed);
            sender.last = Instant::now();
        } else if sender.last.elapsed() > STUCK {
            bail!("{} acknowledged nothing for {} s", self.server, STUCK.as_secs());
        }
        Ok(())
    }

    fn explain(&self, failure: Failed) -> anyhow::Error {
        failure.explain(self.server, self.endpoint.core().payload_bytes_max_to(self.peer))
    }

    /// Sends one request and receives its answer; adds the round-trip time to `rtt`.
    fn exchange(&mut self, payload: &Bytes, rtt: &mut Rtt) -> Result<()> {
        let mut asker = Asker { answered: false, failed: None };
        let start = Instant::now();
        let sent = self.endpoint.send(self.peer, datagram(payload.clone(), 0));
        sent.map_err(|e| anyhow!("cannot send: {e}"))?;
        loop {
            self.endpoint.poll(NAP, &mut asker).context("the SRD socket broke")?;
            if let Some(failure) = asker.failed.take() {
                return Err(self.explain(failure));
            }
            if asker.answered {
                break;
            }
            if start.elapsed() > STUCK {
                bail!("{} did not answer within {} s", self.server, STUCK.as_secs());
            }
        }
        rtt.record(start.elapsed());
        Ok(())
    }
}

/// Reason why a run cannot continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failed {
    Down(DownReason),
    Datagram(Status),
}

impl Failed {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::PeerDown { reason, .. } => Some(Self::Down(*reason)),
            Event::Completed { status, .. } if *status != Status::Ok => {
                Some(Self::Datagram(*status))
            }
            _ => None,
        }
    }

    fn explain(self, server: SocketAddr, most: usize) -> anyhow::Error {
        match self {
            Self::Datagram(Status::LocalBadLength) => anyhow!(
                "the network passes datagrams of {most} bytes to {server}, and no larger ones: \
                 use --size {most} or less, or no --size"
            ),
            Self::Down(DownReason::Unreachable) | Self::Datagram(Status::UnreachRemote) => anyhow!(
                "SRD at {server} never answered: does a firewall let UDP from port {} on through, \
                 and is its key the one that was given?",
                server.port()
            ),
            Self::Down(DownReason::Restarted) | Self::Datagram(Status::RemoteAbort) => {
                anyhow!("{server} was restarted in mid-run")
            }
            Self::Down(_) | Self::Datagram(Status::UnrespRemote) => {
                anyhow!("{server} stopped answering")
            }
            Self::Datagram(status) => anyhow!("a datagram to {server} failed: {status}"),
        }
    }
}

/// Application of the client in bulk mode: keeps a number of datagrams outstanding.
struct Sender {
    peer: PeerId,
    /// A payload of the size of this machine's packets. `payload` is the part of it that fits into
    /// the packets that the network passes.
    whole: Bytes,
    payload: Bytes,
    any_size: bool,
    streams: u16,
    outstanding: u16,
    outstanding_max: u16,
    /// Payload bytes that were acknowledged since the last poll.
    acknowledged_bytes: u64,
    /// Time of the latest acknowledgement.
    last: Instant,
    refill: bool,
    failed: Option<Failed>,
}

impl Sender {
    /// Queues datagrams, one for each stream in turn, until enough are outstanding or the queue is
    /// full.
    fn fill(&mut self, mut send: impl FnMut(PeerId, Datagram) -> bool) {
        while self.outstanding < self.outstanding_max {
            let stream = self.outstanding % self.streams;
            if !send(self.peer, datagram(self.payload.clone(), stream)) {
                break;
            }
            self.outstanding += 1;
        }
    }
}

impl Application for Sender {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        let bad_length = Failed::Datagram(Status::LocalBadLength);
        let failed = Failed::of(&event).filter(|f| !(self.any_size && *f == bad_length));
        if self.refill && self.failed.is_none() {
            self.failed = failed;
        }
        match event {
            Event::PathMtu { peer, .. } if self.any_size => {
                let most = context.core().payload_bytes_max_to(peer).min(self.whole.len());
                self.payload = self.whole.slice(..most);
                tracing::warn!("the network passes datagrams of {most} bytes, which are used now");
            }
            Event::Completed { user, status, .. } => {
                if status == Status::Ok {
                    self.acknowledged_bytes += user >> STREAM_BITS;
                }
                let stream = u16::try_from(user & ((1 << STREAM_BITS) - 1)).unwrap_or(0);
                let next = datagram(self.payload.clone(), stream);
                if !(self.refill && context.send(self.peer, next).is_ok()) {
                    self.outstanding -= 1;
                }
            }
            Event::Writable { .. } if self.refill => {
                self.fill(|to, datagram| context.send(to, datagram).is_ok());
            }
            _ => {}
        }
    }
}

/// Application of the client in rr mode: waits for one answer.
struct Asker {
    answered: bool,
    failed: Option<Failed>,
}

impl Application for Asker {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {
        self.answered = true;
    }

    fn event(&mut self, _: &mut Context<'_>, event: Event) {
        self.failed = self.failed.or(Failed::of(&event));
    }
}
