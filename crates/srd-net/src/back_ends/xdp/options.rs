//! Options and errors of opening an AF_XDP back end.

use std::fmt;
use std::io;
use std::net::IpAddr;

use crate::endpoints::options::UdpOptions;
use crate::sys::bpf::LoadError;
use crate::sys::shared::xdp::Refused;

/// Options with which an [`XdpIo`](super::XdpIo) is opened.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// Options of the additional UDP sockets. Their address selects the interface: it must be the
    /// address of a network interface, not the unspecified address.
    pub udp: UdpOptions,
    /// Number of the interface's queue.
    pub queue: u32,
    /// Number of frames to receive into, which limits the packets that wait to be read. Each frame
    /// takes 4096 bytes of locked memory; a larger packet takes several frames.
    pub receive_frames: u32,
    /// Number of frames to send from, which limits the packets that wait to be sent. Each frame
    /// takes 4096 bytes of locked memory; a larger packet takes several frames.
    pub send_frames: u32,
    /// Whether to use zero copy if the driver supports it.
    pub zero_copy: bool,
    /// Whether the program runs in the kernel's receive path even if the driver supports programs.
    pub generic: bool,
    /// Whether packets larger than a frame are received in several frames, if the kernel supports
    /// it.
    pub several_frames: bool,
}

impl XdpOptions {
    /// Returns the default options with these UDP sockets: queue 0, 4096 frames to receive into and
    /// 2048 to send from (24 MiB).
    pub fn new(udp: UdpOptions) -> Self {
        Self {
            udp,
            queue: 0,
            receive_frames: 4096,
            send_frames: 2048,
            zero_copy: true,
            generic: false,
            several_frames: true,
        }
    }
}

/// Smallest number of frames for each direction. It is enough for a batch of packets that take one
/// frame each.
pub(super) const FRAMES_MIN: u32 = 64;
/// Largest number of frames for each direction. This number of frames takes 512 MiB.
pub(super) const FRAMES_MAX: u32 = 1 << 17;

/// Reason why an [`XdpIo`](super::XdpIo) could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpError {
    /// No interface has the address, or only the loopback interface has it.
    NoInterface(IpAddr),
    /// AF_XDP cannot work on an interface of this kind.
    Unsuitable {
        /// Name of the interface.
        interface: String,
        /// Reason why AF_XDP cannot work on the interface.
        why: &'static str,
    },
    /// The endpoint has several local addresses.
    SeveralAddresses,
    /// Another XDP program is attached to the interface.
    Occupied {
        /// Name of the interface.
        interface: String,
    },
    /// The interface's queue has an AF_XDP socket already.
    QueueTaken {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
    },
    /// This process lacks a right that AF_XDP needs.
    Forbidden {
        /// Step that needs the right.
        step: &'static str,
        /// Right that the process lacks.
        needs: &'static str,
    },
    /// A number of frames or a queue is out of range.
    OutOfRange(String),
    /// The kernel refused a step of opening, for a reason that has no variant of this enum.
    Refused {
        /// Step that the kernel refused.
        step: &'static str,
        /// Error that the kernel returned for the step.
        error: io::Error,
        /// Log of the verifier, if the kernel refused the program.
        log: String,
    },
    /// The UDP sockets could not be opened.
    Udp(io::Error),
}

/// End of every message about a missing right.
const WITHOUT: &str = "`io = \"udp\"` works without it";

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface(ip) if ip.is_unspecified() => {
                write!(f, "AF_XDP works on one network interface: name its address instead of {ip}")
            }
            Self::NoInterface(ip) => {
                write!(f, "no network interface that is up has the address {ip} (loopback is none)")
            }
            Self::Unsuitable { interface, why } => {
                write!(f, "AF_XDP does not work on {interface}: {why}; use `io = \"udp\"`")
            }
            Self::SeveralAddresses => {
                f.write_str("AF_XDP works with one local address: leave the others out")
            }
            Self::Occupied { interface } => write!(
                f,
                "another XDP program is attached to {interface} (`ip link show dev {interface}` \
                 names it): detach it, or use `io = \"udp\"`"
            ),
            Self::QueueTaken { interface, queue } => write!(
                f,
                "another AF_XDP socket has queue {queue} of {interface}: name another queue, or \
                 use `io = \"udp\"`"
            ),
            Self::Forbidden { step, needs } => {
                write!(f, "{step} needs {needs}; {WITHOUT}")
            }
            Self::OutOfRange(what) => f.write_str(what),
            Self::Refused { step, error, log } => {
                write!(f, "{step} failed: {error}")?;
                if log.is_empty() { Ok(()) } else { write!(f, "\n{log}") }
            }
            Self::Udp(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for XdpError {}

impl From<XdpError> for io::Error {
    fn from(error: XdpError) -> Self {
        let kind = match &error {
            XdpError::Udp(inner) | XdpError::Refused { error: inner, .. } => inner.kind(),
            XdpError::Forbidden { .. } => io::ErrorKind::PermissionDenied,
            XdpError::Occupied { .. } | XdpError::QueueTaken { .. } => io::ErrorKind::ResourceBusy,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error.to_string())
    }
}

/// The rights that BPF requires.
const BPF_RIGHTS: &str = "the capabilities CAP_BPF and CAP_NET_ADMIN";

impl XdpError {
    /// Returns the error for a refused step of setting up the socket.
    pub(super) fn socket(refused: Refused) -> Self {
        let Refused { step, error } = refused;
        let needs = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "the capability CAP_NET_RAW",
            Some(libc::ENOBUFS) => {
                "more memory that stays in place (RLIMIT_MEMLOCK; LimitMEMLOCK= of a unit), or \
                 the capability CAP_IPC_LOCK"
            }
            _ => return Self::Refused { step, error, log: String::new() },
        };
        Self::Forbidden { step, needs }
    }

    /// Returns the error for a refused step of loading the BPF program.
    pub(super) fn bpf(step: &'static str, error: io::Error, log: String) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::Forbidden { step, needs: BPF_RIGHTS },
            _ => Self::Refused { step, error, log },
        }
    }
}

impl From<LoadError> for XdpError {
    fn from(refused: LoadError) -> Self {
        Self::bpf("loading the XDP program", refused.error, refused.log)
    }
}

/// Reason why AF_XDP does not suit an address.
#[derive(Debug)]
#[non_exhaustive]
pub enum Why {
    /// AF_XDP cannot be opened at this address.
    Impossible(XdpError),
    /// The interface's driver copies every packet: UDP sockets with segmentation offload are
    /// faster.
    NoZeroCopy {
        /// Name of the interface.
        interface: String,
    },
    /// The kernel does not report the features of its drivers: it is older than Linux 6.3.
    Unknown(io::Error),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible(error) => write!(f, "{error}"),
            Self::NoZeroCopy { interface } => {
                write!(f, "the driver of {interface} has no zero copy for AF_XDP")
            }
            Self::Unknown(error) => {
                write!(f, "the kernel does not say whether the driver has zero copy: {error}")
            }
        }
    }
}

impl std::error::Error for Why {}
