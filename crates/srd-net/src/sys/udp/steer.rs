//! Classic BPF programs for sockets. They decide which packets a socket accepts, and which of
//! several sockets at one address gets a packet.

use libc::sock_filter;
use srd_proto::node;
use srd_proto::wire::Kind;

/// Code of an instruction that loads a big-endian word of the packet. If the offset is beyond the
/// end of the packet, the program ends and returns zero.
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const RETURN_CONSTANT: u32 = libc::BPF_RET | libc::BPF_K;
const RETURN_ACCUMULATOR: u32 = libc::BPF_RET | libc::BPF_A;

fn plain(code: u32, k: u32) -> sock_filter {
    branch(code, k, 0, 0)
}

/// Returns an instruction that skips the next `if_so` instructions if its condition is true,
/// otherwise the next `or_else`.
fn branch(code: u32, k: u32, if_so: u8, or_else: u8) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt: if_so, jf: or_else, k }
}

/// Returns a filter that drops every packet: it accepts zero bytes of it.
pub(super) fn accept_nothing() -> sock_filter {
    plain(RETURN_CONSTANT, 0)
}

/// Returns a program that computes [`srd_proto::shard_of`] from the UDP payload of a packet. The
/// program does not check the protocol version in the packet.
pub(super) fn to_shard(shards: u8) -> [sock_filter; 12] {
    let (hello, retry, other) = (Kind::Hello as u8, Kind::Retry as u8, Kind::Reset as u8);
    let at = |kind, named| u32::try_from(node::steering_offset(kind, named)).unwrap_or(0);
    [
        plain(LOAD_WORD, at(other, true)),
        branch(JUMP_IF_EQUAL, 0, 0, 7),
        plain(LOAD_BYTE, 0),
        plain(AND, 15),
        branch(JUMP_IF_EQUAL, hello.into(), 3, 0),
        branch(JUMP_IF_EQUAL, retry.into(), 2, 0),
        plain(LOAD_WORD, at(other, false)),
        plain(JUMP, 1),
        plain(LOAD_WORD, at(hello, false)),
        plain(SHIFT_RIGHT, u32::BITS - node::SHARD_BITS),
        plain(MODULO, shards.max(1).into()),
        plain(RETURN_ACCUMULATOR, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use srd_proto::rng::Rng;
    use srd_proto::shard_of;
    use srd_proto::wire::VERSION;

    use super::super::socket::Socket;

    const SHARDS: u8 = 5;

    /// Opens sockets at one address, to which the kernel hands packets by shard.
    fn group() -> (Vec<UdpSocket>, SocketAddr) {
        let mut address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bound = |address: &SocketAddr| {
            let socket = Socket::new(address).unwrap();
            socket.share_address().unwrap();
            socket.bind(address).unwrap();
            socket
        };
        let first = bound(&address);
        address = first.local_address().unwrap();
        let mut sockets = vec![first];
        sockets.extend((1..SHARDS).map(|_| bound(&address)));
        sockets[0].steer(SHARDS).unwrap();
        let to_std = |s: &Socket| UdpSocket::from(s.as_fd().try_clone_to_owned().unwrap());
        let sockets: Vec<UdpSocket> = sockets.iter().map(to_std).collect();
        for socket in &sockets {
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        }
        (sockets, address)
    }

    #[test]
    fn the_kernel_finds_the_shard_that_the_core_finds() {
        let (sockets, address) = group();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut rng = Rng::new(1);
        let mut seen = [0; SHARDS as usize];
        for n in 0..2_000 {
            let mut packet = [0; 64];
            for byte in &mut packet {
                *byte = u8::try_from(rng.below(256)).unwrap();
            }
            packet[0] = VERSION << 4 | u8::try_from(1 + n % 11).unwrap();
            if n % 2 == 0 {
                packet[4..8].fill(0);
            }
            let length = if n % 7 == 0 { rng.below(64) as usize } else { 64 };
            let packet = &packet[..length];
            // A payload too short for a packet may go to any shard: every shard drops it.
            if (1..12).contains(&length) || length == 0 {
                continue;
            }
            sender.send_to(packet, address).unwrap();
            let shard = usize::from(shard_of(packet, SHARDS));
            let mut buffer = [0; 100];
            let n = sockets[shard].recv(&mut buffer).expect("the packet at its shard");
            assert_eq!(&buffer[..n], packet);
            seen[shard] += 1;
        }
        assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
    }
}
