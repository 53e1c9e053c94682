//! Measurement of the provider's calls: messages between two endpoints of this process, through UDP
//! sockets of the loopback interface and packets of 8,944 bytes. One thread makes all calls, so the
//! measured time is the processor time of both ends.
//!
//! ```sh
//! messages count BYTES MESSAGES
//! messages time BYTES MESSAGES WINDOW
//! ```
//!
//! `count` exchanges messages in turns: `valgrind --tool=callgrind` with
//! `--toggle-collect=messages::measured_send` counts the instructions of a function. The kernel's
//! instructions do not count. Under valgrind a message takes longer than an acknowledgement waits,
//! so `measured_read` then sends acknowledgements that it does not send otherwise. `time` prints
//! nanoseconds for each message; `WINDOW` messages are sent before their completions are awaited,
//! and 0 means that the ends send in turns.

#![allow(unsafe_code, reason = "operations name memory by address")]

use std::ffi::{CStr, c_int};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use srd_fi::abi::bits::{FI_RECV, FI_SEND, FI_TAGGED, FI_TRANSMIT};
use srd_fi::abi::errno::FI_EAGAIN;
use srd_fi::address::Address;
use srd_fi::completion::{CompletionQueue, Format};
use srd_fi::domain::{Domain, Kind, Slot};
use srd_fi::endpoint::{Endpoint, Plan};
use srd_fi::fabric::Fabric;
use srd_fi::queue::WaitMode;
use srd_fi::service::Service;
use srd_fi::settings::{Illegible, Settings, Values};
use srd_fi::transfer::{Buffer, Recv, Send, TransferFlags};
use srd_fi::vector::AddressVector;
use srd_fi::{Errno, Outcome};
use srd_host::Process;

/// UDP payload bytes of the largest packet: what an interface with an MTU of 9,000 passes.
const PACKET_BYTES_MAX: u16 = 8_944;
const TAG: u64 = 7;
/// Number of messages before the measurement.
const WARM_UP: u64 = 200;
/// Largest number of completions that one call reads.
const READ_MAX: usize = 64;

struct Defaults;

impl Values for Defaults {
    fn string(&self, _: &CStr) -> Option<String> {
        None
    }

    fn integer(&self, _: &CStr) -> Result<Option<c_int>, Illegible> {
        Ok(None)
    }
}

/// One end: an endpoint with its queue and the number of its peer.
struct End {
    endpoint: Endpoint,
    queue: Arc<CompletionQueue>,
    vector: Arc<AddressVector>,
    peer: u64,
    buffer: Vec<u8>,
}

impl End {
    fn open(domain: &Arc<Domain>, bytes: usize) -> Outcome<Self> {
        let source = Address { ip: domain.ip, port: 0, incarnation: 0 };
        let caps = FI_SEND | FI_RECV | FI_TAGGED;
        let plan = Plan {
            service: Service::Messages,
            caps,
            source,
            tx_flags: 0,
            rx_flags: 0,
            operations: 0,
            order: 0,
        };
        let endpoint = Endpoint::new(Slot::take(domain, Kind::Endpoint)?, plan)?;
        let slot = Slot::take(domain, Kind::CompletionQueue)?;
        let queue = Arc::new(CompletionQueue::new(slot, 0, Format::Tagged, WaitMode::None)?);
        let vector = Arc::new(AddressVector::new(Slot::take(domain, Kind::Vector)?));
        endpoint.bind_vector(&vector)?;
        endpoint.bind_completions(&queue, FI_TRANSMIT | FI_RECV)?;
        endpoint.enable()?;
        Ok(Self { endpoint, queue, vector, peer: 0, buffer: vec![1; bytes] })
    }

    fn buffer(&self) -> Buffer {
        Buffer::one(self.buffer.as_ptr().expose_provenance(), self.buffer.len())
    }
}

#[inline(never)]
fn measured_receive(end: &End) -> Outcome {
    let recv = Recv { from: end.peer, tag: Some((TAG, 0)), buffer: end.buffer(), context: 1 };
    // SAFETY: the buffer lives as long as the endpoint, and only its content changes.
    unsafe { end.endpoint.recv(&recv, 0) }
}

