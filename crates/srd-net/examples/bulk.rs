//! Throughput and round trips over SRD, driven on the application's own thread.
//!
//! ```text
//! bulk server 10.0.0.2:7471 [--spin]
//! bulk client 10.0.0.2:7471 bulk [--time 3] [--paths 16] [--run 16] [--size BYTES]
//! bulk client 10.0.0.2:7471 rr   [--count 20000] [--spin] [--size 64]
//! bulk client 10.0.0.2:7471 threaded [--time 3]       as bulk, through an endpoint with a thread
//! ```
//! `--key WORD` on both sides encrypts; `--rate GBPS` sets the link's speed.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use srd_net::{Application, BindOptions, Context, Endpoint, LocalEndpoint, PollMode, clock, raw};
use srd_proto::{
    Class, Datagram, Delivery, Duration, Event, Instant, PeerId, Protection, Qpn, ReceiveBuffers,
    Status,
};

/// Number of the queue pair that both sides use.
const QPN: Qpn = Qpn(1);
/// Largest datagram that is echoed, in bytes; larger datagrams are counted.
const ECHO_BYTES_MAX: usize = 256;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let address = |text: &str| {
        text.parse::<SocketAddr>().map_err(|e| io::Error::other(format!("{text}: {e}")))
    };
    match words.as_slice() {
        ["server", at, ..] => serve(address(at)?, &args),
        ["client", at, "bulk", ..] => bulk(address(at)?, &args),
        ["client", at, "threaded", ..] => threaded(address(at)?, &args),
        ["client", at, "rr", ..] => round_trips(address(at)?, &args),
        _ => Err(io::Error::other("usage: bulk server ADDR | client ADDR bulk|rr")),
    }
}

fn flag(args: &[String], name: &str) -> bool {
    args.iter().any(|a| a == name)
}

fn option<T: std::str::FromStr>(args: &[String], name: &str, default: T) -> T {
    let value = args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    value.and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn bind(local: SocketAddr, args: &[String]) -> io::Result<LocalEndpoint> {
    let mut endpoint = LocalEndpoint::bind(&options(local, args))?;
    endpoint.open_qp(QPN, ReceiveBuffers::Unlimited);
    raw::timer_slack_minimum();
    Ok(endpoint)
}

fn options(local: SocketAddr, args: &[String]) -> BindOptions {
    let mut options = BindOptions::at(local);
    options.config.paths = option(args, "--paths", 16);
    options.config.spray_burst_packets = option(args, "--run", 16);
    options.config.link_rate_bps = option(args, "--rate", 0) * 1_000_000_000;
    options.segmentation = !flag(args, "--no-gso");
    let word: String = option(args, "--key", String::new());
    if !word.is_empty() {
        // For this example only: a real key comes from a generator, not from a word.
        let mut key = [0; 32];
        for (to, from) in key.iter_mut().zip(word.bytes().cycle()) {
            *to = from;
        }
        options.config.protection = Protection::JobKey(key);
    }
    options.poll = if flag(args, "--spin") {
        PollMode::Spin
    } else {
        match option(args, "--adaptive", 0) {
            0 => PollMode::Block,
            us => PollMode::Adaptive(Duration::from_micros(us)),
        }
    };
    options
}

fn datagram(payload: Bytes) -> Datagram {
    Datagram { src_qpn: QPN, dst_qpn: QPN, imm: 0, payload, class: Class::Bulk, user: 0 }
}

/// An application that echoes small datagrams and counts large ones.
struct Server {
    bytes: u64,
    first: Instant,
    last: Instant,
    cpu_ns: u64,
}

impl Application for Server {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        if delivery.payload.len() <= ECHO_BYTES_MAX {
            let answer = datagram(Bytes::copy_from_slice(delivery.payload));
            if let Err(e) = context.send(delivery.peer, answer) {
                eprintln!("no answer: {e}");
            }
            return;
        }
        if self.bytes == 0 {
            self.first = context.now();
            self.cpu_ns = clock::process_cpu().as_nanos();
        }
        self.bytes += delivery.payload.len() as u64;
        self.last = context.now();
    }
}

fn serve(at: SocketAddr, args: &[String]) -> io::Result<()> {
    let mut endpoint = bind(at, args)?;
    println!("listening on {}", endpoint.local_address());
    let start = endpoint.now();
    let mut server = Server { bytes: 0, first: start, last: start, cpu_ns: 0 };
    loop {
        endpoint.poll(Duration::from_millis(200), &mut server)?;
        let quiet = endpoint.now().since(server.last) > Duration::from_millis(300);
        if server.bytes > 0 && quiet {
            let span = server.last.since(server.first);
            print_rate("srd-server", server.bytes, span, server.cpu_ns);
            eprintln!("{:?}\n{:?}", endpoint.core().stats(), endpoint.io_stats());
            server.bytes = 0;
        }
    }
}

