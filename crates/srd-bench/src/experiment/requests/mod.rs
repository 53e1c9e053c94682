//! An open-loop generator of GET and SET requests over many connections.
//!
//! Requests arrive at a fixed mean rate, at moments drawn beforehand (a Poisson process), whether
//! or not earlier ones are answered. A latency counts from the moment a request was *due*: time
//! that it waits because the generator or a full socket is late is part of it. Requests that are
//! never answered count with the time they waited.
//!
//! | module | what |
//! |---|---|
//! | [`protocol`] | what is written and read, of Redis and memcached |
//! | [`choice`] | which keys are asked for, and how |
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, [`RATE_MAX`] requests per second.

mod choice;
mod protocol;

pub(super) use protocol::{KEYS, Kind, Protocol};

use crate::tcp::poll::Poll;
use crate::tcp::{self, Congestion};
use anyhow::{Context, Result, bail};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::random::Random;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Most connections of one load.
const CONNECTIONS_MAX: u64 = 10_000;
/// Most requests per second of one load.
const RATE_MAX: u64 = 1_000_000;
/// How long answers are waited for after the last request.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the keys may take to be written beforehand.
const FILL_MAX: Duration = Duration::from_secs(20);
/// Keys written before their answers are read.
const FILL_BATCH: u32 = 100;
/// Bytes taken from the kernel at a time.
const READ_BYTES: usize = 16 << 10;

/// What to ask, which servers, and how often.
pub(super) struct Load {
    pub(super) protocol: Protocol,
    pub(super) clients: Vec<HostId>,
    pub(super) server: SocketAddr,
    pub(super) connections: usize,
    /// Requests per second, over all connections.
    pub(super) rate: u32,
    pub(super) seconds: u64,
    pub(super) seed: u64,
    pub(super) congestion: Congestion,
    pub(super) mptcp: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Latency of each GET, in us.
    pub(super) get_us: Vec<f64>,
    /// Latency of each SET, in us.
    pub(super) set_us: Vec<f64>,
    /// By how much the generator itself was late, request by request, in us.
    pub(super) late_us: Vec<f64>,
    /// Requests without an answer; they count above with the time they waited.
    pub(super) unanswered: usize,
    /// Answers that were errors, or misses of keys that exist.
    pub(super) wrong: usize,
    /// Answered requests per second of the time in which requests were due.
    pub(super) per_s: f64,
}

/// Connections that are established, ready for a load.
pub(super) struct Clients {
    sockets: Vec<OwnedFd>,
}

struct Request {
    kind: Kind,
    due: Instant,
}

/// A connection at work.
#[derive(Default)]
struct Line {
    /// Written by us, not yet taken by the kernel.
    out: VecDeque<u8>,
    /// Read from the kernel, not yet a whole answer.
    input: Vec<u8>,
    /// Requests without an answer, the oldest first: servers answer in order.
    pending: VecDeque<Request>,
}

impl Load {
    /// Writes every key once, so that each GET has something to find.
    pub(super) fn fill(&self, fabric: &Fabric) -> Result<()> {
        let client = *self.clients.first().context("a load has clients")?;
        let stream =
            fabric.within(client, || TcpStream::connect_timeout(&self.server, FILL_MAX))?;
        let mut stream = stream.with_context(|| format!("{client} to {}", self.server))?;
        stream.set_read_timeout(Some(FILL_MAX))?;
        stream.set_write_timeout(Some(FILL_MAX))?;
        let (mut out, mut input, mut buffer) = (Vec::new(), Vec::new(), vec![0; READ_BYTES]);
        for batch in 0..KEYS / FILL_BATCH {
            out.clear();
            for key in batch * FILL_BATCH..(batch + 1) * FILL_BATCH {
                self.protocol.write(Kind::Set, key, &mut out);
            }
            stream.write_all(&out).context("write keys")?;
            let mut answered = 0;
            while answered < FILL_BATCH {
                let count = stream.read(&mut buffer).context("read answers to keys")?;
                if count == 0 {
                    bail!("the server closed the connection");
                }
                input.extend_from_slice(&buffer[..count]);
                while let Some(answer) = self.protocol.read(Kind::Set, &input)? {
                    input.drain(..answer.bytes);
                    answered += 1;
                    if !answer.good {
                        bail!("the server refuses a SET");
                    }
                }
            }
        }
        Ok(())
    }