#[inline(never)]
fn measured_send(end: &End) -> Outcome {
    let send = Send { to: end.peer, tag: Some(TAG), buffer: end.buffer(), data: None, context: 2 };
    // SAFETY: the buffer lives as long as the endpoint; messages have no content that matters.
    unsafe { end.endpoint.send(&send, TransferFlags::flags(0)) }
}

/// Reads completions, with as many calls as an application that polls makes. Returns their number.
#[inline(never)]
fn measured_read(end: &End) -> usize {
    end.queue.read(READ_MAX, |_, completion| _ = std::hint::black_box(completion)).unwrap_or(0)
}

fn post(mut ask: impl FnMut() -> Outcome, other: &End) -> Outcome {
    loop {
        match ask() {
            Err(Errno(FI_EAGAIN)) => _ = measured_read(other),
            done => return done,
        }
    }
}

/// Sends a message in each direction, each after the arrival of the other.
fn exchange(ends: &[End; 2], owed: &mut [usize; 2]) -> Outcome {
    for from in 0..2 {
        let (sender, receiver) = (&ends[from], &ends[1 - from]);
        measured_receive(receiver)?;
        measured_send(sender)?;
        owed[from] += 1;
        owed[1 - from] += 1;
        // The completion of the send may arrive with the answer.
        while owed[1 - from] > 0 {
            owed[1 - from] -= measured_read(receiver).min(owed[1 - from]);
        }
    }
    Ok(())
}

/// Sends a window of messages in one direction, and reads all completions.
fn stream(ends: &[End; 2], window: u64) -> Outcome {
    let [sender, receiver] = ends;
    let mut owed = [usize::try_from(window).unwrap_or(1); 2];
    for _ in 0..window {
        post(|| measured_receive(receiver), sender)?;
    }
    for _ in 0..window {
        post(|| measured_send(sender), receiver)?;
    }
    while owed != [0, 0] {
        for (end, owed) in ends.iter().zip(&mut owed) {
            *owed -= measured_read(end).min(*owed);
        }
    }
    Ok(())
}

fn open(bytes: usize) -> Outcome<[End; 2]> {
    let settings = Settings::read(&Defaults).map_err(|_| Errno(libc::EINVAL))?;
    let packet_bytes_max = Some(PACKET_BYTES_MAX);
    let settings = Settings { shared_memory: false, packet_bytes_max, ..settings };
    let process = Process::current();
    let fabric = Arc::new(Fabric { name: "srd".into(), api_version: 0x10011, settings, process });
    let domain = Arc::new(Domain::new(fabric, [127, 0, 0, 1].into(), false));
    let mut ends = [End::open(&domain, bytes)?, End::open(&domain, bytes)?];
    let names = [ends[0].endpoint.name(), ends[1].endpoint.name()];
    for (end, other) in ends.iter_mut().zip(names.into_iter().rev()) {
        end.peer = end.vector.insert(other)?;
    }
    Ok(ends)
}

fn run(arguments: &[String]) -> Result<(), String> {
    let usage = "usage: messages count BYTES MESSAGES | messages time BYTES MESSAGES WINDOW";
    let numbers: Result<Vec<u64>, _> = arguments.iter().skip(1).map(|word| word.parse()).collect();
    let numbers = numbers.map_err(|_| usage)?;
    let failed = |error: Errno| format!("the provider returned error {}", error.0);
    let (bytes, messages, window) = match (arguments.first().map(String::as_str), &numbers[..]) {
        (Some("count"), [bytes, messages]) => (*bytes, *messages, 0),
        (Some("time"), [bytes, messages, window]) => (*bytes, *messages, *window),
        _ => return Err(usage.into()),
    };
    let ends = open(usize::try_from(bytes).map_err(|_| usage)?).map_err(failed)?;
    let mut owed = [0; 2];
    let mut round = |messages: u64| {
        if let Some(turns) = messages.checked_div(window) {
            return (0..turns).try_for_each(|_| stream(&ends, window));
        }
        (0..messages / 2).try_for_each(|_| exchange(&ends, &mut owed))
    };
    round(WARM_UP.max(window * 4)).map_err(failed)?;
    let begin = Instant::now();
    round(messages).map_err(failed)?;
    if arguments[0] == "time" {
        println!("{}", begin.elapsed().as_nanos() / u128::from(messages.max(1)));
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("messages: {reason}");
            ExitCode::FAILURE
        }
    }
}