fn print_rate(side: &str, bytes: u64, span: Duration, cpu_before_ns: u64) {
    let cpu = (clock::process_cpu().as_nanos() - cpu_before_ns) as f64 / 1e9;
    let gbps = bytes as f64 * 8.0 / span.as_nanos().max(1) as f64;
    let per_gb = cpu / (bytes as f64 / 1e9);
    println!("{{\"side\":\"{side}\",\"gbps\":{gbps:.2},\"cpu_s_per_gb\":{per_gb:.3}}}");
}

/// An application that keeps a number of datagrams to the server outstanding.
struct Sender {
    peer: PeerId,
    payload: Bytes,
    outstanding: usize,
    acknowledged_bytes: u64,
    failed: u64,
    refill: bool,
}

impl Application for Sender {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        let Event::Completed { status, .. } = event else { return };
        if status == Status::Ok {
            self.acknowledged_bytes += self.payload.len() as u64;
        } else {
            self.failed += 1;
        }
        let again = self.refill && context.send(self.peer, datagram(self.payload.clone())).is_ok();
        if !again {
            self.outstanding -= 1;
        }
    }
}

fn bulk(at: SocketAddr, args: &[String]) -> io::Result<()> {
    let any = if at.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let mut endpoint = bind(any.parse().map_err(io::Error::other)?, args)?;
    let peer = endpoint.connect(at).map_err(io::Error::other)?;
    let size = option(args, "--size", endpoint.payload_bytes_max());
    let payload = Bytes::from(vec![7; size]);
    let mut sender =
        Sender { peer, payload, outstanding: 0, acknowledged_bytes: 0, failed: 0, refill: true };
    while sender.outstanding < option(args, "--depth", 2048)
        && endpoint.send(peer, datagram(sender.payload.clone())).is_ok()
    {
        sender.outstanding += 1;
    }
    let start = endpoint.now();
    let cpu = clock::process_cpu().as_nanos();
    let time = Duration::from_secs(option(args, "--time", 3));
    while endpoint.now().since(start) < time {
        endpoint.poll(Duration::from_millis(100), &mut sender)?;
    }
    let span = endpoint.now().since(start);
    print_rate("srd-client", sender.acknowledged_bytes, span, cpu);
    eprintln!("{:?}\n{:?}", endpoint.core().stats(), endpoint.core().peer_stats(peer));
    eprintln!("{:?} failed {}", endpoint.io_stats(), sender.failed);
    sender.refill = false;
    while sender.outstanding > 0 && endpoint.poll(Duration::from_secs(5), &mut sender)? > 0 {}
    Ok(())
}

/// Measures throughput through handles: the calling thread fills the queue, the driver's thread
/// sends.
fn threaded(at: SocketAddr, args: &[String]) -> io::Result<()> {
    let any = if at.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let options = options(any.parse().map_err(io::Error::other)?, args);
    let endpoint = Endpoint::bind(&options)?;
    let peer = endpoint.connect(at).map_err(io::Error::other)?;
    let payload = Bytes::from(vec![7; option(args, "--size", endpoint.payload_bytes_max())]);
    let time = std::time::Duration::from_secs(option(args, "--time", 3));
    let (start, cpu) = (std::time::Instant::now(), clock::process_cpu().as_nanos());
    let mut bytes = 0;
    while start.elapsed() < time {
        peer.send(payload.clone()).map_err(io::Error::other)?;
        bytes += payload.len() as u64;
    }
    peer.flush(std::time::Duration::from_secs(5)).map_err(io::Error::other)?;
    let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    print_rate("srd-client", bytes, Duration::from_nanos(ns), cpu);
    endpoint.close(std::time::Duration::from_secs(1));
    Ok(())
}

/// An application that records whether the answer to its datagram has arrived.
struct Asker {
    answered: bool,
}

impl Application for Asker {
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {
        self.answered = true;
    }
}

fn round_trips(at: SocketAddr, args: &[String]) -> io::Result<()> {
    let any = if at.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let mut endpoint = bind(any.parse().map_err(io::Error::other)?, args)?;
    let peer = endpoint.connect(at).map_err(io::Error::other)?;
    let payload = Bytes::from(vec![1; option(args, "--size", 64).min(ECHO_BYTES_MAX)]);
    let mut took = Vec::new();
    for _ in 0..option(args, "--count", 20_000) {
        let mut asker = Asker { answered: false };
        let start = endpoint.now();
        endpoint.send(peer, datagram(payload.clone())).map_err(io::Error::other)?;
        while !asker.answered {
            if endpoint.poll(Duration::from_secs(5), &mut asker)? == 0 {
                return Err(io::Error::other("no answer within 5 s"));
            }
        }
        took.push(endpoint.now().since(start).as_nanos());
    }
    took.sort_unstable();
    let at = |per_mille: usize| took[(took.len() - 1) * per_mille / 1000] as f64 / 1e3;
    println!(
        "{{\"side\":\"srd-client\",\"p50_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1}}}",
        at(500),
        at(990),
        at(999)
    );
    eprintln!("{:?}\n{:?}", endpoint.core().stats(), endpoint.io_stats());
    Ok(())
}
