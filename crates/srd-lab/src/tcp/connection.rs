//! Established connections between hosts, both ends in this process.

use super::Congestion;
use crate::fabric::Fabric;
use crate::id::{Family, HostId};
use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

/// How long one connection may take to be established.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time for MPTCP to join its subflows, and for the handshakes' last segments to be gone.
const SETTLE: Duration = Duration::from_millis(200);
/// Connections the listener queues.
const BACKLOG: i32 = 512;
/// How often to try to listen, once a millisecond.
const LISTEN_TRIES_MAX: u32 = 500;
/// The port receivers listen on.
const PORT: u16 = 7000;

/// What kind of connections, and from where to where.
pub(super) struct Wanted<'a> {
    pub(super) senders: &'a [HostId],
    pub(super) flows_per_sender: usize,
    pub(super) receiver: HostId,
    pub(super) family: Family,
    pub(super) congestion: Congestion,
    pub(super) mptcp: bool,
}

/// One connection. Both ends do not block.
pub(super) struct Connection {
    pub(super) sender: OwnedFd,
    pub(super) receiver: OwnedFd,
}

/// Connections, sender by sender. Dropped, they are reset, so that what is still on its way
/// cannot disturb the next ones.
pub(super) struct Connections {
    pub(super) all: Vec<Connection>,
    /// Must outlive the connections: MPTCP subflows join through it, and without it they fail
    /// silently.
    _listener: OwnedFd,
}

impl Connections {
    pub(super) fn establish(fabric: &Fabric, wanted: &Wanted<'_>) -> Result<Connections> {
        let Wanted { receiver, family, .. } = *wanted;
        let listener = fabric.within(receiver, || listen(wanted))?;
        let listener = listener.with_context(|| format!("listen in {receiver}"))?;
        let target = SocketAddr::new(fabric.host_address(receiver, family)?, PORT);
        let mut all = Vec::new();
        for sender in wanted.senders {
            for _ in 0..wanted.flows_per_sender {
                let near = fabric.within(*sender, || connect(wanted, target))?;
                let near =
                    near.with_context(|| format!("{sender} cannot connect to {receiver}"))?;
                let far = accept(&listener)
                    .with_context(|| format!("{receiver} cannot accept {sender}"))?;
                all.push(Connection { sender: near, receiver: far });
            }
        }
        thread::sleep(SETTLE);
        Ok(Connections { all, _listener: listener })
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for connection in &self.all {
            for end in [&connection.sender, &connection.receiver] {
                let _ = sockopt::set_socket_linger(end, Some(Duration::ZERO));
            }
        }
    }
}

fn socket(wanted: &Wanted<'_>) -> Result<OwnedFd> {
    let domain = match wanted.family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let protocol: Option<Protocol> = wanted.mptcp.then_some(ipproto::MPTCP);
    let socket =
        rustix::net::socket_with(domain, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)
            .context(if wanted.mptcp {
                "MPTCP socket (needs CONFIG_MPTCP)"
            } else {
                "TCP socket"
            })?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let name = wanted.congestion.name();
    sockopt::set_tcp_congestion(&socket, name).with_context(|| {
        format!(
            "this kernel refuses congestion control `{name}` (modprobe tcp_{name}, or run as root)"
        )
    })?;
    Ok(socket)
}

fn listen(wanted: &Wanted<'_>) -> Result<OwnedFd> {
    let any: IpAddr = match wanted.family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = socket(wanted)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(CONNECT_MAX))?;
    rustix::net::bind(&socket, &SocketAddr::new(any, PORT)).context("bind")?;
    // The port of a listener just closed is free in a moment: see `Fabric::udp_socket`.
    for _ in 0..LISTEN_TRIES_MAX {
        match rustix::net::listen(&socket, BACKLOG) {
            Err(Errno::ADDRINUSE) => thread::sleep(Duration::from_millis(1)),
            result => return result.map(|()| socket).context("listen"),
        }
    }
    anyhow::bail!("port {PORT} is in use: another measurement runs in this host")
}

fn connect(wanted: &Wanted<'_>, target: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(wanted)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_MAX))?;
    rustix::net::connect(&socket, &target)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

fn accept(listener: &OwnedFd) -> Result<OwnedFd> {
    let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// Sends what fits; `None` if nothing does right now.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<Option<usize>> {
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error).context("send"),
    }
}

/// Receives what is there; `None` if nothing is right now. The other end of these connections
/// never closes first, so the end of the stream is an error.
pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>> {
    match rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT) {
        Ok((0, _)) => anyhow::bail!("connection closed"),
        Ok((count, _)) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error).context("receive"),
    }
}

/// An answer makes the kernel take the connection for an interactive one and delay its
/// acknowledgements, which would tame the next round's bursts by a tenth. This takes it back.
pub(super) fn stay_one_way(socket: &OwnedFd) -> Result<()> {
    match sockopt::set_tcp_quickack(socket, true) {
        // An MPTCP socket has no such option: its subflows keep their own counsel.
        Err(rustix::io::Errno::NOPROTOOPT | rustix::io::Errno::OPNOTSUPP) => Ok(()),
        other => other.context("TCP_QUICKACK"),
    }
}
