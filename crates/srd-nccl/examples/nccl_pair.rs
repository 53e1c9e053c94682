//! Two processes that use the plugin like two ranks of NCCL: one connection in each direction,
//! handles that the program transfers itself, and up to eight requests in progress. For comparison,
//! the same measurements over plain TCP sockets.
//!
//! ```text
//! nccl_pair serve 10.0.0.1:7000
//! nccl_pair 10.0.0.1:7000 check 1,9000,1048576     compares every byte, of groups, too
//! nccl_pair 10.0.0.1:7000 rate 1048576 1000        messages in one direction: Gb/s
//! nccl_pair 10.0.0.1:7000 half 8 10000             request and answer: half of the round trip
//! nccl_pair 10.0.0.1:7000 tcp-rate 1048576 1000    `rate` over four TCP sockets
//! nccl_pair 10.0.0.1:7000 tcp-half 8 10000         `half` over four TCP sockets
//! nccl_pair 10.0.0.1:7000 hang 0                   the client stops: a receive fails
//! nccl_pair 10.0.0.1:7000 pour 0                   the client stops: small messages to it fail
//! nccl_pair 10.0.0.1:7000 both 0                   the client stops: a message and a receive fail
//! ```
//!
//! `NCCL_PAIR_PLUGIN` names the library of another plugin to compare with. It must support version
//! 12.

#![allow(clippy::unwrap_used, unsafe_code)] // fails loudly, and calls like C code

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::ptr::null_mut;
use std::time::Instant;

use nccl_net_srd::abi::{HANDLE_BYTES, NcclResult};
use support::{Plugin, Request};

/// Number of requests in progress at the same time; NCCL's proxy has as many steps.
const DEPTH: usize = 8;
/// Number of sockets in the comparison with TCP.
const SOCKETS: usize = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => serve(address),
        [address, what, sizes, ref rest @ ..] => ask(address, what, sizes, rest.first().copied()),
        _ => {
            eprintln!("nccl_pair serve ADDRESS | nccl_pair ADDRESS WHAT BYTES[,BYTES] [COUNT]");
            std::process::exit(2);
        }
    }
}

/// Accepts one client at the address, and runs the measurement that the client requests.
fn serve(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    println!("ready at {}", listener.local_addr().unwrap());
    let (mut control, _) = listener.accept().unwrap();
    let job = Job::read(&mut control);
    match job.what.as_str() {
        "tcp-rate" | "tcp-half" => {
            let sockets = (0..SOCKETS).map(|_| listener.accept().unwrap().0).collect();
            job.run(&mut Sockets::new(sockets), control, false);
        }
        "pour" => {
            let pair = Pair::open(&mut control);
            println!("pours");
            println!("it ended: {:?}", pair.pour());
            pair.close();
        }
        "both" => {
            let pair = Pair::open(&mut control);
            let mut room = [0_u8; 8];
            let request = pair.post(&mut [&mut room[..]], &[0]);
            let data = vec![1; 1 << 20];
            let sent = pair.begin(&data, 0);
            println!("waits");
            println!("the message ended: {:?}", pair.plugin.wait(sent).map(|_| ()));
            let begin = Instant::now();
            let ended = pair.plugin.wait(request).map(|_| ());
            println!("the receive ended: {ended:?} after {} ms", begin.elapsed().as_millis());
            pair.close();
        }
        "hang" => {
            let pair = Pair::open(&mut control);
            let mut room = [0_u8; 8];
            let request = pair.post(&mut [&mut room[..]], &[0]);
            println!("waits");
            println!("it ended: {:?}", pair.plugin.wait(request).map(|sizes| sizes[0]));
            pair.close();
        }
        _ => {
            let mut pair = Pair::open(&mut control);
            job.run(&mut pair, control, false);
            pair.close();
        }
    }
}

