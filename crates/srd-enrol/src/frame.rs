//! Messages in a stream of bytes.
//!
//! ```text
//!  0                   4
//! +-------------------+---------------------+
//! | length, in network| the message in JSON |
//! | byte order        |                     |
//! +-------------------+---------------------+
//! ```
//!
//! Bounds: a message of a host has at most [`HOST_BYTES_MAX`] bytes, and a message of a controller
//! at most [`CONTROLLER_BYTES_MAX`].

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message of a host.
pub const HOST_BYTES_MAX: usize = 8 << 10;
/// Largest message of a controller: a snapshot with all peers.
pub const CONTROLLER_BYTES_MAX: usize = 2 << 20;
/// Length of the field `length`.
const HEADER_BYTES: usize = 4;

/// Reason why a stream has no further messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// A message has more bytes than it may have.
    Long(usize),
    /// The content of a message is not valid.
    Malformed(String),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(bytes) => write!(f, "a message of {bytes} bytes is too long"),
            Self::Malformed(why) => write!(f, "a message is malformed: {why}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Returns the bytes of a message.
///
/// # Errors
/// If the message has more than `bytes_max` bytes.
pub fn encode(message: &impl Serialize, bytes_max: usize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let length = bytes.len() - HEADER_BYTES;
    match u32::try_from(length) {
        Ok(header) if length <= bytes_max => {
            bytes[..HEADER_BYTES].copy_from_slice(&header.to_be_bytes());
            Ok(bytes)
        }
        _ => Err(FrameError::Long(length)),
    }
}

/// Received bytes that are not read as messages yet.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Inbox {
    /// An inbox for messages of at most this size.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max }
    }

    /// Adds received bytes. The caller reads all messages before it adds further bytes, so the
    /// inbox has at most one incomplete message and these bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message; `None` if it has not arrived yet.
    ///
    /// # Errors
    /// If the stream contains something else than a message. It has no further messages then.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            return Err(FrameError::Long(length));
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        // The text of the parser's error may contain values, which could be secrets.
        let message = serde_json::from_slice(message).map_err(|error| {
            FrameError::Malformed(format!("byte {} is not expected", error.column()))
        })?;
        self.bytes.drain(..HEADER_BYTES + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ENDPOINTS_MAX, FromController, FromHost, NAME_CHARACTERS_MAX, Peer};

    #[test]
    fn messages_arrive_in_any_parts_and_in_their_order() {
        let sent = [FromHost::Ping, FromHost::Applied { generation: 7 }, FromHost::Ping];
        let bytes: Vec<u8> =
            sent.iter().flat_map(|message| encode(message, HOST_BYTES_MAX).unwrap()).collect();
        for part in [1, 3, bytes.len()] {
            let mut inbox = Inbox::new(HOST_BYTES_MAX);
            let mut received = Vec::new();
            for bytes in bytes.chunks(part) {
                inbox.push(bytes);
                while let Some(message) = inbox.take::<FromHost>().unwrap() {
                    received.push(message);
                }
            }
            assert_eq!(received, sent);
        }
    }

    #[test]
    fn a_message_beyond_the_bound_is_refused_before_it_arrives() {
        let mut inbox = Inbox::new(10);
        inbox.push(&11_u32.to_be_bytes());
        assert_eq!(inbox.take::<FromHost>(), Err(FrameError::Long(11)));
        assert_eq!(encode(&"x".repeat(9), 10), Err(FrameError::Long(11)));
        assert_eq!(encode(&"x".repeat(8), 10).unwrap().len(), 14);
    }

    #[test]
    fn a_snapshot_with_all_peers_is_within_the_bound() {
        let peer = |number: u16| Peer {
            name: format!("{number:0>width$}", width = NAME_CHARACTERS_MAX),
            public_key: "x".repeat(44),
            endpoints: vec![([u16::MAX; 8], u16::MAX).into(); ENDPOINTS_MAX],
            address: [u16::MAX; 8].into(),
        };
        let peers = (0..1024).map(peer).collect();
        let snapshot = FromController::Snapshot { generation: u64::MAX, peers };
        let bytes = encode(&snapshot, CONTROLLER_BYTES_MAX).unwrap();
        let mut inbox = Inbox::new(CONTROLLER_BYTES_MAX);
        inbox.push(&bytes);
        assert_eq!(inbox.take(), Ok(Some(snapshot)));
    }

    #[test]
    fn a_malformed_message_is_an_error_without_its_content() {
        for text in ["{\"kind\":\"hidden\"}", "hidden", "", "{\"kind\":\"applied\"}"] {
            let mut inbox = Inbox::new(100);
            inbox.push(&u32::try_from(text.len()).unwrap().to_be_bytes());
            inbox.push(text.as_bytes());
            let error = inbox.take::<FromHost>().unwrap_err();
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