    /// Establishes the connections, evenly from all clients.
    pub(super) fn connect(&self, fabric: &Fabric) -> Result<Clients> {
        check("connections", self.connections as u64, 1..=CONNECTIONS_MAX)?;
        let mut sockets = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            let share = self.connections / self.clients.len()
                + usize::from(number < self.connections % self.clients.len());
            let connect = || -> Result<Vec<OwnedFd>> {
                let one = || tcp::connect_to(self.server, self.congestion, self.mptcp);
                (0..share).map(|_| one()).collect()
            };
            let connected = fabric.within(*client, connect)?;
            sockets.extend(connected.with_context(|| format!("{client} to {}", self.server))?);
        }
        Ok(Clients { sockets })
    }

    /// Asks for the time that is set, on the calling thread, which should be a real-time
    /// one.
    pub(super) fn run(&self, clients: &Clients) -> Result<Answers> {
        check("rate", self.rate.into(), 1..=RATE_MAX)?;
        let both = EventFlags::IN | EventFlags::OUT;
        let mut poll = Poll::watch(clients.sockets.iter(), both)?;
        let mut lines: Vec<Line> = clients.sockets.iter().map(|_| Line::default()).collect();
        let mut random = Random::new(self.seed);
        let mut answers = Answers::default();
        let mut buffer = vec![0; READ_BYTES];
        let start = Instant::now();
        let end = start + Duration::from_secs(self.seconds);
        let mut due = start + random.exponential(self.rate);
        let mut open = 0usize;
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                let at = random.below(lines.len());
                let (line, socket) = (&mut lines[at], &clients.sockets[at]);
                line.ask(
                    self.protocol,
                    Request { kind: choice::kind(&mut random), due },
                    &mut random,
                );
                line.flush(socket)?;
                answers.late_us.push(us(due.elapsed()));
                due += random.exponential(self.rate);
                open += 1;
            }
            if now >= end && (open == 0 || now >= end + DRAIN) {
                break;
            }
            let wake = if due < end { due } else { end + DRAIN };
            for at in poll.wait_at_most(wake.saturating_duration_since(Instant::now()))? {
                let (line, socket) = (&mut lines[at], &clients.sockets[at]);
                line.flush(socket)?;
                open -= line.receive(self.protocol, socket, &mut buffer, &mut answers)?;
            }
        }
        answers.per_s = (answers.get_us.len() + answers.set_us.len()) as f64 / self.seconds as f64;
        for request in lines.into_iter().flat_map(|line| line.pending) {
            answers.unanswered += 1;
            answers.add(&request);
        }
        Ok(answers)
    }
}

impl Answers {
    fn add(&mut self, request: &Request) {
        let latency_us = us(request.due.elapsed());
        match request.kind {
            Kind::Get => self.get_us.push(latency_us),
            Kind::Set => self.set_us.push(latency_us),
        }
    }
}

impl Line {
    fn ask(&mut self, protocol: Protocol, request: Request, random: &mut Random) {
        let mut bytes = Vec::new();
        protocol.write(request.kind, choice::key(random), &mut bytes);
        self.out.extend(bytes);
        self.pending.push_back(request);
    }

    /// Gives the kernel what it takes.
    fn flush(&mut self, socket: &OwnedFd) -> Result<()> {
        while !self.out.is_empty() {
            let (front, _) = self.out.as_slices();
            let Some(sent) = tcp::send(socket, front)? else { break };
            self.out.drain(..sent);
        }
        Ok(())
    }

    /// Reads to the end of what is there; how many requests were answered.
    fn receive(
        &mut self,
        protocol: Protocol,
        socket: &OwnedFd,
        buffer: &mut [u8],
        answers: &mut Answers,
    ) -> Result<usize> {
        let mut answered = 0;
        while let Some(count) = tcp::receive(socket, buffer)? {
            self.input.extend_from_slice(&buffer[..count]);
            let mut read = 0;
            while let Some(request) = self.pending.front() {
                let Some(answer) = protocol.read(request.kind, &self.input[read..])? else { break };
                read += answer.bytes;
                answers.add(request);
                answers.wrong += usize::from(!answer.good);
                self.pending.pop_front();
                answered += 1;
            }
            self.input.drain(..read);
            if self.pending.is_empty() && !self.input.is_empty() {
                bail!("the server answers what it was not asked");
            }
        }
        Ok(answered)
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
