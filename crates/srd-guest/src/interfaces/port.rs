//! The device of an interface: a TUN device in a namespace, a socket of vhost-user for a virtual
//! machine or a DPDK program, or a program of this process.
//!
//! The card gets frames of one format from each kind of device: an offload header and a packet. A
//! guest behind vhost-user uses Ethernet, which [`srd_card::l2`] converts.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::Result;
use srd_card::FlowKey;
use srd_card::device::rss::{Hash, Rss};
use srd_card::l2::fit::Accepts;
use srd_card::l2::{Cause, FrameOutcome, Link};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_net::Tun;
use srd_proto::time::Instant;
use srd_vhost::session::feature;
use srd_vhost::{Device, Frame};

use crate::helper::{Helper, Meet};
use crate::interfaces::adapter::Adapter;
use crate::interfaces::kernel::Kernel;
use crate::interfaces::memory::MemoryGuest;

/// Maximum number of frames without a packet for the card, in one call of [`Port::read`].
const NO_PACKETS_MAX: usize = 64;

/// Number of turns of the loop between two polls of a front end, if the loop never waits.
const TURNS_MAX: u32 = 64;

/// Causes of drops at a device, and faults of its front end.
pub(crate) const DEVICE_DROPS: [&str; 13] = [
    "device: not taken",
    "frame: wrong source",
    "frame: wrong destination",
    "frame: wrong type",
    "frame: malformed",
    "device: malformed",
    "device: no buffer",
    "device: too long",
    "device: no driver",
    "device: not framed",
    "device: rings stopped",
    "device: front ends given up",
    "device: requests refused",
];

/// State of a vhost-user socket and its front end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketState {
    pub(crate) is_connected: bool,
    pub(crate) is_running: bool,
    /// Number of pairs of rings that the driver uses.
    pub(crate) pairs: usize,
}

/// The device through which a guest sends and receives the packets of an interface.
///
/// # Calls
///
/// - **Creation**: [`tun`](Self::tun) for the queues of a TUN device, [`vhost`](Self::vhost) and
///   [`joining`](Self::joining) for vhost-user, and the variant `Memory` for a [`MemoryGuest`].
/// - **Frames**: [`read`](Self::read) returns the next frame for the card,
///   [`write`](Self::write) gives a frame to the guest.
/// - **A turn of the loop**: [`wake`](Self::wake), then any number of reads and writes, then
///   [`flush`](Self::flush). Before the loop waits for [`descriptors`](Self::descriptors), it calls
///   [`rest`](Self::rest).
/// - **Front end**: the functions [`Self::asks`] and [`Self::found`], which connect a vhost-user
///   device to its front end.
/// - **End**: [`into_queues`](Self::into_queues) and [`leave`](Self::leave), if another process
///   continues with the device; otherwise the device ends when it is dropped.
///
/// # Contract
///
/// - A frame is an offload header ([`srd_card::offload`]) and an IP packet, whatever the kind of
///   device.
/// - No call waits.
/// - An error of [`read`](Self::read) means that the device is unusable. A frame that the device
///   refuses is counted in [`drops`](Self::drops), and is no error.
/// - The guest of a vhost-user device sees a frame after [`flush`](Self::flush). A TUN device joins
///   segments until [`Kernel::finish`], and keeps packets whose interrupt is delayed until the time
///   of [`poll_timeout`](Self::poll_timeout).
/// - If [`rest`](Self::rest) returns true, the loop must not wait.
///
/// # Limits
///
/// One call of [`read`](Self::read) takes at most [`NO_PACKETS_MAX`] Ethernet frames without a
/// packet from a vhost-user guest.
///
/// # Example
///
#[doc = concat!("```ignore\n", include_str!("port_example.rs"), "```\n")]
pub(crate) enum Port {
    Tun(Box<Kernel>),
    Vhost(Box<Vhost>),
    Memory(Box<dyn MemoryGuest>),
}

/// A listening socket of vhost-user. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Bound {
    path: PathBuf,
    listener: Option<UnixListener>,
    helper: Helper,
    /// Whether another process has taken the file over, so that this handle does not remove it.
    is_left: bool,
}

impl Bound {
    /// Requests a listening socket at this path from the helper.
    pub(crate) fn listen(path: &Path, meets: Meet, helper: &Helper) -> Result<Self> {
        let listener = Some(UnixListener::from(helper.vhost(path, meets)?));
        Ok(Self { path: path.to_owned(), listener, helper: helper.clone(), is_left: false })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        drop(self.listener.take());
        if !self.is_left {
            self.helper.vhost_gone(std::mem::take(&mut self.path));
        }
    }
}

