//! Consecutive free ports of each local address, with one socket on each port. If permitted, other
//! ports replace ports that are taken. If descriptors are scarce, there are fewer sockets.
//!
//! The ports of the shards of a node follow each other. Exception: the first path of every shard
//! sends from the base port, where all shards receive; the kernel hands each packet to its shard.

use std::io;
use std::net::SocketAddr;

use crate::endpoints::options::UdpOptions;
use crate::sys::udp::socket::Socket;
use crate::sys::{errno, os};

/// Largest number of attempts to find consecutive free ports, if no base port was requested.
const PORT_ATTEMPTS_MAX: usize = 64;

/// The sockets of one shard.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Sockets: one for each path, then sockets that only receive, at further local addresses.
    pub(crate) sockets: Vec<Socket>,
    /// Index of the socket that receives, for each local address.
    pub(crate) receivers: Vec<usize>,
}

impl Bound {
    /// Returns the number of paths.
    pub(crate) fn paths(&self) -> usize {
        self.sockets.len() - (self.receivers.len() - 1)
    }
}

/// Binds the sockets of each shard: one socket for each path, at consecutive ports from the base
/// port on, and one socket at the base port of each further local address.
pub(crate) fn bind(options: &UdpOptions, shards: u8) -> io::Result<Vec<Bound>> {
    // The system assigns the lowest free descriptor number, so the newest number shows how many
    // descriptors are in use. Half of all descriptors are left for the application and for later
    // endpoints.
    let descriptors_max = if options.paths_anywhere { os::descriptors_max() / 2 } else { u64::MAX };
    if options.address.port() != 0 {
        return bind_shards(options, shards, options.address.port(), descriptors_max);
    }
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..PORT_ATTEMPTS_MAX {
        let mut random = [0; 2];
        os::random(&mut random)?;
        // The base port is chosen below the system's usual ephemeral range, and above the
        // well-known ports.
        let base = 10_000 + u16::from_ne_bytes(random) % 22_000;
        match bind_shards(options, shards, base, descriptors_max) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            other => return other,
        }
    }
    Err(last)
}

fn bind_shards(
    options: &UdpOptions,
    shards: u8,
    base: u16,
    descriptors_max: u64,
) -> io::Result<Vec<Bound>> {
    let run = |shard| bind_run(options, (shard, shards), base, descriptors_max);
    let bound = (0..shards).map(run).collect::<io::Result<Vec<Bound>>>()?;
    if shards > 1 {
        for receiver in &bound[0].receivers {
            bound[0].sockets[*receiver].steer(shards)?;
        }
    }
    Ok(bound)
}

