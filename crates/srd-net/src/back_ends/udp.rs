//! The UDP back end: one socket per path, batches in both directions.
//!
//! Entropy `i` is the source port `base + i`, with a socket that only sends. The socket of the base
//! port also receives all packets, since peers send to the base port only. So N sockets serve any
//! number of peers, without privilege, and segmentation offload works on every path. In a node of
//! several shards, shard `s` has the base port, one socket of a group, and `paths - 1` ports after
//! `base + s * paths`. With `m` local addresses (network cards), entropy `i` leaves from address
//! `i % m`, and `m - 1` more sockets receive at the base ports of the other addresses. The kernel
//! derives the IPv6 flow label from addresses and ports (`net.ipv6.auto_flowlabels`).

mod adopt;
mod receive;
mod refusals;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use srd_proto::ADDRESSES_MAX;
use srd_proto::ids::Entropy;
use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::{Ecn, PacketMeta, Transmit};

use crate::back_ends::io::{
    IoStats, Notice, PacketIo, PollMode, Segments, SendOutcome, Undelivered, Wait,
};
use crate::back_ends::ports;
use crate::clock::Clock;
use crate::endpoints::options::UdpOptions;
use crate::endpoints::wake::IoWaker;
use crate::interfaces::link;
use crate::sys::errno;
use crate::sys::os::{self, Interest};
use crate::sys::timer::Alarm;
use crate::sys::udp::{refused, send::Sender, socket::Socket};
use adopt::Origin;
use receive::Input;
use refusals::Refusals;

/// Largest number of paths of an endpoint.
const PATHS_MAX: u16 = 256;
/// Largest number of notices that wait to be taken; further notices are dropped.
const NOTICES_MAX: usize = 16;
/// If no more than this time is left until a deadline, the thread polls instead of sleeping: a
/// sleep would end after the deadline.
const SLEEP_MIN: Duration = Duration::from_micros(3);
/// Interval at which the error queues of sockets that have sent packets are read.
const ERRORS_LOOK: Duration = Duration::from_millis(20);
/// Number of reads of a socket's error queue after it has sent a packet: reads last one second.
const ERRORS_LOOKS: u8 = 50;
/// Delay before an ICMP error is reported, so that packets that arrived earlier are received first.
const ERRORS_WAIT: Duration = Duration::from_millis(10);
/// Largest number of ICMP errors that wait to be taken. It bounds the cost of forged errors.
const ERRORS_MAX: usize = 64;
/// Longest duration of a sleep that ended at once, because a packet had already arrived.
const SLEEP_SHORT: Duration = Duration::from_micros(3);

/// A back end that sends and receives by UDP sockets of the kernel.
#[derive(Debug)]
pub struct UdpIo {
    /// Sockets: one for each path, then sockets that only receive.
    sockets: Vec<Socket>,
    path_count: usize,
    /// Source address of each socket.
    sources: Vec<SocketAddr>,
    ecn: Ecn,
    poll: PollMode,
    segmentation: bool,
    segments_max: usize,
    receive_buffer_bytes: usize,
    sender: Sender,
    /// Index of the receiving socket of each local address. `inputs` has its receive buffers.
    receivers: Vec<usize>,
    inputs: Vec<Input>,
    clock: Clock,
    /// The path whose socket was full at the last send; `None` if that send was complete.
    blocked: Option<usize>,
    /// Whether the last wait slept for long. If so, the next packet has probably not arrived yet.
    slept: bool,
    waker: Option<Arc<IoWaker>>,
    /// A descriptor of the caller. A sleep ends when it is readable.
    watched: Option<Arc<OwnedFd>>,
    alarm: Alarm,
    notices: std::collections::VecDeque<Notice>,
    failed_with: Vec<i32>,
    refusals: Refusals,
    too_large_for: Vec<SocketAddr>,
    /// For each path, the number of further reads of its socket's error queue.
    sent_on: Vec<u8>,
    errors_looked_at: Instant,
    /// Undelivered packets, each with the time when its error was read.
    undelivered: std::collections::VecDeque<(Instant, SocketAddr, Undelivered)>,
    stats: IoStats,
}

impl UdpIo {
    /// Opens the sockets.
    ///
    /// # Errors
    /// An error of the operating system, if a socket cannot be opened or bound. Its text names the
    /// port that was refused.
    pub fn open(options: &UdpOptions) -> io::Result<Self> {
        Self::open_shards(options, 1)?.pop().ok_or_else(|| io::Error::other("no shard"))
    }

