//! Devices of instances: queues, steering, rings and interrupts. The user sets them with `srd card
//! set`, and Linux sockets observe the effect. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::cell::Cell;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::machine::*;
use crate::support::pair::must;
use rustix::process::Signal;
use serde_json::Value;

const TO: &str = "10.0.1.10";
/// Delay of interrupts that the test sets; it is long enough to be measured on a busy machine.
const HELD: Duration = Duration::from_millis(10);

/// Writes a cloud with two instances that have several queues and accept all packets from each
/// other. Returns its file.
fn two(machine: &Machine) -> String {
    machine.example("two.toml", |text| {
        let text = text.replace("type = \"c7i.large\"", "type = \"c8g.8xlarge\"");
        text.replace("\"tcp 443 from 0.0.0.0/0\", ", "\"all from 0.0.0.0/0\", ")
    })
}

fn device(machine: &Machine, words: &[&str]) -> Value {
    let name = format!("{}web", machine.prefix);
    machine.json(&[&["card", "set", &name], words].concat())
}

fn refused(machine: &Machine, words: &[&str]) -> String {
    let name = format!("{}web", machine.prefix);
    let output = machine.srd(&[&["card", "set", &name], words].concat());
    assert!(!output.status.success(), "{output:#?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the number of packets that each queue of the instance `web` has received.
fn received(machine: &Machine) -> Vec<u64> {
    let stats = machine.json(&["card", "stats", &format!("{}web", machine.prefix)]);
    (0..).map_while(|queue| stats[format!("queue_{queue}_rx_cnt")].as_u64()).collect()
}

/// Gives the threads of a card, and of the processes that it has started, a real-time priority.
fn run_first(card: &Running) {
    let pid = card.0.id().to_string();
    let children = Command::new("pgrep").args(["--parent", &pid]).output().unwrap().stdout;
    let children = String::from_utf8(children).unwrap();
    for pid in children.lines().chain([pid.as_str()]) {
        let mut command = Command::new("chrt");
        command.args(["--all-tasks", "--rr", "--reset-on-fork", "--pid", "1", pid]);
        assert!(command.status().unwrap().success(), "chrt of {pid}");
    }
}

/// Sends a packet from each of `count` ports of the instance `app` to `web`, and waits until `web`
/// has received all of them.
fn flows(machine: &Machine, port: u16, count: usize) {
    let at = within(&machine.instance("web"), || UdpSocket::bind(("0.0.0.0", port)).unwrap());
    at.set_read_timeout(Some(PATIENCE)).unwrap();
    within(&machine.instance("app"), || {
        for _ in 0..count {
            let from = UdpSocket::bind("0.0.0.0:0").unwrap();
            from.send_to(b"one", (TO, port)).unwrap();
            assert_eq!(at.recv(&mut [0; 8]).unwrap(), 3);
        }
    });
}

fn queues_of_kernel(machine: &Machine) -> usize {
    let web = machine.instance("web");
    // `ip netns exec` mounts the sysfs of the namespace.
    let list = must(&format!("netns exec {web} ls /sys/class/net/ens5/queues"));
    list.lines().filter(|queue| queue.starts_with("rx-")).count()
}

/// Waits until the kernel reports this number of queues. The card closes queues on a separate
/// thread, so this takes a moment.
fn wait_for_queues(machine: &Machine, wanted: usize) {
    let began = Instant::now();
    while queues_of_kernel(machine) != wanted {
        assert!(began.elapsed() < PATIENCE, "{} queues", queues_of_kernel(machine));
        thread::sleep(Duration::from_millis(10));
    }
}

fn difference(after: &[u64], before: &[u64]) -> Vec<u64> {
    let before = before.iter().chain(std::iter::repeat(&0));
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn flows_spread_over_queues_as_the_user_says_and_settings_go_to_the_next_process() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("dev");
    let file = two(&machine);
    let mut card = machine.up(&[&file]);
    let report = device(&machine, &[]);
    assert_eq!(report["settings"]["queues"], 8, "{report}");
    wait_for_queues(&machine, 8);

    // With the default hash, every queue gets packets, and all packets are counted.
    flows(&machine, 4000, 200);
    let spread = received(&machine);
    assert_eq!((spread.len(), spread.iter().sum::<u64>()), (8, 200));
    assert!(spread.iter().all(|packets| *packets > 5), "{spread:?}");

    // The three rules of the talk NET402. All other traffic uses a table without the queues of
    // these rules.
    let report = device(
        &machine,
        &[
            "--rule",
            "tcp4 dst-port 22 action 1 loc 0",
            "--rule",
            "tcp4 action 2 loc 1",
            "--rule",
            "udp4 dst-port 4001 action 3 loc 2",
            "--rss-weights",
            "0,0,0,0,1,1",
        ],
    );
    assert_eq!(report["rules"].as_array().unwrap().len(), 3);
    let before = received(&machine);
    flows(&machine, 4001, 20);
    flows(&machine, 4000, 40);
    let now = difference(&received(&machine), &before);
    assert_eq!((now[3], now[4] + now[5], now.iter().sum::<u64>()), (20, 40, 60), "{now:?}");
    let ssh = listen(&machine.instance("web"), 22);
    let mut client = connect(&machine.instance("app"), WEB, 22).unwrap();
    let (mut server, _) = ssh.accept().unwrap();
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    assert!(received(&machine)[1] > before[1], "port 22 is queue 1's");

    // The kernel sends the answers of a flow on the queue from which it received the flow.
    let stats = machine.json(&["card", "stats", &format!("{}web", machine.prefix)]);
    assert!(stats["queue_1_tx_cnt"].as_u64() > Some(0), "{stats}");

    // An impossible change is refused, and changes nothing.
    assert!(refused(&machine, &["--queues", "4"]).contains("--rss-default"));
    assert!(refused(&machine, &["--queues", "99"]).contains("give a number from 1 to"));
    assert!(refused(&machine, &["--tx-ring", "2048"]).contains("power of two from 256 to 1024"));
    assert!(refused(&machine, &["--rule", "tcp4 action 1"]).contains("add `loc N`"));
    assert!(refused(&machine, &["--adaptive-rx", "maybe"]).contains("give on or off"));
    assert_eq!(device(&machine, &[]), report);

    // Connections survive a change to other rings and fewer queues.
    let words = ["--queues", "4", "--rss-default", "--tx-ring", "256", "--rx-ring", "4096"];
    device(&machine, &words);
    wait_for_queues(&machine, 4);
    let web = machine.instance("web");
    assert!(must(&format!("-n {web} link show ens5")).contains("qlen 256"));
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));

    // An instance may rename its device; a refused change leaves the ring unchanged.
    must(&format!("-n {web} link set ens5 name uplink"));
    let renamed = device(&machine, &["--queues", "5", "--tx-ring", "512"]);
    assert_eq!((&renamed["device"], &renamed["renamed"]), (&"ens5".into(), &"uplink".into()));
    assert!(refused(&machine, &["--tx-ring", "1024", "--queues", "99"]).contains("from 1 to"));
    assert!(must(&format!("-n {web} link show uplink")).contains("qlen 512"));
    assert!(!must(&format!("-n {web} link")).contains("ens5"), "no other device was made");
    assert_eq!(device(&machine, &[]), renamed);
    must(&format!("-n {web} link set uplink name ens5"));
    device(&machine, &["--queues", "4", "--tx-ring", "256"]);
    wait_for_queues(&machine, 4);
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));

    // Another process takes over the card.
    let (report, counts) = (device(&machine, &[]), received(&machine));
    let mut next = machine.take_over(&mut card, &[&file]);
    assert_eq!(device(&machine, &[]), report);
    let after = received(&machine);
    assert!(after.iter().zip(&counts).all(|(after, before)| after >= before), "{after:?}");
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    device(&machine, &["--queues", "8", "--delete-rule", "0"]);
    wait_for_queues(&machine, 8);
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    assert_eq!(next.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

#[test]
fn interrupts_are_held_back_and_full_rings_are_counted() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("irq");
    let mut card = machine.up(&[&two(&machine)]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let at = within(&web, || UdpSocket::bind(("0.0.0.0", 4000)).unwrap());
    let from = within(&app, || UdpSocket::bind("0.0.0.0:0").unwrap());
    at.set_read_timeout(Some(SILENCE)).unwrap();
    // Packets are numbered, so that a packet that leaves a ring late is not counted for a later
    // trip.
    let count = Cell::new(0_u32);
    let trip = || {
        count.set(count.get() + 1);
        let (sent, mut came) = (count.get().to_be_bytes(), [0; 4]);
        let began = Instant::now();
        from.send_to(&sent, (TO, 4000)).unwrap();
        while came != sent {
            // The packet was lost because the buffer of the socket was full.
            if at.recv(&mut came).is_err() {
                return SILENCE;
            }
        }
        began.elapsed()
    };
    // A busy machine is often late, so a single short trip suffices to show that interrupts are not
    // delayed.
    wait_until("a packet that is not held back", || trip() < HELD);
    device(&machine, &["--rx-usecs", "10000", "--rx-ring", "256"]);
    // The delay begins when the card polls. If another program uses the processor, this is before
    // the packet arrives. So most trips, but not all, show the delay.
    let held = (0..9).filter(|_| trip() >= HELD).count();
    assert!(held > 4, "{held} of 9 packets are held back");

    // More packets than the ring can hold arrive within the delay of one interrupt. Other programs
    // must not keep the processor from the card for so long that fewer packets arrive.
    run_first(&card);
    let before = machine.counter("web", "rx_overruns");
    let sent = 4000;
    for _ in 0..sent {
        from.send_to(&[0; 4], (TO, 4000)).unwrap();
    }
    let began = Instant::now();
    while machine.counter("web", "rx_overruns") == before {
        assert!(began.elapsed() < PATIENCE, "a ring of 256 takes 4,000 packets at once");
        for _ in 0..sent {
            from.send_to(&[0; 4], (TO, 4000)).unwrap();
        }
    }
    let report = device(&machine, &["--rx-usecs", "0", "--adaptive-rx", "on"]);
    assert_eq!(report["settings"]["adaptive_rx"], true);
    wait_until("a packet that is not held back", || trip() < HELD);
    assert_eq!(card.end(Signal::TERM), 0);
}

/// An instance answers through its second interface if the answer has an address of this interface,
/// because the card drops packets with this source address on any other interface.
#[test]
fn regression_a_second_interface_answers() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("n");
    let text = "
        [vpc.main]
        cidr = ['10.0.0.0/16', '2001:db8:1::/56']
        [subnet.s]
        cidr = '10.0.1.0/24'
        ipv6_cidr = '2001:db8:1::/64'
        [subnet.t]
        cidr = '10.0.2.0/24'
        ipv6_cidr = '2001:db8:1:1::/64'
        [group.g]
        ingress = ['all from 10.0.0.0/16', 'all from 2001:db8:1::/56']
        egress = ['all to 0.0.0.0/0', 'all to ::/0']
        [instance.Pone]
        type = 'c7i.large'
        [instance.Ptwo]
        type = 'c7i.large'
        [interface.one]
        subnet = 's'
        address = ['10.0.1.10', '2001:db8:1::10']
        groups = ['g']
        instance = 'Pone'
        [interface.two]
        subnet = 's'
        address = ['10.0.1.11', '2001:db8:1::11']
        groups = ['g']
        instance = 'Ptwo'
        [interface.far]
        subnet = 't'
        address = ['10.0.2.10', '2001:db8:1:1::10']
        groups = ['g']
        instance = 'Pone'
        device_index = 1
        [interface.second]
        subnet = 's'
        address = ['10.0.1.12', '10.0.1.13', '2001:db8:1::12']
        groups = ['g']
        instance = 'Ptwo'
        device_index = 1
        [instance.Pthree]
        type = 'c7i.large'
        [interface.three]
        subnet = 't'
        address = ['10.0.2.11', '2001:db8:1:1::11']
        groups = ['g']
        instance = 'Pthree'";
    let mut card = machine.up(&[&machine.cloud("second.toml", text)]);
    let (one, two) = (machine.instance("one"), machine.instance("two"));
    let addresses = ["10.0.1.11", "10.0.1.12", "10.0.1.13", "2001:db8:1::11", "2001:db8:1::12"];
    for address in addresses {
        let to = (address, 5000);
        let server = within(&two, || TcpListener::bind(to).unwrap());
        let to = server.local_addr().unwrap();
        let client = within(&one, || TcpStream::connect_timeout(&to, PATIENCE));
        let mut client = client.unwrap_or_else(|error| panic!("{address}: {error}"));
        let (mut accepted, _) = server.accept().unwrap();
        assert!(passes(&mut client, &mut accepted) && passes(&mut accepted, &mut client));
    }
    // A packet from an address of the first interface into the subnet of the second interface.
    let three = machine.instance("three");
    for to in ["10.0.1.10:5001", "[2001:db8:1::10]:5001"] {
        let to: std::net::SocketAddr = to.parse().unwrap();
        let server = within(&one, || TcpListener::bind(to).unwrap());
        let client = within(&three, || TcpStream::connect_timeout(&to, PATIENCE));
        let mut client = client.unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(passes(&mut client, &mut server.accept().unwrap().0));
    }
    let stats = machine.json(&["card", "stats", &format!("{}two", machine.prefix), "ens6"]);
    assert!(stats["tx_packets"].as_u64().unwrap() > 6, "{stats}");
    assert_eq!(card.end(Signal::TERM), 0);
}
