//! A run of consecutive ports, one socket on each.

use std::io;

use crate::sys::os;
use crate::sys::socket::Socket;
use crate::udp::UdpOptions;

/// Attempts to find a free run of ports when none was asked for.
const PORT_ATTEMPTS_MAX: usize = 64;

/// Sockets bound to consecutive ports.
pub(crate) fn bind(options: &UdpOptions) -> io::Result<Vec<Socket>> {
    if options.address.port() != 0 {
        return bind_from(options, options.address.port());
    }
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..PORT_ATTEMPTS_MAX {
        let mut random = [0; 2];
        os::random(&mut random)?;
        // Between the well-known ports and the system's usual ephemeral range.
        let base = 10_000 + u16::from_ne_bytes(random) % 22_000;
        match bind_from(options, base) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            other => return other,
        }
    }
    Err(last)
}

fn bind_from(options: &UdpOptions, base: u16) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::with_capacity(usize::from(options.paths));
    for path in 0..options.paths {
        let Some(port) = base.checked_add(path) else {
            let text = format!("{} paths from port {base} on exceed 65,535", options.paths);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let mut address = options.address;
        address.set_port(port);
        let socket = Socket::new(&address)?;
        if path > 0 {
            socket.deaf()?;
        }
        socket.bind(&address).map_err(|e| {
            let advice = if e.kind() == io::ErrorKind::AddrInUse {
                "; choose another base port or fewer paths"
            } else {
                ""
            };
            io::Error::new(e.kind(), format!("cannot bind {address} (path {path}): {e}{advice}"))
        })?;
        sockets.push(socket);
    }
    Ok(sockets)
}
