//! The AF_XDP back end: packets bypass the kernel's network stack, between a queue of a network
//! interface and memory of this process.
//!
//! ```text
//!  send     next hop known?      -- yes --> headers, payload -> frame -> send ring -- doorbell
//!                                 \- no ---> UDP socket: the kernel resolves, or says why not
//!  receive  XDP program: plain UDP to our address and base port? -- yes --> receive ring
//!                                                                \- no ---> the kernel as ever,
//!                                                     with what is ours still at the UDP socket
//! ```
//!
//! The UDP sockets of [`UdpIo`] stay open too. They reserve the ports, so that no other process
//! gets them and the kernel does not answer "port unreachable". They receive packets that the
//! program leaves to the kernel (options, fragments, packets of queues without a socket), and send
//! packets whose next hop is not known yet.
//!
//! | file | content |
//! |---|---|
//! | `options` | options and errors of opening |
//! | `features` | check whether AF_XDP is faster: `io = "auto"` |
//! | `choice` | one type for both back ends |
//! | `attachment`, `program` | the XDP program |
//! | `headers` | Ethernet, IP and UDP |
//! | `next_hops`, `netlink` | routes and neighbours |
//! | `send`, `receive`, `sleep` | the parts of a round |
//! | `stats` | counters in addition to [`IoStats`] |

mod attachment;
mod choice;
mod features;
mod headers;
pub(crate) mod netlink;
mod next_hops;
mod options;
mod program;
mod receive;
mod send;
mod sleep;
mod stats;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use srd_proto::ids::Entropy;
use srd_proto::time::Instant;
use srd_proto::transmit::{PacketMeta, Transmit};

pub use choice::{AnyIo, IoChoice, UnknownIo};
pub use features::suits;
pub use options::{Why, XdpError, XdpOptions};
pub use stats::XdpStats;

use crate::back_ends::io::{
    IoStats, Notice, PacketIo, PollMode, Segments, SendOutcome, Undelivered, Wait,
};
use crate::back_ends::udp::UdpIo;
use crate::clock::Clock;
use crate::endpoints::wake::IoWaker;
use crate::sys::bpf::Mode;
use crate::sys::interface;
use crate::sys::shared::xdp::{FRAME_BYTES, FRAME_RECEIVES_BYTES, Frame, Request, XdpSocket};
use crate::sys::timer::Alarm;
use attachment::{Attachment, QUEUES_MAX, Target};
use headers::{ETHERNET_BYTES, ip_headers_bytes};
use next_hops::{From, NextHops};
use options::{FRAMES_MAX, FRAMES_MIN};
use receive::Gather;

/// Target of the log messages of this module, and prefix of the targets of its submodules.
pub const LOG_TARGET: &str = module_path!();
/// Pause between attempts to bind a queue. The kernel releases a queue shortly after its socket was
/// closed, so the first attempt of a restarted process may fail.
const RELEASE_WAIT: std::time::Duration = std::time::Duration::from_millis(10);
const RELEASE_TRIES_MAX: u32 = 200;
/// Largest number of segments of one batch. The smallest number of frames is enough for them, if
/// each segment takes one frame.
const SEGMENTS_MAX: usize = 64;

/// A back end that sends and receives by an AF_XDP socket, and by additional UDP sockets.
#[derive(Debug)]
pub struct XdpIo {
    socket: XdpSocket,
    attachment: Arc<Attachment>,
    /// Free frames to send from.
    free: Vec<Frame>,
    /// Number of frames for sending, including those in use.
    send_frames: usize,
    /// Index of the interface, which is the scope of link-local addresses.
    index: u32,
    /// Source address of each path.
    sources: Arc<[SocketAddr]>,
    dscp: u8,
    kernel: Kernel,
    next_hops: NextHops,
    gather: Gather,
    /// Condition that the last send waits for; `None` if it was complete.
    blocked: Option<Blocked>,
    /// Whether the send ring contains frames that the kernel has not taken yet.
    waiting: bool,
    /// Whether the interface refused the last notification of queued frames.
    refused: bool,
    /// Time of the next read from the UDP socket.
    udp_look_at: Instant,
    poll: PollMode,
    clock: Clock,
    alarm: Alarm,
    waker: Option<Arc<IoWaker>>,
    watched: Option<Arc<OwnedFd>>,
    stats: IoStats,
    counted: XdpStats,
}

/// Sockets for packets that go through the kernel instead of the AF_XDP socket.
#[derive(Debug)]
enum Kernel {
    /// The UDP sockets of all ports of the endpoint, and a descriptor that is readable when packets
    /// have arrived at the first port.
    Sockets(Box<UdpIo>, OwnedFd),
    /// A socket that sends empty datagrams, which make the kernel resolve hardware addresses. The
    /// [`XdpIo`] of the first queue has the UDP sockets of the endpoint's ports.
    Elsewhere(UdpSocket),
}

