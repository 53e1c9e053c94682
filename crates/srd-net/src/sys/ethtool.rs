//! The statistics of an interface's driver, which `ethtool -S` shows.
//!
//! There are three requests: the number of statistics, their names, and their values. The number
//! may change between them, when queues are added. Since Linux 6.13 the kernel writes no more than
//! the announced number; earlier kernels write as many as the driver has. So the buffers have spare
//! space.

use std::ffi::c_char;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::check;
use super::udp::socket::Socket;

const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
/// Number of the set of strings that contains the names of statistics (`ETH_SS_STATS`).
const SET_STATISTICS: u32 = 1;
/// Length in bytes of the name of a statistic, with its padding.
const NAME_BYTES: usize = 32;
/// Largest number of a driver's statistics. A driver with more is refused.
const STATISTICS_MAX: usize = 1 << 16;
/// Spare entries of the buffer for an answer, beyond the number of entries that the kernel
/// announced.
const SPARE: usize = 4096;
/// Number of 64-bit words at the start of a request, before the answer.
const HEAD_WORDS: usize = 1;

/// A socket through which the statistics of interfaces are requested from the kernel.
#[derive(Debug)]
pub(crate) struct Ethtool {
    socket: Socket,
}

impl Ethtool {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { socket: Socket::new(&SocketAddr::from(([127, 0, 0, 1], 0)))? })
    }

    /// Returns the names of the statistics, in the driver's order.
    pub(crate) fn names(&self, interface: &str) -> io::Result<Vec<String>> {
        let count = self.count(interface)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        // Layout: cmd, string_set | len, then the names.
        let words = 2 * HEAD_WORDS + (count + SPARE) * NAME_BYTES / 8;
        let mut buffer = vec![0_u64; words];
        buffer[0] = pair(GET_STRINGS, SET_STATISTICS);
        buffer[1] = pair(u32::try_from(count).unwrap_or(0), 0);
        self.ask(interface, &mut buffer)?;
        let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // The names follow three words of 32 bits.
        let names = bytes.get(12..).unwrap_or_default().chunks_exact(NAME_BYTES).take(count);
        let text = |name: &[u8]| {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
            String::from_utf8_lossy(&name[..end]).into_owned()
        };
        Ok(names.map(text).collect())
    }

    /// Returns the values of the `count` statistics, in the driver's order.
    pub(crate) fn values(&self, interface: &str, count: usize) -> io::Result<Vec<u64>> {
        if count > STATISTICS_MAX {
            return Err(io::Error::other("the driver has too many statistics"));
        }
        let mut buffer = vec![0_u64; HEAD_WORDS + count + SPARE];
        buffer[0] = pair(GET_STATISTICS, u32::try_from(count).unwrap_or(0));
        self.ask(interface, &mut buffer)?;
        let found = number(buffer[0], 1) as usize;
        if found != count {
            return Err(io::Error::other("the driver has other statistics than before"));
        }
        Ok(buffer[HEAD_WORDS..HEAD_WORDS + count].to_vec())
    }

    fn count(&self, interface: &str) -> io::Result<usize> {
        // Layout: cmd, reserved | mask of sets | counts, one for each set of the mask.
        let mut buffer = vec![0_u64; 4];
        buffer[0] = pair(GET_SET_INFO, 0);
        buffer[1] = 1 << SET_STATISTICS;
        self.ask(interface, &mut buffer)?;
        if buffer[1] == 0 {
            return Ok(0); // the driver has no statistics
        }
        let count = number(buffer[2], 0) as usize;
        if count > STATISTICS_MAX {
            return Err(io::Error::other("the driver has too many statistics"));
        }
        Ok(count)
    }

    /// Makes a request; the answer overwrites the request in `buffer`. The size of the buffer must
    /// suit the command of the request.
    fn ask(&self, interface: &str, buffer: &mut [u64]) -> io::Result<()> {
        // SAFETY: all-zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = interface.as_bytes();
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = c_char::from_ne_bytes([*from]);
        }
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        let fd = self.socket.as_fd().as_raw_fd();
        // SAFETY: the request names an interface, zero-terminated, and points to a buffer with room
        // for the answer of its command and `SPARE` entries more, which outlives the call.
        check(unsafe { libc::ioctl(fd, libc::SIOCETHTOOL as _, &raw mut request) } as isize)?;
        Ok(())
    }
}

/// Returns two 32-bit words as one value. `first` is first in memory.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the first or the second word of a value of [`pair`].
fn number(pair: u64, at: usize) -> u32 {
    let [a, b, c, d, e, f, g, h] = pair.to_ne_bytes();
    u32::from_ne_bytes(if at == 0 { [a, b, c, d] } else { [e, f, g, h] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_32_bits_stand_in_memory_in_their_order() {
        let both = pair(7, 9);
        assert_eq!((number(both, 0), number(both, 1)), (7, 9));
        assert_eq!(both.to_ne_bytes()[..4], 7_u32.to_ne_bytes());
    }

    #[test]
    fn a_name_that_no_interface_has_is_an_error() {
        let ethtool = Ethtool::new().unwrap();
        assert!(ethtool.names("nosuch0").is_err());
        assert!(ethtool.names("a-name-that-is-too-long").is_err());
        assert!(ethtool.values("lo", STATISTICS_MAX + 1).is_err());
    }
}
