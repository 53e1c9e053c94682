//! State that a front end has set up: features, memory, and rings.
//!
//! The order of requests differs between front ends (QEMU enables rings before it sets the
//! features). A ring starts as soon as all of its parts are set up. It stops when the front end
//! requests its index.
//!
//! If a request cannot be executed and changes nothing, it is refused: the front end gets an answer
//! if it has requested one (`REPLY_ACK`), and the session continues. Every other error ends the
//! session.

use std::borrow::Cow;
use std::os::fd::OwnedFd;

use rustix::fs::SealFlags;

use crate::kind::AcceptedDescriptor;
use crate::memory::{Memory, REGIONS_MAX};
use crate::message::{Region, Request, regions, request, single_region, u32_at, u64_at};
use crate::ring::{Broken, Ring, RingLayout};
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

/// All offered features. Work on a frame that the guest leaves to hardware is passed on with the
/// frame, unchanged.
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

/// Features of the protocol, as bits.
#[allow(missing_docs)] // the names of the specification
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
}

/// Offered protocol features: several pairs of rings, an answer to each request on demand, and
/// regions of memory that are added and removed one by one.
const PROTOCOL: u64 = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIGURE_MEM_SLOTS;
/// Answer to a request that was executed.
const DONE: u64 = 0;
/// Answer to a request that was not executed.
pub(crate) const NOT_DONE: u64 = 1;

/// Largest number of pairs of rings of a device.
pub const PAIRS_MAX: usize = 8;
/// Largest number of rings. Each pair has a ring for frames to the driver, followed by a ring for
/// frames from the driver.
pub const RINGS_MAX: usize = PAIRS_MAX * 2;
/// Index of the first pair's ring for frames to the driver.
pub const RECEIVE: usize = 0;
/// Index of the first pair's ring for frames from the driver.
pub const SEND: usize = 1;

/// A request that breaks the protocol. The front end is disconnected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation {
    /// Description of the violation.
    pub(crate) why: Cow<'static, str>,
    /// Whether the front end gets an answer that reports the failure.
    pub(crate) wants_answer: bool,
}

/// Reason why a request is not executed.
#[derive(Debug)]
enum Wrong {
    /// The request changes nothing. A front end that requested an answer decides whether to
    /// continue.
    Refused(&'static str),
    /// The request breaks the protocol.
    Breaks(Cow<'static, str>),
}

impl From<&'static str> for Wrong {
    fn from(why: &'static str) -> Self {
        Self::Breaks(why.into())
    }
}

/// Way in which a driver notifies the device of new chains.
#[derive(Debug, Default)]
pub enum Kick {
    /// The front end has not set up notifications yet.
    #[default]
    None,
    /// The driver writes to this event descriptor.
    By(OwnedFd),
    /// The driver sends no notification, so the device has to poll the ring.
    Never,
}

/// State of a ring that a front end has set up.
#[derive(Debug, Default)]
pub struct Setup {
    size: u16,
    /// Front-end addresses of the descriptors, the used ring and the available ring.
    addresses: Option<[u64; 3]>,
    base: u16,
    is_enabled: bool,
    /// Way in which the driver notifies the device of changes of the ring.
    pub kick: Kick,
    /// Event descriptor by which the device interrupts the driver.
    pub call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    /// The ring, once all of its parts are set up.
    pub ring: Option<Ring>,
    is_broken: bool,
}

impl Setup {
    /// Stops the ring until it is set up again, and signals an error to the front end.
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
        let place = RingLayout {
            size: self.size,
            descriptors: descriptors?,
            available: available?,
            used: used?,
        };
        self.ring = Some(Ring::start(place, event_index, memory)?);
        Ok(())
    }
}

/// State of one front end.
#[derive(Debug, Default)]
pub struct Session {
    features: u64,
    protocol: u64,
    /// Memory that the front end shares.
    pub memory: Option<Memory>,
    /// Rings of the front end.
    pub rings: [Setup; RINGS_MAX],
    /// Number of rings that were stopped by an error.
    pub broken: u64,
    /// Number of requests that were refused.
    pub refused: u64,
}

