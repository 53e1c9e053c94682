//! A TUN device: the guest's side of the card.
//!
//! Frames are packets behind ten bytes of offload header (`srd_card::offload`): checksums that
//! are not filled in, and super-packets of up to 64 KB that are not cut. The kernel is
//! crossed once for each, not once per MTU.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sys::{os, tun};

/// Bytes of the largest frame.
pub const FRAME_BYTES_MAX: usize = 65_536 + 10;
/// A frame from this size on keeps the buffer that it was read into. Smaller ones are copied into
/// a buffer of their own, so that no small packet holds 64 KB while it waits.
const HANDED_OVER_BYTES_MIN: usize = 16 * 1024;
/// Bytes that the heap keeps for the next frames: a few hundred of the largest.
const HEAP_KEPT_BYTES: u32 = 32 << 20;

/// A TUN device.
#[derive(Debug)]
pub struct Tun {
    fd: Arc<OwnedFd>,
    udp_segmentation: bool,
    buffer: Vec<u8>,
}

impl Tun {
    /// Opens the device `name`, and makes it if it does not exist: then it is removed when it is
    /// closed. From then on the process keeps up to 32 MiB of unused heap for frames.
    ///
    /// # Errors
    /// An error of the operating system, for instance that `CAP_NET_ADMIN` is missing.
    pub fn open(name: &str) -> io::Result<Self> {
        Self::open_queue(name, false)
    }

    /// As [`Tun::open`], with several queues, each of which may be moved to a thread of its own.
    /// The kernel puts the packets of a flow into the queue that the flow's answers are written to,
    /// and those of a new flow into one that a hash picks.
    ///
    /// # Errors
    /// As [`Tun::open`]; the device exists and has one queue.
    pub fn open_queues(name: &str, queues: u8) -> io::Result<Vec<Self>> {
        (0..queues).map(|_| Self::open_queue(name, queues > 1)).collect()
    }

    /// One more queue of a device with several; the first of them makes the device, which has as
    /// many as are open.
    ///
    /// # Errors
    /// As [`Tun::open`]; or the device exists and does not support several queues.
    pub fn open_one_of_several(name: &str) -> io::Result<Self> {
        Self::open_queue(name, true)
    }

    fn open_queue(name: &str, one_of_several: bool) -> io::Result<Self> {
        let (fd, udp_segmentation) = tun::open(name, one_of_several)?;
        os::heap_keeps(HEAP_KEPT_BYTES);
        Ok(Self { fd: Arc::new(fd), udp_segmentation, buffer: Vec::new() })
    }

    /// A device that another process has opened, with the value of [`Tun::udp_segmentation`]
    /// there.
    pub fn adopt(fd: OwnedFd, udp_segmentation: bool) -> Self {
        os::heap_keeps(HEAP_KEPT_BYTES);
        Self { fd: Arc::new(fd), udp_segmentation, buffer: Vec::new() }
    }

    /// To wait on.
    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// The name that the device has now.
    ///
    /// # Errors
    /// The device is gone.
    pub fn name(&self) -> io::Result<String> {
        tun::name(&self.fd)
    }

    /// Whether UDP super-packets cross whole, too.
    pub fn udp_segmentation(&self) -> bool {
        self.udp_segmentation
    }

    /// The next frame that the guest sends; `None`: no frame waits.
    ///
    /// # Errors
    /// An error of the operating system, for instance that the device is gone.
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

    /// Gives a frame to the guest.
    ///
    /// # Errors
    /// An error of the operating system: the frame is malformed, or the interface is down.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        tun::write(&self.fd, frame)
    }
}
