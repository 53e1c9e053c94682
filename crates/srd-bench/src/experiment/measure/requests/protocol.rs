//! The requests of Redis and memcached, and the format of their answers.
//!
//! ```text
//! Redis (RESP2)                                memcached
//!   *2 $3 GET $64 <key>      ->                  get <key>                 ->
//!                            <- $512 <value>                               <- VALUE <key> 0 512
//!                            or $-1 (a miss)                                  <value>
//!                                                                             END
//!   *3 $3 SET $64 <key> $512 <value> ->          set <key> 0 0 512 <value> ->
//!                            <- +OK                                        <- STORED
//! ```
//!
//! Every line and every value ends with CR LF. An answer in another format is an error and ends the
//! whole load, because the answers after it could not be separated.

use anyhow::{Result, bail};
use std::io::Write;

/// Number of different keys.
pub(in crate::experiment) const KEYS: u32 = 10_000;
/// Number of bytes of a value.
pub(in crate::experiment) const VALUE_BYTES: usize = 512;
/// Largest accepted length of a value in bytes, which each connection may have to store.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Largest accepted length of a line in bytes.
const LINE_MAX: usize = 512;

/// The protocol of a key-value store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment) enum Protocol {
    /// RESP2, the default protocol of Redis.
    Redis,
    /// The text protocol of memcached.
    Memcached,
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment) enum Kind {
    Get,
    Set,
}

/// A complete answer at the beginning of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Length of the answer in bytes.
    pub(super) bytes: usize,
    /// Whether the answer is as expected: a value for GET, or success for SET.
    pub(super) good: bool,
}

impl Protocol {
    /// Appends a request for a key to `out`.
    pub(super) fn write(self, kind: Kind, key: u32, out: &mut Vec<u8>) {
        let value = [b'v'; VALUE_BYTES];
        let written = match (self, kind) {
            (Protocol::Redis, Kind::Get) => {
                write!(out, "*2\r\n$3\r\nGET\r\n$64\r\n{key:064}\r\n")
            }
            (Protocol::Redis, Kind::Set) => {
                write!(out, "*3\r\n$3\r\nSET\r\n$64\r\n{key:064}\r\n${VALUE_BYTES}\r\n")
            }
            (Protocol::Memcached, Kind::Get) => write!(out, "get {key:064}\r\n"),
            (Protocol::Memcached, Kind::Set) => {
                write!(out, "set {key:064} 0 0 {VALUE_BYTES}\r\n")
            }
        };
        written.expect("a vector takes everything");
        if kind == Kind::Set {
            out.extend_from_slice(&value);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Reads the answer at the beginning of the input; `None` if the answer is incomplete.
    pub(super) fn read(self, kind: Kind, input: &[u8]) -> Result<Option<Answer>> {
        match self {
            Protocol::Redis => redis(kind, input),
            Protocol::Memcached => memcached(kind, input),
        }
    }
}

fn redis(kind: Kind, input: &[u8]) -> Result<Option<Answer>> {
    let Some(line) = line(input)? else { return Ok(None) };
    let bytes = line.len() + 2;
    match (line.split_first(), kind) {
        (Some((b'$', b"-1")), _) => Ok(Some(Answer { bytes, good: false })),
        (Some((b'$', length)), _) => {
            let Some(length) = decimal(length) else { bail!("a length is {}", text(line)) };
            let good = kind == Kind::Get && length == VALUE_BYTES;
            Ok(value(input, bytes, length)?.map(|bytes| Answer { bytes, good }))
        }
        (Some((b'+', word)), _) => {
            Ok(Some(Answer { bytes, good: kind == Kind::Set && word == b"OK" }))
        }
        (Some((b'-' | b':', _)), _) => Ok(Some(Answer { bytes, good: false })),
        _ => bail!("not an answer of Redis: {}", text(line)),
    }
}

fn memcached(kind: Kind, input: &[u8]) -> Result<Option<Answer>> {
    let Some(first) = line(input)? else { return Ok(None) };
    let bytes = first.len() + 2;
    let words: Vec<&[u8]> = first.split(|c| *c == b' ').collect();
    match words[..] {
        [b"STORED"] => Ok(Some(Answer { bytes, good: kind == Kind::Set })),
        [b"END" | b"NOT_STORED" | b"ERROR"] => Ok(Some(Answer { bytes, good: false })),
        [b"SERVER_ERROR" | b"CLIENT_ERROR", ..] => Ok(Some(Answer { bytes, good: false })),
        [b"VALUE", _, _, length] => {
            let Some(length) = decimal(length) else { bail!("a length is {}", text(first)) };
            let Some(bytes) = value(input, bytes, length)? else { return Ok(None) };
            let Some(end) = line(&input[bytes..])? else { return Ok(None) };
            if end != b"END" {
                bail!("a value of memcached ends with {}", text(end));
            }
            let good = kind == Kind::Get && length == VALUE_BYTES;
            Ok(Some(Answer { bytes: bytes + end.len() + 2, good }))
        }
        _ => bail!("not an answer of memcached: {}", text(first)),
    }
}

/// Returns the first line without CR LF; `None` if CR LF has not arrived yet.
fn line(input: &[u8]) -> Result<Option<&[u8]>> {
    let end = input.windows(2).take(LINE_MAX).position(|pair| pair == b"\r\n");
    if end.is_none() && input.len() > LINE_MAX {
        bail!("a line of an answer is longer than {LINE_MAX} bytes");
    }
    Ok(end.map(|end| &input[..end]))
}

/// Returns the position after a value of `length` bytes and its CR LF. The value begins at `from`.
/// `None` if it is incomplete.
fn value(input: &[u8], from: usize, length: usize) -> Result<Option<usize>> {
    let end = from + length;
    match input.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some(end + 2)),
        Some(_) => bail!("a value does not end where it should"),
    }
}

