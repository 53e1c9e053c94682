//! The plugin, called as NCCL calls it, on loopback: order, tags, groups, and what goes wrong.

#![allow(clippy::unwrap_used, unsafe_code)] // a test may fail loudly, and calls as C does

mod support;

use support::{Plugin, connected};

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(7)) as u8).collect()
}

fn plugin() -> Plugin {
    // SAFETY: every test sets the same, before anything reads it.
    unsafe { std::env::set_var("SRD_NCCL_IFACE", "lo") };
    Plugin::load().unwrap()
}

#[test]
fn a_megabyte_goes_through() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    for bytes in [1 << 20, 0, 1, 8, 9000, 70_000] {
        let data = pattern(bytes, bytes);
        let mut room = vec![0; bytes + 100];
        // SAFETY: both buffers outlive their requests.
        let (receive, send) = unsafe {
            (
                right.irecv(receiver, &[(room.as_mut_ptr(), room.len(), 5)]).unwrap(),
                left.isend(sender, data.as_ptr(), data.len(), 5).unwrap(),
            )
        };
        let mut ended = (None, None);
        while ended.0.is_none() || ended.1.is_none() {
            ended.0 = ended.0.or_else(|| left.test(send).unwrap());
            ended.1 = ended.1.or_else(|| right.test(receive).unwrap());
        }
        let size = i32::try_from(bytes).unwrap();
        assert_eq!((ended.0.unwrap()[0], ended.1.unwrap()[0]), (size, size));
        assert!(room[..bytes] == data[..], "{bytes} bytes");
        assert!(room[bytes..].iter().all(|byte| *byte == 0));
    }
    left.close_send(sender).unwrap();
    right.close_recv(receiver).unwrap();
    left.finalize().unwrap();
    right.finalize().unwrap();
}
