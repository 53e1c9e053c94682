//! The device: a socket, the front end that is connected, and its frames.
//!
//! One front end at a time; when it goes, another may come. Nothing here waits: the caller waits on
//! [`Device::descriptors`], and then calls [`Device::turn`].
//!
//! Either end may be the one that listens. A device that joins a front end looks for it again
//! whenever it is gone.

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

/// Requests of one turn.
const REQUESTS_MAX: usize = 64;
/// Chains without a good frame that one call of [`Device::read`] takes.
const USELESS_MAX: usize = 64;

/// Interval at which a device tries to connect to a front end that listens.
const JOIN_EVERY: Duration = Duration::from_millis(100);

/// Counters since the device was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Front ends that came.
    pub connected: u64,
    /// Front ends that were given up, since they broke the protocol.
    pub violations: u64,
    /// Requests that were refused, where the front end went on.
    pub refused: u64,
    /// Chains that were dropped: loops, bad addresses, wrong directions, wrong lengths.
    pub malformed: u64,
    /// Rings that stopped: indices that jump, places outside of the memory.
    pub broken_rings: u64,
    /// Frames for the driver that it had no buffers for.
    pub no_buffer: u64,
    /// Frames that were longer than its buffers.
    pub too_long: u64,
    /// Frames that came while no driver received frames.
    pub no_driver: u64,
}

/// Role of a device towards its front end.
#[derive(Debug)]
enum Meets {
    /// The device listens.
    Listens(UnixListener),
    /// The device connects at this time.
    Joins(Instant),
    /// The owner of the device connects, on request.
    Asks(Asks),
}

/// A front end that another program connects to.
#[derive(Debug)]
struct Asks {
    /// Not before this time.
    at: Instant,
    /// Whether there is no answer yet.
    is_asked: bool,
    found: Option<UnixStream>,
}

/// Listens at `path`, for this user alone. A socket without a listener is replaced, and any if
/// `replaces`. The file stays when the socket is closed.
///
/// # Errors
/// Another program listens there, or no socket can be made there.
pub fn listen(path: &Path, replaces: bool) -> io::Result<UnixListener> {
    if replaces {
        return bind_for_us(path, true);
    }
    // A program that listens, but accepts no connection now, does listen.
    if !matches!(connect(path), Err(error) if error.kind() != io::ErrorKind::WouldBlock) {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there"));
    }
    let is_socket = |path: &Path| {
        use std::os::unix::fs::FileTypeExt;
        std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
    };
    if is_socket(path) {
        std::fs::remove_file(path)?;
    }
    bind_for_us(path, false)
}

/// A device.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    /// Another process has its file.
    is_replaced: bool,
    meets: Meets,
    connection: Option<Connection>,
    /// Descriptors of the front end before this one, whose end may take long.
    closing: Closing,
    /// Whether that has not ended: no other front end is met until then.
    is_closing: bool,
    session: Session,
    /// Rings that run.
    running: Vec<usize>,
    /// Rings for frames to the driver that may be used now.
    receivers: Vec<usize>,
    /// Rings by which the driver sends.
    senders: Vec<usize>,
    /// The place among them of the one that is read first.
    sender: usize,
    counts: Counts,
    scratch: Scratch,
}

