//! A host, as its callers see it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use srd_efa::layer::{Layer, World};
use srd_efa::rdm::{Config, Rdm};
use srd_net::LocalEndpoint;
use srd_proto::{Duration, Endpoint, Instant};

use crate::card;
use crate::core::{Core, Sink};
use crate::fork::Process;
use crate::memory::UserMemory;
use crate::options::Options;
use crate::patience;

/// How long a host that is closed goes on to have everything acknowledged.
pub const LINGER: Duration = Duration::from_secs(1);
/// How long it then answers, so that acknowledgements that are due leave, and what a peer repeats
/// because it missed one is acknowledged again.
const LAST_WORDS: Duration = Duration::from_millis(3);
/// How long the application may stay away before the card does its work.
pub(crate) const STALE: Duration = Duration::from_millis(1);

/// Why a call was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// The host belongs to the process that this one was forked from.
    Forked,
    /// The host was closed.
    Closed,
    /// The sockets were lost; the sink was told why.
    Broken,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forked => {
                "the endpoint belongs to the process that forked this one: open another after fork"
            }
            Self::Closed => "the endpoint was closed",
            Self::Broken => "the endpoint's sockets were lost",
        })
    }
}

impl std::error::Error for Gone {}

/// An endpoint of the Messaging Layer. See the crate's page.
#[derive(Debug)]
pub struct Host<S: Sink> {
    handle: Handle<S>,
    card: Option<JoinHandle<()>>,
    address: SocketAddr,
    incarnation: u64,
}

/// What a host is called through. Handles outlive their host; then calls say so.
#[derive(Debug)]
pub struct Handle<S: Sink>(Arc<Shared<S>>);

impl<S: Sink> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What callers and the card share.
#[derive(Debug)]
pub(crate) struct Shared<S: Sink> {
    core: Mutex<Option<Core<S>>>,
    process: Process,
    /// When the application last polled: nanoseconds on the clock of the transport.
    polled_at_ns: AtomicU64,
    /// When messages leave that wait for others to join them.
    held_until_ns: AtomicU64,
    /// Until when the card sleeps if nothing arrives; zero while it is awake.
    sleeps_until_ns: AtomicU64,
    closing: AtomicBool,
    /// Ends the card's sleep.
    bell: OwnedFd,
}

impl<S: Sink<Layer = Rdm>> Host<S> {
    /// Opens sockets, and starts the card: a host of the Messaging Layer.
    ///
    /// # Errors
    /// What the system refuses: the address or port, memory, descriptors or a thread.
    pub fn open(options: &Options, sink: S) -> io::Result<Self> {
        Self::open_with(options, sink, |endpoint, place| {
            Box::new(place.messaging(options, endpoint))
        })
    }
}

/// What a host's layer is made of.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where the host is.
    pub address: SocketAddr,
    /// Which run of an endpoint there.
    pub incarnation: u64,
    /// A secret for tables.
    pub seed: u64,
}

impl Place {
    /// A Messaging Layer here.
    #[must_use]
    pub fn messaging(&self, options: &Options, endpoint: &mut Endpoint) -> Rdm {
        let config = Config {
            operations_max: options.operations_max,
            receives_max: options.receives_max,
            tell_remote: true,
            seed: self.seed,
        };
        Rdm::new(config, endpoint, self.address, self.incarnation)
    }
}

impl<S: Sink> Host<S> {
    /// As [`Host::open`], over the layer that `make` makes.
    ///
    /// # Errors
    /// As [`Host::open`].
    pub fn open_with(
        options: &Options,
        sink: S,
        make: impl FnOnce(&mut Endpoint, &Place) -> Box<S::Layer>,
    ) -> io::Result<Self> {
        let mut local = LocalEndpoint::bind(&options.bind())?;
        let address = local.local_address();
        let incarnation = srd_net::clock::epoch().0;
        let seed = srd_net::clock::seed()?;
        let mut low = [0; 8];
        low.copy_from_slice(&seed[..8]);
        let place = Place { address, incarnation, seed: u64::from_le_bytes(low) };
        let layer = make(local.core_mut().0, &place);
        let arrivals = local.arrivals()?;
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let core = Core {
            local,
            layer,
            memory: UserMemory::default(),
            sink,
            broken: false,
            more: false,
            held_until: Instant::FAR_FUTURE,
        };
        let shared = Arc::new(Shared {
            core: Mutex::new(Some(core)),
            process: Process::current(),
            polled_at_ns: AtomicU64::new(0),
            held_until_ns: AtomicU64::new(u64::MAX),
            sleeps_until_ns: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            bell,
        });
        let card = card::start(Arc::clone(&shared), arrivals)?;
        Ok(Self { handle: Handle(shared), card: Some(card), address, incarnation })
    }

