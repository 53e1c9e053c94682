//! A vhost-user front end, and the driver behind it: both send whatever the test requests.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use srd_vhost::Device;
use srd_vhost::message::{Header, request};
use srd_vhost::session::feature;

/// Number of bytes of each memory region.
pub(super) const REGION_BYTES: u64 = 0x4_0000;
/// Number of bytes of the packet in a valid frame.
pub(super) const PACKET_BYTES: usize = 50;
/// Name of the file of a memory region.
pub(super) const MEMORY: &str = "srd-fuzz-guest";

/// Virtual address of the first region in the front end.
const USER: u64 = 0x7f00_0000_0000;
/// Number of entries of each ring.
const SIZE: u16 = 64;
/// Distance in bytes between two rings. The offsets of the parts of a ring follow.
const RING_BYTES: u64 = 0x1000;
const AVAILABLE: u64 = 0x800;
const USED: u64 = 0xa00;
/// Offset of the first buffer in the memory.
const BUFFERS: u64 = 0x2_0000;
const WRITABLE: u16 = 2;
/// Maximum number of file descriptors with one message. It is more than the device accepts.
const DESCRIPTORS_MAX: usize = 16;

/// The front end.
pub(super) struct Front {
    stream: UnixStream,
    regions: [OwnedFd; 2],
    kick: OwnedFd,
    other: OwnedFd,
}

impl Front {
    pub(super) fn connect(path: &Path) -> Self {
        let region = || {
            let file = memfd_create(MEMORY, MemfdFlags::CLOEXEC).expect("memory");
            ftruncate(&file, REGION_BYTES).expect("memory");
            file
        };
        let stream = UnixStream::connect(path).expect("the device listens");
        stream.set_nonblocking(true).expect("a socket");
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let kick = eventfd(0, flags).expect("an event");
        let other = std::fs::File::open("/dev/null").expect("a file").into();
        Self { stream, regions: [region(), region()], kick, other }
    }

    /// Sends all messages that set up `pairs` pairs of rings.
    pub(super) fn set_up(&mut self, device: &mut Device, features: u8, pairs: u8) {
        // The first turn of the device accepts the connection.
        device.turn();
        let some = [feature::MRG_RXBUF, feature::EVENT_IDX, feature::INDIRECT_DESC, feature::MQ];
        let some = some.iter().enumerate().filter(|(bit, _)| features & 1 << bit != 0);
        let features = some.fold(feature::VERSION_1, |all, (_, one)| all | one);
        self.say(request::SET_FEATURES, &features.to_ne_bytes(), &[]);
        let region = |n: u64| [n * REGION_BYTES, REGION_BYTES, USER + n * REGION_BYTES, 0];
        self.share(&[region(0), region(1)], &[0, 1]);
        for ring in 0..pairs * 2 {
            self.state(0, ring, SIZE.into());
            self.state(1, ring, 0);
            let base = u64::from(ring) * RING_BYTES;
            self.place(ring, [base, base + USED, base + AVAILABLE]);
            self.connect_ring(1, ring.into(), &[2]);
            self.connect_ring(0, ring.into(), &[2]);
            device.turn();
        }
        device.turn();
    }

    fn say(&self, request: u32, body: &[u8], kinds: &[u8]) {
        let header = Header { request, wants_answer: false, body_bytes: body.len() }.write();
        self.raw(&[&header, body].concat(), kinds);
    }

    /// Sends a request whose header may be invalid, and whose length may be wrong.
    pub(super) fn request(&self, number: u8, flags: u8, claimed: u16, body: &[u8], kinds: &[u8]) {
        let length = u32::from(claimed).wrapping_add(u32::try_from(body.len()).unwrap_or(0));
        let head = [u32::from(number), u32::from(flags) ^ 1, length].map(u32::to_ne_bytes);
        self.raw(&[&head.concat(), body].concat(), kinds);
    }

    /// Sends bytes, with one file descriptor for each of `kinds`.
    pub(super) fn raw(&self, bytes: &[u8], kinds: &[u8]) {
        let fds: Vec<BorrowedFd<'_>> =
            kinds.iter().take(DESCRIPTORS_MAX).map(|kind| self.descriptor_of(*kind)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        // The device may let the socket fill up, or close it.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, flags);
    }

    fn descriptor_of(&self, kind: u8) -> BorrowedFd<'_> {
        match kind % 5 {
            0 => self.regions[0].as_fd(),
            1 => self.regions[1].as_fd(),
            2 => self.kick.as_fd(),
            3 => self.other.as_fd(),
            _ => self.stream.as_fd(),
        }
    }

    /// Shares memory regions. Each has a guest address, a size, an address in the front end, and an
    /// offset in the file.
    pub(super) fn share(&self, regions: &[[u64; 4]], kinds: &[u8]) {
        let count = u32::try_from(regions.len()).unwrap_or(0);
        let mut body = [count, 0].map(u32::to_ne_bytes).concat();
        body.extend(regions.iter().flatten().flat_map(|number| number.to_ne_bytes()));
        self.say(request::SET_MEM_TABLE, &body, kinds);
    }