impl Device {
    /// Listens at `path`, for this user alone. A socket without a listener is replaced.
    ///
    /// # Errors
    /// Another program listens there, or no socket can be made there.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(path, listen(path, false)?)
    }

    /// Listens in the place of another process, which ends: its front end has to connect anew.
    ///
    /// # Errors
    /// An error of the system.
    pub fn replace(path: &Path) -> io::Result<Self> {
        Self::of(path, listen(path, true)?)
    }

    /// Takes front ends of a listener that another program has made, whose file stays with that.
    ///
    /// # Errors
    /// The kernel cannot signal to front ends.
    pub fn over(path: &Path, listener: UnixListener) -> io::Result<Self> {
        let mut device = Self::of(path, listener)?;
        device.is_replaced = true;
        Ok(device)
    }

    /// Has another program connect to the front end that listens at `path`: [`Device::asks`].
    ///
    /// # Errors
    /// The kernel cannot signal to front ends.
    pub fn asking(path: &Path) -> io::Result<Self> {
        signal::prepare()?;
        let asks = Asks { at: Instant::now(), is_asked: false, found: None };
        Ok(Self::with(path, Meets::Asks(asks)))
    }

    /// Whether the owner shall connect to the front end now. After true it returns false until the
    /// answer, [`Device::found`].
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

    /// The answer to [`Device::asks`]: the front end, if there is one.
    pub fn found(&mut self, front: Option<UnixStream>) {
        if let Meets::Asks(asks) = &mut self.meets {
            (asks.is_asked, asks.found) = (false, front);
        }
    }

    /// Connects to the front end that listens at `path`, now or whenever it is there.
    ///
    /// # Errors
    /// The kernel cannot signal to front ends.
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

    /// Ends, and leaves its file to the process that is in its place.
    pub fn leave(mut self) {
        self.is_replaced = true;
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a front end is connected.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether descriptors of the last front end are still being closed: no other one is met.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Whether the driver takes frames.
    pub fn is_running(&self) -> bool {
        !self.receivers.is_empty()
    }

    /// Number of pairs of rings that the driver has enabled for frames to it.
    pub fn pairs(&self) -> usize {
        self.receivers.len()
    }

    /// Counters.
    pub fn counts(&self) -> Counts {
        let broken_rings = self.counts.broken_rings + self.session.broken;
        let refused = self.counts.refused + self.session.refused;
        Counts { broken_rings, refused, ..self.counts }
    }

    /// Whether all of these features ([`feature`]) were agreed on.
    pub fn has(&self, features: u64) -> bool {
        self.session.has(features)
    }

    /// Descriptors to wait on, for reading.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let front = match (&self.connection, &self.meets) {
            (Some(connection), _) => Some(connection.fd()),
            (None, Meets::Listens(listener)) if !self.is_closing => Some(listener.as_fd()),
            (None, Meets::Listens(_) | Meets::Joins(_) | Meets::Asks(_)) => None,
        };
        let kicks = senders().filter_map(|index| match &self.session.rings[index].kick {
            Kick::By(kick) => Some(kick.as_fd()),
            _ => None,
        });
        front.into_iter().chain(kicks)
    }

    /// Executes requests of the front end, and takes note of kicks.
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
            self.connection = self.meet().and_then(Connection::new).ok();
            self.counts.connected += u64::from(self.connection.is_some());
        }
        // Rings that stop have nothing under way.
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

    fn meet(&mut self) -> io::Result<UnixStream> {
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

    /// Executes one request, if there is one.
    fn obey(&mut self) -> Result<bool, Ended> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let Some(request) = connection.receive()? else { return Ok(false) };
        let number = request.header.request;
        match self.session.obey(request) {
            Ok(None) => {}
            Ok(Some(body)) => connection.answer(number, &body)?,
            Err(Violation { why, wants_answer }) => {
                if wants_answer {
                    // The front end is given up, whether it receives the reason or not.
                    let _ = connection.answer(number, &NOT_DONE.to_ne_bytes());
                }
                return Err(Ended::Wrong(why));
            }
        }
        Ok(true)
    }

    /// The front end is gone, and with it all that it had set up.
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

    /// The next frame of the driver's; `None`: no frame waits, or a turn's share of chains was
    /// bad.
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

    /// Reads the next frame of a ring. Returns whether there was one.
    fn read_ring(&mut self, index: usize, useless: &mut usize, frame: &mut Frame) -> bool {
        let has_count = self.layout().has_count;
        // "Must process and discard any TX packets" while it is disabled.
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

    /// Gives a frame to the driver, by the pair that belongs to this number of its flow. Returns
    /// whether it got it; if not, it was counted.
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

    /// Publishes to the driver the buffers that were read and written, and interrupts it if it
    /// has enabled interrupts.
    pub fn flush(&mut self) {
        self.flush_all();
        // Each ring is the first once.
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
                // It is among them no more.
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

    /// Requests kicks, before the caller waits. Returns whether there is no need to wait, since
    /// there are frames already.
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
            // Buffers are looked for when there is a frame for them.
            ring.refuse_kicks(memory)?;
            return Ok(false);
        }
        Ok(ring.ask_for_kicks(memory)? || matches!(setup.kick, Kick::Never))
    }

    /// After the caller has waited: no kicks, until it waits again.
    pub fn wake(&mut self) {
        let Session { memory, rings, .. } = &mut self.session;
        let Some(memory) = memory else { return };
        for index in &self.running {
            let Some(ring) = rings[*index].ring.as_mut() else { continue };
            // If this fails, so does what follows, where it is counted.
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

/// The rings that drivers send by.
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

/// A socket of mode 0600 from its first moment on.
fn bind_for_us(path: &Path, replace: bool) -> io::Result<UnixListener> {
    let options = socket::Options { mode: 0o600, group: None, replace };
    Ok(socket::listen(path, options)?.listener)
}
