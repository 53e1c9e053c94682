//! A TCP connection between two instances on which data flows all the time. It checks that the
//! connection continues, and measures the longest time without data.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::machine::{PATIENCE, connect, listen, wait_until};

/// Number of bytes in one write. `EVERY` is the pause between two writes, which leaves processor
/// time for other programs.
const WRITE_BYTES: usize = 16 << 10;
const EVERY: Duration = Duration::from_millis(4);
/// Number of bytes after which the stream repeats: a prime number, so a wrong offset is noticed.
const PERIOD: usize = 262_139;

/// The bytes of a period, and the first bytes of the next one: each write is a part of them.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 1_u32;
    let mut next = || {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    let mut bytes: Vec<u8> = (0..PERIOD).map(|_| next()).collect();
    bytes.extend_from_within(..WRITE_BYTES);
    bytes
});

/// Returns the bytes of the stream from an offset on; at most [`WRITE_BYTES`].
fn stream(at: u64, count: usize) -> &'static [u8] {
    let from = usize::try_from(at % PERIOD as u64).unwrap();
    &PATTERN[from..from + count]
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    received: AtomicU64,
    longest_ns: AtomicU64,
}

/// A TCP transfer that runs on two threads until [`Transfer::end`] is called.
pub(crate) struct Transfer {
    shared: Arc<Shared>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<u64>,
}

impl Transfer {
    /// Begins a transfer from one network namespace to an address and port in another.
    pub(crate) fn begin(from: &str, to: &str, address: [u8; 4], port: u16) -> Self {
        let listener = listen(to, port);
        let mut client = connect(from, address, port).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        let shared = Arc::new(Shared::default());
        let of_sender = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while !of_sender.is_over.load(Ordering::Relaxed) {
                let chunk = stream(sent, WRITE_BYTES);
                client.write_all(chunk).expect("the connection has ended at its sender");
                sent += WRITE_BYTES as u64;
                thread::sleep(EVERY);
            }
            sent
        });
        let of_receiver = Arc::clone(&shared);
        let receiver = thread::spawn(move || {
            let Shared { received, longest_ns, .. } = &*of_receiver;
            let (mut at, mut buffer, mut last) = (0, vec![0; WRITE_BYTES], Instant::now());
            loop {
                let read = server.read(&mut buffer);
                let read = read.expect("the connection has ended at its receiver");
                if read == 0 {
                    return at;
                }
                let is_right = buffer[..read] == *stream(at, read);
                assert!(is_right, "a byte is wrong between {at} and {}", at + read as u64);
                at += read as u64;
                received.store(at, Ordering::Relaxed);
                let silent = u64::try_from(last.elapsed().as_nanos()).unwrap();
                longest_ns.fetch_max(silent, Ordering::Relaxed);
                last = Instant::now();
            }
        });
        Self { shared, sender, receiver }
    }

    /// Waits until `bytes` further bytes have arrived. Returns the longest time without data since
    /// the last call, or since the beginning.
    pub(crate) fn go_on(&self, bytes: u64) -> Duration {
        let before = self.shared.received.load(Ordering::Relaxed);
        wait_until("bytes of the transfer", || {
            let has_ended = self.sender.is_finished() || self.receiver.is_finished();
            assert!(!has_ended, "the connection has ended");
            self.shared.received.load(Ordering::Relaxed) >= before + bytes
        });
        Duration::from_nanos(self.shared.longest_ns.swap(0, Ordering::Relaxed))
    }

    /// Ends the transfer, and checks that all bytes that were sent have arrived. Returns their
    /// number.
    pub(crate) fn end(self) -> u64 {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let (sent, received) = (self.sender.join().unwrap(), self.receiver.join().unwrap());
        assert_eq!(sent, received, "bytes that were sent, and that came");
        received
    }
}
