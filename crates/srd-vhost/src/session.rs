//! What a front end has set up: features, memory, rings.
//!
//! Requests come in whatever order a front end has (QEMU enables rings before it says which
//! features it takes). A ring runs as soon as all is there that it needs, until the front end asks
//! where it has stopped.

use std::os::fd::OwnedFd;

use crate::memory::{Memory, REGIONS_MAX};
use crate::message::{Region, Request, regions, request, u32_at, u64_at};
use crate::ring::{Broken, Place, Ring};
use crate::signal;

/// Features of virtio that this device may have, as bits.
#[allow(missing_docs)] // the names of the specification
pub mod feature {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const GUEST_ECN: u64 = 1 << 9;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const MQ: u64 = 1 << 22;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const GUEST_USO4: u64 = 1 << 54;
    pub const GUEST_USO6: u64 = 1 << 55;
    pub const HOST_USO: u64 = 1 << 56;
}

/// All that is offered: what a frame leaves to hardware crosses as it is.
pub const OFFERED: u64 = feature::CSUM
    | feature::GUEST_CSUM
    | feature::GUEST_TSO4
    | feature::GUEST_TSO6
    | feature::GUEST_ECN
    | feature::HOST_TSO4
    | feature::HOST_TSO6
    | feature::HOST_ECN
    | feature::MRG_RXBUF
    | feature::MQ
    | feature::INDIRECT_DESC
    | feature::EVENT_IDX
    | feature::PROTOCOL_FEATURES
    | feature::VERSION_1
    | feature::GUEST_USO4
    | feature::GUEST_USO6
    | feature::HOST_USO;

/// Features of the protocol: several pairs of rings, and an answer to each request that wants one.
const PROTOCOL: u64 = 1 << 0 | 1 << 3;

/// Pairs of rings that a device has at most.
pub const PAIRS_MAX: usize = 8;
/// Rings: of each pair one that the driver gets frames from, and behind it one that it sends by.
pub const RINGS_MAX: usize = PAIRS_MAX * 2;
/// The first pair's ring of frames for the driver.
pub const RECEIVE: usize = 0;
/// The first pair's ring of frames of the driver's.
pub const SEND: usize = 1;

/// A request that breaks the protocol: the front end is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation(pub &'static str);

/// How a driver says that there is something.
#[derive(Debug, Default)]
pub enum Kick {
    /// It was not set up yet.
    #[default]
    None,
    /// By a descriptor.
    By(OwnedFd),
    /// Not at all: the ring has to be looked at.
    Never,
}

/// A ring as a front end has set it up.
#[derive(Debug, Default)]
pub struct Setup {
    size: u16,
    /// Addresses of the front end's: descriptors, used, available.
    addresses: Option<[u64; 3]>,
    base: u16,
    is_enabled: bool,
    /// How the driver says that it has changed.
    pub kick: Kick,
    /// How the driver is told.
    pub call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    /// The ring, once all is there.
    pub ring: Option<Ring>,
    is_broken: bool,
}

impl Setup {
    /// The ring has stopped for good, until it is set up again. The front end is told.
    pub fn break_off(&mut self) {
        self.stop();
        self.is_broken = true;
        if let Some(error) = &self.error {
            signal::give(error);
        }
    }

    fn stop(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.base = ring.next_available();
        }
    }

    fn start(&mut self, memory: &Memory, event_index: bool) -> Result<(), Broken> {
        let Some(addresses) = self.addresses else { return Ok(()) };
        let there = addresses.map(|user| memory.guest_address(user).ok_or(Broken::Place));
        let [descriptors, used, available] = there;
        let place = Place {
            size: self.size,
            descriptors: descriptors?,
            available: available?,
            used: used?,
        };
        self.ring = Some(Ring::start(place, event_index, memory)?);
        Ok(())
    }
}

/// A front end's doings.
#[derive(Debug, Default)]
pub struct Session {
    features: u64,
    /// What it shares.
    pub memory: Option<Memory>,
    /// Its rings.
    pub rings: [Setup; RINGS_MAX],
    /// Rings that could not go on.
    pub broken: u64,
}

