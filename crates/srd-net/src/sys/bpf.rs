//! `bpf(2)`: maps, programs, and the links that attach them.
//!
//! Each of these objects is a descriptor. A link ends when its last descriptor is closed, so the
//! program is removed from the interface whenever the process ends, even by a crash. No object is
//! pinned.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;
use super::shared::xdp::{Refused, step};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
#[cfg(test)]
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_LINK_CREATE: libc::c_long = 28;

const BPF_MAP_TYPE_XSKMAP: u32 = 17;

/// Flag of an XDP program that accepts packets in several buffers, although it reads only the first
/// buffer (`BPF_F_XDP_HAS_FRAGS`).
const HAS_FRAGS: u32 = 1 << 5;
/// Flag to attach before the programs that are already attached (`BPF_F_BEFORE`).
const BEFORE: u32 = 1 << 3;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Largest number of bytes of the verifier's log that are stored.
const LOG_BYTES_MAX: usize = 1 << 16;

/// One instruction of eBPF, in the kernel's layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Instruction {
    /// Operation code.
    pub(crate) code: u8,
    /// Destination register in the lower four bits, source register in the upper four (on
    /// little-endian machines).
    pub(crate) registers: u8,
    /// Distance of a jump, or offset in memory.
    pub(crate) offset: i16,
    /// Constant operand of the instruction.
    pub(crate) immediate: i32,
}

/// Hook at which an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// In the driver, before the kernel has allocated its own packet structure.
    Native,
    /// In the kernel's receive path, for drivers without support for programs.
    Generic,
}

/// Purpose of a BPF program, which determines the hook that it is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// XDP: the packets that an interface receives, before the kernel processes them.
    Xdp,
    /// tc: the packets that an interface has received.
    Ingress,
    /// tc: the packets that an interface is to send.
    Egress,
}

impl Purpose {
    /// Returns the program type: `BPF_PROG_TYPE_XDP` or `BPF_PROG_TYPE_SCHED_CLS`.
    fn kind(self) -> u32 {
        match self {
            Self::Xdp => 6,
            Self::Ingress | Self::Egress => 3,
        }
    }

    /// Returns the attach type: `BPF_XDP`, `BPF_TCX_INGRESS` or `BPF_TCX_EGRESS`.
    fn place(self) -> u32 {
        match self {
            Self::Xdp => 37,
            Self::Ingress => 46,
            Self::Egress => 47,
        }
    }

    /// Returns the name by which the system lists maps and programs (`bpftool`).
    fn name(self) -> [u8; 16] {
        match self {
            Self::Xdp => *b"srd_xdp\0\0\0\0\0\0\0\0\0",
            Self::Ingress | Self::Egress => *b"srd_watch\0\0\0\0\0\0\0",
        }
    }
}

/// Properties of a BPF map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Type of the map: `BPF_MAP_TYPE_...`.
    pub(crate) kind: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
    /// Flags of the map: `BPF_F_...`.
    pub(crate) flags: u32,
}

/// Creates a BPF map with these properties.
pub(crate) fn make_map(shape: Shape, purpose: Purpose) -> io::Result<OwnedFd> {
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
    let Shape { kind, key_bytes, value_bytes, entries, flags } = shape;
    let name = purpose.name();
    let attributes =
        Attributes { kind, key_bytes, value_bytes, entries, flags, inner: 0, node: 0, name };
    // SAFETY: the attributes are those of this command and point to nothing.
    unsafe { descriptor(BPF_MAP_CREATE, attributes) }
}

/// A map from queues to AF_XDP sockets.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Makes a map for queues with numbers below `queues`.
    pub(crate) fn new(queues: u32) -> io::Result<Self> {
        let kind = BPF_MAP_TYPE_XSKMAP;
        let shape = Shape { kind, key_bytes: 4, value_bytes: 4, entries: queues, flags: 0 };
        make_map(shape, Purpose::Xdp).map(Self)
    }

    /// Assigns the packets of a queue to a socket.
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

    /// Returns the descriptor, for instructions that use the map.
    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A program that the verifier has accepted.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
    purpose: Purpose,
}

/// Error: the kernel refused a program.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub(crate) error: io::Error,
    /// Log of the verifier.
    pub(crate) log: String,
}

