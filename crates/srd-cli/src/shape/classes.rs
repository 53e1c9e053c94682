//! Limits the rate of each flow if the kernel has no `fq`: by classes of `htb`, each with this rate
//! as its ceiling, and by a filter that selects the class of a packet by a hash of its addresses
//! and ports.
//!
//! ```text
//!   5d:10, rate and ceiling of all --> 5d:11      other traffic than IP, with the ceiling of all
//!                                  --> 5d:100...  flows, each class with a short queue
//! ```
//!
//! Two flows may get the same class, and then share its ceiling. With ten flows, this happens in
//! one case of 91. The filter is a program of classic BPF, which `tc` loads. Only the first
//! fragment of a datagram has ports, so all fragments between two addresses count as one flow.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Error, Result, bail};

use super::{BURST_BYTES_MIN, BURST_NS, CLASS, QUEUE_NS, ROOT, bytes_in, class_value, remove, tc};
use crate::failure::usage;

/// Number of classes for flows. Flows seldom share one of so many classes, and `tc` still creates
/// them in a second.
pub(super) const CLASSES: u32 = 1 << CLASSES_BITS;
const CLASSES_BITS: u32 = 12;
/// Number of the first class for flows.
const FIRST: u32 = 0x100;
/// Number of the class for packets other than IP.
const OTHERS: u32 = 0x11;
/// Number of the root discipline, as the upper half of the number of each class.
const MAJOR: u32 = 0x5d << 16;

/// Sets the classes and the filter at an interface whose root is the kernel's default. If it fails,
/// the interface has its default again.
pub(super) fn make(interface: &str, rate: u64, flow: u64) -> Result<()> {
    if !is_plain(interface) {
        return usage(format!(
            "`{interface}`: tc cannot be told many commands at once for such a name; rename it"
        ));
    }
    let fail = |error: Error| {
        let _ = tc(&remove(interface));
        error
    };
    run(&batch(interface, rate, flow)).map_err(fail)
}

/// Whether `tc -batch` reads a name as one word.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_graphic() && !"\"'\\#".contains(c))
}

fn run(lines: &str) -> Result<()> {
    let mut command = Command::new("tc");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut tc = command.stderr(Stdio::piped()).spawn().context("tc")?;
    let mut input = tc.stdin.take().context("the input of tc")?;
    // tc ends at the first command that fails, and prints the number of its line.
    let written = input.write_all(lines.as_bytes());
    drop(input);
    let output = tc.wait_with_output().context("tc")?;
    if output.status.success() {
        return written.context("tc");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("tc -batch: {}", said.trim())
}

/// Returns the ceiling of one flow in bits per second; `None` if the interface lacks the classes or
/// the filter.
pub(super) fn flow_rate(interface: &str) -> Result<Option<u64>> {
    let rate = class_value(interface, &format!("{ROOT}{FIRST:x}"), "ceil")?;
    let has_filter = || -> Result<bool> {
        let filters = tc(&["filter", "show", "dev", interface].map(str::to_owned))?;
        Ok(filters.contains("bytecode"))
    };
    Ok(if rate.is_some() && has_filter()? { rate } else { None })
}

/// Whether an interface has the classes of flows. If it has, no other queue can be added below the
/// root.
pub(super) fn stand_at(interface: &str) -> Result<bool> {
    Ok(class_value(interface, &format!("{ROOT}{OTHERS:x}"), "rate")?.is_some())
}

/// Returns the input of `tc -batch` that sets the classes, their queues and the filter.
fn batch(interface: &str, rate: u64, flow: u64) -> String {
    let burst = bytes_in(rate, BURST_NS).max(BURST_BYTES_MIN);
    let mut lines = format!(
        "qdisc replace dev {interface} root handle {ROOT} htb default {OTHERS:x}\n\
         class add dev {interface} parent {ROOT} classid {CLASS} htb rate {rate}bit ceil {rate}bit \
         burst {burst} cburst {burst} quantum 60000\n"
    );
    let class = |class: u32, most: u64| {
        // The guaranteed rate of a class is close to zero. A class borrows what it needs beyond it,
        // as long as all classes together stay below their common ceiling.
        format!(
            "class add dev {interface} parent {CLASS} classid {ROOT}{class:x} htb rate 8bit ceil \
             {most}bit burst {BURST_BYTES_MIN} cburst {BURST_BYTES_MIN} quantum 60000\n"
        )
    };
    lines += &class(OTHERS, rate);
    let limit = bytes_in(flow, QUEUE_NS).clamp(4 * BURST_BYTES_MIN, u32::MAX.into());
    for number in FIRST..FIRST + CLASSES {
        lines += &class(number, flow);
        lines +=
            &format!("qdisc add dev {interface} parent {ROOT}{number:x} bfifo limit {limit}\n");
    }
    let program: Vec<String> = program()
        .iter()
        .map(|Instruction { code, yes, no, constant }| format!("{code} {yes} {no} {constant}"))
        .collect();
    lines += &format!(
        "filter add dev {interface} parent {ROOT} protocol all prio 1 bpf bytecode '{},{}'\n",
        program.len(),
        program.join(",")
    );
    lines
}

/// An instruction of classic BPF. `yes` and `no` are the numbers of instructions that a jump skips
/// if its condition is true or false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    constant: u32,
}

