//! A vhost-user front end that tries in every way to make its card wait. The card must continue to
//! serve its other guests. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::front_end::kinds::{self, Kind};
use crate::front_end::{FrontEnd, PLAIN, REGION_BYTES, frame};
use crate::support::cloud_text::{Instance, cloud};
use crate::support::machine::*;
use srd_vhost::message::request;

/// Longest time without an answer that is permitted. If the card waited for a front end, the time
/// would exceed any limit.
const GAP_MAX: Duration = Duration::from_secs(60);

fn cloud_file(machine: &Machine) -> String {
    let instance = |(name, interface, last)| Instance {
        name,
        interface,
        kind: "c7i.large",
        host: "",
        last,
        lines: "",
    };
    let instances = [("Pa", "a", 10), ("Pb", "b", 11), ("Pc", "c", 12)].map(instance);
    machine.cloud("cloud.toml", &cloud("main", "'all from 10.0.0.0/16'", &instances))
}

/// Sends an echo request each millisecond until `is_over` is set. Returns the number of echoes, and
/// the longest time between two of them.
fn echoes(a: &str, b: &str, is_over: &AtomicBool) -> (u64, Duration) {
    let bind = |of: &str, host: u8| {
        let at = (Ipv4Addr::new(10, 0, 1, host), 7);
        let socket = within(of, || UdpSocket::bind(at).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        socket
    };
    let (asks, answers) = (bind(a, 10), bind(b, 11));
    let mut buffer = [0; 64];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((n, from)) = answers.recv_from(&mut buffer) {
                    let _ = answers.send_to(&buffer[..n], from);
                }
            }
        });
        let (mut count, mut gap, mut last) = (0, Duration::ZERO, None);
        while !is_over.load(Ordering::Relaxed) {
            let _ = asks.send_to(b"?", "10.0.1.11:7");
            let next = Instant::now() + Duration::from_millis(1);
            while Instant::now() < next {
                if asks.recv_from(&mut buffer).is_ok() {
                    let now = Instant::now();
                    gap = gap.max(last.map_or(Duration::ZERO, |last| now - last));
                    (count, last) = (count + 1, Some(now));
                }
            }
        }
        // The time since the last echo counts as well.
        (count, gap.max(last.map_or(GAP_MAX, |last| last.elapsed())))
    })
}

/// Connects a front end to the socket of a card. The card may open the socket later.
fn connect(path: &Path) -> FrontEnd {
    let mut front = FrontEnd::connect(path);
    front.agree(&mut ());
    front
}

fn requests() -> Vec<(u32, Vec<u8>)> {
    let words = |words: &[u64]| words.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
    let region = [0, REGION_BYTES, 0, 0];
    vec![
        (request::SET_VRING_KICK, words(&[1])),
        (request::SET_VRING_CALL, words(&[0])),
        (request::SET_VRING_ERR, words(&[1])),
        (request::SET_MEM_TABLE, [&words(&[1])[..], &words(&region)].concat()),
        (request::ADD_MEM_REG, [&words(&[0])[..], &words(&region)].concat()),
    ]
}

/// Checks that the card refuses a file descriptor of this kind with an answer, and then closes the
/// connection of the front end.
fn is_refused(path: &Path, kind: &Kind, request: u32, body: &[u8]) {
    let mut front = connect(path);
    assert!(!front.is_done(&mut (), request, body, &[kind.as_fd()]), "{}, {request}", kind.name);
    assert!(front.is_given_up(&mut ()), "{}, {request}", kind.name);
}

#[test]
fn regression_a_hostile_front_end_holds_up_no_other_guest() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("v");
    let file = cloud_file(&machine);
    let path = machine.path("c.sock");
    let at = format!("{}c={}", machine.prefix, path.display());
    let _card = machine.up(&[&file, "--vhost-user", &at]);
    let [a, b] = ["a", "b"].map(|name| machine.instance(name));
    let is_over = AtomicBool::new(false);
    let (count, gap) = std::thread::scope(|scope| {
        let echoes = scope.spawn(|| echoes(&a, &b, &is_over));
        let _ending = Ending(&is_over);
        hostile(&machine, &path, &a);
        is_over.store(true, Ordering::Relaxed);
        echoes.join().unwrap()
    });
    println!("{count} echoes, the longest time between two: {:.1} ms", gap.as_secs_f64() * 1e3);
    assert!(count > 0 && gap < GAP_MAX, "{count} echoes, {gap:?}");
    let log = std::fs::read_to_string(machine.path("up.log")).unwrap();
    for words in ["no event descriptor", "no file in memory", "cut off", "F_SEAL_SHRINK"] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// Runs the attempts of a front end, one after another.
fn hostile(machine: &Machine, path: &Path, other: &str) {
    for kind in kinds::all(machine.directory.path()) {
        if kind.name == kinds::STOPPED {
            continue;
        }
        for (request, body) in requests() {
            is_refused(path, &kind, request, &body);
        }
    }
    for (n, (request, body)) in requests().into_iter().enumerate() {
        let directory = machine.path(&format!("stopped{n}"));
        std::fs::create_dir(&directory).unwrap();
        let Some(kind) = kinds::stopped(&directory) else { break };
        is_refused(path, &kind, request, &body);
        // The card serves the other guests for a while beside the stopped file.
        std::thread::sleep(SILENCE);
    }
    // The front end passes a sparse file as its memory. The file could be sealed against
    // truncation, but is not, so the card must refuse it.
    let mut front = connect(path);
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("guest", flags).unwrap();
    rustix::fs::ftruncate(&file, REGION_BYTES).unwrap();
    let (table, body) = requests().swap_remove(3);
    assert!(!front.is_done(&mut (), table, &body, &[file.as_fd()]));
    // The front end truncates its memory while frames are in flight.
    let status = || machine.json(&["card", "status"])["instances"].clone();
    let is_running = || {
        let all = status();
        let all = all.as_array().unwrap();
        all.iter().any(|of| of["interfaces"][0]["vhost_user"]["running"] == true)
    };
    for _ in 0..3 {
        let mut front = connect(path);
        front.introduce(&mut (), PLAIN, [0, 0]);
        wait_until("the rings run", is_running);
        front.send_frame(&frame(60));
        front.cut_off_wholly();
        front.kick(1);
        assert!(front.is_given_up(&mut ()));
    }
    full_events(path, other, &is_running);
}

/// The event descriptors of the front end are full and blocking. The card must still deliver frames
/// to the guest.
fn full_events(path: &Path, other: &str, is_running: &dyn Fn() -> bool) {
    let mut front = connect(path);
    front.introduce(&mut (), PLAIN, [0, 0]);
    wait_until("the rings run", is_running);
    for ring in &front.rings[..2] {
        for event in [&ring.call, &ring.error] {
            rustix::io::ioctl_fionbio(event, false).unwrap();
            rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).unwrap_or_default();
        }
    }
    front.give_buffers(100);
    let socket = within(other, || UdpSocket::bind("10.0.1.10:0").unwrap());
    wait_until("frames in the guest's ring", || {
        let _ = socket.send_to(b"!", "10.0.1.12:9");
        !front.used(0).is_empty()
    });
}
