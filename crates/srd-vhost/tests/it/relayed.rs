//! The work of the host for the packets of a guest, in processor time, packets per second and round
//! trips: over a direct device, whose rings the card reads, and over a relayed device. A hypervisor
//! reads the rings of a relayed device, and copies each packet through a socket to the program
//! behind it.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use srd_vhost::{Device, Frame};

use crate::support::{FrontEnd, PLAIN, device, frame};

/// Bytes that the guest sends over each device in a round.
const BYTES: usize = 1 << 20;
/// Number of rounds. Each device has a turn in each, and its least time counts: what other programs
/// do on the machine only adds to a time.
const ROUNDS: usize = 16;
/// Packet of an interface with an MTU of 1500, and a super-packet of an interface that leaves the
/// segmentation to the device.
const SMALL: usize = 1500;
const LARGE: usize = 64_000;
/// Number of round trips, and bytes of each packet.
const TRIPS: usize = 2000;
const TRIP_BYTES: usize = 64;

/// Processor time that this thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Sends [`BYTES`] in packets of a size, and returns the processor time of `host`, which receives
/// the oldest packet and returns its length.
fn cost(packet_bytes: usize, host: &mut dyn FnMut(&mut Device) -> usize) -> Duration {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    let (sent, mut used) = (frame(packet_bytes), Duration::ZERO);
    for _ in 0..BYTES / packet_bytes {
        front.send_frame(&sent);
        let before = processor_time();
        let received = host(&mut device);
        used += processor_time() - before;
        assert_eq!(received, sent.packet.len());
    }
    used
}

/// Returns the median time from the packet of a guest to the answer in its rings. `host` receives
/// the packet and returns the answer. The guest's own work is not included.
fn round_trip(host: &mut dyn FnMut(Frame) -> Frame) -> Duration {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    let sent = frame(TRIP_BYTES);
    let mut times: Vec<Duration> = (0..TRIPS)
        .map(|_| {
            front.send_frame(&sent);
            front.give_buffers(1);
            let before = Instant::now();
            let answer = host(device.read().unwrap());
            assert!(device.write(&answer, 0));
            device.flush();
            let took = before.elapsed();
            assert_eq!(front.receive().as_ref(), Some(&sent));
            took
        })
        .collect();
    times.sort_unstable();
    times[TRIPS / 2]
}

fn direct(device: &mut Device) -> usize {
    device.read().unwrap().packet.len()
}

#[test]
fn a_relayed_device_takes_more_processor_time_of_the_host_than_a_direct_one() {
    let (into, out) = UnixDatagram::pair().unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut relayed = |device: &mut Device| {
        into.send(&device.read().unwrap().packet).unwrap();
        out.recv(&mut buffer).unwrap()
    };
    let [mut by_relay, mut small, mut large] = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        by_relay = by_relay.min(cost(SMALL, &mut relayed));
        small = small.min(cost(SMALL, &mut direct));
        large = large.min(cost(LARGE, &mut direct));
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3 * f64::from(1 << 30) / BYTES as f64;
    println!(
        "ms of processor time for a GiB: {:.0} relayed; direct {:.0}, {:.0} with super-packets",
        ms(by_relay),
        ms(small),
        ms(large)
    );
    let rate = |time: Duration| (BYTES / SMALL) as f64 / time.as_secs_f64();
    println!(
        "packets/s of a processor of the host, {SMALL} bytes: {:.0} relayed, {:.0} direct",
        rate(by_relay),
        rate(small)
    );
    assert!(by_relay > small.mul_f64(1.1), "{by_relay:?} {small:?}");
    assert!(by_relay > large.mul_f64(1.4), "{by_relay:?} {large:?}");
}

/// Both ways of the relay are in this thread: a hypervisor and a program with threads of their own
/// would also have to be woken.
#[test]
fn a_round_trip_over_a_relayed_device_takes_longer_than_over_a_direct_one() {
    let (hypervisor, program) = UnixDatagram::pair().unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut relay = |frame: Frame| {
        hypervisor.send(&frame.packet).unwrap();
        let received = program.recv(&mut buffer).unwrap();
        program.send(&buffer[..received]).unwrap();
        let answered = hypervisor.recv(&mut buffer).unwrap();
        Frame { packet: buffer[..answered].to_vec(), ..frame }
    };
    let relayed = round_trip(&mut relay);
    let direct = round_trip(&mut |frame| frame);
    println!(
        "median round trip of {TRIP_BYTES} bytes in the host: {:.2} us relayed, {:.2} us direct",
        relayed.as_secs_f64() * 1e6,
        direct.as_secs_f64() * 1e6
    );
    assert!(relayed > direct.mul_f64(1.1), "{relayed:?} {direct:?}");
}
