//! `io = "auto" | "udp" | "af_xdp"`: one type for both back ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use srd_proto::ids::Entropy;
use srd_proto::time::Instant;
use srd_proto::transmit::{PacketMeta, Transmit};

use super::{XdpIo, XdpOptions, suits};
use crate::back_ends::io::{
    IoStats, Notice, PacketIo, PollMode, Segments, SendOutcome, Undelivered, Wait,
};
use crate::back_ends::none::NoIo;
use crate::back_ends::udp::UdpIo;
use crate::clock::Clock;
use crate::endpoints::wake::IoWaker;

/// Choice of the back end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoChoice {
    /// AF_XDP if it is faster ([`suits`]), otherwise UDP sockets.
    #[default]
    Auto,
    /// UDP sockets.
    Udp,
    /// AF_XDP; an error if it is not possible.
    AfXdp,
}

/// Error: no back end has this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownIo(String);

impl std::fmt::Display for UnknownIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(name) = self;
        write!(f, "io = {name:?}: \"auto\", \"udp\" and \"af_xdp\" are known")
    }
}

impl std::error::Error for UnknownIo {}

impl std::str::FromStr for IoChoice {
    type Err = UnknownIo;

    fn from_str(text: &str) -> Result<Self, UnknownIo> {
        match text {
            "auto" => Ok(Self::Auto),
            "udp" => Ok(Self::Udp),
            "af_xdp" => Ok(Self::AfXdp),
            other => Err(UnknownIo(other.to_string())),
        }
    }
}

/// The back end that was opened. Each call selects between the back ends once, not once per
/// packet.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there are only as many values as workers
pub enum AnyIo {
    /// The back end that uses UDP sockets.
    Udp(UdpIo),
    /// The back end that uses AF_XDP, with additional UDP sockets.
    Xdp(XdpIo),
    /// No back end: the node has no other hosts.
    None(NoIo),
}

