//! An Auto Scaling group that grows from 2 to 50 instances on two hosts.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};

use super::pages::{desire, make_group};
use super::*;

/// Sizes of the group.
const SIZES: [u8; 2] = [2, 50];
/// vCPUs of each host: space for all instances.
const VCPUS_OF_ALL: u32 = 2400;
/// Pause before datagrams that have not arrived are sent again.
const PAUSE: Duration = Duration::from_millis(10);
/// Time after which the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the identifiers and addresses of all instances.
fn instances(fleet: &Fleet) -> Vec<(String, Ipv4Addr)> {
    let shown = fleet.call("DescribeInstances", "");
    let parts = shown.split("<instanceId>").skip(1);
    let mut found: Vec<(String, Ipv4Addr)> = parts
        .map(|part| {
            let id = part.split('<').next().unwrap().to_owned();
            (id, element(part, "privateIpAddress").parse().unwrap())
        })
        .collect();
    found.dedup();
    found
}

#[test]
#[ignore = "measures times on a quiet machine, and prints them with --nocapture"]
fn each_instance_of_a_group_that_grows_to_fifty_reaches_all_others() {
    if !is_ready() {
        return;
    }
    let mut fleet = Fleet::new("w");
    fleet.vcpus = VCPUS_OF_ALL;
    fleet.start_controller();
    fleet.start_hosts("us-east-1b");
    let [small, large] = SIZES;
    make_group(&fleet, small, large);
    let began = Instant::now();
    desire(&fleet, large);
    let answered = began.elapsed();
    let all = instances(&fleet);
    assert_eq!(all.len(), usize::from(large), "{}", fleet.log());
    let sockets = all.iter().map(|(id, address)| {
        let namespace = format!("srd-i-{id}");
        wait_until("the namespace", || is_mounted(&namespace));
        let socket = within(&namespace, || UdpSocket::bind((*address, PORT)).unwrap());
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let sockets: Vec<UdpSocket> = sockets.collect();
    let opened = began.elapsed();
    let numbers = 0..all.len();
    let pairs = numbers.clone().flat_map(|from| numbers.clone().map(move |to| (from, to)));
    let mut missing: BTreeSet<(usize, usize)> = pairs.filter(|(from, to)| from != to).collect();
    let (count, mut rounds) = (missing.len(), 0);
    while !missing.is_empty() {
        assert!(began.elapsed() < PATIENCE, "{missing:?}\n{}", fleet.log());
        rounds += 1;
        for (from, to) in &missing {
            // What does not leave now is sent again.
            let _ = sockets[*from].send_to(&[u8::try_from(*from).unwrap()], (all[*to].1, PORT));
        }
        let sent = Instant::now();
        while sent.elapsed() < PAUSE && !missing.is_empty() {
            for (to, socket) in sockets.iter().enumerate() {
                let mut from = [0];
                while socket.recv_from(&mut from).is_ok() {
                    missing.remove(&(usize::from(from[0]), to));
                }
            }
        }
    }
    let reached = began.elapsed();
    let by_srd: u64 = (1..=fleet.hosts)
        .flat_map(|machine| fleet.names_on(machine).into_iter().map(move |id| (machine, id)))
        .map(|(machine, id)| {
            fleet.counter(&Placed { id, address: [0; 4], machine }, "ena_srd_tx_pkts")
        })
        .sum();
    println!(
        "from {small} to {large} instances: answered after {answered:.2?}, sockets open after \
         {opened:.2?}, {count} pairs reach each other after {reached:.2?}, in {rounds} rounds; \
         {by_srd} packets by SRD"
    );
    // Half of the instances are on each host, and those of different hosts use SRD.
    assert!(by_srd >= count as u64 / 2, "{by_srd}");
    desire(&fleet, 0);
    assert_eq!(fleet.counts(), [0, 0]);
    fleet.end_hosts();
}
