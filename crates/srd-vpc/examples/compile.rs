//! Measures the cost of one host's tables in clouds of several sizes. A cloud has up to 500 hosts
//! and 1,000 rules, of which 100 name a group of every fifth interface. First the tables hold the
//! whole cloud; then they come from a directory and query it. Finally each of two groups gets one
//! more member.
//!
//! `cargo run --release -p srd-vpc --example compile [INTERFACES_OF_A_HOST [INTERFACES...]]`

#[path = "../tests/large/mod.rs"]
mod large;

use large::{at, host, world};
use srd_vpc::compile::{Answer, Asker, Delta, Directory, Edit, Flow, Next, Rules};
use srd_vpc::id::*;
use srd_vpc::object::World;
use srd_vpc::packet::{Inner, Packet};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Number of interfaces on each host if no argument changes it, so that 50,000 interfaces are on
/// 500 hosts.
const OF_HOST: u32 = 100;
const INTERFACES: [u32; 3] = [1_000, 10_000, 50_000];
const RULES: u16 = 1_000;

/// Returns the shortest and the longest of seven runs in milliseconds.
fn span_ms(mut work: impl FnMut()) -> [f64; 2] {
    let mut span = [f64::INFINITY, 0.0];
    for _ in 0..7 {
        let start = Instant::now();
        work();
        let ms = start.elapsed().as_secs_f64() * 1e3;
        span = [span[0].min(ms), span[1].max(ms)];
    }
    span
}

fn nanoseconds(rounds: u32, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..rounds).for_each(|_| work());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}

fn line(cloud: u32, name: &str, rules: &Rules, [least, most]: [f64; 2]) {
    let [ports, mapping, members] = rules.sizes();
    println!(
        "| {cloud} | {name} | {ports} | {mapping} | {members} | {} | {least:.2} to {most:.2} |",
        rules.bytes()
    );
}

fn main() {
    let numbers = std::env::args().skip(1).map(|n| n.parse::<u32>().expect("a number"));
    let numbers: Vec<u32> = numbers.collect();
    let (of_host, sizes) = match numbers.split_first() {
        None => (OF_HOST, INTERFACES.to_vec()),
        Some((of_host, [])) => (*of_host, INTERFACES.to_vec()),
        Some((of_host, sizes)) => (*of_host, sizes.to_vec()),
    };
    println!(
        "| interfaces of the cloud | tables | of the host | blocks mapped | group members | bytes \
         | compiled in ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    let said: Vec<String> = sizes.iter().flat_map(|size| cloud_of(*size, of_host)).collect();
    said.iter().for_each(|line| println!("{line}"));
}

/// Prints the cost of the tables of a cloud. Returns lines about changes and packets.
fn cloud_of(interfaces: u32, of_host: u32) -> Vec<String> {
    let cloud = world(interfaces, of_host, RULES);
    let name = host(0);
    let span = span_ms(|| _ = black_box(Rules::compile(&cloud, &name)));
    line(interfaces, "whole", &Rules::compile(&cloud, &name), span);
    let start = Instant::now();
    let mut directory = Directory::new(cloud.clone());
    let index_ms = start.elapsed().as_secs_f64() * 1e3;
    let span = span_ms(|| _ = black_box(directory.tables(&name)));
    let mut rules = directory.tables(&name);
    line(interfaces, "asking", &rules, span);
    let hosts = interfaces.div_ceil(of_host);
    let start = Instant::now();
    let mut others: BTreeMap<Arc<str>, Rules> = BTreeMap::new();
    for n in 1..hosts {
        others.insert(host(n).into(), directory.tables(&host(n)));
    }
    let all_s = start.elapsed().as_secs_f64();
    let mut lines = vec![format!(
        "{interfaces}: the directory is made in {index_ms:.1} ms, tables of the other {} hosts in \
         {all_s:.2} s",
        hosts - 1
    )];
    let last = EniId(u64::from(interfaces) - 1);
    lines.extend(change(&cloud, &mut directory, &mut rules, &mut others, last));
    lines.push(judge(&mut directory, &mut rules, interfaces));
    lines
}

/// Measures the addition of one member to a group that rules of all hosts name, and to a group that
/// rules of every fiftieth host name.
fn change(
    cloud: &World,
    directory: &mut Directory,
    rules: &mut Rules,
    others: &mut BTreeMap<Arc<str>, Rules>,
    last: EniId,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut eni = cloud.enis[&last].clone();
    for group in [GroupId(2), GroupId(4)] {
        eni.groups.push(group);
        let start = Instant::now();
        let deltas = directory.apply(&[Edit::Interface(last, Some(eni.clone()))]);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let (whole, members): (Vec<&Delta>, Vec<&Delta>) =
            deltas.values().partition(|delta| delta.is_whole());
        let bytes = |all: &[&Delta]| all.iter().map(|delta| delta.bytes()).max().unwrap_or(0);
        let (of_whole, of_members) = (bytes(&whole), bytes(&members));
        lines.push(format!(
            "  {group} has another member: {} hosts hear it after {ms:.2} ms: {} by {of_members} \
             bytes, the interface's own ({}) by {of_whole} bytes",
            deltas.len(),
            members.len(),
            whole.len()
        ));
        let mut slowest = 0.0_f64;
        for (name, delta) in deltas {
            let tables = if *name == *host(0) {
                &mut *rules
            } else {
                others.get_mut(&name).expect("a host of the cloud")
            };
            let start = Instant::now();
            tables.apply(delta);
            slowest = slowest.max(start.elapsed().as_secs_f64() * 1e6);
        }
        lines.push(format!("  each has followed, the slowest in {slowest:.1} us"));
    }
    lines
}

fn judge(directory: &mut Directory, rules: &mut Rules, interfaces: u32) -> String {
    let (source, destination) = (at(interfaces - 1).into(), at(0).into());
    let packet = Packet { source, destination, inner: Inner::Tcp(40_000, 1000) };
    let back = Packet { source: destination, destination: source, ..packet };
    let receive = nanoseconds(200_000, || {
        black_box(rules.receive(EniId(0), black_box(&packet), None, true, Flow::New))
            .expect("allowed");
    });
    let sent = rules.send(EniId(0), &back, Flow::New).expect("allowed");
    let Next::Ask(question) = sent.next else { panic!("another host has it") };
    let start = Instant::now();
    let answer: Answer = directory.answer(&host(0), question).expect("there is room");
    rules.learn(Asker::Interface(EniId(0)), answer).expect("there is room");
    let answered = start.elapsed().as_secs_f64() * 1e6;
    let send = nanoseconds(200_000, || {
        black_box(rules.send(EniId(0), black_box(&back), Flow::New)).expect("allowed");
    });
    format!(
        "  a question is answered in {answered:.1} us; send {send:.0} ns, receive {receive:.0} ns"
    )
}
