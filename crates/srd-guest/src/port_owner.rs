//! The program that has a UDP port, named for a person who has to end it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::programs::{self, Program};

/// How often the kernel's tables are read: they come in pieces, and a line is left out if others
/// before it go between two of them.
const LOOKS: usize = 5;

/// The program and the user that have this port at this address or at all of them, in words; empty
/// if they cannot be found.
pub(crate) fn words(address: IpAddr, port: u16) -> String {
    let Some((user, inode)) = (0..LOOKS).find_map(|_| socket(address, port)) else {
        return String::new();
    };
    match program_of(inode) {
        Some(Program { pid, name }) => {
            format!("process {pid} ({name:?}) of user {user} has it: end that")
        }
        None => format!("a process of user {user} has it: end that"),
    }
}

/// User and inode of the socket that has this port for the address. A socket for all addresses of
/// IPv4 has none of IPv6.
fn socket(address: IpAddr, port: u16) -> Option<(u32, u64)> {
    let tables = ["/proc/net/udp", "/proc/net/udp6"];
    let tables = if address.is_ipv4() { &tables[..] } else { &tables[1..] };
    tables.iter().find_map(|path| find(&fs::read_to_string(path).ok()?, address, port))
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

/// The program that has a socket. Programs that it starts have the socket as well until they run,
/// and began later.
fn program_of(inode: u64) -> Option<Program> {
    let wanted = format!("socket:[{inode}]");
    let has = |at: &Path| {
        let mut open = fs::read_dir(at.join("fd")).into_iter().flatten().flatten();
        open.any(|of| fs::read_link(of.path()).is_ok_and(|link| link.as_os_str() == &*wanted))
    };
    let began = |program: &Program| program.began().unwrap_or(u64::MAX);
    programs::that(has).into_iter().min_by_key(began)
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

    /// A program that has the number of the port for all addresses of the other family was named;
    /// so was one that this process had started a moment before, with a copy of its descriptors.
    #[test]
    fn regression_neither_another_family_s_socket_nor_a_copy_is_named() {
        let Ok(socket) = UdpSocket::bind("[::1]:0") else {
            println!("skipped: no IPv6");
            return;
        };
        let port = socket.local_addr().unwrap().port();
        let Ok(other) = UdpSocket::bind(("0.0.0.0", port)) else {
            println!("skipped: another program has the port for IPv4");
            return;
        };
        let inode = |of: &UdpSocket| rustix::fs::fstat(of).unwrap().st_ino;
        let found = |address: &str| super::socket(address.parse().unwrap(), port).unwrap().1;
        assert_eq!(found("::1"), inode(&socket));
        assert_eq!(found("127.0.0.1"), inode(&other));
        // A program that has the socket as its input.
        let copy = std::os::fd::OwnedFd::from(socket.try_clone().unwrap());
        let mut child = std::process::Command::new("sleep").arg("60").stdin(copy).spawn().unwrap();
        let named = program_of(inode(&socket)).unwrap().pid;
        let (mut all, own) = (programs::that(|at| at.join("fd/0").exists()), std::process::id());
        all.retain(|program| u32::try_from(program.pid) == Ok(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(u32::try_from(named), Ok(own));
        assert_eq!(all.len(), 1, "the copy was there");
    }
}