impl Session {
    /// What both ends agreed on.
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature == feature
    }

    /// Whether a ring may be used. (*Vhost-user Protocol*, *Ring states*.)
    pub fn is_enabled(&self, ring: usize) -> bool {
        !self.has(feature::PROTOCOL_FEATURES) || self.rings[ring].is_enabled
    }

    /// Does what a front end asks for. Returns the body of the answer, if there is one.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub fn obey(&mut self, request: Request) -> Result<Option<Vec<u8>>, Violation> {
        let wants_answer = request.header.wants_answer;
        let said = self.apply(request)?;
        self.start_rings();
        // Zero: it was done.
        Ok(said.or(wants_answer.then(|| 0_u64.to_ne_bytes().to_vec())))
    }

    fn apply(&mut self, request: Request) -> Result<Option<Vec<u8>>, Violation> {
        let Request { header, body, descriptors } = request;
        let number = || u64_at(&body, 0).ok_or(Violation("a body that is too short"));
        let said = |number: u64| Ok(Some(number.to_ne_bytes().to_vec()));
        match header.request {
            request::GET_FEATURES => return said(OFFERED),
            request::GET_PROTOCOL_FEATURES => return said(PROTOCOL),
            request::GET_QUEUE_NUM => return said(PAIRS_MAX as u64),
            request::SET_FEATURES => {
                let features = number()?;
                if features & !OFFERED != 0 {
                    return Err(Violation("features that were not offered"));
                }
                self.features = features;
            }
            request::SET_PROTOCOL_FEATURES => {
                if number()? & !PROTOCOL != 0 {
                    return Err(Violation("features of the protocol that were not offered"));
                }
            }
            request::SET_OWNER => {}
            request::RESET_OWNER => self.rings.iter_mut().for_each(Setup::stop),
            request::SET_MEM_TABLE => self.share(&body, descriptors)?,
            request::SET_VRING_NUM
            | request::SET_VRING_BASE
            | request::GET_VRING_BASE
            | request::SET_VRING_ENABLE => return self.set_state(header.request, &body),
            request::SET_VRING_ADDR => self.place(&body)?,
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.connect(header.request, number()?, descriptors)?;
            }
            _ => return Err(Violation("a request that was not offered")),
        }
        Ok(None)
    }

    fn share(&mut self, body: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), Violation> {
        let table = regions(body).ok_or(Violation("a memory table of another form"))?;
        if table.len() != descriptors.len() || table.len() > REGIONS_MAX {
            return Err(Violation("regions without descriptors"));
        }
        // Nothing may be read of the old memory any more, not even if the new one is refused.
        self.rings.iter_mut().for_each(Setup::stop);
        self.rings.iter_mut().for_each(|setup| setup.is_broken = false);
        self.memory = None;
        let both: Vec<(Region, OwnedFd)> = table.into_iter().zip(descriptors).collect();
        let memory = Memory::map(both).map_err(|_| Violation("memory that cannot be mapped"))?;
        self.memory = Some(memory);
        Ok(())
    }

    fn set_state(&mut self, request: u32, body: &[u8]) -> Result<Option<Vec<u8>>, Violation> {
        let (Some(index), Some(value)) = (u32_at(body, 0), u32_at(body, 4)) else {
            return Err(Violation("a body that is too short"));
        };
        let setup = usize::try_from(index).ok().and_then(|index| self.rings.get_mut(index));
        let setup = setup.ok_or(Violation("a ring that there is none of"))?;
        let number = u16::try_from(value).map_err(|_| Violation("a number beyond a ring's"));
        match request {
            request::SET_VRING_NUM => {
                setup.stop();
                setup.size = number?;
            }
            request::SET_VRING_BASE => {
                setup.stop();
                setup.base = number?;
            }
            request::GET_VRING_BASE => {
                setup.stop();
                (setup.kick, setup.is_broken) = (Kick::None, false);
                let base = u32::from(setup.base);
                return Ok(Some([index, base].map(u32::to_ne_bytes).concat()));
            }
            // A driver's last word before it is set up anew.
            _ => setup.is_enabled = value != 0,
        }
        Ok(None)
    }

    fn place(&mut self, body: &[u8]) -> Result<(), Violation> {
        let short = Violation("a body that is too short");
        let index = u32_at(body, 0).and_then(|index| usize::try_from(index).ok()).ok_or(short)?;
        let setup = self.rings.get_mut(index);
        let setup = setup.ok_or(Violation("a ring that there is none of"))?;
        let [descriptors, used, available] = [8, 16, 24].map(|at| u64_at(body, at).ok_or(short));
        setup.stop();
        setup.addresses = Some([descriptors?, used?, available?]);
        setup.is_broken = false;
        Ok(())
    }

    fn connect(
        &mut self,
        request: u32,
        number: u64,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Violation> {
        const INDEX: u64 = 0xff;
        const NO_DESCRIPTOR: u64 = 0x100;
        let setup = usize::try_from(number & INDEX).ok().and_then(|at| self.rings.get_mut(at));
        let setup = setup.ok_or(Violation("a ring that there is none of"))?;
        let mut descriptors = descriptors.into_iter();
        let (descriptor, more) = (descriptors.next(), descriptors.next());
        if descriptor.is_some() == (number & NO_DESCRIPTOR != 0) || more.is_some() {
            return Err(Violation("a ring's descriptor that is missing, or one too many"));
        }
        if let Some(descriptor) = &descriptor {
            // Nothing that is read or written here may hold up anybody.
            let set = rustix::io::ioctl_fionbio(descriptor, true);
            set.map_err(|_| Violation("a descriptor of another kind"))?;
        }
        match request {
            request::SET_VRING_KICK => {
                setup.kick = descriptor.map_or(Kick::Never, Kick::By);
                setup.is_broken = false;
            }
            request::SET_VRING_CALL => setup.call = descriptor,
            _ => setup.error = descriptor,
        }
        Ok(())
    }

    fn start_rings(&mut self) {
        let event_index = self.has(feature::EVENT_IDX);
        let Some(memory) = &self.memory else { return };
        for setup in &mut self.rings {
            let ready = setup.ring.is_none() && !matches!(setup.kick, Kick::None);
            if ready && !setup.is_broken && setup.start(memory, event_index).is_err() {
                setup.break_off();
                self.broken += 1;
            }
        }
    }
}
