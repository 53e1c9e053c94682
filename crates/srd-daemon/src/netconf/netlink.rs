//! A netlink socket for network configuration: sends one request at a time, reads its answer, and
//! receives notifications.
//!
//! A call blocks for at most [`ANSWER_WAIT_MAX`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::sockopt;

/// Longest wait for an answer. The kernel usually answers at once; after this time no answer is
/// expected.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Largest number of objects in one answer: twice the number of routes with 1024 peers of 256
/// prefixes each.
const DUMP_MESSAGES_MAX: usize = 1 << 19;

/// A socket for requests to the kernel's network configuration.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Netlink")
    }
}

impl Netlink {
    /// Opens a socket for requests.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // With strict checking the kernel filters the answer by table. A router may have a million
        // routes, and only one table is ours.
        socket.set_netlink_get_strict_chk(true)?;
        let timeout = Some(ANSWER_WAIT_MAX);
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Opens a socket that receives the notifications of the given multicast groups.
    pub(super) fn watch(groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Requests a change, and waits until the kernel has confirmed it.
    pub(super) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK | flags).map(drop)
    }

    /// Returns all objects that match a request.
    pub(super) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.exchange(message, NLM_F_DUMP)
    }

    /// Returns the object that matches a request. The kernel sends the object and then an
    /// acknowledgement.
    pub(super) fn one(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        Ok(self.exchange(message, NLM_F_ACK)?.pop())
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut found = Vec::new();
        loop {
            let bytes = match self.socket.recv_from_full() {
                Ok((bytes, _)) => bytes,
                // This process was stopped and continued.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            for (header, payload) in messages(&bytes)? {
                if header.sequence_number == self.sequence && take(payload, &mut found)? {
                    return Ok(found);
                }
            }
        }
    }

    /// Returns the notifications since the last call. Never waits. An error of kind `OutOfMemory`
    /// means that notifications were lost.
    pub(super) fn notifications(&self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut found = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => {
                    for (_, payload) in messages(&bytes)? {
                        if let NetlinkPayload::InnerMessage(inner) = payload {
                            found.push(inner);
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(found),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

type Payload = NetlinkPayload<RouteNetlinkMessage>;

/// Adds a message of the kernel's answer to the objects. Returns whether it is the last one.
fn take(payload: Payload, found: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    match payload {
        // The kernel may begin an answer, and then report an error.
        NetlinkPayload::Done(done) if done.code < 0 => {
            Err(io::Error::from_raw_os_error(done.code.saturating_neg()))
        }
        NetlinkPayload::Done(_) => Ok(true),
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(true),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        NetlinkPayload::InnerMessage(inner) if found.len() < DUMP_MESSAGES_MAX => {
            found.push(inner);
            Ok(false)
        }
        _ => Err(io::Error::other("the kernel's answer is too long")),
    }
}

/// Splits a datagram from the kernel into its messages.
fn messages(bytes: &[u8]) -> io::Result<Vec<(NetlinkHeader, Payload)>> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while rest.len() >= 16 {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
            .map_err(|e| io::Error::other(format!("a message of the kernel's: {e}")))?;
        let length = usize::try_from(message.header.length).unwrap_or(0).next_multiple_of(4);
        if length == 0 {
            break;
        }
        rest = rest.get(length..).unwrap_or_default();
        found.push((message.header, message.payload));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::DoneMessage;

    use super::*;

    #[test]
    fn regression_an_answer_that_ends_with_an_error_is_not_a_complete_one() {
        let end = |code| {
            let mut done = DoneMessage::default();
            done.code = code;
            take(NetlinkPayload::Done(done), &mut Vec::new())
        };
        assert!(end(0).unwrap());
        assert_eq!(end(-105).unwrap_err().raw_os_error(), Some(105), "ENOBUFS");
    }
}
