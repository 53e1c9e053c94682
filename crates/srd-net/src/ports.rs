//! A run of consecutive ports of each local address, one socket on each; if that is allowed, with
//! others in place of ports that are taken, and with fewer where descriptors are scarce.

use std::io;
use std::net::SocketAddr;

use crate::options::UdpOptions;
use crate::sys::os;
use crate::sys::socket::Socket;

/// Attempts to find a free run of ports when none was asked for.
const PORT_ATTEMPTS_MAX: usize = 64;

/// Sockets bound to consecutive ports, one for each path; behind them one at the base port of each
/// further local address.
pub(crate) fn bind(options: &UdpOptions) -> io::Result<Vec<Socket>> {
    // Numbers are given from the lowest on: the newest one tells how many are in use. Half of them
    // are left to the application, and to endpoints that are still to come.
    let descriptors_max = if options.paths_anywhere { os::descriptors_max() / 2 } else { u64::MAX };
    if options.address.port() != 0 {
        return bind_from(options, options.address.port(), descriptors_max);
    }
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..PORT_ATTEMPTS_MAX {
        let mut random = [0; 2];
        os::random(&mut random)?;
        // Between the well-known ports and the system's usual ephemeral range.
        let base = 10_000 + u16::from_ne_bytes(random) % 22_000;
        match bind_from(options, base, descriptors_max) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            other => return other,
        }
    }
    Err(last)
}

fn bind_from(options: &UdpOptions, base: u16, descriptors_max: u64) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::with_capacity(usize::from(options.paths));
    let further = options.further.iter().map(|ip| SocketAddr::new(*ip, base));
    let locals: Vec<SocketAddr> = std::iter::once(options.address).chain(further).collect();
    for (path, local) in (0..options.paths).zip(locals.iter().cycle()) {
        let first = usize::from(path) < locals.len();
        let port = match base.checked_add(path) {
            // Any port: there is none behind the last one.
            None if options.paths_anywhere => Some(0),
            port => port,
        };
        let Some(port) = port else {
            let text = format!("{} paths from port {base} on exceed 65,535", options.paths);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let mut address = *local;
        address.set_port(port);
        let socket = Socket::new(&address)?;
        if !first && socket.number() >= descriptors_max {
            break;
        }
        if path > 0 {
            socket.deaf()?;
        }
        let mut bound = socket.bind(&address);
        if path > 0 && options.paths_anywhere && is_taken(&bound) {
            address.set_port(0);
            bound = socket.bind(&address);
        }
        bound.map_err(|e| {
            let advice = if e.kind() == io::ErrorKind::AddrInUse {
                "; choose another base port or fewer paths"
            } else {
                ""
            };
            io::Error::new(e.kind(), format!("cannot bind {address} (path {path}): {e}{advice}"))
        })?;
        sockets.push(socket);
    }
    for local in &locals[1..] {
        let socket = Socket::new(local)?;
        let refused = |e: io::Error| io::Error::new(e.kind(), format!("cannot bind {local}: {e}"));
        socket.bind(local).map_err(refused)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

fn is_taken(bound: &io::Result<()>) -> bool {
    bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// Two ports side by side: one free, and one that is taken.
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
        let refused = bind(&options(base, false)).unwrap_err();
        assert!(refused.to_string().contains("path 1"), "{refused}");
        let sockets = bind(&options(base, true)).unwrap();
        let ports: std::collections::BTreeSet<u16> =
            sockets.iter().map(|socket| socket.local_address().unwrap().port()).collect();
        assert_eq!((ports.len(), sockets[0].local_address().unwrap().port()), (4, base));
    }

    #[test]
    fn where_descriptors_are_scarce_there_are_fewer_paths_but_one() {
        let (base, _taken) = neighbours();
        let options = options(base, true);
        assert_eq!(bind_from(&options, base, 0).unwrap().len(), 1);
        assert_eq!(bind_from(&options, base, u64::MAX).unwrap().len(), 4);
    }

    #[test]
    fn the_base_port_itself_must_be_free() {
        let (_, taken) = neighbours();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(bind(&options(port, true)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
