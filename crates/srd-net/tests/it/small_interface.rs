//! An interface with a small MTU: nothing is fragmented, a packet that is too large is reported
//! with the size that works, and the default packet size fits. Needs root, to make a network
//! namespace.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use srd_net::{
    BindOptions, Endpoint, EndpointEvent, Notice, PacketIo, SendOutcome, UdpIo, UdpOptions, Wait,
};
use srd_proto::transmit::{Ecn, Transmit};
use srd_proto::{Duration as Span, Entropy};

use crate::support::PATIENCE;
use crate::support::veth::{can_add, must};

const MTU: u16 = 1400;
const WORKS: u16 = MTU - 28;

/// A network namespace, which is removed when this value is dropped.
struct Namespace(String);

impl Namespace {
    fn new() -> Option<Self> {
        let name = format!("srdnet-test-{}", std::process::id());
        if !can_add(&name) {
            return None;
        }
        let namespace = Self(name);
        must("ip", &["-n", &namespace.0, "link", "set", "lo", "mtu", &MTU.to_string(), "up"]);
        Some(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn what_does_not_fit_is_reported_and_the_default_fits() {
    let Some(namespace) = Namespace::new() else { return };
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &crate::name_of(module_path!(), "inside"), "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "runs inside the namespace that the other test makes"]
fn inside() {
    too_large_is_reported_and_smaller_passes();
    the_default_packet_size_fits();
    a_configured_size_that_does_not_fit_is_told_on_connecting();
}

fn batch(to: SocketAddr, bytes: usize, segments: usize) -> (Transmit, Vec<Vec<u8>>) {
    let transmit = Transmit {
        destination: to,
        entropy: Entropy(0),
        ecn: Ecn::Ect,
        segment_bytes: bytes,
        segments,
        total_bytes: bytes * segments,
        control: false,
    };
    (transmit, vec![vec![1; bytes]; segments])
}

fn too_large_is_reported_and_smaller_passes() {
    let open = || UdpIo::open(&UdpOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let (mut a, mut b) = (open(), open());
    let to = b.local_address();
    let (large, fits) = (usize::from(WORKS) + 1, usize::from(WORKS));
    for segments in [1, 3] {
        assert_eq!(
            a.send(&[batch(to, large, segments), batch(to, fits, 3)]).unwrap(),
            SendOutcome::All
        );
        let mut sizes = Vec::new();
        let until = b.clock().now() + Span::from_secs(PATIENCE.as_secs());
        while sizes.len() < 3 && b.clock().now() < until {
            b.receive(Wait::until(until), |_, _, bytes| sizes.push(bytes.len())).unwrap();
        }
        assert_eq!(sizes, [fits; 3]);
    }
    assert_eq!(a.stats().send_too_large, 2);
    assert!(a.segmentation(), "it was the size, not the offload");
    let wanted =
        Notice::PacketTooLarge { destination: to, packet_bytes: large, works_bytes: Some(WORKS) };
    assert_eq!(a.take_notice(), Some(wanted));
    assert_eq!(a.take_notice(), None, "told once");
}

fn the_default_packet_size_fits() {
    let options = BindOptions::at("127.0.0.1:0".parse().unwrap());
    let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
    assert!(a.payload_bytes_max() < usize::from(WORKS));
    let peer = a.connect(b.local_address()).unwrap();
    for _ in 0..50 {
        peer.send(Bytes::from(vec![1; a.payload_bytes_max()])).unwrap();
    }
    for _ in 0..50 {
        b.recv_timeout(PATIENCE).unwrap().expect("a datagram is missing");
    }
}

fn a_configured_size_that_does_not_fit_is_told_on_connecting() {
    let mut options = BindOptions::at("127.0.0.1:0".parse().unwrap());
    options.packet_bytes_from_interface = false;
    options.config.packet_bytes_max = 2000;
    let a = Endpoint::bind(&options).unwrap();
    let to: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let peer = a.connect(to).unwrap();
    peer.send(Bytes::from_static(b"the driver tells before it sends this")).unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < until {
        let notice = a.take_events().into_iter().find_map(|event| match event {
            EndpointEvent::Notice(notice) => Some(notice.to_string()),
            _ => None,
        });
        if let Some(text) = notice {
            assert!(text.contains("2000") && text.contains("1372"), "{text}");
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nothing was told");
}
