//! A generator of GET and SET requests over many connections, as an open loop.
//!
//! Requests are due at random times with a fixed mean rate (a Poisson process), whether or not
//! earlier requests have been answered. A latency is counted from the moment at which the request
//! was *due*. So it includes the time for which the request waited because the generator was late
//! or a socket was full. A request that is never answered is counted with the time that it has
//! waited.
//!
//! Several threads share the connections and the rate: each thread's requests are a Poisson process
//! of their own.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | requests and answers of Redis and memcached |
//! | [`choice`] | random choice of keys and kinds of requests |
//! | [`seen`] | latencies of the whole run and over time |
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, [`RATE_MAX`] requests per second, [`THREADS_MAX`]
//! threads, [`OPEN_MAX`] unanswered requests.

mod choice;
mod protocol;
mod seen;

pub(in crate::experiment) use protocol::{KEYS, Kind, Protocol};
pub(in crate::experiment) use seen::Answers;

use crate::tcp::poll::Poll;
use crate::tcp::{self, Congestion};
use anyhow::{Context, Result, bail};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::priority;
use srd_lab::random::{Random, mix};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Largest number of connections of one load.
const CONNECTIONS_MAX: u64 = 10_000;
/// Largest number of requests per second of one load.
pub(in crate::experiment) const RATE_MAX: u32 = 1_000_000;
/// Largest number of threads of one load.
pub(in crate::experiment) const THREADS_MAX: u32 = 64;
/// Largest number of unanswered requests of all threads together, which take about 100 MB. If a
/// load reaches this bound, it exceeds the capacity of the server or the network, and ends with an
/// error.
const OPEN_MAX: usize = 500_000;
/// Real-time priority of the threads that send requests.
const PRIORITY: u8 = 20;
/// Time between the creation of the threads and the first request.
const HEAD_START: Duration = Duration::from_millis(20);
/// Longest time that a thread waits before it checks whether the load has ended.
const NAP: Duration = Duration::from_millis(50);
/// Longest wait for answers after the last request.
const DRAIN: Duration = Duration::from_secs(5);
/// Longest time to write all keys before the load starts.
const FILL_MAX: Duration = Duration::from_secs(20);
/// Number of keys that are written before their answers are read.
const FILL_BATCH: u32 = 100;
/// Size of the buffer for one read from a socket, in bytes.
const READ_BYTES: usize = 16 << 10;

/// Parameters of a load: protocol, hosts, rate, duration and transport.
pub(in crate::experiment) struct Load {
    pub(in crate::experiment) protocol: Protocol,
    pub(in crate::experiment) clients: Vec<HostId>,
    pub(in crate::experiment) server: SocketAddr,
    pub(in crate::experiment) connections: usize,
    /// Number of requests per second, over all connections.
    pub(in crate::experiment) rate: u32,
    pub(in crate::experiment) threads: u32,
    pub(in crate::experiment) seconds: u64,
    pub(in crate::experiment) seed: u64,
    pub(in crate::experiment) congestion: Congestion,
    pub(in crate::experiment) mptcp: bool,
}

/// The established connections for a load.
pub(in crate::experiment) struct Clients {
    sockets: Vec<OwnedFd>,
}

struct Request {
    kind: Kind,
    due: Instant,
}

/// State of one connection.
#[derive(Default)]
struct ConnectionState {
    /// Bytes of requests that the kernel has not accepted yet.
    out: VecDeque<u8>,
    /// Received bytes that are not yet a whole answer.
    input: Vec<u8>,
    /// Unanswered requests, with the oldest first: servers answer in the order of requests.
    pending: VecDeque<Request>,
}

impl Load {
    /// Writes every key once, so that every GET finds a value.
    pub(in crate::experiment) fn fill(&self, fabric: &Fabric) -> Result<()> {
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

    /// Establishes the connections, with an equal number in each client host.
    pub(in crate::experiment) fn connect(&self, fabric: &Fabric) -> Result<Clients> {
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

    /// Sends requests for the configured time on real-time threads. At the same time calls
    /// `meanwhile` with the clock of the load.
    pub(in crate::experiment) fn run<T>(
        &self,
        clients: &Clients,
        meanwhile: impl FnOnce(&Clock<'_>) -> Result<T>,
    ) -> Result<(Answers, T)> {
        check("rate", self.rate.into(), 1..=RATE_MAX.into())?;
        let threads_max = self.connections.min(self.rate as usize).min(THREADS_MAX as usize);
        check("threads", self.threads.into(), 1..=threads_max as u64)?;
        let over = AtomicBool::new(false);
        let clock = Clock { start: Instant::now() + HEAD_START, over: &over };
        thread::scope(|scope| {
            let askers: Vec<_> = (0..self.threads)
                .map(|number| {
                    let asker = self.asker(clients, number, clock);
                    scope.spawn(move || asker.run())
                })
                .collect();
            let _stop = StopInPanic(&over);
            let done = meanwhile(&clock);
            if done.is_err() {
                over.store(true, Ordering::Release);
            }
            let mut answers = Answers::new(self.seconds);
            let mut failed = None;
            for asker in askers {
                match asker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                    Ok(seen) => answers.merge(&seen),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            // If the load failed, `meanwhile` failed only because of this, so the load's error is
            // returned.
            failed.map_or(Ok(()), Err)?;
            Ok((answers, done?))
        })
    }

    /// Returns the part of the load that one thread runs: its connections and its share of the
    /// rate.
    fn asker<'a>(&'a self, clients: &'a Clients, number: u32, clock: Clock<'a>) -> Asker<'a> {
        let threads = self.threads as usize;
        let begin = |number: usize| clients.sockets.len() * number / threads;
        let at = number as usize;
        Asker {
            protocol: self.protocol,
            sockets: &clients.sockets[begin(at)..begin(at + 1)],
            rate: self.rate / self.threads + u32::from(number < self.rate % self.threads),
            seconds: self.seconds,
            seed: if number == 0 { self.seed } else { mix(self.seed ^ mix(number.into())) },
            open_max: OPEN_MAX / threads,
            clock,
        }
    }
}

/// Start time of a load, and a flag that is set when the load ends early.
#[derive(Clone, Copy)]
pub(in crate::experiment) struct Clock<'a> {
    pub(in crate::experiment) start: Instant,
    over: &'a AtomicBool,
}

impl Clock<'_> {
    /// Sleeps until a time after the start of the load. Returns an error if the load ends earlier.
    pub(in crate::experiment) fn sleep_until(&self, since_start: Duration) -> Result<()> {
        let moment = self.start + since_start;
        loop {
            if self.over.load(Ordering::Acquire) {
                bail!("the load has ended before its time");
            }
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(NAP));
        }
    }
}

