//! The links of an endpoint: the destination of each link, the times of further attempts, and the
//! descriptor that the endpoint sleeps on.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::event::epoll;
use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::PacketMeta;
use srd_trust::closing::Closing;

use super::link::Link;
use super::meet::{self, Listener};
use crate::interfaces::link::local_addresses;
use crate::sys::os;

/// Interval at which connections are checked while no thread sleeps on them.
const LOOK: Duration = Duration::from_millis(1);
/// Pause after a caller could not be accepted because descriptors or memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// First pause before an address without an endpoint is contacted again; each further pause is four
/// times as long.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest pause before an address is contacted again.
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Largest number of addresses for which a table stores whether they are reached through memory.
const ADDRESSES_MAX: usize = 4096;
/// Largest number of connections that one check of all connections handles.
const EVENTS_MAX: usize = 16;
/// All links together use at most 1/`DESCRIPTORS_PART` of the file descriptors that the process may
/// have. A link uses two descriptors while it is set up.
const DESCRIPTORS_PART: u64 = 16;
/// Largest number of links of a process, even if it may have many descriptors.
const LINKS_MAX: u32 = 256;

/// Number that identifies the listening socket in the epoll set. Every other number is the index of
/// a link.
const LISTENER: u64 = u64::MAX;

/// Current number of links of this process.
static LINKS: AtomicU32 = AtomicU32::new(0);

/// Returns the largest number of links of this process. Links are limited because each end of a
/// link needs a descriptor, and each link needs 2 MiB of memory.
pub fn links_max() -> u32 {
    let part = os::descriptors_max() / DESCRIPTORS_PART / 2;
    u32::try_from(part).unwrap_or(LINKS_MAX).min(LINKS_MAX)
}

/// Route of packets to an address of this machine: through memory or by UDP.
#[derive(Clone, Copy, Debug)]
enum Reach {
    /// Through the link at this index.
    Link(usize),
    /// By UDP. At the time `again`, the endpoint tries to set up a link. If the attempt fails, the
    /// next attempt follows after `wait`.
    Far { again: Instant, wait: Duration },
}

/// Numbers of links that were set up, and of links that ended because the other process wrote
/// values that no endpoint writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) links: u64,
    pub(super) broken: u64,
}

/// A link that counts towards the limit of links of this process.
#[derive(Debug)]
struct LinkSlot {
    link: Link,
    /// Whether the connection has ended. Packets that are left in the memory are still read.
    ended: bool,
    _counted: Counted,
}

/// A guard that counts one link of the process.
#[derive(Debug)]
pub(super) struct Counted;

