//! The device: a socket, the front end that is connected to it, and the front end's frames.
//!
//! The device serves one front end at a time; after it has gone, another may connect. No function
//! here blocks: the caller waits on [`Device::descriptors`], and then calls [`Device::turn`].
//!
//! Either end may be the one that listens. If the front end listens, the device tries to connect
//! again whenever the front end is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use srd_trust::closing::Closing;
use srd_trust::socket::{self, connect};

use crate::frame::{self, Frame, Layout, Put, Scratch, Taken};
use crate::ring::{Broken, Ring};
use crate::session::{Kick, NOT_DONE, RECEIVE, RINGS_MAX, SEND, Session, Violation, feature};
use crate::signal;
use crate::socket::{Connection, Ended};

/// Largest number of requests that one call of [`Device::turn`] executes.
const REQUESTS_MAX: usize = 64;
/// Largest number of chains without a valid frame that one call of [`Device::read`] takes.
const USELESS_MAX: usize = 64;

/// Pause after a front end could not be accepted because descriptors or memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval between attempts to connect to a front end that listens.
const JOIN_EVERY: Duration = Duration::from_millis(100);

/// Counters since the creation of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Front ends that have connected.
    pub connected: u64,
    /// Front ends that were disconnected because they broke the protocol.
    pub violations: u64,
    /// Requests that were refused although the session continued.
    pub refused: u64,
    /// Chains that were dropped: loops, invalid addresses, wrong directions, wrong lengths.
    pub malformed: u64,
    /// Rings that were stopped: indices that jump, addresses outside of the memory.
    pub broken_rings: u64,
    /// Frames for which the driver had no buffers.
    pub no_buffer: u64,
    /// Frames that were longer than the driver's buffers.
    pub too_long: u64,
    /// Frames that arrived while no driver received frames.
    pub no_driver: u64,
}

/// Way in which a device gets its front end.
#[derive(Debug)]
enum Meets {
    /// The device listens, and the front end connects to it.
    Listens(UnixListener),
    /// The device connects to the front end. The next attempt is at this time.
    Joins(Instant),
    /// The owner of the device connects to the front end, on request.
    Asks(Asks),
}

/// State of the device's requests to its owner, the program that uses this crate, to connect to the
/// front end.
#[derive(Debug)]
struct Asks {
    /// Earliest time of the next request.
    at: Instant,
    /// Whether a request is waiting for its answer.
    is_asked: bool,
    found: Option<UnixStream>,
}

/// Listens at `path`; only this user may connect. A socket file without a listener is replaced. If
/// `replaces`, a socket file with a listener is replaced, too. The file remains when the socket is
/// closed.
///
/// # Errors
/// An error of the operating system, if another program listens at `path`, or no socket can be
/// created there.
pub fn listen(path: &Path, replaces: bool) -> io::Result<UnixListener> {
    if replaces {
        return bind_for_us(path, true);
    }
    match socket::remove_dead(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let by = socket::listener_inserted(path);
            let what = format!("another program listens there{by}");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        removed => removed?,
    };
    bind_for_us(path, false)
}

/// The back end of one vhost-user port.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    /// Whether the socket file belongs to another process.
    is_replaced: bool,
    meets: Meets,
    connection: Option<Connection>,
    /// Time until which no front end is accepted, because the last attempt failed. Until then the
    /// listener stays readable, and is not waited on.
    accept_at: Option<Instant>,
    /// Closes descriptors of the last front end on another thread, which may take long.
    closing: Closing,
    /// Whether descriptors of the last front end are still being closed. Until this ends, the
    /// device accepts no other front end.
    is_closing: bool,
    session: Session,
    /// Indices of the rings in use.
    running: Vec<usize>,
    /// Indices of the rings for frames to the driver that may be used now.
    receivers: Vec<usize>,
    /// Indices of the rings for frames from the driver.
    senders: Vec<usize>,
    /// Index in `senders` of the ring that is read first.
    sender: usize,
    counts: Counts,
    scratch: Scratch,
}

