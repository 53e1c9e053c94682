//! The control connection: small JSON messages with a length in front, over TCP.
//!
//! The client says what to measure, the server that it is ready (or why not); when the client is
//! through, the server reports what it saw. The first message on a connection says what the
//! connection is for, so TCP's own data connections can use the same port.

use super::params::{Params, ServerResult};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use srd_trust::text::clean_json;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Changes when the messages do.
pub(super) const VERSION: u32 = 2;
/// Longest message.
const MESSAGE_BYTES_MAX: u32 = 64 << 10;
/// What a connection of ours begins with, so that a stranger is told apart at once.
const MAGIC: [u8; 4] = *b"srdp";

/// What the ends say.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// Client: let us measure this.
    Hello { version: u32, params: Params },
    /// Server: go ahead. TCP's data connections show the token.
    Ready { token: u64 },
    /// Server: no, and why.
    Refused { reason: String },
    /// Client, on a TCP data connection.
    Data { token: u64 },
    /// Client: that was all.
    Finish,
    /// Server: what I saw.
    Result(ServerResult),
}

/// Sends one message.
pub(super) fn send(stream: &mut TcpStream, message: &Message) -> Result<()> {
    let body = serde_json::to_vec(message).context("a message as JSON")?;
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    stream.write_all(&bytes).context("the control connection broke")
}

/// Receives one message.
pub(super) fn receive(stream: &mut TcpStream) -> Result<Message> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).context("the control connection broke")?;
    let [m0, m1, m2, m3, l0, l1, l2, l3] = head;
    if [m0, m1, m2, m3] != MAGIC {
        bail!("the other end is no `srd perf`: is the port right?");
    }
    let length = u32::from_be_bytes([l0, l1, l2, l3]);
    if length > MESSAGE_BYTES_MAX {
        bail!("a control message of {length} bytes: at most {MESSAGE_BYTES_MAX} are permitted");
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).context("the control connection broke")?;
    // What the other end says is printed.
    clean_json(&mut body);
    serde_json::from_slice(&body).context("a control message that this version does not know")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (mut near, mut far) = pair();
        let sent = [Message::Ready { token: 7 }, Message::Refused { reason: "no".into() }];
        for message in &sent {
            send(&mut near, message).unwrap();
        }
        for message in sent {
            assert_eq!(receive(&mut far).unwrap(), message);
        }
    }

    #[test]
    fn strangers_and_giants_are_refused() {
        let (mut near, mut far) = pair();
        near.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert!(receive(&mut far).unwrap_err().to_string().contains("no `srd perf`"));
        let (mut near, mut far) = pair();
        near.write_all(b"srdp\xff\xff\xff\xff").unwrap();
        assert!(receive(&mut far).unwrap_err().to_string().contains("at most"));
    }

    #[test]
    fn a_closed_connection_is_an_error_not_a_wait() {
        let (near, mut far) = pair();
        drop(near);
        assert!(receive(&mut far).unwrap_err().to_string().contains("broke"));
    }
}
