//! What tables of a host cost: 400 interfaces of a cloud that has 50,000, beside 1,000 rules of
//! which 100 name a group of 10,000 members. First tables that hold the whole cloud, then those of
//! a directory, which ask.
//!
//! `cargo run --release -p srd-vpc --example compile [INTERFACES [INTERFACES_OF_A_HOST]]`

#[path = "../tests/large/mod.rs"]
mod large;

use large::{at, host, world};
use srd_vpc::compile::{Answer, Asker, Directory, Edit, Flow, Next, Rules};
use srd_vpc::id::*;
use srd_vpc::packet::{Inner, Packet};
use std::hint::black_box;
use std::time::Instant;

/// Copies of tables that are made to see their size.
const COPIES: usize = 40;

/// The shortest of a few runs, in milliseconds.
fn best_ms(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best * 1e3
}

/// Bytes of this process in memory.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number of pages") * 4096
}

fn size_of(rules: &Rules) -> usize {
    let before = resident_bytes();
    let copies: Vec<Rules> = (0..COPIES).map(|_| rules.clone()).collect();
    let bytes = resident_bytes() - before;
    drop(black_box(copies));
    bytes / COPIES
}

fn nanoseconds(rounds: u32, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..rounds).for_each(|_| work());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}

fn print(name: &str, rules: &Rules, compile_ms: f64) {
    let [ports, mapping, members] = rules.sizes();
    let bytes = size_of(rules);
    println!("{name}: {ports} interfaces of the host, {mapping} blocks mapped, {members} members");
    println!("{name}: compiled in {compile_ms:.2} ms, {bytes} bytes without policies");
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|n| n.parse().expect("a number"));
    let interfaces = numbers.next().unwrap_or(50_000);
    let of_host = numbers.next().unwrap_or(400);
    let cloud = world(interfaces, of_host, 1_000);
    let name = host(0);
    let ms = best_ms(|| _ = black_box(Rules::compile(&cloud, &name)));
    print("whole", &Rules::compile(&cloud, &name), ms);

    let mut directory = Directory::new(cloud.clone());
    let ms = best_ms(|| _ = black_box(directory.tables(&name)));
    let mut rules = directory.tables(&name);
    print("asking", &rules, ms);
    for n in 1..interfaces.div_ceil(of_host) {
        directory.tables(&host(n));
    }
    change(&cloud, &mut directory, &mut rules, EniId(u64::from(interfaces) - 1));
    judge(&mut directory, &mut rules, interfaces);
}

/// One more member of a group that all hosts name, of one that few name, and one interface moved.
fn change(
    cloud: &srd_vpc::object::World,
    directory: &mut Directory,
    rules: &mut Rules,
    last: EniId,
) {
    for group in [GroupId(2), GroupId(4)] {
        let mut eni = cloud.enis[&last].clone();
        eni.groups.push(group);
        let start = Instant::now();
        let deltas = directory.apply(&[Edit::Interface(last, Some(eni))]);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let whole = deltas.values().filter(|delta| delta.is_whole()).count();
        println!("{group} has another member: {ms:.2} ms, {} hosts hear it,", deltas.len());
        println!("  {whole} of them, that of the interface, with all its tables");
        let delta = deltas[&*host(0)].clone();
        let start = Instant::now();
        rules.apply(delta);
        println!("  followed in {:.1} us", start.elapsed().as_secs_f64() * 1e6);
    }
}

fn judge(directory: &mut Directory, rules: &mut Rules, interfaces: u32) {
    let (source, destination) = (at(interfaces - 1).into(), at(0).into());
    let packet = Packet { source, destination, inner: Inner::Tcp(40_000, 1000) };
    let back = Packet { source: destination, destination: source, ..packet };
    let receive = nanoseconds(1_000_000, || {
        black_box(rules.receive(EniId(0), black_box(&packet), true, Flow::New)).expect("allowed");
    });
    println!("receive: {receive:.0} ns");
    let sent = rules.send(EniId(0), &back, Flow::New).expect("allowed");
    let Next::Ask(question) = sent.next else { panic!("another host has it") };
    let start = Instant::now();
    let answer: Answer = directory.answer(&host(0), question).expect("there is room");
    rules.learn(Asker::Interface(EniId(0)), answer).expect("there is room");
    println!("answer: {:.1} us", start.elapsed().as_secs_f64() * 1e6);
    let send = nanoseconds(1_000_000, || {
        black_box(rules.send(EniId(0), black_box(&back), Flow::New)).expect("allowed");
    });
    println!("send: {send:.0} ns");
}
