//! A front end with its driver: memory in a memfd, and rings that the tests write themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

mod fuse;
pub(crate) mod kinds;

use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use srd_vhost::message::{Header, request, u32_at, u64_at};
use srd_vhost::session::{RECEIVE, SEND, feature};
use srd_vhost::{Device, Frame};

/// A device to which a front end is connected.
pub(crate) trait Turned {
    /// Runs the device, if it belongs to this process.
    fn turn(&mut self);
}

impl Turned for Device {
    fn turn(&mut self) {
        Device::turn(self);
    }
}

/// A device of another process runs without calls from here.
impl Turned for () {
    fn turn(&mut self) {}
}

pub(crate) const PLAIN: u64 = feature::VERSION_1 | feature::PROTOCOL_FEATURES;
pub(crate) const MERGED: u64 = PLAIN | feature::MRG_RXBUF;

/// Guest address of the second region, which contains the buffers. The first region contains the
/// rings.
pub(crate) const BUFFERS: u64 = 0x20_0000;
pub(crate) const REGION_BYTES: u64 = 0x10_0000;
/// Address of the first region in the front end.
pub(crate) const USER: u64 = 0x7f00_0000_0000;
pub(crate) const SIZE: u16 = 128;
/// Bytes of a buffer.
pub(crate) const BUFFER_BYTES: u64 = 2048;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITABLE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Driver's state of one ring.
pub(crate) struct Ring {
    base: u64,
    pub(crate) available: u16,
    pub(crate) seen: u16,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    pub(crate) error: OwnedFd,
}

impl Ring {
    pub(crate) fn descriptors(&self) -> u64 {
        self.base
    }
    pub(crate) fn available_at(&self) -> u64 {
        self.base + 0x1000
    }
    pub(crate) fn used_at(&self) -> u64 {
        self.base + 0x2000
    }
}

/// A front end.
pub(crate) struct FrontEnd {
    stream: UnixStream,
    pub(crate) regions: [OwnedFd; 2],
    pub(crate) rings: [Ring; 4],
}

pub(crate) fn device(directory: &tempfile::TempDir) -> (Device, PathBuf) {
    let path = directory.path().join("port");
    (Device::open(&path).unwrap(), path)
}

