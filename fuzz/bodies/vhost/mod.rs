//! Fuzz target of the vhost-user device. A front end and its driver send and write arbitrary data,
//! in the order of the input.
//!
//! Each step is an opcode and its arguments ([`step`]). After all steps, the frames of a correct
//! front end must pass, and no file descriptor and no mapping of memory must be left.

mod front;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use srd_vhost::{Counts, Device, Frame, HEADER_BYTES};

use front::{Front, PACKET_BYTES, REGION_BYTES};

/// Maximum number of steps of one input. More steps would only be slow.
const STEPS_MAX: usize = 256;
/// Longest time for which other tests of this process may keep file descriptors that they have
/// opened during this test.
const LEFT_MAX: Duration = Duration::from_secs(60);
/// Number of bytes of the longest packet in a frame.
const FRAME_BYTES_MAX: usize = HEADER_BYTES + 65_535;

/// The input that was not read yet. After its end, reads return zeros.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (now, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        now.to_vec()
    }

    /// Returns an address within the memory of the guest, or outside of it.
    fn place(&mut self) -> u64 {
        let (kind, at) = (self.byte(), u64::from(self.half()));
        match kind % 8 {
            0..=4 => at * 16 % (3 * REGION_BYTES),
            5 => REGION_BYTES - 1 - at % 64,
            6 => u64::MAX - at,
            _ => at << 32,
        }
    }
}

thread_local! {
    static DEVICE: RefCell<Option<(tempfile::TempDir, Device)>> = const { RefCell::new(None) };
}

/// Runs a script. Returns the number of frames that the device has received from the driver, and
/// that it has delivered to it.
pub(crate) fn vhost(bytes: &[u8]) -> (u64, u64) {
    DEVICE.with_borrow_mut(|kept| {
        let (directory, device) = kept.get_or_insert_with(|| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("port");
            let mut device = Device::open(&path).expect("a device");
            // The first front end that requests a signal causes descriptors to be created that
            // stay open.
            good(&mut device, &path);
            (directory, device)
        });
        let path = directory.path().join("port");
        let before = (descriptors(), mappings());
        let mut front = Front::connect(&path);
        let mut script = Script(bytes);
        let mut frames = (0, 0);
        let mut counts = device.counts();
        for _ in 0..STEPS_MAX {
            if script.0.is_empty() {
                break;
            }
            step(&mut script, &mut front, device, &path, &mut frames);
            let now = device.counts();
            assert!(grew(&counts, &now), "{counts:?} {now:?}");
            counts = now;
        }
        drop(front);
        gone(device);
        good(device, &path);
        nothing_is_left(before);
        frames
    })
}

/// Reads the next step from the script, and executes it.
fn step(
    script: &mut Script<'_>,
    front: &mut Front,
    device: &mut Device,
    path: &std::path::Path,
    frames: &mut (u64, u64),
) {
    match script.byte() % 20 {
        kind @ 0..=6 => request(kind, script, front, device),
        7 | 8 => {
            let (ring, index) = (script.byte(), script.byte());
            let (at, length) = (script.place(), u32::from(script.half()));
            front.descriptor(ring, index.into(), (at, length), (script.half(), script.half()));
        }
        9 => front.offer(script.byte(), script.half()),
        10 => front.set_index(script.byte(), script.half()),
        11 => front.set_flags(script.byte(), script.half(), script.half()),
        12 => device.turn(),
        13 => {
            for _ in 0..=script.byte() {
                let Some(frame) = device.read() else { break };
                assert!((HEADER_BYTES..=FRAME_BYTES_MAX).contains(&frame.packet.len()));
                frames.0 += 1;
            }
        }
        14 => {
            let frame = frame(usize::from(script.half()));
            frames.1 += u64::from(device.write(&frame, script.word()));
        }
        15 => device.flush(),
        16 => {
            device.rest();
            assert!(device.descriptors().count() <= 1 + srd_vhost::session::PAIRS_MAX);
            device.wake();
        }
        17 => *front = Front::connect(path),
        18 => {
            let (at, length) = (script.place(), script.byte().into());
            front.write(at, &script.bytes(length));
        }
        _ => front.kick(script.byte()),
    }
    front.hear();
}

