//! The rule about programs that make small writes to TCP connections without TCP_NODELAY. Nagle's
//! algorithm holds back a small write until the write before it is acknowledged, which takes 40 ms
//! if acknowledgements are delayed.
//!
//! The size of writes cannot be read from outside the program, but the mean size of a connection's
//! segments can. Only two processes can read the option of a socket: the program itself, and a root
//! process through the program's descriptor.
//!
//! Limit: at most [`LOOKED_AT_MAX`] connections are checked.

use super::finding::{Class, Fix, Outcome, Subject};
use super::system::System;

/// Largest number of connections that are checked.
const LOOKED_AT_MAX: usize = 4096;
/// Least number of data segments for which the mean size is meaningful.
const SEGMENTS_MIN: u64 = 100;
/// Largest number of connections that a finding lists.
const NAMED_MAX: usize = 3;

/// A connection in the output of `ss`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Connection {
    program: String,
    pid: u32,
    fd: u32,
    mean_bytes: u64,
    is_small: bool,
}

pub(super) fn nodelay(system: &System, _: &Subject) -> Outcome {
    let text = match system.run(&["ss", "-tinpHO", "state", "established"]) {
        Ok(text) => text,
        Err(error) => return Outcome::not_applicable(format!("{error:#}")),
    };
    let all: Vec<Connection> = text.lines().take(LOOKED_AT_MAX).filter_map(connection).collect();
    let small: Vec<&Connection> = all.iter().filter(|connection| connection.is_small).collect();
    let (class, wanted) = (Class::Recommended, "TCP_NODELAY where writes are small");
    if small.is_empty() {
        let found = format!("{} connections of programs, none writes small", all.len());
        return Outcome::ok(class, found, wanted);
    }
    let seen: Vec<(&Connection, Option<bool>)> =
        small.iter().map(|of| (*of, system.nodelay(of.pid, of.fd))).collect();
    let without: Vec<&Connection> =
        seen.iter().filter(|(_, on)| *on == Some(false)).map(|(of, _)| *of).collect();
    let unknown = seen.iter().filter(|(_, on)| on.is_none()).count();
    if without.is_empty() && unknown > 0 {
        return Outcome::not_applicable(format!(
            "{unknown} connections write small; only root sees whether they have TCP_NODELAY"
        ));
    }
    if without.is_empty() {
        let found = format!("{} connections write small, all have it", small.len());
        return Outcome::ok(class, found, wanted);
    }
    let named: Vec<String> = without
        .iter()
        .take(NAMED_MAX)
        .map(|of| format!("{} (pid {}): {} bytes a segment", of.program, of.pid, of.mean_bytes))
        .collect();
    let found = format!("{} without: {}", without.len(), named.join(", "));
    let command =
        "set it in the program: tcp_nodelay of its configuration, or setsockopt".to_owned();
    let fix = Fix::by_hand(command, "only the program can set it for its sockets");
    Outcome::failed(class, found, wanted, fix)
}

/// Parses a line of the output of `ss -tinpHO`; `None` if the line lacks the program or a needed
/// value.
fn connection(line: &str) -> Option<Connection> {
    let (_, users) = line.split_once("users:((\"")?;
    let (program, rest) = users.split_once('"')?;
    let number = |name: &str, text: &str| {
        let (_, rest) = text.split_once(name)?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    };
    let pid = u32::try_from(number("pid=", rest)?).ok()?;
    let fd = u32::try_from(number("fd=", rest)?).ok()?;
    let segments = number(" data_segs_out:", line)?;
    let bytes = number(" bytes_sent:", line)?;
    let mss = number(" mss:", line)?;
    let mean_bytes = bytes / segments.max(1);
    let is_small = segments >= SEGMENTS_MIN && mean_bytes * 2 < mss;
    let program = program.replace(char::is_control, "\u{fffd}");
    Some(Connection { program, pid, fd, mean_bytes, is_small })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ss_are_read() {
        let line = "0 0 10.0.0.1:6379 10.0.0.2:40000 users:((\"redis-server\",pid=12,fd=8)) cubic \
                    wscale:7,7 rto:204 rtt:0.1/0.05 mss:1448 pmtu:1500 bytes_sent:120000 \
                    bytes_acked:120000 segs_out:1001 data_segs_out:1000 send 1Gbps";
        let found = connection(line).unwrap();
        assert_eq!((found.program.as_str(), found.pid, found.fd), ("redis-server", 12, 8));
        assert_eq!((found.mean_bytes, found.is_small), (120, true));
        let few = line.replace("data_segs_out:1000", "data_segs_out:99");
        assert!(!connection(&few).unwrap().is_small);
        let bulk = line.replace("bytes_sent:120000", "bytes_sent:1448000");
        assert!(!connection(&bulk).unwrap().is_small);
        assert_eq!(connection("0 0 10.0.0.1:22 10.0.0.2:5 cubic mss:1448"), None);
    }
}