impl AnyIo {
    /// Opens the chosen back end. If [`IoChoice::Auto`] does not choose AF_XDP, the reason is
    /// logged.
    ///
    /// # Errors
    /// As [`UdpIo::open`] and [`XdpIo::open`].
    pub fn open(choice: IoChoice, options: &XdpOptions) -> io::Result<Self> {
        let wants_xdp = match choice {
            IoChoice::Udp => false,
            IoChoice::AfXdp => true,
            IoChoice::Auto => match suits(options.udp.address.ip()) {
                Ok(()) => true,
                Err(why) => {
                    tracing::info!("UDP sockets, not AF_XDP: {why}");
                    false
                }
            },
        };
        if !wants_xdp {
            return UdpIo::open(&options.udp).map(Self::Udp);
        }
        match XdpIo::open(options) {
            Ok(io) => Ok(Self::Xdp(io)),
            Err(why) if choice == IoChoice::Auto => {
                tracing::warn!("UDP sockets, not AF_XDP: {why}");
                UdpIo::open(&options.udp).map(Self::Udp)
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Opens one back end for each of `shards` shards of a node. AF_XDP supports one shard only:
    /// the queue of a network card does not determine the shard of a packet.
    ///
    /// # Errors
    /// As [`AnyIo::open`], and if AF_XDP is requested with several shards.
    pub fn open_shards(
        choice: IoChoice,
        options: &XdpOptions,
        shards: u8,
    ) -> io::Result<Vec<Self>> {
        match (choice, shards) {
            (_, 1) => Ok(vec![Self::open(choice, options)?]),
            (IoChoice::AfXdp, _) => {
                let why = format!("AF_XDP has one worker, and {shards} are asked for");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            (IoChoice::Auto | IoChoice::Udp, _) => {
                if choice == IoChoice::Auto {
                    tracing::info!(
                        "UDP sockets, not AF_XDP: that has one worker, and there are {shards}"
                    );
                }
                Ok(UdpIo::open_shards(&options.udp, shards)?.into_iter().map(Self::Udp).collect())
            }
        }
    }

    /// Sets how this back end waits for packets.
    pub fn set_poll(&mut self, poll: PollMode) {
        match self {
            Self::Udp(io) => io.set_poll(poll),
            Self::Xdp(io) => io.set_poll(poll),
            // No packet ends a poll without sleep.
            Self::None(_) => {}
        }
    }

    /// Returns a descriptor that is readable while packets wait, for callers with their own event
    /// loop. Use it only to wait.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor, and for AF_XDP, which has no
    /// such descriptor.
    pub fn arrivals(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Udp(io) => io.arrivals(),
            Self::Xdp(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
            Self::None(io) => io.arrivals(),
        }
    }

    /// Sets a descriptor that ends a wait for packets when it is readable.
    pub fn watch(&mut self, fd: Arc<OwnedFd>) {
        match self {
            Self::Udp(io) => io.watch(fd),
            Self::Xdp(io) => io.watch(fd),
            Self::None(io) => io.watch(fd),
        }
    }
}

/// Makes a call on the open back end.
macro_rules! opened {
    ($self:ident, $io:ident => $call:expr) => {
        match $self {
            AnyIo::Udp($io) => $call,
            AnyIo::Xdp($io) => $call,
            AnyIo::None($io) => $call,
        }
    };
}

impl PacketIo for AnyIo {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        opened!(self, io => io.send(batches))
    }

    fn receive(
        &mut self,
        wait: Wait,
        each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        opened!(self, io => io.receive(wait, each))
    }

    fn clock(&self) -> &Clock {
        opened!(self, io => io.clock())
    }

    fn local_address(&self) -> SocketAddr {
        opened!(self, io => io.local_address())
    }

    fn local_addresses(&self) -> u8 {
        opened!(self, io => io.local_addresses())
    }

    fn local_address_at(&self, place: u8) -> SocketAddr {
        opened!(self, io => io.local_address_at(place))
    }

    fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        opened!(self, io => io.source(entropy, destination))
    }

    fn paths(&self) -> u16 {
        opened!(self, io => io.paths())
    }

    fn batch_segments_max(&self) -> usize {
        opened!(self, io => io.batch_segments_max())
    }

    fn check_destination(&mut self, destination: SocketAddr, packet_bytes_max: u16) {
        opened!(self, io => io.check_destination(destination, packet_bytes_max));
    }

    fn take_undelivered(&mut self, now: Instant) -> Option<(SocketAddr, Undelivered)> {
        opened!(self, io => io.take_undelivered(now))
    }

    fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        opened!(self, io => io.refusal(destination))
    }

    fn take_notice(&mut self) -> Option<Notice> {
        opened!(self, io => io.take_notice())
    }

    fn stats(&self) -> IoStats {
        opened!(self, io => io.stats())
    }

    fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        opened!(self, io => io.sockets())
    }

    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        opened!(self, io => io.waker())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::options::UdpOptions;

    #[test]
    fn the_three_names_are_known_and_others_are_told_of_them() {
        let known = [IoChoice::Auto, IoChoice::Udp, IoChoice::AfXdp];
        assert_eq!(["auto", "udp", "af_xdp"].map(|name| name.parse::<IoChoice>().unwrap()), known);
        let error = "xdp".parse::<IoChoice>().unwrap_err().to_string();
        assert!(error.contains("af_xdp"), "{error}");
    }

    #[test]
    fn loopback_is_udp_by_itself_and_an_error_if_af_xdp_is_asked_for() {
        let mut options = XdpOptions::new(UdpOptions::new("127.0.0.1:0".parse().unwrap()));
        options.udp.paths = 2;
        for choice in [IoChoice::Auto, IoChoice::Udp] {
            assert!(matches!(AnyIo::open(choice, &options).unwrap(), AnyIo::Udp(_)));
        }
        let error = AnyIo::open(IoChoice::AfXdp, &options).unwrap_err();
        assert!(error.to_string().contains("loopback"), "{error}");
    }
}
