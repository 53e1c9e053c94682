//! Established TCP or MPTCP connections between hosts of the fabric; this process has both ends.

use super::{Congestion, Subflows};
use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto,
};
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use srd_lab::id::{Family, HostId, Network};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// Longest time to establish a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time after the last handshake in which MPTCP joins its subflows and the last segments arrive.
const SETTLE: Duration = Duration::from_millis(200);
/// Backlog of a listener: the maximum number of connections that wait for `accept`.
const BACKLOG: i32 = 512;
/// Largest number of attempts to listen, one each millisecond.
const LISTEN_TRIES_MAX: u32 = 500;
/// Port on which the receivers listen.
const PORT: u16 = 7000;

/// Largest number of flows of one measurement.
pub const FLOWS_MAX: u64 = 1024;

/// Parameters of a set of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Sender and receiver of each pair of hosts.
    pub pairs: Vec<(HostId, HostId)>,
    /// Number of connections of each pair of hosts.
    pub flows_per_pair: usize,
    /// Network of the fabric whose addresses the connections use.
    pub network: Network,
    /// Congestion control of the kernel for the connections.
    pub congestion: Congestion,
    /// Number of extra MPTCP subflows per connection; zero for plain TCP.
    pub mptcp_subflows: u16,
    /// Source port of the first connection; each further connection uses the next port. With `None`
    /// the kernel chooses the source ports.
    pub first_port: Option<u16>,
}

impl Flows {
    /// Checks the number of flows, and configures the MPTCP subflows of the hosts until the
    /// returned value is dropped.
    pub(super) fn prepare<'a>(&self, fabric: &'a Fabric) -> Result<Subflows<'a>> {
        let flows = self.pairs.len() * self.flows_per_pair;
        check("pairs * flows_per_pair", flows as u64, 1..=FLOWS_MAX)?;
        Subflows::set(fabric, self.mptcp_subflows, self.network.family())
    }
}

/// An established connection with both of its sockets, which are non-blocking.
pub(super) struct Connection {
    pub(super) sender: OwnedFd,
    pub(super) receiver: OwnedFd,
}

/// Established connections, in the order of the pairs. Dropping them resets the connections, so
/// that their packets in flight cannot disturb later connections.
pub(super) struct Connections {
    pub(super) all: Vec<Connection>,
    /// Listeners of the receivers. They must outlive the connections: MPTCP subflows join through a
    /// listener, and without it they fail silently.
    _listeners: BTreeMap<HostId, OwnedFd>,
}

impl Connections {
    pub(super) fn establish(fabric: &Fabric, flows: &Flows) -> Result<Connections> {
        let mut listeners = BTreeMap::new();
        for (_, receiver) in &flows.pairs {
            if !listeners.contains_key(receiver) {
                let listener = fabric.within(*receiver, || listen(flows))?;
                listeners
                    .insert(*receiver, listener.with_context(|| format!("listen in {receiver}"))?);
            }
        }
        let mut all = Vec::new();
        for (sender, receiver) in &flows.pairs {
            let target = SocketAddr::new(fabric.address_in(*receiver, flows.network)?, PORT);
            for _ in 0..flows.flows_per_pair {
                let port = source_port(flows, all.len())?;
                let near = fabric.within(*sender, || connect(flows, target, port))?;
                let near =
                    near.with_context(|| format!("{sender} cannot connect to {receiver}"))?;
                let far = accept(&listeners[receiver])
                    .with_context(|| format!("{receiver} cannot accept {sender}"))?;
                all.push(Connection { sender: near, receiver: far });
            }
        }
        thread::sleep(SETTLE);
        Ok(Connections { all, _listeners: listeners })
    }
}