    /// Where peers reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Which run of an endpoint at this address it is.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// What it is called through.
    #[must_use]
    pub fn handle(&self) -> &Handle<S> {
        &self.handle
    }

    /// Closes the host; returns within [`LINGER`] and a little more. Afterwards the application's
    /// memory is not touched, and the sink is gone.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(card) = self.card.take() else { return };
        if !self.handle.0.process.is_current() {
            // The card is no thread of this process, and whoever held the lock at the fork is
            // none either: nothing can be waited for, and memory is all there is to lose.
            std::mem::forget(Arc::clone(&self.handle.0));
            std::mem::forget(card);
            return;
        }
        self.linger();
        self.handle.0.closing.store(true, Ordering::SeqCst);
        self.handle.0.ring();
        // A card that panicked has said why, and is over as well.
        let _ = card.join();
        drop(self.handle.0.lock().take());
    }

    fn linger(&self) {
        let start = srd_net::clock::now();
        let mut last = start + LINGER;
        let mut quiet = false;
        loop {
            let Some((due, is_quiet)) = self.handle.0.round_for_card() else { return };
            let now = srd_net::clock::now();
            if is_quiet && !quiet {
                quiet = true;
                last = last.min(now + LAST_WORDS);
            }
            if now >= last {
                return;
            }
            let wait = due.min(last).since(now).min(Duration::from_millis(1));
            std::thread::sleep(std::time::Duration::from_nanos(wait.as_nanos()));
        }
    }
}

impl<S: Sink> Drop for Host<S> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<S: Sink> Handle<S> {
    /// Calls `f` with the Messaging Layer, then sends what that led to.
    ///
    /// # Errors
    /// When there is nothing to call any more.
    ///
    /// # Safety
    /// Memory that is named in calls of the Messaging Layer must be valid: readable where it is
    /// sent or shared for reading, writable where it is received into or shared for writing. It
    /// must stay so, and nobody else may write what is read or touch what is written, until the
    /// end of the operation was told to the sink, the sharing was taken back, or the host was
    /// closed.
    #[allow(unsafe_code, reason = "callers vouch for addresses")]
    pub unsafe fn call<R>(&self, f: impl FnOnce(Call<'_, S>) -> R) -> Result<R, Gone> {
        self.0.call(f)
    }

    /// One round of work, without waiting.
    pub fn poll(&self) {
        self.0.poll();
    }

    /// The card does the work from now on, until the next call.
    pub fn hand_over(&self) {
        self.0.hand_over();
    }

    /// Whether both are of one host.
    #[must_use]
    pub fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What a call may use.
#[derive(Debug)]
pub struct Call<'a, S: Sink> {
    /// The layer: the Messaging Layer, as a rule.
    pub layer: &'a mut S::Layer,
    /// What is known of the application's memory.
    pub memory: &'a mut UserMemory,
    /// The caller's own.
    pub sink: &'a mut S,
    local: &'a mut LocalEndpoint,
}

impl<S: Sink> Call<'_, S> {
    /// The layer, what it wants to be lent, and the caller's own.
    pub fn parts(&mut self) -> (&mut S::Layer, World<'_>, &mut S) {
        let (endpoint, now) = self.local.core_mut();
        (self.layer, World { now, endpoint, memory: self.memory }, self.sink)
    }
}

