//! Many threads call two hosts at the same time, in addition to their progress threads. Also used
//! with a tool that detects races (`docs/testing.md`).

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]
#![allow(unsafe_code, reason = "hosts work in memory that is named by address")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use srd_efa::layer::{
    Iov, Message, OperationCompletion, Outcome, Peer, Receive, Refused, Selector, Until,
};
use srd_efa::rdm::Rdm;
use srd_host::{Host, Options, Sink};

const THREADS: u64 = 8;
const MESSAGES: u64 = 40;

/// Contexts of the operations that have ended.
#[derive(Clone, Default)]
struct ContextSink(Arc<Mutex<HashSet<u64>>>);

impl Sink for ContextSink {
    type Layer = Rdm;

    fn has_room(&mut self) -> bool {
        true
    }

    fn done(&mut self, done: OperationCompletion, _: &Rdm) {
        assert_eq!(done.outcome, Outcome::Ok);
        assert!(self.0.lock().unwrap().insert(done.context), "{done:?} came twice");
    }

    fn notice(&mut self, notice: srd_net::Notice) {
        println!("{notice}");
    }

    fn broken(&mut self, error: &std::io::Error) {
        panic!("{error}");
    }
}

struct TestHost {
    host: Host<ContextSink>,
    ends: ContextSink,
}

fn open() -> TestHost {
    let ends = ContextSink::default();
    let mut options = Options::at("127.0.0.1:0".parse().unwrap());
    options.paths = 4;
    let host = Host::open(&options, ends.clone()).unwrap();
    TestHost { host, ends }
}

impl TestHost {
    fn call<R>(&self, f: impl FnOnce(srd_host::Call<'_, ContextSink>) -> R) -> R {
        // SAFETY: every caller waits for the end of the operation before it releases a buffer.
        unsafe { self.host.handle().call(f) }.unwrap()
    }

    fn has_ended(&self, context: u64) -> bool {
        self.host.handle().poll();
        self.ends.0.lock().unwrap().remove(&context)
    }
}

/// Repeats an operation until it is accepted.
fn until_taken(mut ask: impl FnMut() -> Result<(), Refused>) {
    while let Err(refused) = ask() {
        assert_eq!(refused, Refused::Again);
    }
}

fn piece(of: &mut [u8]) -> Iov {
    Iov { addr: of.as_mut_ptr().expose_provenance() as u64, length: of.len() as u64 }
}

fn work(me: u64, a: &TestHost, b: &TestHost, to: Peer) {
    for n in 0..MESSAGES {
        let bytes = if n % 8 == 0 { 90_000 } else { 1 + usize::try_from(n).unwrap() * 50 };
        let byte = u8::try_from(me * 16 + n % 16).unwrap();
        let (mut out, mut room) = (vec![byte; bytes], vec![0; bytes]);
        let (tag, context) = (me << 32 | n, me << 32 | n);
        let (iov, into) = (&[piece(&mut out)], &[piece(&mut room)]);
        let want = Selector { tag, ignore: 0, source: None };
        let (multi, signaled, tagged) = (None, true, true);
        let receive = Receive { tagged, want, iov: into, context, multi, signaled };
        let (tag, data, until) = (Some(tag), None, Until::Transmitted);
        let message = Message { to, tag, iov, data, context, until, signaled };
        until_taken(|| {
            b.call(|mut call| {
                let (rdm, mut world, _) = call.parts();
                rdm.recv(&mut world, receive)
            })
        });
        until_taken(|| {
            a.call(|mut call| {
                let (rdm, mut world, _) = call.parts();
                rdm.send(&mut world, message)
            })
        });
        let start = Instant::now();
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            received |= b.has_ended(context);
            sent |= a.has_ended(context);
            assert!(start.elapsed() < Duration::from_secs(120), "a message is lost");
        }
        assert!(room.iter().all(|got| *got == byte));
    }
}

#[test]
fn eight_threads_use_two_hosts_at_once() {
    let (a, b) = (open(), open());
    let address = b.host.address();
    let to = a.call(|mut call| {
        let (rdm, mut world, _) = call.parts();
        rdm.add_peer(&mut world, address, 0).unwrap()
    });
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let (a, b) = (&a, &b);
            scope.spawn(move || work(me, a, b, to));
        }
        // In the meantime other threads wait for a descriptor, and leave the work to the progress
        // threads.
        scope.spawn(|| {
            for _ in 0..100 {
                a.host.handle().hand_over();
                b.host.handle().hand_over();
                std::thread::sleep(Duration::from_micros(300));
            }
        });
    });
    assert!(a.ends.0.lock().unwrap().is_empty() && b.ends.0.lock().unwrap().is_empty());
    a.host.close();
    b.host.close();
}