    /// Opens the sockets of each shard of a node. All shards receive at the same address, where the
    /// kernel distributes packets to them. Each shard sends from separate ports: there is one range
    /// of `paths` consecutive ports for each shard.
    ///
    /// # Errors
    /// As [`UdpIo::open`].
    pub fn open_shards(options: &UdpOptions, shards: u8) -> io::Result<Vec<Self>> {
        check(options)?;
        let all = ports::bind(options, shards)?.into_iter();
        all.map(|bound| Self::over(options, bound, Origin::Opened)).collect()
    }

    fn over(options: &UdpOptions, bound: ports::Bound, origin: Origin) -> io::Result<Self> {
        let path_count = bound.paths();
        let ports::Bound { mut sockets, receivers } = bound;
        let sources = sockets.iter().map(Socket::local_address).collect::<io::Result<Vec<_>>>()?;
        let mut receive_buffer_bytes = 0;
        for (i, socket) in sockets.iter_mut().enumerate() {
            socket.never_fragment()?;
            let is_new = origin == Origin::Opened;
            if let Some(mark) = options.mark.filter(|_| is_new) {
                socket.mark(mark)?;
            }
            socket.mark_packets(options.dscp, options.ecn)?;
            refused::queue_errors(socket)?;
            let receives = receivers.contains(&i);
            let wanted = if receives { options.receive_buffer_bytes } else { 0 };
            let size = match origin {
                Origin::Opened => socket.buffers(options.send_buffer_bytes, wanted)?,
                Origin::Adopted => socket.receive_buffer_bytes()?,
            };
            if receives {
                receive_buffer_bytes = size;
                socket.receive_ecn()?;
                // Optional: without this stamp, a packet's arrival time is the time when the thread
                // reads it.
                let _ = socket.receive_stamps();
            }
        }
        let segmentation = options.segmentation && sockets[0].knows_segmentation();
        let segments_max = if segmentation { link::segments_max() } else { 64 };
        let sent_on = vec![0; sockets.len()];
        Ok(Self {
            sockets,
            sources,
            ecn: options.ecn,
            poll: options.poll,
            segmentation,
            segments_max,
            receive_buffer_bytes,
            sender: Sender::default(),
            inputs: receivers.iter().map(|_| Input::new()).collect(),
            receivers,
            path_count,
            clock: Clock::new(),
            blocked: None,
            slept: false,
            waker: None,
            watched: None,
            alarm: Alarm::new()?,
            notices: std::collections::VecDeque::new(),
            failed_with: Vec::new(),
            refusals: Refusals::default(),
            too_large_for: Vec::new(),
            sent_on,
            errors_looked_at: Instant::ZERO,
            undelivered: std::collections::VecDeque::new(),
            stats: IoStats::default(),
        })
    }

    /// Returns the bytes of the receive buffer that the kernel granted, with its book-keeping.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Whether segmentation offload is in use.
    pub fn segmentation(&self) -> bool {
        self.segmentation
    }

    /// Sets how this back end waits for packets.
    pub fn set_poll(&mut self, poll: PollMode) {
        self.poll = poll;
    }

    /// Sets a descriptor that ends a wait for packets when it is readable.
    pub fn watch(&mut self, fd: Arc<OwnedFd>) {
        self.watched = Some(fd);
    }

    /// Returns the index of an entropy's socket. If the socket's local address is of another family
    /// than the destination, the next socket of the right family is used.
    fn path_of(&self, entropy: Entropy, destination: SocketAddr) -> usize {
        let count = self.path_count;
        // W1: Path is the source port
        let first = usize::from(entropy.0) % count;
        let reaches = |path: &usize| {
            let ip = self.sources[*path].ip();
            ip.is_ipv4() == destination.is_ipv4() || (ip.is_ipv6() && ip.is_unspecified())
        };
        let mut turns = (0..self.inputs.len()).map(|turn| (first + turn) % count);
        turns.find(reaches).unwrap_or(first)
    }