/// Condition that a send waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocked {
    /// The send waits for free frames.
    Frames,
    /// The send waits for free space in a UDP socket.
    Kernel,
}

impl XdpIo {
    /// Opens the UDP sockets and the AF_XDP socket, and attaches the program.
    ///
    /// # Errors
    /// [`XdpError`]: the missing requirement, as a message with a remedy.
    pub fn open(options: &XdpOptions) -> Result<Self, XdpError> {
        check(options)?;
        let ip = options.udp.address.ip();
        let interface = features::interface_of(ip)?;
        let index = interface::index_of(&interface).map_err(XdpError::Udp)?;
        features::check_kind(&interface, index)?;
        let udp = UdpIo::open(&options.udp).map_err(XdpError::Udp)?;
        let arrivals = udp.arrivals().map_err(XdpError::Udp)?;
        let local = udp.local_address();
        let sources = (0..udp.paths()).map(|path| udp.source(Entropy(path), local)).collect();
        let (socket, free) = socket(options, &interface, index)?;
        let ip_bytes_max = receives_ip_bytes(&socket);
        let target = Target { interface: &interface, index, local, ip_bytes_max };
        // A program in the kernel's receive path never sees packets that a zero-copy socket
        // receives.
        let modes: &[Mode] = match (options.generic, socket.is_zero_copy()) {
            (true, _) => &[Mode::Generic],
            (false, true) => &[Mode::Native],
            (false, false) => &[Mode::Native, Mode::Generic],
        };
        let attachment = Arc::new(Attachment::new(&target, modes)?);
        let kernel = Kernel::Sockets(Box::new(udp), arrivals);
        let this = Self::assemble(options, (socket, free), attachment, index, sources, kernel)?;
        tracing::info!(
            "AF_XDP on {interface}, queue {}: {}, the program runs in {}, packets of {} bytes",
            options.queue,
            if this.is_zero_copy() { "zero copy" } else { "copies" },
            if this.is_native() { "the driver" } else { "the kernel's path" },
            this.packet_bytes_max(),
        );
        Ok(this)
    }

    /// Opens another queue of the same interface, for another worker: with the same program,
    /// address and ports, with separate memory, and without UDP sockets. Packets without a known
    /// next hop are lost, and counted.
    ///
    /// # Errors
    /// As [`XdpIo::open`].
    pub fn join(&self, options: &XdpOptions) -> Result<Self, XdpError> {
        check(options)?;
        let local = self.sources[0];
        let interface = features::interface_of(local.ip())?;
        let mut options = options.clone();
        options.zero_copy &= self.attachment.mode() == Mode::Native;
        let socket = socket(&options, &interface, self.index)?;
        let mut any_port = local;
        any_port.set_port(0); // a link-local address keeps its link
        let poke = UdpSocket::bind(any_port).map_err(XdpError::Udp)?;
        poke.set_nonblocking(true).map_err(XdpError::Udp)?;
        let (attachment, sources) = (self.attachment.clone(), self.sources.clone());
        Self::assemble(&options, socket, attachment, self.index, sources, Kernel::Elsewhere(poke))
    }

    fn assemble(
        options: &XdpOptions,
        socket: (XdpSocket, Vec<Frame>),
        attachment: Arc<Attachment>,
        index: u32,
        sources: Arc<[SocketAddr]>,
        kernel: Kernel,
    ) -> Result<Self, XdpError> {
        let (socket, free) = socket;
        let clock = Clock::new();
        let from = From { interface: index, address: sources[0].ip(), mark: options.udp.mark };
        let next_hops = NextHops::new(from, clock.now()).map_err(XdpError::Udp)?;
        let alarm = Alarm::new().map_err(XdpError::Udp)?;
        attachment.set(options.queue, std::os::fd::AsFd::as_fd(&socket))?;
        Ok(Self {
            socket,
            attachment,
            send_frames: free.len(),
            free,
            index,
            sources,
            dscp: options.udp.dscp,
            kernel,
            next_hops,
            gather: Gather::default(),
            blocked: None,
            waiting: false,
            refused: false,
            udp_look_at: Instant::ZERO,
            poll: options.udp.poll,
            clock,
            alarm,
            waker: None,
            watched: None,
            stats: IoStats::default(),
            counted: XdpStats::default(),
        })
    }