fn ask(address: &str, what: &str, sizes: &str, count: Option<&str>) {
    let mut control = TcpStream::connect(address).unwrap();
    let job = Job {
        what: what.into(),
        sizes: sizes.split(',').map(|size| size.parse().unwrap()).collect(),
        count: count.map_or(1, |count| count.parse().unwrap()),
    };
    job.write(&mut control);
    match what {
        "tcp-rate" | "tcp-half" => {
            let sockets = (0..SOCKETS).map(|_| TcpStream::connect(address).unwrap()).collect();
            job.run(&mut Sockets::new(sockets), control, true);
        }
        "hang" | "pour" | "both" => {
            let _pair = Pair::open(&mut control);
            println!("connected");
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        _ => {
            let mut pair = Pair::open(&mut control);
            job.run(&mut pair, control, true);
            pair.close();
        }
    }
}

/// A measurement to run.
struct Job {
    what: String,
    sizes: Vec<usize>,
    count: usize,
}

impl Job {
    fn write(&self, to: &mut TcpStream) {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let line = format!("{} {} {}", self.what, sizes.join(","), self.count);
        to.write_all(format!("{line:<200}").as_bytes()).unwrap();
    }

    fn read(from: &mut TcpStream) -> Self {
        let mut line = [0; 200];
        from.read_exact(&mut line).unwrap();
        let line = String::from_utf8(line.to_vec()).unwrap();
        let mut words = line.split_whitespace();
        Self {
            what: words.next().unwrap().into(),
            sizes: words.next().unwrap().split(',').map(|size| size.parse().unwrap()).collect(),
            count: words.next().unwrap().parse().unwrap(),
        }
    }

    fn run(&self, link: &mut dyn Stream, mut control: TcpStream, client: bool) {
        for &bytes in &self.sizes {
            match self.what.trim_start_matches("tcp-") {
                "check" => check(link, bytes, client),
                "rate" => rate(link, bytes, self.count, client),
                "half" => half(link, bytes, self.count, client),
                other => panic!("{other}: check, rate or half"),
            }
        }
        // Both ends close at the same time.
        control.write_all(b"!").unwrap();
        control.read_exact(&mut [0]).unwrap();
    }
}

/// A connection that transfers messages in order, in both directions.
trait Stream {
    /// Sends the data `count` times.
    fn send(&mut self, data: &[u8], count: usize);
    /// Receives `count` messages, each into the same buffer.
    fn receive(&mut self, room: &mut [u8], count: usize);
    /// Posts a receive for the next message before the message arrives, as NCCL does.
    fn post_next(&mut self, room: &mut [u8]);
    /// Receives the message for which a receive was posted.
    fn take_next(&mut self, room: &mut [u8]);
    /// If `client`, sends messages with tags in mixed order; otherwise receives them as one group.
    fn group(&mut self, bytes: usize, client: bool);
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + 8);
    let mut at = seed as u64;
    while data.len() < bytes {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        data.extend_from_slice(&at.to_le_bytes());
    }
    data.truncate(bytes);
    data
}

fn check(link: &mut dyn Stream, bytes: usize, client: bool) {
    let begin = Instant::now();
    for seed in 1..3 {
        let data = pattern(seed, bytes);
        if client {
            link.send(&data, 1);
        } else {
            let mut room = vec![0; bytes];
            link.receive(&mut room, 1);
            assert!(room == data, "{bytes} bytes came otherwise than they were sent");
        }
    }
    if bytes <= 16 << 20 {
        link.group(bytes, client);
    }
    println!("{bytes} bytes are right, {:.3} s", begin.elapsed().as_secs_f64());
}

