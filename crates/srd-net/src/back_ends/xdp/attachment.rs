//! The XDP program on an interface. It stays attached as long as this value exists.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use super::options::XdpError;
use super::program::{self, PacketFilter, XDP_PASS};
use crate::sys::bpf::{Link, Mode, Program, Purpose, SocketMap};

/// Number of queues for which the map can hold a socket.
pub(super) const QUEUES_MAX: u32 = 256;

/// An interface and the packets to redirect from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) interface: &'a str,
    pub(super) index: u32,
    /// Local address and base port of the endpoint.
    pub(super) local: SocketAddr,
    /// Largest IP packet that the sockets receive, in bytes.
    pub(super) ip_bytes_max: u16,
}

/// An attached program, with its map of sockets.
#[derive(Debug)]
pub(super) struct Attachment {
    map: SocketMap,
    mode: Mode,
    _link: Link,
}

impl Attachment {
    /// Attaches the program in the first of these modes that the driver accepts. The map is empty,
    /// so every packet still goes to the kernel.
    pub(super) fn new(target: &Target<'_>, modes: &[Mode]) -> Result<Self, XdpError> {
        let no_map = |error| XdpError::bpf("making a map of AF_XDP sockets", error, String::new());
        let map = SocketMap::new(QUEUES_MAX).map_err(no_map)?;
        let mut first_refusal = None;
        for mode in modes {
            let filter = PacketFilter {
                address: target.local.ip(),
                port: target.local.port(),
                ip_bytes_max: target.ip_bytes_max,
                mode: *mode,
                map: map.number(),
                otherwise: XDP_PASS,
            };
            let program = Program::load(Purpose::Xdp, &program::assemble(&filter))?;
            match program.attach(target.index, *mode) {
                Ok(link) => return Ok(Self { map, mode: *mode, _link: link }),
                Err(error) if is_occupied(&error) => {
                    return Err(XdpError::Occupied { interface: target.interface.to_string() });
                }
                Err(error) => first_refusal = first_refusal.or(Some(error)),
            }
        }
        let error = first_refusal.unwrap_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
        Err(XdpError::bpf("attaching the XDP program", error, String::new()))
    }

    /// Assigns the packets of a queue to a socket.
    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        let refused = |error| XdpError::bpf("giving the queue to the socket", error, String::new());
        self.map.set(queue, socket).map_err(refused)
    }

    /// Returns the hook at which the program runs.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }
}

/// Whether an error means that another program is attached, in any mode.
fn is_occupied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
