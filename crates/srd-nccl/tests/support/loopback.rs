//! Two communicators of one process on loopback.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use nccl_net_srd::abi::NcclResult;

use super::{Plugin, Request};

/// Longest wait of a test for any step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns bytes that repeat after 65,536.
pub(crate) fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(7)) & 0xff;
    let once: Vec<u8> = (0..bytes.min(1 << 16)).map(|at| u8::try_from(byte(at)).unwrap()).collect();
    let mut all = once.repeat(bytes.div_ceil(1 << 16));
    all.truncate(bytes);
    all
}

/// Returns a communicator on loopback. Its timeout for peers that never answer is short, but longer
/// than a thread may be delayed on a busy machine.
pub(crate) fn plugin() -> Plugin {
    // SAFETY: every test sets the same value, and only the plugin reads it.
    unsafe {
        std::env::set_var("SRD_NCCL_IFACE", "lo");
        std::env::set_var("SRD_NCCL_PEER_TIMEOUT_MS", "20000");
        std::env::set_var("SRD_NCCL_ANSWER_TIMEOUT_MS", "4000");
    }
    Plugin::load().unwrap()
}

/// Sends a message, and repeats the call while no request is free.
pub(crate) fn send(from: &Plugin, sender: *mut c_void, data: &[u8], tag: i32) -> Request {
    let begin = Instant::now();
    loop {
        // SAFETY: the tests keep the data until the request has ended.
        let request = unsafe { from.isend(sender, data.as_ptr(), data.len(), tag) }.unwrap();
        if !request.is_null() {
            return request;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
}

/// Receives a group into buffers with these tags.
pub(crate) fn receive(at: &Plugin, receiver: *mut c_void, rooms: &mut [(Vec<u8>, i32)]) -> Request {
    let rooms: Vec<_> = rooms.iter_mut().map(|(r, tag)| (r.as_mut_ptr(), r.len(), *tag)).collect();
    // SAFETY: the tests keep the buffers until the request has ended.
    let request = unsafe { at.irecv(receiver, &rooms) }.unwrap();
    assert!(!request.is_null());
    request
}

/// Tests a request of one plugin until the request has ended. The endpoint's thread serves the
/// other plugin.
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

/// Checks that a message arrives.
pub(crate) fn works(left: &Plugin, right: &Plugin, (sender, receiver): (*mut c_void, *mut c_void)) {
    let data = pattern(1, 1 << 20);
    let mut rooms = [(vec![0; 1 << 20], 0)];
    let expected = receive(right, receiver, &mut rooms);
    let sent = send(left, sender, &data, 0);
    end(right, expected).unwrap();
    end(left, sent).unwrap();
    assert!(rooms[0].0 == data);
}
