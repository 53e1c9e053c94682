//! The control connection of `srd perf`: small JSON messages over TCP, each after its length.
//!
//! The client sends the parameters, and the server answers that it is ready, or why not. After the
//! client's last message, the server sends its results. The first message on a connection states
//! the purpose of the connection, so that the data connections of TCP can use the same port.

use super::params::{Params, ServerResult};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use srd_trust::text::clean_json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Version of the messages.
pub(super) const VERSION: u32 = 2;
/// Maximum size of a message.
const MESSAGE_BYTES_MAX: u32 = 64 << 10;
/// First bytes of every message, which other programs do not send.
const MAGIC: [u8; 4] = *b"srdp";

/// Messages of the client and the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// From the client: requests a measurement.
    Hello { version: u32, params: Params },
    /// From the server: reports that it is ready. TCP's data connections present the token.
    Ready { token: u64 },
    /// From the server: refuses the measurement, with the reason.
    Refused { reason: String },
    /// From the client: begins a data connection of TCP.
    Data { token: u64 },
    /// From the client: reports that it has sent all data.
    Finish,
    /// From the server: reports its results.
    Result(ServerResult),
}

impl Message {
    /// Returns a name of the message, for error messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "a request to measure",
            Self::Ready { .. } => "the word to begin",
            Self::Refused { .. } => "a refusal",
            Self::Data { .. } => "a data connection of TCP",
            Self::Finish => "the end of the data",
            Self::Result(_) => "a result",
        }
    }
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

/// Receives one complete message within the given time. A limit for each read would not suffice: a
/// foreign program could occupy the connection by sending a byte every few seconds.
pub(super) fn receive_within(stream: &mut TcpStream, most: Duration) -> Result<Message> {
    receive_by(stream, Instant::now() + most)
}

/// Receives one complete message before the deadline.
pub(super) fn receive_by(stream: &mut TcpStream, deadline: Instant) -> Result<Message> {
    receive_from(&mut Timed { stream, deadline })
}

/// Receives one complete message. Each read may take as long as the stream's read timeout.
pub(super) fn receive(stream: &mut TcpStream) -> Result<Message> {
    receive_from(stream)
}

/// A stream whose reads end at a deadline.
struct Timed<'a> {
    stream: &'a mut TcpStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

fn receive_from(stream: &mut impl Read) -> Result<Message> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).map_err(broke)?;
    let [m0, m1, m2, m3, l0, l1, l2, l3] = head;
    if [m0, m1, m2, m3] != MAGIC {
        bail!("the other end is no `srd perf`: is the port right?");
    }
    let length = u32::from_be_bytes([l0, l1, l2, l3]);
    if length > MESSAGE_BYTES_MAX {
        bail!("a control message of {length} bytes: at most {MESSAGE_BYTES_MAX} are permitted");
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).map_err(broke)?;
    // Texts from the other end are printed later, so control characters in them are replaced.
    clean_json(&mut body);
    serde_json::from_slice(&body).context("a control message that this version does not know")
}

fn broke(error: std::io::Error) -> anyhow::Error {
    let what = match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "not all of a message came in time",
        _ => "the control connection broke",
    };
    anyhow::Error::new(error).context(what)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    pub(in crate::perf) fn pair() -> (TcpStream, TcpStream) {
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

    /// If the other end sends a byte now and then, each read is short, but the message takes too
    /// long.
    #[test]
    fn a_message_that_comes_byte_by_byte_has_one_deadline() {
        let (mut near, mut far) = pair();
        near.write_all(b"srdp\x00\x00\xff\x00").unwrap();
        let stop = AtomicBool::new(false);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = near.write_all(b" ");
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let error = receive_within(&mut far, Duration::from_millis(100)).unwrap_err();
            stop.store(true, Ordering::Relaxed);
            error
        });
        assert!(error.to_string().contains("not all of a message came in time"), "{error:#}");
    }

    #[test]
    fn a_closed_connection_is_an_error_not_a_wait() {
        let (near, mut far) = pair();
        drop(near);
        assert!(receive(&mut far).unwrap_err().to_string().contains("broke"));
    }
}