impl Program {
    /// Loads a program into the kernel. Kernels before 5.18 do not support XDP packets in several
    /// buffers, and load the program without the flag [`HAS_FRAGS`].
    pub(crate) fn load(purpose: Purpose, code: &[Instruction]) -> Result<Self, LoadError> {
        let flags = if purpose == Purpose::Xdp { [HAS_FRAGS, 0].as_slice() } else { &[0] };
        let quietly = flags.iter().find_map(|flags| load(purpose, code, *flags, &mut []).ok());
        if let Some(fd) = quietly {
            return Ok(Self { fd, purpose });
        }
        // Tries to load the program a second time, to get the verifier's log.
        let mut log = vec![0; LOG_BYTES_MAX];
        let loaded = load(purpose, code, 0, &mut log);
        loaded.map(|fd| Self { fd, purpose }).map_err(|error| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            LoadError { error, log: String::from_utf8_lossy(&log[..end]).into_owned() }
        })
    }

    /// Attaches an XDP program to an interface. The program stays attached until the link is
    /// dropped.
    pub(crate) fn attach(&self, interface: u32, mode: Mode) -> io::Result<Link> {
        let flags = match mode {
            Mode::Native => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        self.link(interface, flags)
    }

    /// Attaches a program at tc, before the programs that are already attached. The program stays
    /// attached until the link is dropped. Requires Linux 6.6.
    pub(crate) fn attach_first(&self, interface: u32) -> io::Result<Link> {
        self.link(interface, BEFORE)
    }

    fn link(&self, interface: u32, flags: u32) -> io::Result<Link> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            place: u32,
            flags: u32,
            /// Program at tc before which this program is attached; zero: before all programs.
            relative: u32,
            padding: u32,
            revision: u64,
        }
        let attributes = Attributes {
            program: number(&self.fd),
            interface,
            place: self.purpose.place(),
            flags,
            relative: 0,
            padding: 0,
            revision: 0,
        };
        // SAFETY: the attributes are those of this command and point to nothing.
        unsafe { descriptor(BPF_LINK_CREATE, attributes) }.map(Link)
    }

    /// Runs the program on a packet. Returns the verdict.
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
            program: number(&self.fd),
            verdict: 0,
            in_bytes: u32::try_from(packet.len()).unwrap_or(0),
            out_bytes: 0,
            input: packet.as_ptr().expose_provenance() as u64,
            output: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: input and its length describe `packet`; no output is requested.
        unsafe { call_with(BPF_PROG_TEST_RUN, &mut attributes) }?;
        Ok(attributes.verdict)
    }
}

fn load(
    purpose: Purpose,
    instructions: &[Instruction],
    flags: u32,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
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
        kind: purpose.kind(),
        instructions: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        first: instructions.as_ptr().expose_provenance() as u64,
        license: c"Apache-2.0".as_ptr().expose_provenance() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: u32::try_from(log.len()).unwrap_or(0),
        log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
        kernel_version: 0,
        flags,
        name: purpose.name(),
        interface: 0,
        attached_at: purpose.place(),
    };
    // SAFETY: instructions, license and log outlive the call and are as long as announced.
    unsafe { descriptor(BPF_PROG_LOAD, attributes) }
}

/// A link, which keeps a program attached until it is dropped.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Whether a program at tc is still attached. The kernel detaches it when its interface is
    /// removed.
    pub(crate) fn is_attached(&self) -> io::Result<bool> {
        #[repr(C)]
        #[derive(Default)]
        struct Info {
            kind: u32,
            number: u32,
            program: u32,
            padding: u32,
            interface: u32,
            place: u32,
        }
        #[repr(C)]
        struct Attributes {
            link: u32,
            bytes: u32,
            info: u64,
        }
        let mut info = Info::default();
        let attributes = Attributes {
            link: number(&self.0),
            bytes: u32::try_from(size_of::<Info>()).unwrap_or(0),
            info: (&raw mut info).expose_provenance() as u64,
        };
        // SAFETY: the kernel writes no more than `bytes` of `info`, which outlives the call.
        unsafe { call(BPF_OBJ_GET_INFO_BY_FD, attributes) }?;
        // The kernel wrote the structure through an address that the compiler sees as a number
        // only.
        Ok(std::hint::black_box(&info).interface != 0)
    }
}

/// Returns the number of programs that are attached to an interface, including those of other
/// processes.
pub(crate) fn programs_at(interface: u32, purpose: Purpose) -> io::Result<u32> {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        interface: u32,
        place: u32,
        query_flags: u32,
        flags: u32,
        programs: u64,
        count: u32,
        padding: u32,
        program_flags: u64,
        links: u64,
        link_flags: u64,
        revision: u64,
    }
    let place = purpose.place();
    let mut attributes = Attributes { interface, place, ..Attributes::default() };
    // SAFETY: the attributes are those of this command and point to nothing.
    unsafe { call_with(BPF_PROG_QUERY, &mut attributes) }?;
    Ok(attributes.count)
}

/// Checks whether this process may make maps of AF_XDP sockets.
///
/// # Errors
/// The step that the kernel refused, and its error.
pub(crate) fn may_make_maps() -> Result<(), Refused> {
    step("making a map of AF_XDP sockets", SocketMap::new(1).map(drop))
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_fd().as_raw_fd().unsigned_abs()
}

/// Calls a command that returns a descriptor.
///
/// # Safety
/// As for [`call`].
unsafe fn descriptor<A>(command: libc::c_long, attributes: A) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the attributes.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) })
}

/// Calls `bpf(2)` with a command and its attributes.
///
/// # Safety
/// `attributes` has the type of the command's attributes, without padding, and the memory that they
/// point to outlives the call.
unsafe fn call<A>(command: libc::c_long, attributes: A) -> io::Result<usize> {
    let mut attributes = attributes;
    // SAFETY: the caller guarantees the attributes.
    unsafe { call_with(command, &mut attributes) }
}

/// Calls `bpf(2)` with a command and its attributes, which the kernel may write.
///
/// # Safety
/// As for [`call`].
unsafe fn call_with<A>(command: libc::c_long, attributes: &mut A) -> io::Result<usize> {
    let place = std::ptr::from_mut(attributes);
    // SAFETY: the attributes are as long as announced; the caller guarantees their content.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, place, size_of::<A>()) };
    check(isize::try_from(result).unwrap_or(-1))
}