/// Target of a jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    Next,
    V4,
    V4Ports,
    V6,
    V6Ports,
    Ports,
    Class,
    Others,
}

/// A BPF program with labels as targets of its jumps.
#[derive(Default)]
struct Assembler {
    written: Vec<(u16, Label, Label, u32)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn label(&mut self, label: Label) {
        self.labels.push((label, self.written.len()));
    }

    fn put(&mut self, code: u16, constant: u32) {
        self.written.push((code, Label::Next, Label::Next, constant));
    }

    fn jump(&mut self, code: u16, constant: u32, yes: Label, no: Label) {
        self.written.push((code, yes, no, constant));
    }

    fn finish(self) -> Vec<Instruction> {
        let skip = |at: usize, label| {
            let found = self.labels.iter().find(|(name, _)| *name == label);
            let to = found.map_or(at + 1, |(_, to)| *to);
            u8::try_from(to - at - 1).expect("a short program, jumps lead forward")
        };
        let written = self.written.iter().enumerate();
        let instruction = |(at, &(code, yes, no, constant)): (usize, &(u16, Label, Label, u32))| {
            Instruction { code, yes: skip(at, yes), no: skip(at, no), constant }
        };
        written.map(instruction).collect()
    }
}

/// Returns the BPF program that computes the class of a packet. Its offsets are relative to the IP
/// header, so any headers before it are skipped.
fn program() -> Vec<Instruction> {
    use code::*;
    const UDP: u32 = 17;
    const TCP: u32 = 6;
    let mut a = Assembler::default();
    a.put(LOAD_HALF, PROTOCOL);
    a.jump(EQUAL, 0x0800, Label::V4, Label::Next);
    a.jump(EQUAL, 0x86dd, Label::V6, Label::Others);

    a.label(Label::V4);
    addresses(&mut a, 12, 16);
    a.put(LOAD_BYTE, NETWORK + 9);
    a.jump(EQUAL, TCP, Label::V4Ports, Label::Next);
    a.jump(EQUAL, UDP, Label::V4Ports, Label::Class);
    a.label(Label::V4Ports);
    a.put(LOAD_HALF, NETWORK + 6);
    a.jump(ANY_BIT, 0x3fff, Label::Class, Label::Next);
    a.put(LOAD_BYTE, NETWORK);
    a.put(AND, 0xf);
    a.put(SHIFT_LEFT, 2);
    a.put(A_TO_X, 0);
    a.put(LOAD_WORD_BEYOND_X, NETWORK);
    a.put(A_TO_X, 0);
    a.jump(EQUAL, 0, Label::Ports, Label::Ports);

    a.label(Label::V6);
    // Addresses of hosts in one network differ in their last four bytes.
    addresses(&mut a, 20, 36);
    a.put(LOAD_BYTE, NETWORK + 6);
    a.jump(EQUAL, TCP, Label::V6Ports, Label::Next);
    a.jump(EQUAL, UDP, Label::V6Ports, Label::Class);
    a.label(Label::V6Ports);
    a.put(LOAD_WORD, NETWORK + 40);
    a.put(A_TO_X, 0);

    a.label(Label::Ports);
    a.put(X_TO_A, 0);
    a.put(MULTIPLY, 0x9e37_79b1);
    a.put(LOAD_X_MEMORY, 0);
    a.put(XOR_X, 0);
    a.put(STORE, 0);

    // The last steps of the hash: after them, every bit of the input affects the upper bits.
    a.label(Label::Class);
    a.put(LOAD_MEMORY, 0);
    a.put(MULTIPLY, 0x85eb_ca6b);
    a.put(A_TO_X, 0);
    a.put(SHIFT_RIGHT, 15);
    a.put(XOR_X, 0);
    a.put(MULTIPLY, 0xc2b2_ae35);
    a.put(SHIFT_RIGHT, 32 - CLASSES_BITS);
    a.put(ADD, FIRST);
    a.put(OR, MAJOR);
    a.put(RETURN_A, 0);
    a.label(Label::Others);
    a.put(RETURN, MAJOR | OTHERS);
    a.finish()
}