fn source_port(flows: &Flows, number: usize) -> Result<Option<u16>> {
    let Some(first) = flows.first_port else { return Ok(None) };
    let port = u16::try_from(number).ok().and_then(|number| first.checked_add(number));
    port.map(Some).context("more connections than source ports")
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

/// Connects a socket in the calling thread's network namespace to the listener at `target`. The
/// returned socket is non-blocking.
pub(crate) fn connect_to(
    target: SocketAddr,
    congestion: Congestion,
    mptcp: bool,
) -> Result<OwnedFd> {
    let family = if target.is_ipv4() { Family::V4 } else { Family::V6 };
    let socket = socket(family, congestion, mptcp)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_MAX))?;
    rustix::net::connect(&socket, &target)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

fn socket(family: Family, congestion: Congestion, mptcp: bool) -> Result<OwnedFd> {
    let domain = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let protocol: Option<Protocol> = mptcp.then_some(ipproto::MPTCP);
    let socket =
        rustix::net::socket_with(domain, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)
            .context(if mptcp { "MPTCP socket (needs CONFIG_MPTCP)" } else { "TCP socket" })?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let name = congestion.name();
    sockopt::set_tcp_congestion(&socket, name).with_context(|| {
        format!(
            "this kernel refuses congestion control `{name}` (modprobe tcp_{name}, or run as root)"
        )
    })?;
    Ok(socket)
}

fn listen(flows: &Flows) -> Result<OwnedFd> {
    let any = flows.network.unspecified();
    let socket = socket(flows.network.family(), flows.congestion, flows.mptcp_subflows > 0)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(CONNECT_MAX))?;
    rustix::net::bind(&socket, &SocketAddr::new(any, PORT)).context("bind")?;
    // The port of a listener that was just closed is in use for a moment longer; see
    // `Fabric::udp_socket`.
    for _ in 0..LISTEN_TRIES_MAX {
        match rustix::net::listen(&socket, BACKLOG) {
            Err(Errno::ADDRINUSE) => thread::sleep(Duration::from_millis(1)),
            result => return result.map(|()| socket).context("listen"),
        }
    }
    anyhow::bail!("port {PORT} is in use: another measurement runs in this host")
}

fn connect(flows: &Flows, target: SocketAddr, port: Option<u16>) -> Result<OwnedFd> {
    let socket = socket(flows.network.family(), flows.congestion, flows.mptcp_subflows > 0)?;
    if let Some(port) = port {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddr::new(flows.network.unspecified(), port))
            .with_context(|| format!("source port {port}"))?;
    }
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

/// Sends as many bytes as the socket's buffer can hold; returns `None` if it is full.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<Option<usize>> {
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error).context("send"),
    }
}

/// Sends until `left` bytes are sent or the socket's buffer is full. In the second case epoll
/// reports when the socket is writable again.
pub(super) fn push(socket: &OwnedFd, chunk: &[u8], left: &mut u64) -> Result<()> {
    while *left > 0 {
        let size = usize::try_from(*left).unwrap_or(usize::MAX).min(chunk.len());
        let Some(sent) = send(socket, &chunk[..size])? else { break };
        *left -= sent as u64;
    }
    Ok(())
}

/// Receives the available bytes; returns `None` if no bytes are available. The end of the stream is
/// an error, because the other end of a measured connection never closes first.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>> {
    match rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT) {
        Ok((0, _)) => anyhow::bail!("connection closed"),
        Ok((count, _)) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error).context("receive"),
    }
}

/// Switches the socket back to immediate acknowledgements (`TCP_QUICKACK`). After an answer the
/// kernel classifies the connection as interactive and delays its acknowledgements, which would
/// reduce the bursts of the next round by a tenth.
pub(super) fn stay_one_way(socket: &OwnedFd) -> Result<()> {
    match sockopt::set_tcp_quickack(socket, true) {
        // An MPTCP socket does not have the option, and its subflows keep their own setting.
        Err(rustix::io::Errno::NOPROTOOPT | rustix::io::Errno::OPNOTSUPP) => Ok(()),
        other => other.context("TCP_QUICKACK"),
    }
}