/// A device of vhost-user, and the link of its guest.
#[derive(Debug)]
pub(crate) struct Vhost {
    device: Device,
    /// The listening socket; `None` if the device connects to its front end.
    bound: Option<Bound>,
    link: Link,
    /// Number of turns of the loop since the last poll of the front end.
    turns: u32,
    /// Assignment of flows to pairs of rings.
    spread: Rss,
    drops: BTreeMap<Cause, u64>,
    /// Packets of the card that could not be converted to frames.
    not_framed: u64,
}

impl Port {
    pub(crate) fn tun(queues: Vec<Tun>, adapter: Adapter) -> Self {
        Self::Tun(Box::new(Kernel::new(queues, adapter)))
    }

    /// Creates a vhost-user device that listens at a socket.
    pub(crate) fn vhost(mut bound: Bound, link: Link) -> io::Result<Self> {
        let listener = bound.listener.take().ok_or(io::ErrorKind::NotConnected)?;
        let device = Device::over(&bound.path, listener)?;
        Ok(Self::Vhost(Box::new(Vhost::new(device, Some(bound), link))))
    }

    /// Creates a vhost-user device that connects to the socket of its front end.
    pub(crate) fn joining(path: &Path, link: Link) -> io::Result<Self> {
        Ok(Self::Vhost(Box::new(Vhost::new(Device::asking(path)?, None, link))))
    }

    /// Returns the path of the front end's socket if the device has to connect to it now; otherwise
    /// `None`. After a path was returned, [`Port::found`] has to deliver the result.
    pub(crate) fn asks(&mut self) -> Option<PathBuf> {
        let Self::Vhost(vhost) = self else { return None };
        vhost.device.asks().then(|| vhost.device.path().to_owned())
    }

    /// Takes the connection to the front end; `None` if the connection failed.
    pub(crate) fn found(&mut self, front: Option<UnixStream>) {
        if let Self::Vhost(vhost) = self {
            vhost.device.found(front);
        }
    }

    /// Returns the TUN device; `None` if the device is of another kind.
    pub(crate) fn kernel(&self) -> Option<&Kernel> {
        match self {
            Self::Tun(kernel) => Some(kernel),
            Self::Vhost(_) | Self::Memory(_) => None,
        }
    }

    /// Returns the TUN device for changes; `None` if the device is of another kind.
    pub(crate) fn kernel_mut(&mut self) -> Option<&mut Kernel> {
        match self {
            Self::Tun(kernel) => Some(kernel),
            Self::Vhost(_) | Self::Memory(_) => None,
        }
    }

    /// Returns the queues of a TUN device, which the caller has to close.
    pub(crate) fn into_queues(self) -> Vec<Tun> {
        match self {
            Self::Tun(kernel) => kernel.into_queues(),
            Self::Vhost(_) | Self::Memory(_) => Vec::new(),
        }
    }

    /// Drops the device without removing the file of its socket, which another process has taken
    /// over.
    pub(crate) fn leave(self) {
        if let Self::Vhost(mut vhost) = self
            && let Some(bound) = &mut vhost.bound
        {
            bound.is_left = true;
        }
    }