/// Binds the sockets of one shard.
fn bind_run(
    options: &UdpOptions,
    (shard, shards): (u8, u8),
    base: u16,
    descriptors_max: u64,
) -> io::Result<Bound> {
    let mut sockets = Vec::with_capacity(usize::from(options.paths));
    let behind = options.paths.saturating_mul(shard.into());
    let further = options.further.iter().map(|ip| SocketAddr::new(*ip, base));
    let locals: Vec<SocketAddr> = std::iter::once(options.address).chain(further).collect();
    for (path, local) in (0..options.paths).zip(locals.iter().cycle()) {
        let first = usize::from(path) < locals.len();
        // H16. The first path of every shard sends from the port at which all shards listen,
        // because the request for a cookie goes back to the source port of the opening packet.
        let receives = path == 0;
        let offset = if receives { Some(0) } else { behind.checked_add(path) };
        let port = match offset.and_then(|offset| base.checked_add(offset)) {
            // There is no consecutive port after port 65,535, so the system chooses a port.
            None if options.paths_anywhere => Some(0),
            port => port,
        };
        let Some(port) = port else {
            let paths = u32::from(options.paths) * u32::from(shards);
            let text = format!("{paths} paths from port {base} on exceed 65,535");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let mut address = *local;
        address.set_port(port);
        let socket = Socket::new(&address).map_err(|e| of_family(&address, e))?;
        if !first && socket.number() >= descriptors_max {
            break;
        }
        if !receives {
            socket.drop_all()?;
        } else if shards > 1 {
            socket.share_address()?;
        }
        let mut bound = socket.bind(&address);
        if !receives && options.paths_anywhere && is_taken(&bound) {
            address.set_port(0);
            bound = socket.bind(&address);
        }
        bound.map_err(|e| {
            let advice = match e.kind() {
                io::ErrorKind::AddrInUse => {
                    ": another program has this port (`ss -aulnp` shows which); choose another \
                     base port"
                }
                io::ErrorKind::AddrNotAvailable => {
                    ": this machine does not have the address (`ip addr` shows what it has)"
                }
                _ => "",
            };
            io::Error::new(e.kind(), format!("cannot bind {address} (path {path}): {e}{advice}"))
        })?;
        sockets.push(socket);
    }
    let mut receivers = vec![0];
    for local in &locals[1..] {
        let mut local = *local;
        local.set_port(base);
        let socket = Socket::new(&local)?;
        let refused = |e: io::Error| io::Error::new(e.kind(), format!("cannot bind {local}: {e}"));
        if shards > 1 {
            socket.share_address()?;
        }
        socket.bind(&local).map_err(refused)?;
        receivers.push(sockets.len());
        sockets.push(socket);
    }
    Ok(Bound { sockets, receivers })
}

/// Returns the reason why a socket of this address family cannot be made.
fn of_family(address: &SocketAddr, error: io::Error) -> io::Error {
    let is_unknown = errno(&error) == libc::EAFNOSUPPORT;
    if !(is_unknown && address.is_ipv6()) {
        return error;
    }
    let text = format!(
        "cannot bind {address}: {error}: IPv6 is switched off in this kernel; choose an IPv4 \
         address, or 0.0.0.0 for all"
    );
    io::Error::new(error.kind(), text)
}

fn is_taken(bound: &io::Result<()>) -> bool {
    bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// Finds two consecutive ports: the first is free, the second is taken.
    fn neighbours() -> (u16, UdpSocket) {
        for _ in 0..PORT_ATTEMPTS_MAX {
            let free = UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            if let Ok(taken) = UdpSocket::bind(("127.0.0.1", port.saturating_add(1))) {
                return (port, taken);
            }
        }
        panic!("no two ports side by side are free");
    }

    fn options(port: u16, paths_anywhere: bool) -> UdpOptions {
        let mut options = UdpOptions::new(([127, 0, 0, 1], port).into());
        options.paths = 4;
        options.paths_anywhere = paths_anywhere;
        options
    }

    #[test]
    fn a_taken_port_behind_the_base_is_passed_over_if_that_is_allowed() {
        let (base, _taken) = neighbours();
        let refused = bind(&options(base, false), 1).unwrap_err();
        assert!(refused.to_string().contains("path 1"), "{refused}");
        let bound = bind(&options(base, true), 1).unwrap().remove(0);
        let (paths, sockets) = (bound.paths(), bound.sockets);
        let ports: std::collections::BTreeSet<u16> =
            sockets.iter().map(|socket| socket.local_address().unwrap().port()).collect();
        assert_eq!((ports.len(), sockets[0].local_address().unwrap().port()), (4, base));
        assert_eq!(paths, 4);
    }

    #[test]
    fn where_descriptors_are_scarce_there_are_fewer_paths_but_one() {
        let (base, _taken) = neighbours();
        let options = options(base, true);
        let paths =
            |descriptors_max| bind_run(&options, (0, 1), base, descriptors_max).unwrap().paths();
        assert_eq!((paths(0), paths(u64::MAX)), (1, 4));
    }

    #[test]
    fn the_base_port_itself_must_be_free() {
        let (_, taken) = neighbours();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(bind(&options(port, true), 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn shards_send_from_ports_of_their_own_but_one_and_receive_at_that() {
        let mut options = options(0, false);
        options.further = vec!["127.0.0.2".parse().unwrap()];
        let bound = bind(&options, 3).unwrap();
        let address = |socket: &Socket| socket.local_address().unwrap();
        let base = address(&bound[0].sockets[0]).port();
        let mut sources = std::collections::BTreeSet::new();
        for (n, shard) in (0u16..).zip(&bound) {
            assert_eq!(shard.paths(), 4);
            let own: Vec<u16> = shard.sockets[..4].iter().map(|s| address(s).port()).collect();
            let first = base + 4 * n;
            assert_eq!(own, [base, first + 1, first + 2, first + 3], "the first is that of all");
            sources.extend(own);
            let at = shard.receivers.iter().map(|at| address(&shard.sockets[*at]).to_string());
            let wanted = [format!("127.0.0.1:{base}"), format!("127.0.0.2:{base}")];
            assert_eq!(at.collect::<Vec<_>>(), wanted);
        }
        assert_eq!(sources.len(), 3 * 3 + 1);
    }
}