    /// Sends the addresses of a ring's three parts: descriptors, used, available.
    pub(super) fn place(&self, ring: u8, places: [u64; 3]) {
        let mut body = [u32::from(ring), 0].map(u32::to_ne_bytes).concat();
        let places = places.map(|at| USER.wrapping_add(at));
        body.extend(places.iter().chain(&[0]).flat_map(|at| at.to_ne_bytes()));
        self.say(request::SET_VRING_ADDR, &body, &[]);
    }

    pub(super) fn state(&self, what: u8, ring: u8, value: u32) {
        let requests = [
            request::SET_VRING_NUM,
            request::SET_VRING_BASE,
            request::GET_VRING_BASE,
            request::SET_VRING_ENABLE,
        ];
        let body = [ring.into(), value].map(u32::to_ne_bytes).concat();
        self.say(requests[usize::from(what % 4)], &body, &[]);
    }

    pub(super) fn connect_ring(&self, what: u8, number: u64, kinds: &[u8]) {
        let requests = [request::SET_VRING_KICK, request::SET_VRING_CALL, request::SET_VRING_ERR];
        // One of the kinds means that no file descriptor is sent.
        let none = kinds.first().is_some_and(|kind| kind % 8 == 7);
        let (number, kinds) = if none { (number | 0x100, &[][..]) } else { (number, kinds) };
        self.say(requests[usize::from(what % 3)], &number.to_ne_bytes(), kinds);
    }

    /// Reads and discards messages of the device.
    pub(super) fn hear(&self) {
        let mut bytes = [0; 4096];
        let _ = recv(&self.stream, &mut bytes[..], RecvFlags::DONTWAIT);
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) {
        let region = usize::from(at >= REGION_BYTES);
        let within = at % REGION_BYTES;
        let most = usize::try_from(REGION_BYTES - within).unwrap_or(0).min(bytes.len());
        if at < 2 * REGION_BYTES {
            let _ = pwrite(&self.regions[region], &bytes[..most], within);
        }
    }

    fn read_u16(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        let _ = pread(&self.regions[0], &mut bytes, at);
        u16::from_le_bytes(bytes)
    }

    /// Writes a descriptor of a ring. For ring numbers from 128 on, it is written to a table
    /// outside of the rings.
    pub(super) fn descriptor(
        &self,
        ring: u8,
        index: u16,
        (at, bytes): (u64, u32),
        (flags, next): (u16, u16),
    ) {
        let base = if ring < 128 { u64::from(ring % 4) * RING_BYTES } else { BUFFERS };
        let mut raw = at.to_le_bytes().to_vec();
        raw.extend(bytes.to_le_bytes());
        raw.extend([flags, next].map(u16::to_le_bytes).concat());
        self.write(base + u64::from(index % SIZE) * 16, &raw);
    }

    /// Makes a chain of descriptors, which begins at `head`, available to the device.
    pub(super) fn offer(&self, ring: u8, head: u16) {
        let base = u64::from(ring % 4) * RING_BYTES + AVAILABLE;
        let index = self.read_u16(base + 2);
        self.write(base + 4 + u64::from(index % SIZE) * 2, &head.to_le_bytes());
        self.write(base + 2, &index.wrapping_add(1).to_le_bytes());
    }

    /// Sets the index up to which chains of a ring are available to the device.
    pub(super) fn set_index(&self, ring: u8, index: u16) {
        let base = u64::from(ring % 4) * RING_BYTES + AVAILABLE;
        self.write(base + 2, &index.to_le_bytes());
    }

    /// Sets the flags and the event index with which the driver requests notifications.
    pub(super) fn set_flags(&self, ring: u8, flags: u16, event: u16) {
        let base = u64::from(ring % 4) * RING_BYTES + AVAILABLE;
        self.write(base, &flags.to_le_bytes());
        self.write(base + 4 + u64::from(SIZE) * 2, &event.to_le_bytes());
    }

    pub(super) fn kick(&self, times: u8) {
        let _ = rustix::io::write(&self.kick, &u64::from(times).to_ne_bytes());
    }

    /// Sends a valid frame through the first pair of rings.
    pub(super) fn send_good(&self) {
        let bytes = u32::try_from(12 + 14 + PACKET_BYTES).unwrap_or(0);
        self.descriptor(1, 0, (BUFFERS, bytes), (0, 0));
        self.offer(1, 0);
    }

    /// Makes a receive buffer available in the first pair of rings.
    pub(super) fn give_good(&self) {
        self.descriptor(0, 0, (REGION_BYTES, 2048), (WRITABLE, 0));
        self.offer(0, 0);
    }

    /// Returns the number of used buffers in each ring of the first pair.
    pub(super) fn used(&self) -> [u16; 2] {
        [0, 1].map(|ring| self.read_u16(ring * RING_BYTES + USED + 2))
    }
}
