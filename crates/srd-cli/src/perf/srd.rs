//! SRD, driven on the calling thread: no datagram is handed from one thread to another.

use super::intervals::Intervals;
use super::keys::Key;
use super::params::{Mode, Params};
use super::received::Received;
use super::report::Rtt;
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use srd_net::{Application, BindOptions, Context, LocalEndpoint, PollMode};
use srd_proto::config::Admission;
use srd_proto::{
    Class, Datagram, Delivery, DownReason, Duration, Event, PeerId, Protection, Qpn,
    ReceiveBuffers, Status,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{self, Instant};

/// The queue pair that the server receives on, and the first that the client sends from.
const QPN: Qpn = Qpn(1);
/// Datagrams that wait or are in flight, over all streams.
const OUTSTANDING: u16 = 2048;
/// How long the endpoint sleeps at most, so that the caller may look around.
const NAP: Duration = Duration::from_millis(50);
/// A datagram's completion brings back its stream, in so many bits, and its size.
const STREAM_BITS: u32 = 16;
/// How long nothing may come back.
const STUCK: time::Duration = time::Duration::from_secs(10);
/// How long the last datagrams may take to be acknowledged.
const DRAIN: time::Duration = time::Duration::from_secs(3);

/// Opens an endpoint.
pub(super) fn bind(
    local: SocketAddr,
    params: &Params,
    protection: Protection,
) -> Result<LocalEndpoint> {
    let mut options = BindOptions::at(local);
    options.config.protection = protection;
    options.config.paths = params.paths;
    options.config.link_rate_bps = params.link_rate_bps;
    // A client that knows the key of the server, or its address if plain, may measure against it.
    options.config.admission = Admission::Anyone;
    options.poll = if params.busy_poll { PollMode::Spin } else { PollMode::Block };
    let mut endpoint =
        LocalEndpoint::bind(&options).with_context(|| format!("SRD cannot use {local}"))?;
    endpoint.open_qp(QPN, ReceiveBuffers::Unlimited);
    Ok(endpoint)
}

fn datagram(payload: Bytes, stream: u16) -> Datagram {
    let src_qpn = Qpn(QPN.0 + stream);
    let user = u64::from(stream) | (payload.len() as u64) << STREAM_BITS;
    Datagram { src_qpn, dst_qpn: QPN, imm: 0, payload, class: Class::Bulk, user }
}

/// Receives, or answers, until the client is through.
pub(super) fn serve(
    endpoint: &mut LocalEndpoint,
    params: &Params,
    stop: &AtomicBool,
) -> Result<Received> {
    let answer = params.mode == Mode::RequestResponse;
    let mut sink = Sink { bytes: 0, answer, refused: None };
    let mut received = Received::default();
    while !stop.load(Ordering::Relaxed) {
        endpoint.poll(NAP, &mut sink).context("the SRD socket broke")?;
        if sink.bytes > 0 {
            received.add(std::mem::take(&mut sink.bytes));
        }
        if let Some(reason) = sink.refused.take() {
            bail!("cannot answer: {reason}");
        }
    }
    tell_stats(endpoint);
    Ok(received)
}

/// For `-v`: what the transport and its sockets counted.
fn tell_stats(endpoint: &LocalEndpoint) {
    tracing::info!("{:?}", endpoint.core().stats());
    tracing::info!("{:?}", endpoint.io_stats());
}

/// The server's application.
struct Sink {
    /// What arrived since the last poll.
    bytes: u64,
    answer: bool,
    refused: Option<srd_proto::SendError>,
}

impl Application for Sink {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        self.bytes += delivery.payload.len() as u64;
        if self.answer {
            let payload = Bytes::copy_from_slice(delivery.payload);
            if let Err(error) = context.send(delivery.peer, datagram(payload, 0)) {
                self.refused = Some(error);
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        tell_stats(&self.endpoint);
        tracing::info!("{:?}", self.endpoint.core().peer_stats(self.peer));
    }
}

/// The client's end.
pub(super) struct Client {
    endpoint: LocalEndpoint,
    peer: PeerId,
    server: SocketAddr,
    /// Nobody asked for a size: datagrams are as large as the network passes.
    any_size: bool,
}

impl Client {
    /// Opens an endpoint and makes the server known to it.
    pub(super) fn open(
        near: SocketAddr,
        server: SocketAddr,
        params: &Params,
        protection: Protection,
        server_key: Option<Key>,
    ) -> Result<Self> {
        let mut endpoint = bind(SocketAddr::new(near.ip(), 0), params, protection)?;
        let peer = endpoint.connect_with_key(server, server_key).map_err(|e| anyhow!("{e}"))?;
        Ok(Self { endpoint, peer, server, any_size: params.size_bytes == 0 })
    }

    /// The most bytes that one datagram carries.
    pub(super) fn payload_bytes_max(&self) -> u64 {
        self.endpoint.payload_bytes_max() as u64
    }

    /// Part of the data packets that were sent again.
    pub(super) fn retransmitted_share(&self) -> f64 {
        let stats = self.endpoint.core().stats();
        stats.retrans_pkts as f64 / stats.data_pkts.max(1) as f64
    }

    /// Sends for the time given. Returns the bytes that were acknowledged.
    pub(super) fn send_bulk(
        &mut self,
        params: &Params,
        intervals: &mut Intervals<'_>,
    ) -> Result<u64> {
        let mut sender = Sender {
            peer: self.peer,
            whole: Bytes::from(vec![7; params.size()]),
            payload: Bytes::from(vec![7; params.size()]),
            any_size: self.any_size,
            streams: params.streams,
            outstanding: 0,
            acknowledged_bytes: 0,
            progress: true,
            last: Instant::now(),
            refill: true,
            failed: None,
        };
        sender.fill(|to, datagram| self.endpoint.send(to, datagram).is_ok());
        let time = time::Duration::from_millis(params.time_ms);
        while intervals.elapsed() < time {
            self.poll(&mut sender)?;
            intervals.tick(sender.acknowledged_bytes)?;
        }
        sender.refill = false;
        let end = Instant::now() + DRAIN;
        while sender.outstanding > 0 && Instant::now() < end {
            self.poll(&mut sender)?;
        }
        Ok(sender.acknowledged_bytes)
    }

    fn poll(&mut self, sender: &mut Sender) -> Result<()> {
        self.endpoint.poll(NAP, sender).context("the SRD socket broke")?;
        if let Some(failure) = sender.failed.take() {
            return Err(self.explain(failure));
        }
        if std::mem::take(&mut sender.progress) {
            sender.last = Instant::now();
        } else if sender.last.elapsed() > STUCK {
            bail!("{} acknowledged nothing for {} s", self.server, STUCK.as_secs());
        }
        Ok(())
    }

    fn explain(&self, failure: Failed) -> anyhow::Error {
        failure.explain(self.server, self.endpoint.core().payload_bytes_max_to(self.peer))
    }

    /// One round trip.
    pub(super) fn exchange(&mut self, payload: &Bytes, rtt: &mut Rtt) -> Result<()> {
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

/// Why a run cannot go on.
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
            Self::Datagram(status) => anyhow!("a datagram to {server} failed: {status:?}"),
        }
    }
}

/// Keeps a number of datagrams outstanding.
struct Sender {
    peer: PeerId,
    /// As large as this machine's packets are, and the part of it that the network passes.
    whole: Bytes,
    payload: Bytes,
    any_size: bool,
    streams: u16,
    outstanding: u16,
    acknowledged_bytes: u64,
    /// Anything was acknowledged since `last`.
    progress: bool,
    last: Instant,
    refill: bool,
    failed: Option<Failed>,
}

impl Sender {
    /// Queues datagrams, stream after stream, until enough are outstanding or the queue is full.
    fn fill(&mut self, mut send: impl FnMut(PeerId, Datagram) -> bool) {
        while self.outstanding < OUTSTANDING {
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
                    self.progress = true;
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

/// Waits for one answer.
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