/// Parses a decimal number; `None` if the text is too long or contains other characters.
fn decimal(digits: &[u8]) -> Option<usize> {
    let sane = (1..=7).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| sane)?;
    digits.parse().ok().filter(|length| *length <= ANSWER_BYTES_MAX)
}

fn text(line: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(&line[..line.len().min(80)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(bytes: usize) -> Option<Answer> {
        Some(Answer { bytes, good: true })
    }

    fn bad(bytes: usize) -> Option<Answer> {
        Some(Answer { bytes, good: false })
    }

    fn redis_value() -> Vec<u8> {
        [&b"$512\r\n"[..], &[b'v'; 512], b"\r\n"].concat()
    }

    fn memcached_value() -> Vec<u8> {
        [&b"VALUE k 0 512\r\n"[..], &[b'\n'; 512], b"\r\nEND\r\n"].concat()
    }

    /// Checks that every shorter part of an answer is incomplete, and that reading stops at the
    /// answer's end.
    fn only_whole(protocol: Protocol, kind: Kind, whole: &[u8]) {
        for cut in 0..whole.len() {
            assert_eq!(protocol.read(kind, &whole[..cut]).unwrap(), None, "{cut}");
        }
        let twice = [whole, whole].concat();
        assert_eq!(protocol.read(kind, &twice).unwrap(), good(whole.len()));
    }

    #[test]
    fn answers_are_whole_or_not_there() {
        only_whole(Protocol::Redis, Kind::Get, &redis_value());
        only_whole(Protocol::Redis, Kind::Set, b"+OK\r\n");
        only_whole(Protocol::Memcached, Kind::Get, &memcached_value());
        only_whole(Protocol::Memcached, Kind::Set, b"STORED\r\n");
    }

    #[test]
    fn misses_and_errors_are_answers_but_not_good_ones() {
        let redis = |kind, input: &[u8]| Protocol::Redis.read(kind, input).unwrap();
        assert_eq!(redis(Kind::Get, b"$-1\r\n"), bad(5));
        assert_eq!(redis(Kind::Set, b"-OOM command not allowed\r\n"), bad(26));
        assert_eq!(redis(Kind::Get, b"+OK\r\n"), bad(5));
        assert_eq!(redis(Kind::Get, b"$3\r\nabc\r\n"), bad(9), "not what was stored");
        let memcached = |kind, input: &[u8]| Protocol::Memcached.read(kind, input).unwrap();
        assert_eq!(memcached(Kind::Get, b"END\r\n"), bad(5));
        assert_eq!(memcached(Kind::Set, b"SERVER_ERROR out of memory\r\n"), bad(28));
    }

    #[test]
    fn nonsense_is_an_error() {
        for input in [&b"hello\r\n"[..], b"$12x\r\n", b"$\r\n", b"$99999999\r\n", b"\r\n"] {
            assert!(Protocol::Redis.read(Kind::Get, input).is_err(), "{input:?}");
        }
        assert!(Protocol::Redis.read(Kind::Get, b"$1\r\nabc\r\n").is_err(), "a wrong end");
        assert!(Protocol::Redis.read(Kind::Get, &[b'x'; 600]).is_err(), "no end of a line");
        let open = [&b"VALUE k 0 1\r\nv\r\n"[..], b"VALUE\r\n"].concat();
        assert!(Protocol::Memcached.read(Kind::Get, &open).is_err());
    }

    /// Regression: the client accepted values of ten megabytes on each connection.
    #[test]
    fn regression_a_value_that_nobody_stored_is_not_waited_for() {
        assert_eq!(Protocol::Redis.read(Kind::Get, b"$65536\r\n").unwrap(), None);
        assert!(Protocol::Redis.read(Kind::Get, b"$65537\r\n").is_err());
        assert!(Protocol::Memcached.read(Kind::Get, b"VALUE k 0 9999999\r\n").is_err());
    }

    #[test]
    fn requests_have_keys_of_64_and_values_of_512_bytes() {
        let bytes = |protocol: Protocol, kind| {
            let mut out = Vec::new();
            protocol.write(kind, 7, &mut out);
            out
        };
        let get = bytes(Protocol::Redis, Kind::Get);
        let key = format!("{:064}", 7);
        assert_eq!(get, format!("*2\r\n$3\r\nGET\r\n$64\r\n{key}\r\n").as_bytes());
        let set = bytes(Protocol::Redis, Kind::Set);
        assert!(set.ends_with(&[&[b'v'; 512][..], b"\r\n"].concat()));
        assert!(set.starts_with(b"*3\r\n$3\r\nSET\r\n$64\r\n"));
        let set = bytes(Protocol::Memcached, Kind::Set);
        assert!(set.starts_with(format!("set {key} 0 0 512\r\n").as_bytes()));
    }
}
