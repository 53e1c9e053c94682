//! Transfer of sockets from one process to another.

use std::io;
use std::os::fd::OwnedFd;

use super::{UdpIo, check};
use crate::back_ends::ports;
use crate::endpoints::options::UdpOptions;
use crate::sys::udp::socket::Socket;

/// Origin of the sockets of a back end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// This process has opened them.
    Opened,
    /// Another process has opened them, and has set their buffers and their mark.
    Adopted,
}

impl UdpIo {
    /// Makes a back end of the sockets of another process
    /// ([`PacketIo::sockets`](crate::PacketIo::sockets)), in the same order. The options must have
    /// as many further addresses as those of the other process. The sockets keep their buffers and
    /// their mark, so that this call takes no privilege. The other process must no longer read the
    /// sockets.
    ///
    /// # Errors
    /// An error of the operating system, or an error if the number of sockets does not fit the
    /// options.
    pub fn adopt(options: &UdpOptions, sockets: Vec<OwnedFd>) -> io::Result<Self> {
        check(options)?;
        let further = options.further.len();
        let paths = sockets.len().saturating_sub(further);
        if paths <= further || paths > usize::from(options.paths) {
            let count = sockets.len();
            let text = format!(
                "{count} sockets for {} paths and {} addresses",
                options.paths,
                1 + further
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let receivers = std::iter::once(0).chain(paths..sockets.len()).collect();
        let sockets = sockets.into_iter().map(Socket::adopt).collect::<io::Result<_>>()?;
        Self::over(options, ports::Bound { sockets, receivers }, Origin::Adopted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketIo;

    #[test]
    fn another_process_has_the_addresses_paths_and_buffers_of_the_first() {
        let mut options = UdpOptions::new("127.0.0.1:0".parse().unwrap());
        options.further = vec!["127.0.0.2".parse().unwrap()];
        options.paths = 4;
        for first in UdpIo::open_shards(&options, 2).unwrap() {
            // The sockets have this mark and these buffers already. Setting them takes privilege.
            options.mark = Some(7);
            options.receive_buffer_bytes = 1;
            let next = UdpIo::adopt(&options, first.sockets().unwrap()).unwrap();
            assert_eq!((next.paths(), next.local_addresses()), (4, 2));
            for place in 0..2 {
                assert_eq!(next.local_address_at(place), first.local_address_at(place));
            }
            assert_eq!(next.receive_buffer_bytes(), first.receive_buffer_bytes());
            let all = next.sockets().unwrap();
            assert_eq!(all.len(), 5);
            let few = all.into_iter().take(2).collect();
            assert!(UdpIo::adopt(&options, few).is_err(), "a path for each address");
        }
    }
}