    /// Sends a run of batches of one path. Returns the number of batches that were sent or refused
    /// permanently; `None` if the socket is full.
    fn send_run<S: Segments>(&mut self, path: usize, run: &[(Transmit, S)]) -> Option<usize> {
        if !self.segmentation {
            return self.send_cut(path, run);
        }
        self.stats.send_calls += 1;
        self.sent_on[path] = ERRORS_LOOKS;
        let mut sent = self.sender.send_batches(&self.sockets[path], self.ecn, run);
        if sent.as_ref().is_err_and(|e| self.was_of_an_earlier_packet(path, e)) {
            sent = self.sender.send_batches(&self.sockets[path], self.ecn, run);
        }
        match sent {
            Ok(n) => {
                for (transmit, _) in &run[..n] {
                    self.refusals.left(transmit.destination.ip());
                    self.stats.sent_batches += 1;
                    self.stats.sent_packets += transmit.segments as u64;
                    self.stats.sent_bytes += transmit.total_bytes as u64;
                }
                Some(n)
            }
            Err(e) if is_later(&e) => None,
            Err(e) => {
                // An error of this machine itself is queued as well, and would prevent sleeps until
                // it is read.
                self.drain_errors(path);
                let offload_refused = matches!(errno(&e), libc::EINVAL | libc::EIO);
                if offload_refused && run[0].0.segments > 1 {
                    self.send_refused_offload(path, run)
                } else {
                    self.failed(&run[0].0, &e);
                    Some(1)
                }
            }
        }
    }

    /// Handles a batch that the kernel refused with `EINVAL` or `EIO`. Older kernels refuse a
    /// segment that is too large in this way, and devices without checksum offload refuse every
    /// batch. If the single packets pass, segmentation offload was the cause, and is switched off.
    fn send_refused_offload<S: Segments>(
        &mut self,
        path: usize,
        run: &[(Transmit, S)],
    ) -> Option<usize> {
        let failures = self.stats.send_failed + self.stats.send_too_large;
        let done = self.send_cut(path, &run[..1])?;
        if failures == self.stats.send_failed + self.stats.send_too_large {
            self.segmentation = false;
            self.notice(Notice::SegmentationOff);
        }
        Some(done)
    }

    /// Sends the first batch of a run packet by packet. If the socket is full before the end of the
    /// batch, the rest of the batch is lost, as in any full queue.
    fn send_cut<S: Segments>(&mut self, path: usize, run: &[(Transmit, S)]) -> Option<usize> {
        let batch = &run[0];
        let mut sent = 0;
        while sent < batch.0.segments {
            self.stats.send_calls += 1;
            self.sent_on[path] = ERRORS_LOOKS;
            let mut call = self.sender.send_segments(&self.sockets[path], self.ecn, batch, sent);
            if call.as_ref().is_err_and(|e| self.was_of_an_earlier_packet(path, e)) {
                call = self.sender.send_segments(&self.sockets[path], self.ecn, batch, sent);
            }
            match call {
                Ok(0) => break,
                Ok(n) => {
                    sent += n;
                    self.refusals.left(batch.0.destination.ip());
                    self.stats.sent_packets += n as u64;
                }
                Err(e) if is_later(&e) && sent == 0 => return None,
                Err(e) if is_later(&e) => break,
                Err(e) => {
                    self.drain_errors(path);
                    self.failed(&batch.0, &e);
                    sent += 1;
                }
            }
        }
        self.stats.sent_batches += 1;
        self.stats.sent_bytes += (batch.0.segment_bytes * sent).min(batch.0.total_bytes) as u64;
        Some(1)
    }

    #[cold]
    fn failed(&mut self, transmit: &Transmit, error: &io::Error) {
        let destination = transmit.destination;
        match errno(error) {
            libc::EMSGSIZE => {
                self.stats.send_too_large += 1;
                self.report_too_large(destination, transmit.segment_bytes);
            }
            // A full device queue is an ordinary loss. A refused connection belongs to an earlier
            // packet, to any destination.
            libc::ENOBUFS | libc::ECONNREFUSED => self.stats.send_failed += 1,
            errno => {
                self.stats.send_failed += 1;
                self.refusals.refused(destination.ip(), errno);
                if !self.failed_with.contains(&errno) && self.failed_with.len() < NOTICES_MAX {
                    self.failed_with.push(errno);
                    self.notice(Notice::SendFailed { destination, errno });
                }
            }
        }
    }