    /// Returns the descriptors on which the loop waits for this device.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (tun, device) = match self {
            Self::Tun(kernel) => (Some(kernel.descriptors()), None),
            Self::Vhost(vhost) => (None, Some(vhost.device.descriptors())),
            Self::Memory(_) => (None, None),
        };
        tun.into_iter().flatten().chain(device.into_iter().flatten())
    }

    /// Handles messages of a vhost-user front end. `has_waited`: whether the loop waits between
    /// turns; a loop that never waits polls the front end only every [`TURNS_MAX`] turns.
    pub(crate) fn wake(&mut self, has_waited: bool) {
        if let Self::Vhost(vhost) = self {
            vhost.turns += 1;
            if has_waited || vhost.turns >= TURNS_MAX {
                vhost.turns = 0;
                vhost.device.turn();
            }
            vhost.device.wake();
        }
    }

    /// Returns the next frame for the card; `None` if there is no frame now.
    pub(crate) fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Tun(kernel) => kernel.read(),
            Self::Vhost(vhost) => Ok(vhost.read()),
            Self::Memory(guest) => Ok(guest.send()),
        }
    }

    /// Whether there may be another frame for the card.
    pub(crate) fn has_frames(&self) -> bool {
        self.kernel().is_none_or(Kernel::has_frames)
    }

    /// Gives a packet to the guest. The device itself counts refused packets.
    pub(crate) fn write(&mut self, now: Instant, frame: Vec<u8>) {
        match self {
            Self::Tun(kernel) => kernel.write(now, frame),
            Self::Vhost(vhost) => vhost.write(frame),
            Self::Memory(guest) => guest.receive(frame),
        }
    }

    /// Returns the time at which packets that wait for an interrupt are given to the guest; `None`
    /// if no packet waits.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.kernel().and_then(|kernel| kernel.adapter.poll_timeout())
    }

    /// Publishes processed frames to the guest at the end of a turn.
    pub(crate) fn flush(&mut self) {
        if let Self::Vhost(vhost) = self {
            vhost.device.flush();
        }
    }

    /// Switches the driver's signals (kicks) on, before the loop waits. Returns true if the loop
    /// must not wait: frames are available already, or the device sends no signals.
    pub(crate) fn rest(&mut self) -> bool {
        match self {
            Self::Tun(_) => false,
            Self::Vhost(vhost) => vhost.device.rest(),
            // A memory guest sends no notification, so it is polled without a pause.
            Self::Memory(_) => true,
        }
    }

    /// Sets the link (MAC and IP addresses of a vhost-user guest) after a change of the rules.
    pub(crate) fn set_link(&mut self, new: Link) {
        if let Self::Vhost(vhost) = self {
            vhost.link = new;
        }
    }

    /// Returns the state of a vhost-user device; `None` if the device is of another kind.
    pub(crate) fn vhost_user(&self) -> Option<SocketState> {
        let Self::Vhost(vhost) = self else { return None };
        let device = &vhost.device;
        Some(SocketState {
            is_connected: device.is_connected(),
            is_running: device.is_running(),
            pairs: device.pairs(),
        })
    }

    /// Returns the path of a vhost-user device's socket; `None` if the device is of another kind.
    pub(crate) fn socket(&self) -> Option<&Path> {
        let Self::Vhost(vhost) = self else { return None };
        Some(vhost.device.path())
    }

    /// Returns the numbers of drops at the device itself and of faults of its front end, in the
    /// order of [`DEVICE_DROPS`].
    pub(crate) fn drops(&self) -> [u64; DEVICE_DROPS.len()] {
        let (not_taken, vhost) = match self {
            Self::Vhost(vhost) => (0, Some(vhost)),
            Self::Tun(kernel) => (kernel.not_taken(), None),
            Self::Memory(_) => (0, None),
        };
        let counts = vhost.map(|vhost| vhost.device.counts()).unwrap_or_default();
        let link = |cause: Cause| vhost.and_then(|of| of.drops.get(&cause)).map_or(0, |n| *n);
        [
            not_taken,
            link(Cause::Source),
            link(Cause::Destination),
            link(Cause::Type),
            link(Cause::Malformed),
            counts.malformed,
            counts.no_buffer,
            counts.too_long,
            counts.no_driver,
            vhost.map_or(0, |vhost| vhost.not_framed),
            counts.broken_rings,
            counts.violations,
            counts.refused,
        ]
    }
}

impl Vhost {
    fn new(device: Device, bound: Option<Bound>, link: Link) -> Self {
        let spread = Rss::new(Hash::default(), 1);
        Self { device, bound, link, turns: 0, spread, drops: BTreeMap::new(), not_framed: 0 }
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        for _ in 0..NO_PACKETS_MAX {
            let Frame { ethernet, packet } = self.device.read()?;
            match self.link.from_guest(&ethernet, packet) {
                FrameOutcome::Packet(frame) => return Some(frame),
                FrameOutcome::Answer((ethernet, packet)) => {
                    self.device.write(&Frame { ethernet, packet }, 0);
                }
                FrameOutcome::Nothing => {}
                FrameOutcome::Drop(cause) => *self.drops.entry(cause).or_default() += 1,
            }
        }
        None
    }

    /// Returns the index of the pair of rings for a packet to the guest.
    fn pair_of(&mut self, frame: &[u8]) -> u32 {
        let pairs = self.device.pairs();
        if pairs <= 1 {
            return 0;
        }
        let pairs = u16::try_from(pairs).unwrap_or(u16::MAX);
        if self.spread.queues() != pairs {
            self.spread = Rss::new(Hash::default(), pairs);
        }
        let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
        packet.map_or(0, |packet| self.spread.queue(&FlowKey::of(&packet)).into())
    }

    fn write(&mut self, frame: Vec<u8>) {
        let pair = self.pair_of(&frame);
        let device = &mut self.device;
        let accepts = Accepts {
            checksum: device.has(feature::GUEST_CSUM),
            tso_v4: device.has(feature::GUEST_TSO4),
            tso_v6: device.has(feature::GUEST_TSO6),
            ecn: device.has(feature::GUEST_ECN),
            uso: device.has(feature::GUEST_USO4 | feature::GUEST_USO6),
        };
        let is_packet = self.link.to_guest(frame, accepts, |(ethernet, packet)| {
            device.write(&Frame { ethernet, packet }, pair);
        });
        // The device itself has counted frames that it refused.
        self.not_framed += u64::from(!is_packet);
    }
}