impl Device {
    /// Listens at `path`; only this user may connect. A socket file without a listener is replaced.
    ///
    /// # Errors
    /// An error of the operating system, if another program listens at `path`, or no socket can be
    /// created there.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(path, listen(path, false)?)
    }

    /// Replaces the socket of another process, which is about to end. The front end of that process
    /// has to connect again.
    ///
    /// # Errors
    /// An error of the operating system, if no socket can be created at `path`.
    pub fn replace(path: &Path) -> io::Result<Self> {
        Self::of(path, listen(path, true)?)
    }

    /// Accepts front ends at a listener that another program has created. The socket file belongs
    /// to that program, and remains.
    ///
    /// # Errors
    /// An error of the operating system, if the kernel offers no way to signal to front ends
    /// without blocking.
    pub fn over(path: &Path, listener: UnixListener) -> io::Result<Self> {
        let mut device = Self::of(path, listener)?;
        device.is_replaced = true;
        Ok(device)
    }

    /// Creates a device for a front end that listens at `path`, and to which the owner of the
    /// device connects on request: see [`Device::asks`].
    ///
    /// # Errors
    /// An error of the operating system, if the kernel offers no way to signal to front ends
    /// without blocking.
    pub fn asking(path: &Path) -> io::Result<Self> {
        signal::prepare()?;
        let asks = Asks { at: Instant::now(), is_asked: false, found: None };
        Ok(Self::with(path, Meets::Asks(asks)))
    }

    /// Whether the owner has to connect to the front end now. After it has returned true, the
    /// function returns false until [`Device::found`] delivers the answer.
    pub fn asks(&mut self) -> bool {
        let is_free = self.connection.is_none() && !self.is_closing;
        let Meets::Asks(asks) = &mut self.meets else { return false };
        let now = Instant::now();
        if !is_free || asks.is_asked || asks.found.is_some() || now < asks.at {
            return false;
        }
        (asks.is_asked, asks.at) = (true, now + JOIN_EVERY);
        true
    }

    /// Takes the answer to [`Device::asks`]: the connection to the front end, if there is one.
    pub fn found(&mut self, front: Option<UnixStream>) {
        if let Meets::Asks(asks) = &mut self.meets {
            (asks.is_asked, asks.found) = (false, front);
        }
    }

    /// Creates a device that connects to the front end that listens at `path`, now or as soon as
    /// the front end listens.
    ///
    /// # Errors
    /// An error of the operating system, if the kernel offers no way to signal to front ends
    /// without blocking.
    pub fn join(path: &Path) -> io::Result<Self> {
        signal::prepare()?;
        Ok(Self::with(path, Meets::Joins(Instant::now())))
    }

    fn of(path: &Path, listener: UnixListener) -> io::Result<Self> {
        signal::prepare()?;
        listener.set_nonblocking(true)?;
        Ok(Self::with(path, Meets::Listens(listener)))
    }

    fn with(path: &Path, meets: Meets) -> Self {
        Self {
            path: path.to_owned(),
            is_replaced: false,
            meets,
            connection: None,
            accept_at: None,
            closing: Closing::default(),
            is_closing: false,
            session: Session::default(),
            running: Vec::new(),
            receivers: Vec::new(),
            senders: Vec::new(),
            sender: 0,
            counts: Counts::default(),
            scratch: Scratch::default(),
        }
    }

    /// Ends the device, and leaves the socket file to the process that replaces this process.
    pub fn leave(mut self) {
        self.is_replaced = true;
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a front end is connected.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether descriptors of the last front end are still being closed. Until this ends, the
    /// device accepts no other front end.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Whether the driver accepts frames.
    pub fn is_running(&self) -> bool {
        !self.receivers.is_empty()
    }

    /// Returns the number of ring pairs on which the driver has enabled reception of frames.
    pub fn pairs(&self) -> usize {
        self.receivers.len()
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        let broken_rings = self.counts.broken_rings + self.session.broken;
        let refused = self.counts.refused + self.session.refused;
        Counts { broken_rings, refused, ..self.counts }
    }

    /// Whether both ends have agreed on all of these features ([`feature`]).
    pub fn has(&self, features: u64) -> bool {
        self.session.has(features)
    }

    /// Returns the descriptors to wait on until they are readable.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let front = match (&self.connection, &self.meets) {
            (Some(connection), _) => Some(connection.fd()),
            (None, Meets::Listens(listener)) if !self.is_closing && self.accept_at.is_none() => {
                Some(listener.as_fd())
            }
            (None, Meets::Listens(_) | Meets::Joins(_) | Meets::Asks(_)) => None,
        };
        let kicks = senders().filter_map(|index| match &self.session.rings[index].kick {
            Kick::By(kick) => Some(kick.as_fd()),
            _ => None,
        });
        front.into_iter().chain(kicks)
    }

    /// Executes requests of the front end, and consumes its kicks.
    pub fn turn(&mut self) {
        for index in senders() {
            let setup = &self.session.rings[index];
            let may_kick = setup.ring.as_ref().is_none_or(Ring::asks_for_kicks);
            if let Kick::By(kick) = &setup.kick
                && may_kick
            {
                signal::take(kick);
            }
        }
        if self.is_closing {
            self.is_closing = !self.closing.is_done();
        }
        if self.connection.is_none() && !self.is_closing {
            match self.meet().and_then(Connection::new) {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.counts.connected += 1;
                }
                Err(error) => self.put_off(&error),
            }
        }
        // A request may stop rings, so buffers that were read or written are published first.
        self.flush_all();
        for _ in 0..REQUESTS_MAX {
            match self.obey() {
                Ok(true) => self.find_rings(),
                Ok(false) => break,
                Err(ended) => {
                    self.end(ended);
                    break;
                }
            }
        }
    }

    /// Accepts no front end for a while after an attempt has failed.
    fn put_off(&mut self, error: &io::Error) {
        if matches!(self.meets, Meets::Listens(_)) && error.kind() != io::ErrorKind::WouldBlock {
            tracing::warn!("{}: no front end can be accepted now: {error}", self.path.display());
            self.accept_at = Some(Instant::now() + ACCEPT_PAUSE);
        }
    }

    fn meet(&mut self) -> io::Result<UnixStream> {
        if self.accept_at.is_some_and(|at| Instant::now() < at) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.accept_at = None;
        match &mut self.meets {
            Meets::Listens(listener) => listener.accept().map(|(stream, _)| stream),
            Meets::Joins(at) => {
                let now = Instant::now();
                if now < *at {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                *at = now + JOIN_EVERY;
                connect(&self.path).and_then(|stream| {
                    stream.set_nonblocking(true)?;
                    Ok(stream)
                })
            }
            Meets::Asks(asks) => {
                let stream = asks.found.take().ok_or(io::ErrorKind::WouldBlock)?;
                stream.set_nonblocking(true)?;
                Ok(stream)
            }
        }
    }

    fn find_rings(&mut self) {
        let Self { session, running, receivers, senders, sender, .. } = self;
        running.clear();
        running.extend((0..RINGS_MAX).filter(|index| session.rings[*index].ring.is_some()));
        let of = |first| running.iter().copied().filter(move |index| index % 2 == first);
        receivers.clear();
        receivers.extend(of(RECEIVE).filter(|index| session.is_enabled(*index)));
        senders.clear();
        senders.extend(of(SEND));
        *sender %= senders.len().max(1);
    }

    /// Executes one request. Returns whether there was a request.
    fn obey(&mut self) -> Result<bool, Ended> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let Some(request) = connection.receive()? else { return Ok(false) };
        let number = request.header.request;
        match self.session.obey(request) {
            Ok(None) => {}
            Ok(Some(body)) => connection.answer(number, &body)?,
            Err(Violation { why, wants_answer }) => {
                if wants_answer {
                    // The front end is disconnected, whether or not it receives the answer.
                    let _ = connection.answer(number, &NOT_DONE.to_ne_bytes());
                }
                return Err(Ended::Wrong(why));
            }
        }
        Ok(true)
    }

    /// Ends the session of the front end, and drops everything that the front end has set up.
    fn end(&mut self, ended: Ended) {
        if let Ended::Wrong(why) = ended {
            tracing::warn!("a front end of {} is given up: {why}", self.path.display());
            self.counts.violations += 1;
        }
        self.counts.broken_rings += self.session.broken;
        self.counts.refused += self.session.refused;
        self.session = Session::default();
        self.find_rings();
        let left = self.connection.take().map(Connection::end).unwrap_or_default();
        if !left.is_empty() {
            self.closing.add(left);
            self.is_closing = !self.closing.is_done();
        }
    }

    /// Returns the next frame from the driver; `None`: no frame is available, or this call has
    /// reached its limit of chains without a valid frame.
    pub fn read(&mut self) -> Option<Frame> {
        let (mut useless, mut frame) = (0, Frame::default());
        for _ in 0..self.senders.len() {
            let index = *self.senders.get(self.sender)?;
            if self.read_ring(index, &mut useless, &mut frame) {
                return Some(frame);
            }
            if useless >= USELESS_MAX {
                return None;
            }
            self.next_sender();
        }
        None
    }

    fn next_sender(&mut self) {
        self.sender += 1;
        if self.sender >= self.senders.len() {
            self.sender = 0;
        }
    }

    /// Reads the next frame of a ring. Returns whether there was a valid frame.
    fn read_ring(&mut self, index: usize, useless: &mut usize, frame: &mut Frame) -> bool {
        let has_count = self.layout().has_count;
        // "Must process and discard any TX packets" while the ring is disabled.
        let is_enabled = self.session.is_enabled(index);
        while *useless < USELESS_MAX {
            let Session { memory, rings, .. } = &mut self.session;
            let (Some(memory), Some(ring)) = (memory.as_ref(), rings[index].ring.as_mut()) else {
                return false;
            };
            match frame::take(ring, memory, has_count, &mut self.scratch, frame) {
                Ok(Taken::Frame) if is_enabled => return true,
                Ok(Taken::Frame) => *useless += 1,
                Ok(Taken::Nothing) => return false,
                Ok(Taken::Malformed) => {
                    *useless += 1;
                    self.counts.malformed += 1;
                }
                Err(broken) => {
                    self.stop(index, broken);
                    return false;
                }
            }
        }
        false
    }

    /// Writes a frame to the driver, into the ring pair that the number `flow` selects. Returns
    /// whether the driver gets the frame; otherwise the frame is counted.
    pub fn write(&mut self, frame: &Frame, flow: u32) -> bool {
        let layout = self.layout();
        let pair = flow as usize % self.receivers.len().max(1);
        let Session { memory, rings, .. } = &mut self.session;
        let ring = self.receivers.get(pair).map(|index| (*index, rings[*index].ring.as_mut()));
        let (Some(memory), Some((index, Some(ring)))) = (memory.as_ref(), ring) else {
            self.counts.no_driver += 1;
            return false;
        };
        match frame::put(ring, memory, layout, frame, &mut self.scratch) {
            Ok(Put::Done) => return true,
            Ok(Put::Full) => self.counts.no_buffer += 1,
            Ok(Put::Long) => self.counts.too_long += 1,
            Ok(Put::Malformed) => self.counts.malformed += 1,
            Err(broken) => self.stop(index, broken),
        }
        false
    }

    /// Publishes the buffers that were read and written to the driver, and interrupts the driver if
    /// it has requested interrupts.
    pub fn flush(&mut self) {
        self.flush_all();
        // Each ring in turn is read first.
        self.next_sender();
    }

    fn flush_all(&mut self) {
        self.publish();
        if self.session.is_lost() {
            let why = "its memory was cut off, or has no pages";
            self.end(Ended::Wrong(why.into()));
        }
    }

    fn publish(&mut self) {
        let mut place = 0;
        while let Some(index) = self.running.get(place).copied() {
            match self.flush_ring(index) {
                Ok(()) => place += 1,
                // After this the list of running rings no longer contains the ring.
                Err(broken) => self.stop(index, broken),
            }
        }
    }

    fn flush_ring(&mut self, index: usize) -> Result<(), Broken> {
        let Session { memory, rings, .. } = &mut self.session;
        let setup = &mut rings[index];
        let (Some(memory), Some(ring)) = (memory.as_ref(), setup.ring.as_mut()) else {
            return Ok(());
        };
        ring.publish(memory)?;
        if ring.wants_interrupt(memory)?
            && let Some(call) = &setup.call
        {
            signal::give(call);
        }
        Ok(())
    }

    /// Requests kicks. It is called before the caller waits. Returns whether frames are available
    /// already, so that the caller must not wait.
    pub fn rest(&mut self) -> bool {
        let mut is_ready = false;
        for index in 0..RINGS_MAX {
            match self.ask(index) {
                Ok(ready) => is_ready |= ready,
                Err(broken) => self.stop(index, broken),
            }
        }
        is_ready
    }

    fn ask(&mut self, index: usize) -> Result<bool, Broken> {
        let Session { memory, rings, .. } = &mut self.session;
        let setup = &mut rings[index];
        let (Some(memory), Some(ring)) = (memory, &mut setup.ring) else { return Ok(false) };
        if index % 2 == RECEIVE {
            // A receive ring needs no kicks: its buffers are read when a frame has to be written.
            ring.refuse_kicks(memory)?;
            return Ok(false);
        }
        Ok(ring.ask_for_kicks(memory)? || matches!(setup.kick, Kick::Never))
    }

    /// Switches kicks off. It is called after the caller has waited.
    pub fn wake(&mut self) {
        let Session { memory, rings, .. } = &mut self.session;
        let Some(memory) = memory else { return };
        for index in &self.running {
            let Some(ring) = rings[*index].ring.as_mut() else { continue };
            // If this fails, the next access to the ring fails as well, and is counted.
            let _ = ring.refuse_kicks(memory);
        }
    }

    fn layout(&self) -> Layout {
        let may_merge = self.session.has(feature::MRG_RXBUF);
        Layout { may_merge, has_count: may_merge || self.session.has(feature::VERSION_1) }
    }

    fn stop(&mut self, ring: usize, broken: Broken) {
        tracing::warn!("ring {ring} of {} has stopped: {broken}", self.path.display());
        self.counts.broken_rings += 1;
        self.session.rings[ring].break_off();
        self.find_rings();
    }
}

/// Returns the indices of the rings for frames from drivers.
fn senders() -> impl Iterator<Item = usize> {
    (SEND..RINGS_MAX).step_by(2)
}

impl Drop for Device {
    fn drop(&mut self) {
        self.closing.add(self.connection.take().map(Connection::end).unwrap_or_default());
        if !self.is_replaced && matches!(self.meets, Meets::Listens(_)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns a listening socket whose file has mode 0600 from its creation on.
fn bind_for_us(path: &Path, replace: bool) -> io::Result<UnixListener> {
    let options = socket::Options { mode: 0o600, group: None, replace };
    Ok(socket::listen(path, options)?.listener)
}
