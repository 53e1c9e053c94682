//! A TUN device: the network interface through which a guest and the card exchange packets.
//!
//! A frame is a packet after ten bytes of offload header (`srd_card::offload`). Its checksum may
//! not be filled in yet, and it may be a packet of up to 64 KB that is not segmented yet. So there
//! is one system call for each such packet, not one per MTU.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sys::{os, tun};

/// Length in bytes of the largest frame, with its offload header.
pub const FRAME_BYTES_MAX: usize = 65_536 + 10;
/// Smallest frame that keeps the buffer into which it was read. A smaller frame is copied into a
/// buffer of its size, so that a small packet does not occupy 64 KB while it waits.
const HANDED_OVER_BYTES_MIN: usize = 16 * 1024;
/// Bytes of unused heap that the process keeps for the next frames: enough for several hundred
/// frames of the largest size.
const HEAP_KEPT_BYTES: u32 = 32 << 20;

/// A TUN device, or one queue of a TUN device with several queues.
#[derive(Debug)]
pub struct Tun {
    fd: Arc<OwnedFd>,
    udp_segmentation: bool,
    buffer: Vec<u8>,
}

impl Tun {
    /// Opens the device `name`. If it does not exist, the device is created, and removed when it is
    /// closed. From then on the process keeps up to 32 MiB of unused heap for frames.
    ///
    /// # Errors
    /// An error of the operating system, for example if `CAP_NET_ADMIN` is missing.
    pub fn open(name: &str) -> io::Result<Self> {
        Self::open_queue(name, false)
    }

    /// Opens the device `name` with several queues, as [`Tun::open`] does with one. Each queue may
    /// be moved to another thread. The kernel puts the packets of a flow into the queue to which
    /// the flow's answers are written, and the packets of a new flow into a queue that a hash
    /// selects.
    ///
    /// # Errors
    /// As [`Tun::open`], or if the device exists with one queue.
    pub fn open_queues(name: &str, queues: u8) -> io::Result<Vec<Self>> {
        (0..queues).map(|_| Self::open_queue(name, queues > 1)).collect()
    }

    /// Opens one more queue of a device with several queues. The first call creates the device; the
    /// device has as many queues as are open.
    ///
    /// # Errors
    /// As [`Tun::open`], or if the device exists and does not support several queues.
    pub fn open_one_of_several(name: &str) -> io::Result<Self> {
        Self::open_queue(name, true)
    }

    fn open_queue(name: &str, one_of_several: bool) -> io::Result<Self> {
        let (fd, udp_segmentation) = tun::open(name, one_of_several)?;
        os::heap_keeps(HEAP_KEPT_BYTES);
        Ok(Self { fd: Arc::new(fd), udp_segmentation, buffer: Vec::new() })
    }

    /// Takes over a device that another process has opened. `udp_segmentation` is the value of
    /// [`Tun::udp_segmentation`] in that process.
    pub fn adopt(fd: OwnedFd, udp_segmentation: bool) -> Self {
        os::heap_keeps(HEAP_KEPT_BYTES);
        Self { fd: Arc::new(fd), udp_segmentation, buffer: Vec::new() }
    }

    /// Returns the descriptor to wait on.
    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Returns the current name of the device.
    ///
    /// # Errors
    /// An error of the operating system, if the device was removed.
    pub fn name(&self) -> io::Result<String> {
        tun::name(&self.fd)
    }

    /// Whether UDP packets also pass without segmentation.
    pub fn udp_segmentation(&self) -> bool {
        self.udp_segmentation
    }

    /// Reads the next frame that the guest sends; `None` if no frame waits.
    ///
    /// # Errors
    /// An error of the operating system, for example if the device was removed.
    pub fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.buffer.capacity() < FRAME_BYTES_MAX {
            self.buffer = Vec::with_capacity(FRAME_BYTES_MAX);
        }
        self.buffer.clear();
        match tun::read(&self.fd, &mut self.buffer) {
            Ok(n) if n >= HANDED_OVER_BYTES_MIN => Ok(Some(std::mem::take(&mut self.buffer))),
            Ok(_) => Ok(Some(self.buffer.as_slice().to_vec())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes a frame to the guest.
    ///
    /// # Errors
    /// An error of the operating system, if the frame is malformed or the interface is down.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        tun::write(&self.fd, frame)
    }

    /// Returns a handle with which another thread writes frames to the guest.
    pub fn writer(&self) -> TunWriter {
        TunWriter(self.fd())
    }
}

/// Writes frames to one queue of a TUN device. The queue stays open as long as its handles.
#[derive(Clone, Debug)]
pub struct TunWriter(Arc<OwnedFd>);

impl TunWriter {
    /// Returns a handle for an open queue.
    pub fn of(queue: Arc<OwnedFd>) -> Self {
        Self(queue)
    }

    /// Writes a frame to the guest. Never waits.
    ///
    /// # Errors
    /// As [`Tun::write`].
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        tun::write(&self.0, frame)
    }
}
