//! Transfer of sockets from one process to another.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::{UdpIo, check};
use crate::back_ends::ports;
use crate::endpoints::options::UdpOptions;
use crate::sys::udp::socket::Socket;

impl UdpIo {
    /// Makes a back end of the sockets of another process ([`UdpIo::sockets`]): one for each path,
    /// all at one address. The other process must no longer read the sockets.
    ///
    /// # Errors
    /// An error of the operating system, or an error if there is no socket or more sockets than
    /// paths.
    pub fn adopt(options: &UdpOptions, sockets: Vec<OwnedFd>) -> io::Result<Self> {
        check(options)?;
        if sockets.is_empty() || sockets.len() > usize::from(options.paths) {
            let text = format!("{} sockets for {} paths", sockets.len(), options.paths);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let sockets = sockets.into_iter().map(Socket::adopt).collect::<io::Result<_>>()?;
        Self::over(options, ports::Bound { sockets, receivers: vec![0] })
    }

    /// Returns descriptors of the sockets of all paths, for another process that continues with
    /// them.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    pub fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }
}
