//! The time service: answers requests of NTP (RFC 5905) with the clock of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Size of an NTP packet without extensions, in bytes.
const BYTES: usize = 48;
/// Seconds from 1900, the epoch of NTP, to 1970, the epoch of Unix time.
const ERA_S: u64 = 2_208_988_800;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
/// Assumed stratum (distance to a reference clock), because the card has no information about the
/// NTP servers of this machine.
const STRATUM: u8 = 3;
/// Precision of the clock as a power of two: 2^-20 s.
const PRECISION: u8 = 0xec;

/// Returns the answer to a request; `None` if the packet is not a client's request.
pub(super) fn answer(request: &[u8], wall: SystemTime) -> Option<[u8; BYTES]> {
    let first = *request.first()?;
    let version = first >> 3 & 7;
    if request.len() < BYTES || first & 7 != CLIENT || !(3..=4).contains(&version) {
        return None;
    }
    let since = wall.duration_since(UNIX_EPOCH).ok()?;
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    let stamp = ((since.as_secs() + ERA_S) << 32 | fraction).to_be_bytes();
    let mut reply = [0; BYTES];
    reply[..4].copy_from_slice(&[version << 3 | SERVER, STRATUM, request[2], PRECISION]);
    reply[12..16].copy_from_slice(&[169, 254, 169, 123]);
    reply[16..24].copy_from_slice(&stamp);
    // The client's own transmit timestamp, unchanged.
    reply[24..32].copy_from_slice(&request[40..48]);
    reply[32..40].copy_from_slice(&stamp);
    reply[40..48].copy_from_slice(&stamp);
    Some(reply)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_answer_has_the_time_and_the_client_s_own() {
        let mut request = [0; BYTES];
        request[0] = 4 << 3 | CLIENT;
        request[40..48].copy_from_slice(b"its time");
        let wall = UNIX_EPOCH + Duration::from_millis(1_500);
        let reply = answer(&request, wall).unwrap();
        assert_eq!((reply[0], reply[1]), (4 << 3 | SERVER, STRATUM));
        assert_eq!(&reply[24..32], b"its time");
        let seconds = u32::from_be_bytes(reply[40..44].try_into().unwrap());
        assert_eq!(u64::from(seconds), ERA_S + 1);
        assert_eq!(reply[44..48], [0x80, 0, 0, 0]);
        request[0] = 4 << 3 | SERVER;
        assert_eq!(answer(&request, wall), None, "an answer gets none");
        assert_eq!(answer(&request[..47], wall), None);
        assert_eq!(answer(&[], wall), None);
    }
}