/// Ends the load if the calling thread panics. Otherwise the scope of the load's threads would wait
/// for the regular end of the load.
struct StopInPanic<'a>(&'a AtomicBool);

impl Drop for StopInPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// The part of a load that one thread runs.
struct Asker<'a> {
    protocol: Protocol,
    sockets: &'a [OwnedFd],
    rate: u32,
    seconds: u64,
    seed: u64,
    open_max: usize,
    clock: Clock<'a>,
}

impl Asker<'_> {
    fn run(&self) -> Result<Answers> {
        let fifo = priority::fifo(PRIORITY)?;
        let seen = self.ask();
        drop(fifo);
        if seen.is_err() {
            self.clock.over.store(true, Ordering::Release);
        }
        seen
    }

    fn ask(&self) -> Result<Answers> {
        let mut poll = Poll::watch(self.sockets.iter(), EventFlags::IN | EventFlags::OUT)?;
        let mut connections: Vec<ConnectionState> =
            self.sockets.iter().map(|_| ConnectionState::default()).collect();
        let mut random = Random::new(self.seed);
        let mut answers = Answers::new(self.seconds);
        let mut buffer = vec![0; READ_BYTES];
        let start = self.clock.start;
        let end = start + Duration::from_secs(self.seconds);
        let mut due = start + random.exponential(self.rate);
        let mut open = 0usize;
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                let at = random.below(connections.len());
                let (connection, socket) = (&mut connections[at], &self.sockets[at]);
                let kind = choice::kind(&mut random);
                connection.ask(self.protocol, Request { kind, due }, &mut random);
                connection.flush(socket)?;
                answers.late.record(due.elapsed());
                due += random.exponential(self.rate);
                open += 1;
                if open > self.open_max {
                    bail!(
                        "{open} requests of a thread wait for an answer: the server or the \
                         network does not carry this rate; ask for less with --rate"
                    );
                }
            }
            let done = now >= end && (open == 0 || now >= end + DRAIN);
            if done || self.clock.over.load(Ordering::Acquire) {
                break;
            }
            let wake = if due < end { due } else { end + DRAIN };
            let nap = wake.saturating_duration_since(Instant::now()).min(NAP);
            for at in poll.wait_at_most(nap)? {
                let (connection, socket) = (&mut connections[at], &self.sockets[at]);
                connection.flush(socket)?;
                open -=
                    connection.receive(self.protocol, socket, &mut buffer, start, &mut answers)?;
            }
        }
        for request in connections.iter().flat_map(|connection| &connection.pending) {
            answers.unanswered += 1;
            answers.add(request.kind, request.due - start, request.due.elapsed());
        }
        Ok(answers)
    }
}

impl ConnectionState {
    fn ask(&mut self, protocol: Protocol, request: Request, random: &mut Random) {
        let mut bytes = Vec::new();
        protocol.write(request.kind, choice::key(random), &mut bytes);
        self.out.extend(bytes);
        self.pending.push_back(request);
    }

    /// Sends as many bytes of requests as the kernel accepts.
    fn flush(&mut self, socket: &OwnedFd) -> Result<()> {
        while !self.out.is_empty() {
            let (front, _) = self.out.as_slices();
            let Some(sent) = tcp::send(socket, front)? else { break };
            self.out.drain(..sent);
        }
        Ok(())
    }

    /// Reads all available bytes of answers. Returns the number of requests that were answered.
    fn receive(
        &mut self,
        protocol: Protocol,
        socket: &OwnedFd,
        buffer: &mut [u8],
        start: Instant,
        answers: &mut Answers,
    ) -> Result<usize> {
        let mut answered = 0;
        while let Some(count) = tcp::receive(socket, buffer)? {
            self.input.extend_from_slice(&buffer[..count]);
            let mut read = 0;
            while let Some(request) = self.pending.front() {
                let Some(answer) = protocol.read(request.kind, &self.input[read..])? else { break };
                read += answer.bytes;
                answers.add(request.kind, request.due - start, request.due.elapsed());
                answers.wrong += u64::from(!answer.good);
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

#[cfg(test)]
mod tests;