/// Adds instructions that store the exclusive or of two words of the IP header, at the offsets
/// `from` and `to`.
fn addresses(a: &mut Assembler, from: u32, to: u32) {
    a.put(code::LOAD_WORD, code::NETWORK + from);
    a.put(code::A_TO_X, 0);
    a.put(code::LOAD_WORD, code::NETWORK + to);
    a.put(code::XOR_X, 0);
    a.put(code::STORE, 0);
}

/// Codes and offsets of classic BPF (`linux/filter.h`, `linux/bpf_common.h`).
mod code {
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const LOAD_HALF: u16 = 0x28;
    pub(super) const LOAD_BYTE: u16 = 0x30;
    pub(super) const LOAD_WORD_BEYOND_X: u16 = 0x40;
    pub(super) const LOAD_MEMORY: u16 = 0x60;
    pub(super) const LOAD_X_MEMORY: u16 = 0x61;
    pub(super) const STORE: u16 = 0x02;
    pub(super) const ADD: u16 = 0x04;
    pub(super) const MULTIPLY: u16 = 0x24;
    pub(super) const OR: u16 = 0x44;
    pub(super) const AND: u16 = 0x54;
    pub(super) const SHIFT_LEFT: u16 = 0x64;
    pub(super) const SHIFT_RIGHT: u16 = 0x74;
    pub(super) const XOR_X: u16 = 0xac;
    pub(super) const EQUAL: u16 = 0x15;
    pub(super) const ANY_BIT: u16 = 0x45;
    pub(super) const RETURN: u16 = 0x06;
    pub(super) const RETURN_A: u16 = 0x16;
    pub(super) const A_TO_X: u16 = 0x07;
    pub(super) const X_TO_A: u16 = 0x87;
    /// Base of the offsets into the IP header (`SKF_NET_OFF`).
    pub(super) const NETWORK: u32 = 0xfff0_0000;
    /// Offset at which a program reads the frame's protocol, its EtherType (`SKF_AD_OFF +
    /// SKF_AD_PROTOCOL`).
    pub(super) const PROTOCOL: u32 = 0xffff_f000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_has_a_class_and_every_class_a_ceiling() {
        let text = batch("eth0", 10_000_000_000, 1_000_000_000);
        let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!(lines("ceil 1000000000bit"), CLASSES as usize);
        assert_eq!(lines("ceil 10000000000bit"), 2);
        assert_eq!(lines("bfifo"), CLASSES as usize);
        const { assert!(FIRST + CLASSES <= 1 << 16 && OTHERS < FIRST) };
    }

    #[test]
    fn jumps_stay_inside() {
        let program = program();
        for (at, instruction) in program.iter().enumerate() {
            let furthest = at + 1 + usize::from(instruction.yes.max(instruction.no));
            assert!(furthest < program.len() || instruction.code & 7 == 6, "{at}: {instruction:?}");
        }
    }
}
