//! Two communicators of one process, on loopback.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use nccl_net_srd::abi::NcclResult;

use super::{Plugin, Request};

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(7)) & 0xff;
    (0..bytes).map(|at| u8::try_from(byte(at)).unwrap()).collect()
}

/// A communicator on loopback. Peers that never answer are given up soon, and later than a thread
/// of a busy machine stands still.
pub(crate) fn plugin() -> Plugin {
    // SAFETY: every test sets the same, and nothing but the plugin reads it.
    unsafe {
        std::env::set_var("SRD_NCCL_IFACE", "lo");
        std::env::set_var("SRD_NCCL_PEER_TIMEOUT_MS", "20000");
        std::env::set_var("SRD_NCCL_ANSWER_TIMEOUT_MS", "4000");
    }
    Plugin::load().unwrap()
}

/// Sends, again if there is no room.
pub(crate) fn send(from: &Plugin, sender: *mut c_void, data: &[u8], tag: i32) -> Request {
    let begin = Instant::now();
    loop {
        // SAFETY: the tests keep what they send until it has ended.
        let request = unsafe { from.isend(sender, data.as_ptr(), data.len(), tag) }.unwrap();
        if !request.is_null() {
            return request;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
}

/// Receives a group: rooms with their tags.
pub(crate) fn receive(at: &Plugin, receiver: *mut c_void, rooms: &mut [(Vec<u8>, i32)]) -> Request {
    let rooms: Vec<_> = rooms.iter_mut().map(|(r, tag)| (r.as_mut_ptr(), r.len(), *tag)).collect();
    // SAFETY: the tests keep rooms until what comes has ended.
    let request = unsafe { at.irecv(receiver, &rooms) }.unwrap();
    assert!(!request.is_null());
    request
}

/// Tests a request of one plugin until it has ended, while the other works, too.
pub(crate) fn end(plugin: &Plugin, request: Request) -> Result<[i32; 8], NcclResult> {
    let begin = Instant::now();
    loop {
        if let Some(sizes) = plugin.test(request)? {
            return Ok(sizes);
        }
        assert!(begin.elapsed() < PATIENCE, "a request has not ended");
    }
}

/// Sends until the plugin reports that the other end is closed.
pub(crate) fn is_refused(from: &Plugin, sender: *mut c_void, data: &[u8]) {
    let begin = Instant::now();
    // SAFETY: the tests keep the data until the connection is closed.
    while unsafe { from.isend(sender, data.as_ptr(), data.len(), 0) }
        != Err(NcclResult::RemoteError)
    {
        assert!(begin.elapsed() < PATIENCE, "sends go on");
    }
}

/// Sends something and receives it.
pub(crate) fn works(left: &Plugin, right: &Plugin, (sender, receiver): (*mut c_void, *mut c_void)) {
    let data = pattern(1, 1 << 20);
    let mut rooms = [(vec![0; 1 << 20], 0)];
    let expected = receive(right, receiver, &mut rooms);
    let sent = send(left, sender, &data, 0);
    end(right, expected).unwrap();
    end(left, sent).unwrap();
    assert!(rooms[0].0 == data);
}