/// Returns a frame whose packet has this length in bytes.
pub(crate) fn frame(bytes: usize) -> Frame {
    let packet = (0..bytes).map(|n| u8::try_from(n % 251).unwrap());
    Frame { ethernet: *b"DDDDDDSSSSSSTT", packet: [0; 10].into_iter().chain(packet).collect() }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

impl FrontEnd {
    pub(crate) fn connect(path: &Path) -> Self {
        Self::with(UnixStream::connect(path).unwrap())
    }

    /// Returns a front end on this connection.
    pub(crate) fn with(stream: UnixStream) -> Self {
        let region = || {
            let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, REGION_BYTES).unwrap();
            file
        };
        let ring = |base| {
            let (available, seen) = (0, 0);
            Ring { base, available, seen, kick: event(), call: event(), error: event() }
        };
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let rings = [0x1_0000, 0x2_0000, 0x3_0000, 0x4_0000].map(ring);
        Self { stream, regions: [region(), region()], rings }
    }

    /// Sends all requests that are needed before frames can pass, in QEMU's order: rings are
    /// enabled before features are agreed on.
    pub(crate) fn set_up(&mut self, device: &mut Device, features: u64) {
        self.set_up_at(device, features, [0, 0]);
    }

    /// Sets up as [`FrontEnd::set_up`] does, with rings whose first entries are already used.
    pub(crate) fn set_up_at(&mut self, device: &mut Device, features: u64, bases: [u32; 2]) {
        self.introduce(device, features, bases);
        device.turn();
        assert!(device.is_running() && device.is_connected());
    }

    /// Sends all requests that are needed before frames can pass.
    pub(crate) fn introduce(&mut self, device: &mut impl Turned, features: u64, bases: [u32; 2]) {
        let offered = self.ask(device, request::GET_FEATURES, &[]);
        assert_eq!(u64_at(&offered, 0).unwrap() & features, features);
        self.say(request::SET_OWNER, &[], &[]);
        for index in [RECEIVE, SEND] {
            self.state(request::SET_VRING_ENABLE, index, 1);
        }
        self.number(request::SET_FEATURES, features);
        self.share();
        for index in [RECEIVE, SEND] {
            self.start(index, bases[index]);
        }
    }

    /// Accepts the protocol features that the device offers: answers on request (REPLY_ACK), and
    /// memory regions that are added one by one (CONFIGURE_MEM_SLOTS).
    pub(crate) fn agree(&mut self, device: &mut impl Turned) {
        let offered = self.ask(device, request::GET_PROTOCOL_FEATURES, &[]);
        self.number(request::SET_PROTOCOL_FEATURES, u64_at(&offered, 0).unwrap());
    }

    /// Sends a request with an answer, and returns whether the answer reports success.
    pub(crate) fn is_done(
        &mut self,
        device: &mut impl Turned,
        request: u32,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> bool {
        let answer = self.ask_with(device, request, body, fds);
        assert_eq!(answer.len(), 8);
        u64_at(&answer, 0) == Some(0)
    }

    /// Lets the device work. Returns whether the device has closed the connection.
    pub(crate) fn is_given_up(&mut self, device: &mut impl Turned) -> bool {
        device.turn();
        loop {
            match self.stream.read(&mut [0]) {
                Ok(n) => return n == 0,
                // With a time limit, the kernel does not repeat a read that a signal interrupts.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    println!("the connection is not closed in the usual way: {error}");
                    return error.kind() == std::io::ErrorKind::ConnectionReset;
                }
            }
        }
    }

    /// Takes over the memory of another front end.
    pub(crate) fn adopt(&mut self, other: Self) {
        self.regions = other.regions;
    }

    /// Truncates the memory files by one page.
    pub(crate) fn cut_off(&self) {
        for file in &self.regions {
            ftruncate(file, REGION_BYTES - 4096).unwrap();
        }
    }

    /// Truncates the memory files to zero bytes.
    pub(crate) fn cut_off_wholly(&self) {
        for file in &self.regions {
            ftruncate(file, 0).unwrap();
        }
    }

    pub(crate) fn share(&self) {
        let numbers = [0, REGION_BYTES, USER, 0, BUFFERS, REGION_BYTES, USER + (1 << 30), 0];
        let mut body = [2_u32, 0].map(u32::to_ne_bytes).concat();
        body.extend(numbers.iter().flat_map(|n: &u64| n.to_ne_bytes()));
        let both = [self.regions[0].as_fd(), self.regions[1].as_fd()];
        send(&self.stream, request::SET_MEM_TABLE, false, &body, &both);
    }

    pub(crate) fn start(&mut self, index: usize, base: u32) {
        self.state(request::SET_VRING_NUM, index, SIZE.into());
        self.state(request::SET_VRING_BASE, index, base);
        let ring = &self.rings[index];
        let places = [ring.descriptors(), ring.used_at(), ring.available_at()];
        self.place(index, places.map(|at| USER + at));
        let ring = &self.rings[index];
        let number = (index as u64).to_ne_bytes();
        let ways = [
            (request::SET_VRING_CALL, &ring.call),
            (request::SET_VRING_ERR, &ring.error),
            (request::SET_VRING_KICK, &ring.kick),
        ];
        for (request, fd) in ways {
            send(&self.stream, request, false, &number, &[fd.as_fd()]);
        }
    }

    /// Sends the front-end addresses of a ring: descriptors, used, available.
    pub(crate) fn place(&mut self, index: usize, places: [u64; 3]) {
        let mut body = [u32::try_from(index).unwrap(), 0].map(u32::to_ne_bytes).concat();
        body.extend(places.iter().chain(&[0]).flat_map(|at| at.to_ne_bytes()));
        self.say(request::SET_VRING_ADDR, &body, &[]);
    }

    pub(crate) fn say(&self, request: u32, body: &[u8], fds: &[&OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        send(&self.stream, request, false, body, &fds);
    }

    pub(crate) fn say_with(&self, request: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        send(&self.stream, request, false, body, fds);
    }

    /// Sends a request as [`FrontEnd::say`] does, with the bit that requests an answer.
    pub(crate) fn say_wanting(&self, request: u32, body: &[u8]) {
        send(&self.stream, request, true, body, &[]);
    }

    /// Sends bytes that need not form a request.
    pub(crate) fn raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        send_raw(&self.stream, bytes, fds);
    }

    /// Signals that a ring has changed.
    pub(crate) fn kick(&self, ring: usize) {
        rustix::io::write(&self.rings[ring].kick, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Sends bytes together with the descriptor of the front end's own end of the connection.
    pub(crate) fn send_itself(&mut self, bytes: &[u8]) {
        self.raw(bytes, &[self.stream.as_fd()]);
    }

    pub(crate) fn number(&self, request: u32, number: u64) {
        self.say(request, &number.to_ne_bytes(), &[]);
    }

    pub(crate) fn state(&self, request: u32, index: usize, value: u32) {
        let index = u32::try_from(index).unwrap();
        self.say(request, &[index, value].map(u32::to_ne_bytes).concat(), &[]);
    }

    /// Sends a request, lets the device work, and returns the body of the answer.
    pub(crate) fn ask(&mut self, device: &mut impl Turned, request: u32, body: &[u8]) -> Vec<u8> {
        self.ask_with(device, request, body, &[])
    }

    /// Sends as [`FrontEnd::ask`] does, with descriptors.
    pub(crate) fn ask_with(
        &mut self,
        device: &mut impl Turned,
        request: u32,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Vec<u8> {
        send(&self.stream, request, true, body, fds);
        // The first turn may only accept the connection.
        device.turn();
        device.turn();
        let mut head = [0; 12];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!((u32_at(&head, 0), u32_at(&head, 4)), (Some(request), Some(5)));
        let mut body = vec![0; u32_at(&head, 8).unwrap().try_into().unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    fn at(&self, guest: u64) -> (&OwnedFd, u64) {
        let region = usize::from(guest >= BUFFERS);
        (&self.regions[region], guest - if region == 1 { BUFFERS } else { 0 })
    }

    pub(crate) fn write(&self, guest: u64, bytes: &[u8]) {
        let (file, at) = self.at(guest);
        assert_eq!(pwrite(file, bytes, at).unwrap(), bytes.len());
    }

    pub(crate) fn read(&self, guest: u64, bytes: usize) -> Vec<u8> {
        let (file, at) = self.at(guest);
        let mut into = vec![0; bytes];
        assert_eq!(pread(file, &mut into, at).unwrap(), bytes);
        into
    }

    pub(crate) fn read_u16(&self, guest: u64) -> u16 {
        u16::from_le_bytes(self.read(guest, 2).try_into().unwrap())
    }

    /// Writes a descriptor into a table.
    pub(crate) fn descriptor(
        &self,
        table: u64,
        index: u16,
        (at, bytes): (u64, u32),
        flags: (u16, u16),
    ) {
        let mut raw = at.to_le_bytes().to_vec();
        raw.extend(bytes.to_le_bytes());
        raw.extend([flags.0, flags.1].map(u16::to_le_bytes).concat());
        self.write(table + u64::from(index) * 16, &raw);
    }

    /// Makes a chain available.
    pub(crate) fn offer(&mut self, index: usize, head: u16) {
        let ring = &mut self.rings[index];
        let entry = ring.available_at() + 4 + u64::from(ring.available % SIZE) * 2;
        ring.available = ring.available.wrapping_add(1);
        let (at, now) = (ring.available_at() + 2, ring.available);
        self.write(entry, &head.to_le_bytes());
        self.write(at, &now.to_le_bytes());
    }

    /// Sends a frame in one buffer.
    pub(crate) fn send_frame(&mut self, frame: &Frame) {
        self.send_frame_by(0, frame);
    }

    /// Sends as [`FrontEnd::send_frame`] does, by one of two pairs of rings.
    pub(crate) fn send_frame_by(&mut self, pair: usize, frame: &Frame) {
        let ring = pair * 2 + SEND;
        let head = self.rings[ring].available % SIZE;
        let at = BUFFERS + pair as u64 * 0x4_0000 + u64::from(head) * BUFFER_BYTES;
        let bytes = [&frame.packet[..10], &[0; 2], &frame.ethernet, &frame.packet[10..]].concat();
        self.write(at, &bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        self.descriptor(self.rings[ring].descriptors(), head, (at, length), (0, 0));
        self.offer(ring, head);
    }

    /// Gives the device this number of buffers for frames.
    pub(crate) fn give_buffers(&mut self, count: u16) {
        self.give_buffers_to(0, count);
    }

    /// Gives buffers as [`FrontEnd::give_buffers`] does, to one of two pairs of rings.
    pub(crate) fn give_buffers_to(&mut self, pair: usize, count: u16) {
        let ring = pair * 2 + RECEIVE;
        for _ in 0..count {
            let head = self.rings[ring].available % SIZE;
            let at = BUFFERS + 0x8_0000 + pair as u64 * 0x4_0000 + u64::from(head) * BUFFER_BYTES;
            let table = self.rings[ring].descriptors();
            let piece = (at, u32::try_from(BUFFER_BYTES).unwrap());
            self.descriptor(table, head, piece, (WRITABLE, 0));
            self.offer(ring, head);
        }
    }

    /// Returns the entries of a used ring since the last call: heads, with the number of bytes
    /// written.
    pub(crate) fn used(&mut self, index: usize) -> Vec<(u32, u32)> {
        let end = self.read_u16(self.rings[index].used_at() + 2);
        let mut used = Vec::new();
        while self.rings[index].seen != end {
            let ring = &mut self.rings[index];
            let entry = ring.used_at() + 4 + u64::from(ring.seen % SIZE) * 8;
            ring.seen = ring.seen.wrapping_add(1);
            let raw = self.read(entry, 8);
            let word = |at| u32::from_le_bytes(raw[at..at + 4].try_into().unwrap());
            used.push((word(0), word(4)));
        }
        used
    }

    /// Returns the next frame from the device. Its buffers are joined as its header's count
    /// requires.
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        let used = self.used(RECEIVE);
        let first = used.first()?;
        let at = |head: u32| BUFFERS + 0x8_0000 + u64::from(head) * BUFFER_BYTES;
        let count = self.read_u16(at(first.0) + 10);
        assert_eq!(usize::from(count), used.len());
        let mut bytes = Vec::new();
        for (head, length) in used {
            bytes.extend(self.read(at(head), length.try_into().unwrap()));
        }
        let packet = [&bytes[..10], &bytes[26..]].concat();
        Some(Frame { ethernet: bytes[12..26].try_into().unwrap(), packet })
    }

    /// Returns the number of writes to an event descriptor since the last call.
    pub(crate) fn told(fd: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(fd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }
}

fn send(
    stream: &UnixStream,
    request: u32,
    wants_answer: bool,
    body: &[u8],
    fds: &[BorrowedFd<'_>],
) {
    let header = Header { request, wants_answer, body_bytes: body.len() }.write();
    send_raw(stream, &[&header[..], body].concat(), fds);
}

fn send_raw(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}
