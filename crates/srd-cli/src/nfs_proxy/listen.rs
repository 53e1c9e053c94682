//! Listening socket of one half of the proxy. Either systemd or [`keep`](super::keep) passes an
//! open socket to the half, or the half opens a socket.

use super::NfsProxyArgs;
use crate::failure::{Missing, Usage};
use anyhow::{Context, Result};
use listenfd::ListenFd;
use srd_nfs::dial::TLS_PORT;
use srd_nfs::limits::UNPRIVILEGED_PORT;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Default port of the client's half: below 1024, and not registered for a service.
pub(super) const LOCAL_PORT: u16 = 225;
/// File of the kernel that contains the first port that every user may bind.
const FIRST_PORT_FILE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// A listening socket that was passed to this process, or the address of a socket to open.
#[derive(Debug)]
pub(super) struct Listen {
    /// Address at which the socket listens or will listen.
    pub(super) at: SocketAddr,
    handed_over: Option<TcpListener>,
}

impl Listen {
    /// Takes the socket that `LISTEN_FDS` describes (sd_listen_fds(3)), if there is one. This
    /// removes the variables from the environment, so it must run before other threads exist.
    pub(super) fn new(args: &NfsProxyArgs) -> Result<Self> {
        let mut sockets = ListenFd::from_env();
        let count = sockets.len();
        if count > 1 {
            let text = format!("{count} sockets are handed over by LISTEN_FDS; a half has one");
            return Err(Usage(text).into());
        }
        let handed_over = sockets.take_tcp_listener(0).map_err(|e| {
            Usage(format!("LISTEN_FDS hands over something other than a TCP socket: {e}"))
        })?;
        let default = if args.serve {
            (Ipv4Addr::UNSPECIFIED, TLS_PORT)
        } else {
            (Ipv4Addr::LOCALHOST, LOCAL_PORT)
        };
        let given = args.listen;
        let at = match &handed_over {
            Some(listener) => listener.local_addr().context("the socket of LISTEN_FDS")?,
            None => given.unwrap_or_else(|| default.into()),
        };
        // Port 0 in --listen matches the port of any passed socket.
        let is_at =
            |given: &SocketAddr| given.ip() == at.ip() && [0, at.port()].contains(&given.port());
        if let Some(given) = given.filter(|given| !is_at(given)) {
            let text = format!(
                "LISTEN_FDS hands over a socket at {at}, and --listen says {given}: leave it out, \
                 or change ListenStream= of the socket's unit"
            );
            return Err(Usage(text).into());
        }
        check_port(at, args)?;
        Ok(Self { at, handed_over })
    }

    /// Returns the passed socket, or opens one at the address.
    pub(super) fn open(self) -> Result<TcpListener> {
        let at = self.at;
        if let Some(listener) = self.handed_over {
            return Ok(listener);
        }
        TcpListener::bind(at).map_err(|error| {
            if error.kind() == ErrorKind::PermissionDenied {
                let text = format!(
                    "cannot listen at {at}: ports below {UNPRIVILEGED_PORT} need root or \
                     CAP_NET_BIND_SERVICE, which the units of the package have"
                );
                return Missing(text).into();
            }
            anyhow::Error::new(error).context(format!("cannot listen at {at}"))
        })
    }
}

/// Returns an error if any user may bind the port, because the kernel mounts from whatever process
/// listens at it.
fn check_port(at: SocketAddr, args: &NfsProxyArgs) -> Result<(), Usage> {
    let is_free_for_all = at.port() == 0 || at.port() >= UNPRIVILEGED_PORT;
    if args.serve || args.probe || args.unprivileged_port || !is_free_for_all {
        return Ok(());
    }
    Err(Usage(format!(
        "{at}: any user may listen at a port from {UNPRIVILEGED_PORT} on before this process does, \
         and would be the server that root mounts: listen at one below, or give \
         --unprivileged-port"
    )))
}

/// Warns if the system lets every user bind ports below 1024.
pub(super) fn warn_of_lowered_ports(args: &NfsProxyArgs) {
    let is_meant = args.serve || (args.unprivileged_port && args.any_user);
    let first = fs::read_to_string(FIRST_PORT_FILE).ok().and_then(|text| text.trim().parse().ok());
    let first: u16 = first.unwrap_or(UNPRIVILEGED_PORT);
    if first < UNPRIVILEGED_PORT && !is_meant {
        tracing::warn!(
            target: "srd_nfs",
            "net.ipv4.ip_unprivileged_port_start is {first}: any user may have ports from there \
             on, and so be the server that is mounted, or speak NFS as anybody; set it to \
             {UNPRIVILEGED_PORT}"
        );
    }
}
