//! Threads of the card that give packets to instances. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::support::machine::*;
use rustix::process::Signal;

const TO: &str = "10.0.1.10";
const FLOWS: usize = 16;
/// Packets of each flow, and the number of those that may be on their way: fewer than a ring and a
/// socket take.
const PACKETS: u32 = 400;
const ON_THEIR_WAY: u32 = 12;

/// Returns the time in nanoseconds for which each processor of a card ran.
fn ran(card: &Running) -> Vec<u64> {
    let is_number = |of: &str| of.chars().all(|digit| digit.is_ascii_digit());
    threads_ran(card, |name| name.strip_prefix("srd-card-").is_some_and(is_number))
}

/// Sends numbered packets of `flows` flows at the same time from `app` to `web`, and checks that
/// the packets of each flow arrive completely and in order.
fn exchange(machine: &Machine, port: u16, flows: usize) {
    let at = within(&machine.instance("web"), || UdpSocket::bind(("0.0.0.0", port)).unwrap());
    at.set_read_timeout(Some(PATIENCE)).unwrap();
    let came = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            within(&machine.instance("app"), || {
                let from: Vec<UdpSocket> =
                    (0..flows).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
                for number in 0..PACKETS {
                    for (flow, from) in (0u16..).zip(&from) {
                        let bytes = [&flow.to_be_bytes()[..], &number.to_be_bytes()].concat();
                        from.send_to(&bytes, (TO, port)).unwrap();
                    }
                    let flows = u32::try_from(flows).unwrap();
                    let (sent, most) = ((number + 1) * flows, ON_THEIR_WAY * flows);
                    wait_until("packets", || sent - came.load(Ordering::Relaxed) <= most);
                }
            });
        });
        let mut next = vec![0; flows];
        while next.iter().any(|next| *next != PACKETS) {
            let mut bytes = [0; 6];
            assert_eq!(at.recv(&mut bytes).unwrap(), 6);
            came.fetch_add(1, Ordering::Relaxed);
            let [flow, number] = [&bytes[..2], &bytes[2..]]
                .map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
            assert_eq!(next[flow as usize], number, "of flow {flow}");
            next[flow as usize] += 1;
        }
    });
}

#[test]
fn packets_of_a_flow_stay_in_order_over_several_processors() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("proc");
    let file = machine.example("two.toml", |text| {
        let text = text.replace("type = \"c7i.large\"", "type = \"c8g.8xlarge\"");
        text.replace("\"tcp 443 from 0.0.0.0/0\", ", "\"all from 0.0.0.0/0\", ")
    });
    let refused = machine.srd(&["card", "up", &file, "--processors", "17"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    let mut card = machine.up(&[&file, "--processors", "2"]);
    let before = ran(&card);
    assert_eq!(before.len(), 2);
    exchange(&machine, 4000, FLOWS);
    let after = ran(&card);
    assert!(
        after.iter().zip(&before).all(|(after, before)| after > before),
        "{after:?} {before:?}"
    );
    // One flow has one queue, and so one processor.
    exchange(&machine, 4002, 1);
    let mut of_one: Vec<u64> = ran(&card).iter().zip(&after).map(|(now, was)| now - was).collect();
    of_one.sort_unstable();
    assert!(of_one[0] < of_one[1] / 2, "nanoseconds of each processor: {of_one:?}");
    assert_eq!(machine.counter("web", "rx_overruns"), 0);

    // Queues come and go, and another process continues with another number of processors.
    let tcp = listen(&machine.instance("web"), 80);
    let mut client = connect(&machine.instance("app"), WEB, 80).unwrap();
    let (mut server, _) = tcp.accept().unwrap();
    let name = format!("{}web", machine.prefix);
    for queues in ["3", "8"] {
        let set = machine.srd(&["card", "set", &name, "--queues", queues]);
        assert!(set.status.success(), "{set:#?}");
        assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    }
    let received = machine.counter("web", "rx_packets");
    let mut next = machine.take_over(&mut card, &[&file, "--processors", "3"]);
    assert_eq!(ran(&next).len(), 3);
    assert!(machine.counter("web", "rx_packets") >= received);
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    exchange(&machine, 4001, FLOWS);
    assert_eq!(next.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
