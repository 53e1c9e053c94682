//! The program that has a UDP port, named for a person who has to end it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The program and the user that have this port at this address or at all of them, in words; empty
/// if they cannot be found.
pub(crate) fn words(address: IpAddr, port: u16) -> String {
    let of_kernel = ["/proc/net/udp", "/proc/net/udp6"];
    let text = of_kernel.into_iter().filter_map(|path| fs::read_to_string(path).ok());
    let Some((user, inode)) = text.into_iter().find_map(|text| find(&text, address, port)) else {
        return String::new();
    };
    match process_of(inode) {
        Some((pid, name)) => format!("process {pid} ({name:?}) of user {user} has it: end that"),
        None => format!("a process of user {user} has it: end that"),
    }
}

/// User and inode of the socket with this port, from a table of the kernel's.
fn find(table: &str, address: IpAddr, port: u16) -> Option<(u32, u64)> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (at, number) = fields.get(1)?.split_once(':')?;
        let is_it = u16::from_str_radix(number, 16) == Ok(port) && is_at(at, address)?;
        let (user, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
        is_it.then_some((user, inode))
    })
}

/// Whether an address of the table is this one, or stands for all. Each word of four bytes is
/// written as a number of this machine.
fn is_at(hex: &str, address: IpAddr) -> Option<bool> {
    let words = (0..hex.len()).step_by(8).map(|at| {
        let word = u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.concat();
    let found = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(found.is_unspecified() || found == address)
}

/// The process that has a socket, and its name.
fn process_of(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|of| of.file_name().to_str()?.parse::<u32>().ok()).find_map(|pid| {
        let mut open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let has = |of: fs::DirEntry| {
            fs::read_link(of.path()).is_ok_and(|link| link.as_os_str() == wanted.as_str())
        };
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        open.any(has).then(|| (pid, name.trim_end().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_process_that_has_a_port_is_named() {
        for (at, other) in [("127.0.0.1:0", "127.0.0.2"), ("0.0.0.0:0", ""), ("[::1]:0", "::2")] {
            let Ok(socket) = UdpSocket::bind(at) else {
                println!("skipped: no address for {at}");
                continue;
            };
            let own = socket.local_addr().unwrap();
            let asked = match own.ip() {
                any if any.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
                one => one,
            };
            let words = |address| super::words(address, own.port());
            let said = words(asked);
            assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
            assert!(said.contains("of user "), "{said}");
            if let Ok(other) = other.parse() {
                assert_eq!(words(other), "");
            }
        }
    }
}