    /// Whether packets move without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.socket.is_zero_copy()
    }

    /// Whether the XDP program runs in the driver, not in the kernel's receive path.
    pub fn is_native(&self) -> bool {
        self.attachment.mode() == Mode::Native
    }

    /// Returns the UDP payload bytes of the largest packet that bypasses the kernel in both
    /// directions, with the current MTU of the interface. Larger packets go through the kernel.
    pub fn packet_bytes_max(&self) -> u16 {
        let receives = usize::from(receives_ip_bytes(&self.socket));
        let ip_bytes = self.next_hops.mtu().min(receives);
        let headers = ip_headers_bytes(&self.sources[0].ip());
        u16::try_from(ip_bytes.saturating_sub(headers)).unwrap_or(u16::MAX)
    }

    /// Returns the counters of AF_XDP, which [`PacketIo::stats`] does not contain.
    pub fn xdp_stats(&self) -> XdpStats {
        // A socket that fails here has no counters.
        self.counted.with(&self.socket.statistics().unwrap_or_default())
    }

    /// Sets how this back end waits for packets.
    pub fn set_poll(&mut self, poll: PollMode) {
        self.poll = poll;
    }

    /// Sets a descriptor that ends a wait for packets when it is readable.
    pub fn watch(&mut self, fd: Arc<OwnedFd>) {
        self.watched = Some(fd);
    }

    fn udp(&self) -> Option<&UdpIo> {
        match &self.kernel {
            Kernel::Sockets(udp, _) => Some(udp),
            Kernel::Elsewhere(_) => None,
        }
    }

    fn udp_mut(&mut self) -> Option<&mut UdpIo> {
        match &mut self.kernel {
            Kernel::Sockets(udp, _) => Some(udp),
            Kernel::Elsewhere(_) => None,
        }
    }
}

fn check(options: &XdpOptions) -> Result<(), XdpError> {
    if !options.udp.further.is_empty() {
        return Err(XdpError::SeveralAddresses);
    }
    for (what, frames) in
        [("receive_frames", options.receive_frames), ("send_frames", options.send_frames)]
    {
        if !(FRAMES_MIN..=FRAMES_MAX).contains(&frames) {
            let text =
                format!("{what}: {frames} were asked for; {FRAMES_MIN} to {FRAMES_MAX} work");
            return Err(XdpError::OutOfRange(text));
        }
    }
    if options.queue >= QUEUES_MAX {
        let text = format!("queue {} was asked for; below {QUEUES_MAX} work", options.queue);
        return Err(XdpError::OutOfRange(text));
    }
    Ok(())
}

fn socket(
    options: &XdpOptions,
    interface: &str,
    index: u32,
) -> Result<(XdpSocket, Vec<Frame>), XdpError> {
    let mtu = interface::mtu_of(interface).map_err(XdpError::Udp)?;
    let fits_one_frame = mtu as usize + ETHERNET_BYTES <= FRAME_RECEIVES_BYTES;
    let request = Request {
        interface: index,
        queue: options.queue,
        copy: options.generic || !options.zero_copy,
        several_frames: options.several_frames && !fits_one_frame,
        receive_frames: options.receive_frames,
        send_frames: options.send_frames,
    };
    let mut tries = RELEASE_TRIES_MAX;
    loop {
        match XdpSocket::open(&request) {
            Ok(opened) => return Ok(opened),
            Err(refused) if refused.error.raw_os_error() != Some(libc::EBUSY) => {
                return Err(XdpError::socket(refused));
            }
            Err(_) if tries == 0 => {
                let interface = interface.to_string();
                return Err(XdpError::QueueTaken { interface, queue: options.queue });
            }
            Err(_) => tries -= 1,
        }
        std::thread::sleep(RELEASE_WAIT);
    }
}

/// Returns the bytes of the largest IP packet that a socket receives.
fn receives_ip_bytes(socket: &XdpSocket) -> u16 {
    let one_frame = u16::try_from(FRAME_RECEIVES_BYTES - ETHERNET_BYTES).unwrap_or(u16::MAX);
    if socket.takes_several_frames() { u16::MAX } else { one_frame }
}

impl PacketIo for XdpIo {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        self.send_batches(batches)
    }

    fn receive(
        &mut self,
        wait: Wait,
        each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        self.receive_waiting(wait, each)
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn local_address(&self) -> SocketAddr {
        self.sources[0]
    }

    fn source(&self, entropy: Entropy, _destination: SocketAddr) -> SocketAddr {
        self.sources[usize::from(entropy.0) % self.sources.len()]
    }

    fn paths(&self) -> u16 {
        u16::try_from(self.sources.len()).unwrap_or(u16::MAX)
    }

    fn batch_segments_max(&self) -> usize {
        self.udp().map_or(SEGMENTS_MAX, |udp| udp.batch_segments_max().min(SEGMENTS_MAX))
    }

    fn check_destination(&mut self, destination: SocketAddr, packet_bytes_max: u16) {
        if let Some(udp) = self.udp_mut() {
            udp.check_destination(destination, packet_bytes_max);
        }
    }

    fn take_undelivered(&mut self, now: Instant) -> Option<(SocketAddr, Undelivered)> {
        self.udp_mut()?.take_undelivered(now)
    }

    fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        self.udp()?.refusal(destination)
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.udp_mut()?.take_notice()
    }

    fn stats(&self) -> IoStats {
        stats::sum(&self.stats, &self.udp().map(UdpIo::stats).unwrap_or_default())
    }

    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = Arc::new(IoWaker::with_descriptor()?);
        self.waker = Some(waker.clone());
        Ok(waker)
    }
}
