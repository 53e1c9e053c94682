//! `bpf(2)`: a map of AF_XDP sockets, an XDP program, and the link that attaches it.
//!
//! Each is a descriptor. The link goes with its last descriptor, so that the program leaves the
//! interface when the process ends, however it ends. Nothing is pinned.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;
use super::xdp::{Refused, step};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
#[cfg(test)]
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_LINK_CREATE: libc::c_long = 28;

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// The place that a program is attached at.
const BPF_XDP: u32 = 37;
/// The program looks at the first part of a packet only (`BPF_F_XDP_HAS_FRAGS`).
const HAS_FRAGS: u32 = 1 << 5;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Bytes of the verifier's explanation that are kept.
const LOG_BYTES_MAX: usize = 1 << 16;
/// What names map and program in lists of the system's.
const NAME: [u8; 16] = *b"srd_xdp\0\0\0\0\0\0\0\0\0";

/// One instruction of eBPF, as the kernel wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Instruction {
    /// What to do.
    pub(crate) code: u8,
    /// Destination register in the lower four bits, source register in the upper (on machines
    /// that store the low byte first).
    pub(crate) registers: u8,
    /// A jump's distance, or an offset in memory.
    pub(crate) offset: i16,
    /// A constant.
    pub(crate) immediate: i32,
}

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// In the driver, before the kernel has made a packet of its own of the bytes.
    Native,
    /// In the kernel's receive path, for drivers that have no place for programs.
    Generic,
}

/// A map from queues to AF_XDP sockets.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    /// One with room for queues below `queues`.
    pub(crate) fn new(queues: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_bytes: u32,
            value_bytes: u32,
            entries: u32,
            flags: u32,
            inner: u32,
            node: u32,
            name: [u8; 16],
        }
        let attributes = Attributes {
            kind: BPF_MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries: queues,
            flags: 0,
            inner: 0,
            node: 0,
            name: NAME,
        };
        // SAFETY: the attributes are those of this command and point to nothing.
        unsafe { descriptor(BPF_MAP_CREATE, attributes) }.map(Self)
    }

    /// Sends the packets of a queue to a socket.
    pub(crate) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let socket = socket.as_raw_fd().unsigned_abs();
        let attributes = Attributes {
            map: number(&self.0),
            padding: 0,
            key: (&raw const queue).expose_provenance() as u64,
            value: (&raw const socket).expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: key and value are four bytes each, as the map was made for, and outlive the call.
        unsafe { call(BPF_MAP_UPDATE_ELEM, attributes) }.map(drop)
    }

    /// The descriptor, for instructions that name the map.
    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// An XDP program that the verifier has passed.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

/// A program was refused.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub(crate) error: io::Error,
    /// The text of the verifier.
    pub(crate) log: String,
}

impl Program {
    /// Loads one. Kernels before 5.18 have no packets of several parts; there it is loaded without
    /// saying that it knows them.
    pub(crate) fn load(instructions: &[Instruction]) -> Result<Self, LoadError> {
        let flags = [HAS_FRAGS, 0];
        let quietly = flags.iter().find_map(|flags| load(instructions, *flags, &mut []).ok());
        if let Some(fd) = quietly {
            return Ok(Self(fd));
        }
        // Once more, to learn why.
        let mut log = vec![0; LOG_BYTES_MAX];
        load(instructions, 0, &mut log).map(Self).map_err(|error| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            LoadError { error, log: String::from_utf8_lossy(&log[..end]).into_owned() }
        })
    }

    /// Attaches it to an interface for as long as the link lives.
    pub(crate) fn attach(&self, interface: u32, mode: Mode) -> io::Result<Link> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            kind: u32,
            flags: u32,
        }
        let flags = match mode {
            Mode::Native => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        let attributes = Attributes { program: number(&self.0), interface, kind: BPF_XDP, flags };
        // SAFETY: the attributes are those of this command and point to nothing.
        unsafe { descriptor(BPF_LINK_CREATE, attributes) }.map(Link)
    }

    /// Runs it on a packet. Returns its verdict.
    #[cfg(test)]
    pub(crate) fn run(&self, packet: &[u8]) -> io::Result<u32> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            verdict: u32,
            in_bytes: u32,
            out_bytes: u32,
            input: u64,
            output: u64,
            repeat: u32,
            duration: u32,
        }
        let mut attributes = Attributes {
            program: number(&self.0),
            verdict: 0,
            in_bytes: u32::try_from(packet.len()).unwrap_or(0),
            out_bytes: 0,
            input: packet.as_ptr().expose_provenance() as u64,
            output: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: input and its length describe `packet`; no output is asked for.
        unsafe { call_with(BPF_PROG_TEST_RUN, &mut attributes) }?;
        Ok(attributes.verdict)
    }
}

fn load(instructions: &[Instruction], flags: u32, log: &mut [u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        instructions: u32,
        first: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attached_at: u32,
    }
    let attributes = Attributes {
        kind: BPF_PROG_TYPE_XDP,
        instructions: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        first: instructions.as_ptr().expose_provenance() as u64,
        license: c"Apache-2.0".as_ptr().expose_provenance() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: u32::try_from(log.len()).unwrap_or(0),
        log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
        kernel_version: 0,
        flags,
        name: NAME,
        interface: 0,
        attached_at: BPF_XDP,
    };
    // SAFETY: instructions, license and log outlive the call and are as long as announced.
    unsafe { descriptor(BPF_PROG_LOAD, attributes) }
}

/// Keeps a program attached.
#[derive(Debug)]
pub(crate) struct Link(#[allow(dead_code)] OwnedFd);

/// Whether this process may make maps of AF_XDP sockets.
pub(crate) fn may_make_maps() -> Result<(), Refused> {
    step("making a map of AF_XDP sockets", SocketMap::new(1).map(drop))
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_fd().as_raw_fd().unsigned_abs()
}

/// A command that returns a descriptor.
///
/// # Safety
/// As for [`call`].
unsafe fn descriptor<A>(command: libc::c_long, attributes: A) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the attributes.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) })
}

/// # Safety
/// `attributes` are those of the command, without padding, and what they point to outlives the
/// call.
unsafe fn call<A>(command: libc::c_long, attributes: A) -> io::Result<usize> {
    let mut attributes = attributes;
    // SAFETY: the caller vouches for the attributes.
    unsafe { call_with(command, &mut attributes) }
}

/// # Safety
/// As for [`call`]. The kernel may write the attributes.
unsafe fn call_with<A>(command: libc::c_long, attributes: &mut A) -> io::Result<usize> {
    let place = std::ptr::from_mut(attributes);
    // SAFETY: the attributes are as long as announced; the caller vouches for their content.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, place, size_of::<A>()) };
    check(isize::try_from(result).unwrap_or(-1))
}
