//! Gathering sends: the kernel reads the bytes of a batch where they are, without an earlier copy.
//! There is one `sendmsg` for each batch (cut into datagrams by `UDP_SEGMENT`), or one `sendmmsg`
//! for several batches.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use srd_proto::transmit::{Ecn, Transmit};

use super::call;
use super::cmsg::Control;
use super::socket::Socket;
use crate::back_ends::io::Segments;
use crate::sys::addr::SockAddr;
use crate::sys::check;

/// Largest number of messages in one `sendmmsg`; the kernel accepts up to 1,024.
const MESSAGES_MAX: usize = 64;
/// Largest number of pieces of one message (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;

/// The arrays that describe messages to the kernel. They hold pointers only inside a call.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pieces: Vec<libc::iovec>,
    messages: Vec<Message>,
    headers: Vec<libc::mmsghdr>,
}

/// One message, before the structure that describes it to the kernel (`mmsghdr`) is built.
#[derive(Debug)]
struct Message {
    name: SockAddr,
    name_length: u32,
    control: Control,
    pieces_end: usize,
}

// SAFETY: the raw pointers in the vectors are never dereferenced outside the method that put
// them there, and are removed before it returns.
unsafe impl Send for Sender {}

impl Sender {
    /// Sends as many of `batches` as the socket accepts; the kernel cuts each batch that has
    /// several segments. Returns the number of sent batches.
    ///
    /// # Errors
    /// The error of the first batch; in this case no batch was sent.
    pub(crate) fn send_batches<S: Segments>(
        &mut self,
        socket: &Socket,
        default_ecn: Ecn,
        batches: &[(Transmit, S)],
    ) -> io::Result<usize> {
        self.clear();
        let batches = &batches[..batches.len().min(MESSAGES_MAX)];
        for batch in batches {
            let (transmit, segments) = batch;
            let first = self.pieces.len();
            for (head, payload) in segments.parts() {
                self.add_piece(first, head);
                self.add_piece(first, payload);
            }
            if self.pieces.len() - first > PIECES_MAX {
                self.clear();
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            let size = if transmit.segments > 1 { transmit.segment_bytes } else { 0 };
            self.end_message(socket, &transmit.destination, transmit.ecn, default_ecn, size);
        }
        self.submit(socket)
    }

    /// Sends the segments of one batch as single messages, from the `skip`th on, for kernels and
    /// devices without segmentation. Returns the number of sent segments.
    pub(crate) fn send_segments<S: Segments>(
        &mut self,
        socket: &Socket,
        default_ecn: Ecn,
        (transmit, segments): &(Transmit, S),
        skip: usize,
    ) -> io::Result<usize> {
        self.clear();
        for (head, payload) in segments.parts().skip(skip).take(MESSAGES_MAX) {
            let first = self.pieces.len();
            self.add_piece(first, head);
            self.add_piece(first, payload);
            self.end_message(socket, &transmit.destination, transmit.ecn, default_ecn, 0);
        }
        self.submit(socket)
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.messages.clear();
        self.headers.clear();
    }

    /// Adds bytes to the message whose first piece is `first`. If the bytes follow the message's
    /// last piece in memory (as in encrypted segments), the piece is extended.
    fn add_piece(&mut self, first: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.pieces.len() > first
            && let Some(last) = self.pieces.last_mut()
            && last.iov_base.addr() + last.iov_len == bytes.as_ptr().addr()
        {
            last.iov_len += bytes.len();
            return;
        }
        self.pieces
            .push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
    }

    fn end_message(
        &mut self,
        socket: &Socket,
        to: &SocketAddr,
        ecn: Ecn,
        default_ecn: Ecn,
        segment_bytes: usize,
    ) {
        let (name, name_length) = SockAddr::encode_for(socket.is_ipv6(), to);
        let mut control = Control::new();
        if segment_bytes > 0 {
            control.push_segment(u16::try_from(segment_bytes).unwrap_or(u16::MAX));
        }
        if ecn != default_ecn {
            control.push_ecn(socket.dscp(), ecn, to.is_ipv6());
        }
        let pieces_end = self.pieces.len();
        self.messages.push(Message { name, name_length, control, pieces_end });
    }

    /// Passes the messages to the kernel, and clears them.
    fn submit(&mut self, socket: &Socket) -> io::Result<usize> {
        let mut start = 0;
        for message in &mut self.messages {
            let pieces = &mut self.pieces[start..message.pieces_end];
            start = message.pieces_end;
            // SAFETY: all-zero is a valid msghdr; some C libraries have private padding in this
            // structure.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = message.name.as_mut_ptr();
            header.msg_hdr.msg_namelen = message.name_length;
            header.msg_hdr.msg_iov = pieces.as_mut_ptr();
            header.msg_hdr.msg_iovlen = pieces.len();
            if message.control.len() > 0 {
                header.msg_hdr.msg_control = message.control.as_mut_ptr();
                header.msg_hdr.msg_controllen = message.control.len();
            }
            self.headers.push(header);
        }
        let fd = socket.as_fd().as_raw_fd();
        let result = match self.headers.as_mut_slice() {
            [] => Ok(0),
            [one] => {
                let header = &raw const one.msg_hdr;
                // SAFETY: the header points to a name, a control buffer and pieces inside
                // `self`, and these to bytes that the caller has borrowed; all outlive the
                // call. The kernel reads only.
                check(unsafe { call::sendmsg(fd, header) }).map(|_| 1)
            }
            many => {
                let count = libc::c_uint::try_from(many.len()).unwrap_or(0);
                // SAFETY: as above, for each of `count` headers; their `msg_len` is written.
                check(unsafe { call::sendmmsg(fd, many.as_mut_ptr(), count) })
            }
        };
        self.clear();
        result
    }
}