impl<S: Sink> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, Option<Core<S>>> {
        self.core.lock().unwrap_or_else(|poisoned| {
            // A thread panicked in the middle of a call: what the core remembers may be half a
            // change, and must not be gone on with.
            let mut locked = poisoned.into_inner();
            if let Some(core) = locked.as_mut() {
                core.fail(&io::Error::other("a thread panicked while it used the endpoint"));
            }
            self.core.clear_poison();
            locked
        })
    }

    fn call<R>(&self, f: impl FnOnce(Call<'_, S>) -> R) -> Result<R, Gone> {
        if !self.process.is_current() {
            return Err(Gone::Forked);
        }
        let mut locked = self.lock();
        let core = locked.as_mut().ok_or(Gone::Closed)?;
        if core.broken {
            return Err(Gone::Broken);
        }
        let Core { local, layer, memory, sink, .. } = core;
        let result = f(Call { layer, memory, sink, local });
        core.flush();
        self.called(core);
        Ok(result)
    }

    /// Notes what a call has led to. A card that sleeps too long for what has become due is woken;
    /// while the application keeps polling that is the case once.
    fn called(&self, core: &Core<S>) {
        let now = core.local.last_look();
        self.held_until_ns.store(core.held_until.as_nanos(), Ordering::Relaxed);
        let wanted = core.due().max(now + STALE).min(core.held_until);
        if self.sleeps_until_ns.load(Ordering::SeqCst) > wanted.as_nanos() {
            self.ring();
        }
    }

    /// A round of the card's. Returns when the next is due, and whether nothing is under way;
    /// `None` if the host was closed.
    pub(crate) fn round_for_card(&self) -> Option<(Instant, bool)> {
        let mut locked = self.lock();
        let core = locked.as_mut()?;
        core.round();
        self.held_until_ns.store(core.held_until.as_nanos(), Ordering::Relaxed);
        let due = core.due();
        // Said under the lock: a call that makes something due earlier either came before this
        // round, or sees it and wakes the card.
        self.sleeps_until(due);
        Some((due, core.broken || core.layer.is_quiet()))
    }

    /// Until when the application's last poll keeps the card from working; the past if it stays
    /// away. Who only asks for things does not look at what arrives: the card must.
    pub(crate) fn fresh_until(&self) -> Instant {
        let held_until = Instant::from_nanos(self.held_until_ns.load(Ordering::Relaxed));
        match self.polled_at_ns.load(Ordering::Relaxed) {
            0 => Instant::ZERO,
            at => held_until.min(Instant::from_nanos(at) + STALE),
        }
    }

    /// The card sleeps until then.
    pub(crate) fn sleeps_until(&self, until: Instant) {
        self.sleeps_until_ns.store(until.as_nanos(), Ordering::SeqCst);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Ends the card's sleep, or the next one. A bell that rings already is full, and as good.
    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl<S: Sink> Shared<S> {
    fn poll(&self) {
        if !self.process.is_current() {
            return;
        }
        let Some((now, arrived)) = self.round_for_caller() else { return };
        if patience::PROCESS.looked(now, arrived) {
            patience::give_way();
        }
    }

    /// A round of the application's. Returns when it looked, and whether anything had arrived;
    /// `None` if the host was closed.
    fn round_for_caller(&self) -> Option<(Instant, bool)> {
        let mut locked = self.lock();
        let core = locked.as_mut()?;
        let packets = core.round();
        let now = core.local.last_look();
        self.polled_at_ns.store(now.as_nanos(), Ordering::Relaxed);
        self.called(core);
        Some((now, packets > 0))
    }

    fn hand_over(&self) {
        self.polled_at_ns.store(0, Ordering::Relaxed);
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_efa::layer::Done;

    struct Nobody;

    impl Sink for Nobody {
        type Layer = Rdm;

        fn has_room(&mut self) -> bool {
            true
        }

        fn done(&mut self, _: Done, _: &Rdm) {}

        fn notice(&mut self, _: srd_net::Notice) {}

        fn broken(&mut self, error: &io::Error) {
            panic!("{error}");
        }
    }

    /// A sink that counts how often it was told that the sockets are lost.
    struct Told(Arc<AtomicU64>);

    impl Sink for Told {
        type Layer = Rdm;

        fn has_room(&mut self) -> bool {
            true
        }

        fn done(&mut self, _: Done, _: &Rdm) {}

        fn notice(&mut self, _: srd_net::Notice) {}

        fn broken(&mut self, _: &io::Error) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    #[allow(unsafe_code, reason = "calls that name no memory")]
    fn regression_a_panic_in_a_call_ends_the_host_instead_of_going_on_with_half_a_change() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let told = Arc::new(AtomicU64::new(0));
        let host = Host::open(&options, Told(told.clone())).unwrap();
        let handle = host.handle().clone();
        let bug = std::panic::AssertUnwindSafe(|| {
            // SAFETY: names no memory.
            unsafe { handle.call(|_| panic!("a bug, for a test")) }
        });
        assert!(std::panic::catch_unwind(bug).is_err());
        // SAFETY: names no memory.
        assert_eq!(unsafe { handle.call(|_| ()) }, Err(Gone::Broken));
        handle.poll();
        assert_eq!(told.load(Ordering::SeqCst), 1, "told once");
        host.close();
    }

    /// It asked again and again and had the answers, without a look at what had arrived: messages
    /// took as long as time-outs.
    #[test]
    #[allow(unsafe_code, reason = "a call that names no memory")]
    fn regression_only_who_polls_keeps_the_card_from_working() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let host = Host::open(&options, Nobody).unwrap();
        let (handle, shared) = (host.handle(), &host.handle().0);
        // SAFETY: names no memory.
        let now = unsafe { handle.call(|mut call| call.parts().1.now) }.unwrap();
        assert!(shared.fresh_until() < now);
        handle.poll();
        assert!(shared.fresh_until() > now);
    }
}
