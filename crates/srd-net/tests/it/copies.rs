//! A virtual machine that was restored or cloned, as its kernel reports it: each endpoint of the
//! process starts another run, and continues. Needs root, for a network namespace in which a
//! process may send the kernel's events.

use std::process::Command;

use netlink_sys::protocols::NETLINK_KOBJECT_UEVENT;
use netlink_sys::{Socket, SocketAddr};
use srd_net::{Application, BindOptions, Context, Copied, LocalEndpoint, Notice};
use srd_proto::{
    Class, Config, Datagram, Delivery, Duration, Event, Protection, Qpn, ReceiveBuffers,
};

use crate::support::PATIENCE;
use crate::support::veth::{can_add, must};

/// A network namespace, which is removed when this value is dropped.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn a_new_generation_id_begins_another_run_at_both_ends_and_nothing_stays_unsent() {
    let name = format!("srdnet-copies-{}", std::process::id());
    if !can_add(&name) {
        return;
    }
    let namespace = Namespace(name);
    must("ip", &["-n", &namespace.0, "link", "set", "lo", "up"]);
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &crate::name_of(module_path!(), "inside"), "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
    if let Some(skipped) = text.lines().find(|line| line.starts_with("skipped: ")) {
        println!("{skipped}");
    }
}

/// Calls that an endpoint has made to its application.
#[derive(Default)]
struct CallLog {
    delivered: usize,
    downs: usize,
    copied: Vec<Copied>,
}

impl Application for CallLog {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {
        self.delivered += 1;
    }

    fn event(&mut self, _: &mut Context<'_>, event: Event) {
        self.downs += usize::from(matches!(event, Event::PeerDown { .. }));
    }

    fn notice(&mut self, notice: Notice) {
        if let Notice::Copied(why) = notice {
            self.copied.push(why);
        }
    }
}

fn bind() -> LocalEndpoint {
    let config = Config { protection: Protection::JobKey([7; 32]), ..Config::sockets() };
    let at = BindOptions::at("127.0.0.1:0".parse().unwrap());
    let mut endpoint = LocalEndpoint::bind(&BindOptions { config, ..at }).unwrap();
    endpoint.open_qp(Qpn(7), ReceiveBuffers::Unlimited);
    endpoint
}

/// Polls both endpoints until `done`.
fn poll_until(
    ends: &mut [(LocalEndpoint, CallLog); 2],
    what: &str,
    done: impl Fn(&[(LocalEndpoint, CallLog); 2]) -> bool,
) {
    let start = std::time::Instant::now();
    while !done(ends) {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        for (endpoint, seen) in ends.iter_mut() {
            endpoint.poll(Duration::from_millis(1), seen).unwrap();
        }
    }
}

/// Sends the event that the kernel sends when the hypervisor reports a new id. Returns false if
/// this is not permitted.
fn new_generation_id() -> bool {
    let event = b"change@/devices/LNXSYSTM:00/QEMUVGID:00\0ACTION=change\0NEW_VMGENID=1\0";
    let length = u32::try_from(16 + event.len()).unwrap();
    // A netlink header: a request of a type that is not a control message.
    let mut message = length.to_ne_bytes().to_vec();
    message.extend_from_slice(&[0x10, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(event);
    let mut socket = Socket::new(NETLINK_KOBJECT_UEVENT).unwrap();
    socket.bind(&SocketAddr::new(0, 1)).unwrap();
    socket.set_non_blocking(true).unwrap();
    if socket.send_to(&message, &SocketAddr::new(0, 0), 0).is_err() {
        return false;
    }
    // The kernel has processed a message when the call that sends the message returns.
    std::iter::from_fn(|| socket.recv_from_full().ok()).any(|(event, from)| {
        from.port_number() == 0 && event.windows(13).any(|part| part == b"NEW_VMGENID=1")
    })
}

#[test]
#[ignore = "runs inside the namespace that the other test makes"]
fn inside() {
    let mut ends = [(bind(), CallLog::default()), (bind(), CallLog::default())];
    let to = ends[1].0.local_address();
    let peer = ends[0].0.connect(to).unwrap();
    let datagram = |user| Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(7),
        imm: user,
        payload: b"hello".as_slice().into(),
        class: Class::Bulk,
        user,
    };
    ends[0].0.send(peer, datagram(1)).unwrap();
    poll_until(&mut ends, "the first delivery", |ends| ends[1].1.delivered == 1);
    if !new_generation_id() {
        println!("skipped: this kernel takes no events from root of a namespace");
        return;
    }
    poll_until(&mut ends, "another run", |ends| ends.iter().all(|(_, seen)| seen.downs > 0));
    for (_, seen) in &ends {
        assert_eq!(seen.copied, [Copied::GenerationId]);
    }
    ends[0].0.send(peer, datagram(2)).unwrap();
    poll_until(&mut ends, "the second delivery", |ends| ends[1].1.delivered == 2);
}