    /// Reports a packet that is too large, once for each destination.
    fn report_too_large(&mut self, destination: SocketAddr, packet_bytes: usize) {
        if self.too_large_for.len() < NOTICES_MAX && !self.too_large_for.contains(&destination) {
            self.too_large_for.push(destination);
            let works_bytes = link::packet_bytes_max(destination).ok();
            self.notice(Notice::PacketTooLarge { destination, packet_bytes, works_bytes });
        }
    }

    fn notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back(notice);
        }
    }

    /// Whether a call failed because of a packet that was sent earlier, and should be repeated.
    #[cold]
    fn was_of_an_earlier_packet(&mut self, path: usize, error: &io::Error) -> bool {
        refused::may_be_of_an_earlier_packet(errno(error)) && self.drain_errors(path)
    }

    /// Reads the error queue of a path. Returns whether the queue had an error.
    fn drain_errors(&mut self, path: usize) -> bool {
        let mut any = false;
        for _ in 0..ERRORS_MAX {
            // A queue that cannot be read is skipped; calls on the socket report the fault.
            let Ok(Some(told)) = refused::take_error(&self.sockets[path]) else { break };
            any = true;
            let Some(told) = told else { continue };
            self.stats.undelivered += 1;
            if self.undelivered.len() < ERRORS_MAX {
                self.undelivered.push_back((self.clock.now(), told.0, told.1));
            }
        }
        any
    }

    /// Sleeps until a packet arrives, another thread wakes this thread, a full socket is writable,
    /// or the time is `wait.until`. Returns whether a packet may have arrived.
    fn sleep(&mut self, wait: Wait, now: Instant) -> io::Result<bool> {
        if let Some(waker) = &self.waker
            && !waker.prepare_sleep()
        {
            return Ok(false);
        }
        self.stats.sleeps += 1;
        for input in &mut self.inputs {
            input.receiver.expect_few();
        }
        let woken = self.sleep_announced(wait);
        let rung = woken.as_ref().is_ok_and(|w| w.called);
        if let Some(waker) = &self.waker {
            waker.finish_sleep(rung);
        }
        self.slept = self.clock.now().since(now) > SLEEP_SHORT;
        woken.map(|w| w.readable)
    }

    fn sleep_announced(&mut self, wait: Wait) -> io::Result<Woken> {
        loop {
            if wait.until != Instant::FAR_FUTURE {
                self.alarm.ring_by(wait.until.as_nanos())?;
            }
            let base = self.sockets[self.receivers[0]].as_fd();
            let bell = self.waker.as_ref().and_then(|w| w.fd());
            let full = if wait.writable { self.blocked } else { None };
            let mut interests = [Interest::readable(base); 4 + ADDRESSES_MAX];
            interests[1] = Interest::readable(self.alarm.fd());
            let mut count = 2;
            let writable = full.map(|path| Interest::writable(self.sockets[path].as_fd()));
            let watched = self.watched.as_ref().map(|fd| Interest::readable(fd.as_fd()));
            let others = bell.map(Interest::readable).into_iter().chain(writable).chain(watched);
            for interest in others {
                interests[count] = interest;
                count += 1;
            }
            let further = count;
            for receiver in &self.receivers[1..] {
                interests[count] = Interest::readable(self.sockets[*receiver].as_fd());
                count += 1;
            }
            let ready = os::wait(&mut interests[..count], None)?;
            let at_others = interests[further..count].iter().any(Interest::is_ready);
            let woken = Woken {
                readable: interests[0].is_ready() || at_others,
                called: bell.is_some() && interests[2].is_ready(),
            };
            let rang = interests[1].is_ready();
            if rang {
                self.alarm.silence();
            }
            // Only the timer woke the thread, and too early: continue to sleep.
            if !rang || ready > 1 || self.clock.now() >= wait.until {
                return Ok(woken);
            }
        }
    }
}

/// Causes that ended a sleep.
struct Woken {
    readable: bool,
    called: bool,
}