impl Session {
    /// Whether both ends agreed on these features.
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature == feature
    }

    /// Whether a ring may be used. (*Vhost-user Protocol*, *Ring states*.)
    pub fn is_enabled(&self, ring: usize) -> bool {
        !self.has(feature::PROTOCOL_FEATURES) || self.rings[ring].is_enabled
    }

    /// Whether a part of the front end's memory was lost, and zeros replace it.
    pub(crate) fn is_lost(&self) -> bool {
        self.memory.as_ref().is_some_and(Memory::is_lost)
    }

    /// Executes a request of a front end. Returns the body of the answer, if the request has one.
    ///
    /// # Errors
    /// A [`Violation`], if the request breaks the protocol.
    pub(crate) fn obey(&mut self, request: Request) -> Result<Option<Vec<u8>>, Violation> {
        let (wanted, number) = (request.header.wants_answer, request.header.request);
        let done = match &request.foreign {
            Some(name) => Err(Wrong::Breaks(foreign(number, name).into())),
            None => self.apply(request),
        };
        // The request itself may be the one that agrees on `REPLY_ACK`, so this is evaluated
        // afterwards.
        let wants_answer = wanted && self.protocol & protocol::REPLY_ACK != 0;
        let answer = |number: u64| wants_answer.then(|| number.to_ne_bytes().to_vec());
        match done {
            Ok(said) => {
                self.start_rings();
                Ok(said.or_else(|| answer(DONE)))
            }
            Err(Wrong::Refused(why)) if wants_answer => {
                tracing::warn!("a request of a front end is refused ({number}): {why}");
                self.refused += 1;
                Ok(answer(NOT_DONE))
            }
            Err(Wrong::Refused(why)) => Err(Violation { why: why.into(), wants_answer }),
            Err(Wrong::Breaks(why)) => Err(Violation { why, wants_answer }),
        }
    }

    fn apply(&mut self, request: Request) -> Result<Option<Vec<u8>>, Wrong> {
        let Request { header, body, descriptors, .. } = request;
        let number = || u64_at(&body, 0).ok_or("a body that is too short");
        let said = |number: u64| Ok(Some(number.to_ne_bytes().to_vec()));
        match header.request {
            request::GET_FEATURES => return said(OFFERED),
            request::GET_PROTOCOL_FEATURES => return said(PROTOCOL),
            request::GET_QUEUE_NUM => return said(PAIRS_MAX as u64),
            request::GET_MAX_MEM_SLOTS => return said(REGIONS_MAX as u64),
            request::SET_FEATURES => {
                let features = number()?;
                if features & !OFFERED != 0 {
                    return Err(Wrong::Refused("features that were not offered"));
                }
                self.features = features;
            }
            request::SET_PROTOCOL_FEATURES => {
                let features = number()?;
                if features & !PROTOCOL != 0 {
                    return Err(Wrong::Refused("features of the protocol that were not offered"));
                }
                self.protocol = features;
            }
            request::SET_OWNER => {}
            request::RESET_OWNER => self.rings.iter_mut().for_each(Setup::stop),
            request::SET_MEM_TABLE => self.share(&body, descriptors)?,
            request::ADD_MEM_REG => self.add_region(&body, descriptors)?,
            request::REM_MEM_REG => self.remove_region(&body)?,
            request::SET_VRING_NUM
            | request::SET_VRING_BASE
            | request::GET_VRING_BASE
            | request::SET_VRING_ENABLE => return self.set_state(header.request, &body),
            request::SET_VRING_ADDR => self.place(&body)?,
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.connect(header.request, number()?, descriptors)?;
            }
            _ => return Err(Wrong::Refused("a request that was not offered")),
        }
        Ok(None)
    }

    fn share(&mut self, body: &[u8], descriptors: Vec<AcceptedDescriptor>) -> Result<(), Wrong> {
        let table = regions(body).ok_or("a memory table of another form")?;
        if table.len() != descriptors.len() {
            return Err("regions without descriptors".into());
        }
        // The old memory must not be read any more, even if the new memory is refused.
        self.rings.iter_mut().for_each(Setup::stop);
        self.rings.iter_mut().for_each(|setup| setup.is_broken = false);
        self.memory = None;
        let all = table.into_iter().zip(descriptors);
        let all = all.map(|(region, of)| memory_of(of).map(|(file, seals)| (region, file, seals)));
        let all: Vec<(Region, OwnedFd, SealFlags)> = all.collect::<Result<_, _>>()?;
        self.memory = Some(Memory::map(all)?);
        Ok(())
    }

    fn add_region(
        &mut self,
        body: &[u8],
        descriptors: Vec<AcceptedDescriptor>,
    ) -> Result<(), Wrong> {
        let region = single_region(body).ok_or("a region of another form")?;
        let mut descriptors = descriptors.into_iter();
        let (Some(one), None) = (descriptors.next(), descriptors.next()) else {
            return Err("a region without its one descriptor".into());
        };
        let (file, seals) = memory_of(one)?;
        let added = self.memory.get_or_insert_default().add(region, file, seals);
        added.map_err(Wrong::Refused)?;
        // Rings whose addresses were in no region may be valid in the new memory.
        self.rings.iter_mut().for_each(|setup| setup.is_broken = false);
        Ok(())
    }

    /// Removes a region. Rings in the region stop at their next use.
    fn remove_region(&mut self, body: &[u8]) -> Result<(), Wrong> {
        let region = single_region(body).ok_or("a region of another form")?;
        let is_there = self.memory.as_mut().is_some_and(|memory| memory.remove(region));
        if is_there { Ok(()) } else { Err(Wrong::Refused("a region that there is none of")) }
    }

    fn set_state(&mut self, request: u32, body: &[u8]) -> Result<Option<Vec<u8>>, Wrong> {
        let (Some(index), Some(value)) = (u32_at(body, 0), u32_at(body, 4)) else {
            return Err("a body that is too short".into());
        };
        let setup = usize::try_from(index).ok().and_then(|index| self.rings.get_mut(index));
        let setup = setup.ok_or("a ring that there is none of")?;
        let number = u16::try_from(value).map_err(|_| Wrong::from("a number beyond a ring's"));
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
            // `SET_VRING_ENABLE`
            _ => setup.is_enabled = value != 0,
        }
        Ok(None)
    }

    fn place(&mut self, body: &[u8]) -> Result<(), Wrong> {
        let short = "a body that is too short";
        let index = u32_at(body, 0).and_then(|index| usize::try_from(index).ok()).ok_or(short)?;
        let setup = self.rings.get_mut(index);
        let setup = setup.ok_or("a ring that there is none of")?;
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
        descriptors: Vec<AcceptedDescriptor>,
    ) -> Result<(), Wrong> {
        const INDEX: u64 = 0xff;
        const NO_DESCRIPTOR: u64 = 0x100;
        let setup = usize::try_from(number & INDEX).ok().and_then(|at| self.rings.get_mut(at));
        let setup = setup.ok_or("a ring that there is none of")?;
        let mut descriptors = descriptors.into_iter();
        let (descriptor, more) = (descriptors.next(), descriptors.next());
        if descriptor.is_some() == (number & NO_DESCRIPTOR != 0) || more.is_some() {
            return Err("a ring's descriptor that is missing, or one too many".into());
        }
        let descriptor = match descriptor {
            Some(AcceptedDescriptor::Event(descriptor)) => Some(descriptor),
            Some(AcceptedDescriptor::Memory(..)) => {
                return Err(Wrong::Breaks(foreign(request, "a file in memory").into()));
            }
            None => None,
        };
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

fn memory_of(descriptor: AcceptedDescriptor) -> Result<(OwnedFd, SealFlags), Wrong> {
    match descriptor {
        AcceptedDescriptor::Memory(file, seals) => Ok((file, seals)),
        AcceptedDescriptor::Event(_) => {
            Err(Wrong::Breaks(foreign(request::SET_MEM_TABLE, "an event descriptor").into()))
        }
    }
}

/// Returns the error text for a request that came with a descriptor of the wrong kind.
fn foreign(number: u32, name: &str) -> String {
    let (of, wanted) = match number {
        request::SET_VRING_KICK => ("a kick", "no event descriptor (eventfd)"),
        request::SET_VRING_CALL => ("a call", "no event descriptor (eventfd)"),
        request::SET_VRING_ERR => ("an error event", "no event descriptor (eventfd)"),
        request::SET_MEM_TABLE | request::ADD_MEM_REG => {
            ("memory", "no file in memory (memfd, tmpfs, hugetlbfs)")
        }
        _ => ("a request", "of a kind that no request takes"),
    };
    format!("{of} by a descriptor that is {wanted}: {name:?}")
}