impl Counted {
    pub(super) fn take() -> Option<Self> {
        let most = links_max();
        let one_more = |links: u32| (links < most).then_some(links + 1);
        LINKS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LINKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The links of one endpoint to other endpoints of this machine.
#[derive(Debug)]
pub(super) struct Table {
    own: SocketAddr,
    /// Addresses of this machine at the time when the endpoint was opened.
    machine: Vec<IpAddr>,
    set: Arc<OwnedFd>,
    listener: Listener,
    /// Ended connections, and descriptors that other processes have sent; a separate thread closes
    /// them. Until all of them are closed, the listener is removed from the epoll set, and no
    /// callers are accepted.
    closing: Closing,
    accepts: bool,
    /// Time until which no caller is accepted, because the last attempt failed.
    accept_at: Instant,
    places: Vec<Option<LinkSlot>>,
    reach: HashMap<SocketAddr, Reach>,
    looked_at: Instant,
    armed: bool,
    bytes: Vec<u8>,
    counts: Counts,
}

impl Table {
    pub(super) fn open(own: SocketAddr) -> io::Result<Self> {
        let machine = local_addresses()?.into_iter().map(|address| address.ip).collect();
        let listener = meet::listener(own)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&set, &listener, epoll::EventData::new_u64(LISTENER), readable)?;
        Ok(Self {
            own,
            machine,
            set: Arc::new(set),
            listener,
            closing: Closing::default(),
            accepts: true,
            accept_at: Instant::ZERO,
            places: Vec::new(),
            reach: HashMap::new(),
            looked_at: Instant::ZERO,
            armed: false,
            bytes: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Returns a descriptor that is readable while a connection is readable, or after this endpoint
    /// was woken.
    pub(super) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.set
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether there is no connection.
    #[cfg(test)]
    pub(super) fn is_unlinked(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// Whether an address is an address of this machine. All links lead to such addresses.
    pub(super) fn is_here(&self, to: SocketAddr) -> bool {
        self.machine.contains(&to.ip())
    }

    /// Whether packets to an address go through memory.
    pub(super) fn has_link(&self, to: SocketAddr) -> bool {
        match self.reach.get(&to) {
            Some(Reach::Link(place)) => self.met(*place),
            _ => false,
        }
    }

    fn met(&self, place: usize) -> bool {
        let place = self.places.get(place).and_then(Option::as_ref);
        place.is_some_and(|place| place.link.has_met() && !place.ended)
    }

    /// Returns the link to an address, if both endpoints have exchanged addresses. If an address of
    /// this machine has no link, the endpoint tries to set up a link at intervals.
    pub(super) fn link_to(&mut self, now: Instant, to: SocketAddr) -> Option<&mut Link> {
        match self.reach.get(&to) {
            Some(Reach::Link(place)) => {
                let place = *place;
                if !self.met(place) {
                    return None;
                }
                return self.places[place].as_mut().map(|place| &mut place.link);
            }
            Some(Reach::Far { again, .. }) if now < *again => {}
            Some(Reach::Far { wait, .. }) => {
                let wait = *wait;
                self.call(now, to, wait);
            }
            None if self.machine.contains(&to.ip()) && self.reach.len() < ADDRESSES_MAX => {
                self.call(now, to, AGAIN);
            }
            None => {}
        }
        None
    }

    fn call(&mut self, now: Instant, to: SocketAddr, wait: Duration) {
        // If the number of links is at its limit, the address is not stored.
        let Some(counted) = Counted::take() else { return };
        let far = Reach::Far { again: now + wait, wait: wait.times(4).min(AGAIN_MAX) };
        self.reach.insert(to, far);
        if let Ok(link) = Link::call(self.own, to, &mut self.closing)
            && let Some(place) = self.put(link, counted)
        {
            self.reach.insert(to, Reach::Link(place));
        }
    }

    /// Stores a link in a slot. Returns `None` if the system cannot watch the link's socket.
    fn put(&mut self, link: Link, counted: Counted) -> Option<usize> {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        let data = epoll::EventData::new_u64(place as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if epoll::add(&self.set, link.socket(), data, flags).is_err() {
            link.end(&mut self.closing);
            return None;
        }
        let new = Some(LinkSlot { link, ended: false, _counted: counted });
        match self.places.get_mut(place) {
            Some(free) => *free = new,
            None => self.places.push(new),
        }
        Some(place)
    }

    /// Passes packets that have arrived to `each`, link by link. Returns their number.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> usize {
        let was_armed = std::mem::take(&mut self.armed);
        if was_armed {
            self.rings().for_each(|rings| rings.sleeps(false));
        }
        if was_armed || now.since(self.looked_at) >= LOOK {
            self.looked_at = now;
            self.look(now);
        }
        let mut packets = 0;
        for place in 0..self.places.len() {
            let Some(there) = &mut self.places[place] else { continue };
            let ended = there.ended;
            let Some(rings) = there.link.rings() else { continue };
            match rings.receive(now, &mut self.bytes, each) {
                Ok(0) if ended => self.remove(now, place),
                Ok(more) => packets += more,
                Err(_) => {
                    self.counts.broken += 1;
                    self.remove(now, place);
                }
            }
        }
        packets
    }

    /// Lets the next packet wake the sleeping thread. Returns `false` if a packet waits already.
    pub(super) fn arm(&mut self) -> bool {
        self.armed = true;
        self.rings().for_each(|rings| rings.sleeps(true));
        fence(Ordering::SeqCst);
        self.rings().all(|rings| rings.is_empty())
    }

    fn rings(&mut self) -> impl Iterator<Item = &mut super::link::Rings> {
        self.places.iter_mut().flatten().filter_map(|place| place.link.rings())
    }

    /// Handles callers, answers, and connections that have ended.
    fn look(&mut self, now: Instant) {
        self.accept_again(now);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let at_once = rustix::event::Timespec::default();
        let space = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.set, space, Some(&at_once)).is_err() {
            return;
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(now),
                place => self.on_readable(now, usize::try_from(place).unwrap_or(usize::MAX)),
            }
        }
    }

    /// Accepts callers again, if no descriptor of another process waits to be closed, and the last
    /// attempt has not just failed.
    fn accept_again(&mut self, now: Instant) {
        let accepts = self.closing.is_done() && now >= self.accept_at;
        if accepts == self.accepts {
            return;
        }
        let (flags, data) = (epoll::EventFlags::IN, epoll::EventData::new_u64(LISTENER));
        let done = if accepts {
            epoll::add(&self.set, &self.listener, data, flags)
        } else {
            epoll::delete(&self.set, &self.listener)
        };
        if done.is_ok() {
            self.accepts = accepts;
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.closing.is_done() {
            let socket = match meet::accept(self.listener.as_fd(), &mut self.closing) {
                Ok(Some(socket)) => socket,
                Ok(None) => break,
                Err(_) => {
                    // The listener stays readable, so no thread may sleep on it for a while.
                    self.accept_at = now + ACCEPT_PAUSE;
                    self.accept_again(now);
                    break;
                }
            };
            // A caller beyond the limit is disconnected, and sends by UDP.
            match Counted::take() {
                Some(counted) => _ = self.put(Link::Calling(socket), counted),
                None => meet::hang_up(socket, &mut self.closing),
            }
        }
    }

    fn on_readable(&mut self, now: Instant, at: usize) {
        let Some(place) = self.places.get_mut(at).and_then(Option::take) else { return };
        let LinkSlot { mut link, mut ended, _counted } = place;
        if link.has_met() {
            if !link.take_wakes(&mut self.closing) {
                // Packets that the other process wrote before it ended are read before the link
                // is removed.
                let _ = epoll::delete(&self.set, link.socket());
                link.rings().into_iter().for_each(super::link::Rings::end);
                ended = true;
            }
            self.places[at] = Some(LinkSlot { link, ended, _counted });
            return;
        }
        let machine = &self.machine;
        let own = self.own;
        let may_be = |claimed: SocketAddr| {
            let is_here = machine.contains(&claimed.ip()) && claimed.port() != 0;
            is_here && claimed.is_ipv4() == own.is_ipv4()
        };
        let link = link.on_readable(own, may_be, &mut self.closing);
        let Ok(mut link) = link.map_err(|link| link.end(&mut self.closing)) else {
            // The other endpoint refused this endpoint: the next attempt is much later.
            let far = Reach::Far { again: now + AGAIN_MAX, wait: AGAIN_MAX };
            let of_it = |reach: &&mut Reach| matches!(reach, Reach::Link(place) if *place == at);
            self.reach.values_mut().filter(of_it).for_each(|reach| *reach = far);
            return;
        };
        let has_met = link.has_met();
        let peer = link.rings().map(|rings| rings.peer).filter(|_| has_met);
        self.places[at] = Some(LinkSlot { link, ended, _counted });
        let Some(peer) = peer else { return };
        self.counts.links += 1;
        // If two endpoints have connected to each other, there are two links, and each endpoint
        // writes to one of them.
        let known = self.has_link(peer);
        if !known && (self.reach.len() < ADDRESSES_MAX || self.reach.contains_key(&peer)) {
            self.reach.insert(peer, Reach::Link(at));
        }
    }

    fn remove(&mut self, now: Instant, at: usize) {
        let Some(mut place) = self.places.get_mut(at).and_then(Option::take) else { return };
        let peer = place.link.rings().map(|rings| rings.peer);
        place.link.end(&mut self.closing);
        let Some(peer) = peer else { return };
        if matches!(self.reach.get(&peer), Some(Reach::Link(place)) if *place == at) {
            self.reach.insert(peer, Reach::Far { again: now + AGAIN, wait: AGAIN });
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for place in self.places.drain(..).flatten() {
            place.link.end(&mut self.closing);
        }
    }
}