impl PacketIo for UdpIo {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        let mut done = 0;
        while done < batches.len() {
            let rest = &batches[done..];
            let path_of = |(t, _): &(Transmit, S)| self.path_of(t.entropy, t.destination);
            let path = path_of(&rest[0]);
            let length = rest.iter().take_while(|batch| path_of(batch) == path).count();
            match self.send_run(path, &rest[..length]) {
                Some(n) => done += n,
                None => {
                    self.stats.send_blocked += 1;
                    self.blocked = Some(path);
                    return Ok(SendOutcome::Blocked { batches: done });
                }
            }
        }
        self.blocked = None;
        Ok(SendOutcome::All)
    }

    fn receive(
        &mut self,
        wait: Wait,
        mut each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        let no_wait = wait.until == Instant::ZERO;
        // Receiving when no packet has arrived costs a system call without a result.
        let ask_first = no_wait
            || !self.slept
            || self.inputs.iter().any(|input| input.is_waiting() || input.receiver.is_full())
            || self.poll != PollMode::Block;
        if ask_first && let Some(n) = self.receive_now(&mut each)? {
            return Ok(n);
        }
        if no_wait {
            return Ok(0);
        }
        let start = self.clock.now();
        let spin_until = match self.poll {
            PollMode::Block => start,
            PollMode::Spin => Instant::FAR_FUTURE,
            PollMode::Adaptive(spin) => start + spin,
        };
        let mut now = start;
        let mut asked = ask_first;
        loop {
            if now >= wait.until || self.waker.as_ref().is_some_and(|w| w.take()) {
                // Even if the thread is always late, packets that have arrived must be received.
                return if asked { Ok(0) } else { Ok(self.receive_now(&mut each)?.unwrap_or(0)) };
            }
            if now >= spin_until && wait.until.since(now) > SLEEP_MIN {
                let readable = self.sleep(wait, now)?;
                if !readable {
                    return Ok(0);
                }
                return Ok(self.receive_now(&mut each)?.unwrap_or(0));
            }
            if let Some(n) = self.receive_now(&mut each)? {
                return Ok(n);
            }
            asked = true;
            if wait.writable {
                // A send waits for a full socket. In polling mode the caller tries it again.
                return Ok(0);
            }
            now = self.clock.now();
        }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn local_address(&self) -> SocketAddr {
        self.sources[self.receivers[0]]
    }

    fn local_addresses(&self) -> u8 {
        u8::try_from(self.inputs.len()).unwrap_or(1)
    }

    fn local_address_at(&self, place: u8) -> SocketAddr {
        self.sources[self.receivers[usize::from(place) % self.receivers.len()]]
    }

    fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        self.sources[self.path_of(entropy, destination)]
    }

    fn paths(&self) -> u16 {
        u16::try_from(self.path_count).unwrap_or(PATHS_MAX)
    }

    fn batch_segments_max(&self) -> usize {
        self.segments_max
    }

    fn check_destination(&mut self, destination: SocketAddr, packet_bytes_max: u16) {
        let Ok(works) = link::packet_bytes_max(destination) else { return };
        if works < packet_bytes_max {
            self.report_too_large(destination, usize::from(packet_bytes_max));
        }
    }

    fn take_undelivered(&mut self, now: Instant) -> Option<(SocketAddr, Undelivered)> {
        if self.undelivered.is_empty() && now.since(self.errors_looked_at) >= ERRORS_LOOK {
            self.errors_looked_at = now;
            for path in 0..self.sockets.len() {
                if let Some(left) = self.sent_on[path].checked_sub(1) {
                    self.sent_on[path] = left;
                    self.drain_errors(path);
                }
            }
        }
        // Packets that the destination sent before it became unreachable may still be in the
        // receive buffer.
        let (at, to, why) = *self.undelivered.front()?;
        if now.since(at) < ERRORS_WAIT {
            return None;
        }
        self.undelivered.pop_front();
        Some((to, why))
    }

    fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        self.refusals.last(destination.ip())
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn stats(&self) -> IoStats {
        self.stats
    }

    fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }

    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = Arc::new(IoWaker::with_descriptor()?);
        self.waker = Some(waker.clone());
        Ok(waker)
    }
}

/// Whether the options are in range.
fn check(options: &UdpOptions) -> io::Result<()> {
    if !(1..=PATHS_MAX).contains(&options.paths) {
        let text = format!("{} paths were asked for; 1 to {PATHS_MAX} work", options.paths);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let locals = 1 + options.further.len();
    if locals > ADDRESSES_MAX || locals > usize::from(options.paths) {
        let text = format!(
            "{locals} local addresses were asked for; at most {ADDRESSES_MAX} work, each with \
             a path at least"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// Whether a call may succeed later: the socket is full or empty, or a signal interrupted the call.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