/// Measures messages in one direction, until the last message was received.
fn rate(link: &mut dyn Stream, bytes: usize, count: usize, client: bool) {
    let data = pattern(1, bytes);
    let mut room = vec![0; bytes];
    let mut end = [0; 1];
    // The first round only warms up.
    for (count, told) in [(count / 10 + 1, false), (count, client)] {
        let begin = Instant::now();
        if client {
            link.send(&data, count);
            link.receive(&mut end, 1);
        } else {
            link.receive(&mut room, count);
            link.send(&end, 1);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let gbps = (bytes * count * 8) as f64 / seconds / 1e9;
        if told {
            println!("{bytes} bytes: {gbps:.2} Gb/s");
        }
    }
}

fn half(link: &mut dyn Stream, bytes: usize, count: usize, client: bool) {
    let data = pattern(1, bytes);
    let mut room = vec![0; bytes];
    let mut times = Vec::with_capacity(count);
    if !client {
        link.post_next(&mut room);
    }
    for round in 1..=count {
        let begin = Instant::now();
        if client {
            link.send(&data, 1);
            link.post_next(&mut room); // while the message is in transit
            link.take_next(&mut room);
        } else {
            link.take_next(&mut room);
            link.send(&data, 1);
            if round < count {
                link.post_next(&mut room);
            }
        }
        times.push(begin.elapsed().as_secs_f64() * 5e5);
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(count - 1) * percent / 100];
    if client {
        println!("{bytes} bytes: half {:.2} us, 99 %: {:.2} us", at(50), at(99));
    }
}

/// A connection in each direction.
struct Pair {
    plugin: Plugin,
    sender: *mut c_void,
    receiver: *mut c_void,
    next: Request,
}

impl Pair {
    fn open(control: &mut TcpStream) -> Self {
        let plugin = Plugin::load().unwrap();
        let (handle, listener) = plugin.listen().unwrap();
        control.write_all(&handle).unwrap();
        let mut theirs = [0; HANDLE_BYTES];
        control.read_exact(&mut theirs).unwrap();
        let (mut sender, mut receiver): (*mut c_void, *mut c_void) = (null_mut(), null_mut());
        while sender.is_null() || receiver.is_null() {
            if sender.is_null() {
                sender = plugin.connect(&mut theirs).unwrap_or_else(|error| {
                    println!("not connected: {error:?}");
                    std::process::exit(1);
                });
            }
            if receiver.is_null() {
                receiver = plugin.accept(listener).unwrap();
            }
        }
        plugin.close_listen(listener).unwrap();
        Self { plugin, sender, receiver, next: null_mut() }
    }

    fn post(&self, rooms: &mut [&mut [u8]], tags: &[i32]) -> Request {
        let rooms: Vec<_> =
            rooms.iter_mut().zip(tags).map(|(r, tag)| (r.as_mut_ptr(), r.len(), *tag)).collect();
        loop {
            // SAFETY: every caller waits for the request before it drops its buffers.
            let request = unsafe { self.plugin.irecv(self.receiver, &rooms) }.unwrap();
            if !request.is_null() {
                return request;
            }
        }
    }

    fn begin(&self, data: &[u8], tag: i32) -> Request {
        loop {
            // SAFETY: every caller waits for the request before it drops its data.
            let request =
                unsafe { self.plugin.isend(self.sender, data.as_ptr(), data.len(), tag) }.unwrap();
            if !request.is_null() {
                return request;
            }
        }
    }

    /// Sends small messages until a send fails. Returns the error.
    fn pour(&self) -> NcclResult {
        loop {
            // SAFETY: the data is static.
            let sent = unsafe { self.plugin.isend(self.sender, b"drop".as_ptr(), 4, 0) };
            let ended = sent.and_then(|request| {
                if request.is_null() { Ok(()) } else { self.plugin.wait(request).map(|_| ()) }
            });
            if let Err(error) = ended {
                return error;
            }
        }
    }

    fn close(self) {
        self.plugin.close_send(self.sender).unwrap();
        self.plugin.close_recv(self.receiver).unwrap();
        self.plugin.finalize().unwrap();
    }
}

impl Stream for Pair {
    fn send(&mut self, data: &[u8], count: usize) {
        let mut under_way = VecDeque::new();
        for _ in 0..count {
            under_way.push_back(self.begin(data, 0));
            if under_way.len() == DEPTH {
                self.plugin.wait(under_way.pop_front().unwrap()).unwrap();
            }
        }
        for request in under_way {
            self.plugin.wait(request).unwrap();
        }
    }

    fn receive(&mut self, room: &mut [u8], count: usize) {
        let mut under_way = VecDeque::new();
        for _ in 0..count {
            under_way.push_back(self.post(&mut [&mut *room], &[0]));
            if under_way.len() == DEPTH {
                self.plugin.wait(under_way.pop_front().unwrap()).unwrap();
            }
        }
        for request in under_way {
            let sizes = self.plugin.wait(request).unwrap();
            assert_eq!(usize::try_from(sizes[0]).unwrap(), room.len());
        }
    }

    fn post_next(&mut self, room: &mut [u8]) {
        self.next = self.post(&mut [room], &[0]);
    }

    fn take_next(&mut self, room: &mut [u8]) {
        let sizes = self.plugin.wait(self.next).unwrap();
        assert_eq!(usize::try_from(sizes[0]).unwrap(), room.len());
    }

    fn group(&mut self, bytes: usize, client: bool) {
        let tags = [3, 1, 4, 2];
        if client {
            let data = tags.map(|tag| pattern(usize::try_from(tag).unwrap(), bytes / 4));
            let sent: Vec<_> = tags.iter().zip(&data).map(|(tag, d)| self.begin(d, *tag)).collect();
            for request in sent {
                self.plugin.wait(request).unwrap();
            }
            return;
        }
        let mut rooms: Vec<_> = (0..4).map(|_| vec![0; bytes / 4 + 10]).collect();
        let mut parts: Vec<&mut [u8]> = rooms.iter_mut().map(|room| &mut room[..]).collect();
        let request = self.post(&mut parts, &[1, 2, 3, 4]);
        let sizes = self.plugin.wait(request).unwrap();
        for (at, room) in rooms.iter().enumerate() {
            assert_eq!(usize::try_from(sizes[at]).unwrap(), bytes / 4);
            assert!(room[..bytes / 4] == pattern(at + 1, bytes / 4));
        }
    }
}

/// Sockets over which each message is divided, with one part for each socket. One thread polls the
/// sockets, as in NCCL's socket transport.
struct Sockets(Vec<TcpStream>);

impl Sockets {
    fn new(sockets: Vec<TcpStream>) -> Self {
        for socket in &sockets {
            socket.set_nodelay(true).unwrap();
            socket.set_nonblocking(true).unwrap();
        }
        Self(sockets)
    }

    /// Transfers the message `count` times. `step` transfers some bytes of a range over one socket.
    fn run(
        &mut self,
        bytes: usize,
        count: usize,
        mut step: impl FnMut(&mut TcpStream, Range<usize>) -> std::io::Result<usize>,
    ) {
        // A small message uses one socket.
        let part = bytes.div_ceil(SOCKETS).max(bytes.min(65_536)).max(1);
        let parts: Vec<_> = (0..bytes).step_by(part).map(|at| at..bytes.min(at + part)).collect();
        let mut moved = vec![0; parts.len()];
        let is_over = |moved: &[usize]| {
            moved.iter().zip(&parts).all(|(moved, part)| *moved == part.len() * count)
        };
        while !is_over(&moved) {
            for ((socket, part), moved) in self.0.iter_mut().zip(&parts).zip(&mut moved) {
                if *moved == part.len() * count {
                    continue;
                }
                match step(socket, part.start + *moved % part.len()..part.end) {
                    Ok(0) => panic!("the other end is gone"),
                    Ok(bytes) => *moved += bytes,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
                }
            }
        }
    }
}

impl Stream for Sockets {
    fn send(&mut self, data: &[u8], count: usize) {
        self.run(data.len(), count, |socket, range| socket.write(&data[range]));
    }

    fn receive(&mut self, room: &mut [u8], count: usize) {
        self.run(room.len(), count, |socket, range| socket.read(&mut room[range]));
    }

    fn post_next(&mut self, _: &mut [u8]) {}

    fn take_next(&mut self, room: &mut [u8]) {
        self.receive(room, 1);
    }

    fn group(&mut self, _: usize, _: bool) {}
}