/// Reads the arguments of a request from the script, and sends the request.
fn request(kind: u8, script: &mut Script<'_>, front: &mut Front, device: &mut Device) {
    match kind {
        0 => {
            let (features, pairs) = (script.byte(), script.byte());
            front.set_up(device, features, pairs % 3);
        }
        1 => {
            let (request, flags) = (script.byte(), script.byte());
            let (claimed, body) = (script.half(), usize::from(script.byte()));
            let body = script.bytes(body);
            let kinds = usize::from(script.byte() % 16);
            let kinds = script.bytes(kinds);
            front.request(request, flags, claimed, &body, &kinds);
        }
        2 => {
            let length = script.byte().into();
            front.raw(&script.bytes(length), &[]);
        }
        3 => {
            let count = usize::from(script.byte() % 10);
            let regions: Vec<[u64; 4]> = (0..count)
                .map(|_| [script.place(), script.place(), script.place(), script.place()])
                .collect();
            let kinds = usize::from(script.byte() % 10);
            front.share(&regions, &script.bytes(kinds));
        }
        4 => {
            let ring = script.byte();
            front.place(ring, [script.place(), script.place(), script.place()]);
        }
        5 => {
            let (what, ring, value) = (script.byte(), script.byte(), script.half());
            front.state(what, ring, value.into());
        }
        _ => {
            let (what, ring, kind) = (script.byte(), script.byte(), script.byte());
            front.connect_ring(what, ring.into(), &[kind]);
        }
    }
}

/// Returns a frame whose packet has this number of bytes.
fn frame(bytes: usize) -> Frame {
    let mut packet = vec![0x55; HEADER_BYTES + bytes];
    packet[..HEADER_BYTES].fill(0);
    Frame { ethernet: *b"DDDDDDSSSSSSTT", packet }
}

/// Waits until the device has noticed that its front end, and all front ends that waited behind it,
/// have ended. One turn of the device serves one front end, and a limited number of its requests.
fn gone(device: &mut Device) {
    for _ in 0..2 * STEPS_MAX {
        // A thread closes refused descriptors; until it ends, the device accepts no other front
        // end.
        while device.is_closing() {
            std::thread::yield_now();
            device.turn();
        }
        // A turn that begins with a front end does not accept the next front end.
        let (had, before) = (device.is_connected(), device.counts().connected);
        device.turn();
        let is_over = !had && !device.is_connected() && !device.is_closing();
        if is_over && device.counts().connected == before {
            break;
        }
    }
    assert!(!device.is_connected() && !device.is_running());
    assert_eq!(device.read(), None);
    assert!(!device.write(&frame(60), 0));
}

/// Checks that a correct front end is served, whatever the previous front end did.
fn good(device: &mut Device, path: &std::path::Path) {
    let before = device.counts();
    let mut front = Front::connect(path);
    front.set_up(device, 0, 1);
    assert!(device.is_running() && device.pairs() == 1);
    front.send_good();
    let taken = device.read().expect("the frame of a good driver");
    assert_eq!(taken.packet.len(), HEADER_BYTES + PACKET_BYTES);
    front.give_good();
    assert!(device.write(&frame(PACKET_BYTES), 7));
    device.flush();
    assert_eq!(front.used(), [1, 1]);
    drop(front);
    gone(device);
    let now = device.counts();
    let wanted =
        Counts { connected: before.connected + 1, no_driver: before.no_driver + 1, ..before };
    assert_eq!(now, wanted);
}

fn grew(before: &Counts, now: &Counts) -> bool {
    before.connected <= now.connected
        && before.violations <= now.violations
        && before.refused <= now.refused
        && before.malformed <= now.malformed
        && before.broken_rings <= now.broken_rings
        && before.no_buffer <= now.no_buffer
        && before.too_long <= now.too_long
        && before.no_driver <= now.no_driver
}

/// Checks that there are no more descriptors and mappings than before. Other tests of this process
/// may hold descriptors for some time.
fn nothing_is_left(before: (usize, usize)) {
    let began = Instant::now();
    loop {
        let now = (descriptors(), mappings());
        if now.0 <= before.0 && now.1 <= before.1 {
            return;
        }
        assert!(began.elapsed() < LEFT_MAX, "something is left: {now:?} after {before:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the number of file descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Returns the number of mappings of front ends' memory in this process.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|line| line.contains(front::MEMORY)).count()
}
