//! Throughput and latency of the kernel alone between two addresses: the upper limit for
//! comparisons with SRD. Run it within a minute of the SRD measurement.
//!
//! ```text
//! udp_ceiling server 10.0.0.2:7000 [--spin]          serves every protocol below, for ever
//! udp_ceiling client udp|tcp|io 10.0.0.2:7000 bulk   [--segment 8972] [--time 3]
//! udp_ceiling client udp|tcp|io 10.0.0.2:7000 rr     [--count 20000] [--spin] [--size 64]
//! ```
//! `udp`: one connected socket, UDP_SEGMENT and UDP_GRO. `tcp`: one connection, `--congestion`.
//! `io`: the packet layer of this crate without the protocol. UDP and TCP listen on the given port,
//! `io` on the next port. The receiving side measures; each side prints one JSON line.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use srd_net::{PacketIo, PollMode, Segments, UdpIo, UdpOptions, Wait, clock, raw};
use srd_proto::ids::Entropy;
use srd_proto::transmit::{Ecn, Transmit};

/// Bytes of the marker that ends a bulk run.
const END_BYTES: usize = 3;
/// Size of the socket buffers in bytes.
const BUFFER_BYTES: i32 = 32 << 20;

fn main() -> io::Result<()> {
    raw::timer_slack_minimum();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let address = |text: &str| {
        text.parse::<SocketAddr>().map_err(|e| io::Error::other(format!("{text}: {e}")))
    };
    match words.as_slice() {
        ["server", at, ..] => serve(address(at)?, flag(&args, "--spin")),
        ["client", "udp", at, "bulk", ..] => udp_bulk(address(at)?, &args),
        ["client", "udp", at, "rr", ..] => udp_rr(address(at)?, &args),
        ["client", "tcp", at, mode, ..] => tcp_client(address(at)?, mode, &args),
        ["client", "io", at, mode, ..] => io_client(address(at)?, mode, &args),
        _ => Err(io::Error::other("usage: udp_ceiling server ADDR | client PROTO ADDR bulk|rr")),
    }
}

fn flag(args: &[String], name: &str) -> bool {
    args.iter().any(|a| a == name)
}

fn option<T: std::str::FromStr>(args: &[String], name: &str, default: T) -> T {
    let value = args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    value.and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Counts bytes, elapsed time and CPU time.
struct Meter {
    bytes: u64,
    first: Instant,
    last: Instant,
    cpu_ns: u64,
}

impl Meter {
    fn new() -> Self {
        let now = Instant::now();
        Self { bytes: 0, first: now, last: now, cpu_ns: clock::process_cpu().as_nanos() }
    }

    fn add(&mut self, bytes: usize) {
        if self.bytes == 0 {
            *self = Self::new();
        }
        self.bytes += bytes as u64;
    }

    fn stop(&mut self) {
        self.last = Instant::now();
    }

    fn print(&self, name: &str) {
        let seconds = self.last.duration_since(self.first).as_secs_f64();
        let cpu = (clock::process_cpu().as_nanos() - self.cpu_ns) as f64 / 1e9;
        let gbps = self.bytes as f64 * 8.0 / seconds / 1e9;
        let per_gb = cpu / (self.bytes as f64 / 1e9);
        println!("{{\"side\":\"{name}\",\"gbps\":{gbps:.2},\"cpu_s_per_gb\":{per_gb:.3}}}");
    }
}

fn print_latencies(name: &str, mut ns: Vec<u64>) {
    ns.sort_unstable();
    let at = |per_mille: usize| ns[(ns.len() - 1) * per_mille / 1000] as f64 / 1e3;
    println!(
        "{{\"side\":\"{name}\",\"p50_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1}}}",
        at(500),
        at(990),
        at(999)
    );
}

fn serve(at: SocketAddr, spin: bool) -> io::Result<()> {
    let listener = TcpListener::bind(at)?;
    let udp = UdpSocket::bind(at)?;
    raw::buffers(&udp, BUFFER_BYTES)?;
    raw::udp_gro(&udp)?;
    udp.set_nonblocking(spin)?;
    let mut options = UdpOptions::new(SocketAddr::new(at.ip(), at.port() + 1));
    options.paths = 1;
    options.receive_buffer_bytes = 32 << 20;
    options.poll = if spin { PollMode::Spin } else { PollMode::Block };
    let io = UdpIo::open(&options)?;
    // With polling, threads of protocols that are not measured would use the core.
    let only = std::env::var("ONLY").unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only == name;
    let mut threads = Vec::new();
    if wanted("udp") {
        threads.push(std::thread::spawn(move || serve_udp(&udp)));
    }
    if wanted("io") {
        threads.push(std::thread::spawn(move || serve_io(io)));
    }
    if wanted("tcp") {
        threads.push(std::thread::spawn(move || serve_tcp(&listener, spin)));
    }
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a server thread died"))??;
    }
    Ok(())
}

fn serve_udp(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    let mut meter = Meter::new();
    loop {
        let (n, from) = match socket.recv_from(&mut buffer) {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        };
        match n {
            END_BYTES => {
                if meter.bytes > 0 {
                    meter.print("udp-server");
                }
                meter = Meter::new();
            }
            1..=256 => {
                socket.send_to(&buffer[..n], from)?;
            }
            n => {
                meter.add(n);
                meter.stop();
            }
        }
    }
}

fn serve_io(mut io: UdpIo) -> io::Result<()> {
    let mut meter = Meter::new();
    loop {
        let mut answers: Vec<(Transmit, Vec<Vec<u8>>)> = Vec::new();
        let mut ended = false;
        let mut bytes_got = 0;
        io.receive(
            Wait::until(srd_proto::time::Instant::FAR_FUTURE),
            |_, meta, bytes| match bytes.len() {
                END_BYTES => ended = true,
                n @ 1..=256 => {
                    answers.push((transmit(meta.source, n, 1), vec![bytes.to_vec()]));
                }
                n => bytes_got += n,
            },
        )?;
        if bytes_got > 0 {
            meter.add(bytes_got);
            meter.stop();
        }
        if ended {
            if meter.bytes > 0 {
                meter.print("io-server");
                eprintln!("{:?}", io.stats());
            }
            meter = Meter::new();
        }
        if !answers.is_empty() {
            io.send(&answers)?;
        }
    }
}

fn serve_tcp(listener: &TcpListener, spin: bool) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut mode = [0];
        stream.read_exact(&mut mode)?;
        stream.set_nonblocking(spin)?;
        let mut buffer = vec![0; 128 << 10];
        let mut meter = Meter::new();
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) if mode == *b"B" => meter.add(n),
                // Requests are far smaller than a segment, so one read returns one request.
                Ok(n) => stream.write_all(&buffer[..n])?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        if mode == *b"B" {
            meter.stop();
            meter.print("tcp-server");
        }
    }
}

/// Bytes of each segment that are in a header buffer if the layout is split.
const HEAD_BYTES: usize = 48;

/// A batch in the layout of the core: encrypted segments one after the other (`split` off), or
/// headers in one buffer and payloads in other buffers.
struct Batch {
    heads: Vec<u8>,
    payloads: Vec<Vec<u8>>,
}

impl Batch {
    fn new(segment: usize, segments: usize, split: bool) -> Self {
        let head = if split { HEAD_BYTES.min(segment) } else { segment };
        Self { heads: vec![7; head * segments], payloads: vec![vec![7; segment - head]; segments] }
    }
}

impl Segments for Batch {
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let head = self.heads.len() / self.payloads.len();
        self.heads.chunks(head).zip(self.payloads.iter().map(Vec::as_slice))
    }
}

fn transmit(destination: SocketAddr, segment_bytes: usize, segments: usize) -> Transmit {
    Transmit {
        destination,
        entropy: Entropy(0),
        ecn: Ecn::Ect,
        segment_bytes,
        segments,
        total_bytes: segment_bytes * segments,
        control: false,
    }
}

fn udp_client(at: SocketAddr) -> io::Result<UdpSocket> {
    let any = if at.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    raw::buffers(&socket, BUFFER_BYTES)?;
    socket.connect(at)?;
    Ok(socket)
}

fn udp_bulk(at: SocketAddr, args: &[String]) -> io::Result<()> {
    let segment: u16 = option(args, "--segment", 8972);
    let time = Duration::from_secs_f64(option(args, "--time", 3.0));
    let socket = udp_client(at)?;
    raw::udp_segment(&socket, segment)?;
    let segments = (65_400 / usize::from(segment)).clamp(1, 64);
    let buffer = vec![7; segments * usize::from(segment)];
    let mut meter = Meter::new();
    while meter.first.elapsed() < time {
        match socket.send(&buffer) {
            Ok(n) => meter.bytes += n as u64,
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e),
        }
    }
    meter.stop();
    meter.print("udp-client");
    raw::udp_segment(&socket, 0)?;
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(50));
        let _ = socket.send(&[0; END_BYTES]);
    }
    Ok(())
}

fn udp_rr(at: SocketAddr, args: &[String]) -> io::Result<()> {
    let socket = udp_client(at)?;
    socket.set_nonblocking(flag(args, "--spin"))?;
    let mut buffer = vec![1; option(args, "--size", 64).min(256)];
    let mut latencies = Vec::new();
    for _ in 0..option(args, "--count", 20_000) {
        let start = Instant::now();
        socket.send(&buffer)?;
        loop {
            match socket.recv(&mut buffer) {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        latencies.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    print_latencies("udp-client", latencies);
    Ok(())
}

fn tcp_client(at: SocketAddr, mode: &str, args: &[String]) -> io::Result<()> {
    let mut stream = raw::tcp_connect(at, &option(args, "--congestion", "cubic".to_string()))?;
    stream.set_nodelay(true)?;
    if mode == "bulk" {
        stream.write_all(b"B")?;
        let time = Duration::from_secs_f64(option(args, "--time", 3.0));
        let buffer = vec![7; 128 << 10];
        let mut meter = Meter::new();
        while meter.first.elapsed() < time {
            stream.write_all(&buffer)?;
            meter.bytes += buffer.len() as u64;
        }
        meter.stop();
        meter.print("tcp-client");
        return Ok(());
    }
    stream.write_all(b"R")?;
    stream.set_nonblocking(flag(args, "--spin"))?;
    let mut buffer = vec![1; option(args, "--size", 64)];
    let mut latencies = Vec::new();
    for _ in 0..option(args, "--count", 20_000) {
        let start = Instant::now();
        stream.write_all(&buffer)?;
        let mut got = 0;
        while got < buffer.len() {
            match stream.read(&mut buffer[got..]) {
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        latencies.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    print_latencies("tcp-client", latencies);
    Ok(())
}

fn io_client(at: SocketAddr, mode: &str, args: &[String]) -> io::Result<()> {
    let to = SocketAddr::new(at.ip(), at.port() + 1);
    let any = if at.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let mut options = UdpOptions::new(any.parse().map_err(io::Error::other)?);
    options.paths = option(args, "--paths", 16);
    options.segmentation = !flag(args, "--no-gso");
    if flag(args, "--spin") {
        options.poll = PollMode::Spin;
    }
    let mut io = UdpIo::open(&options)?;
    if mode == "rr" {
        return io_rr(&mut io, to, args);
    }
    let segment: usize = option(args, "--segment", 8972);
    let time = Duration::from_secs_f64(option(args, "--time", 3.0));
    let segments = (65_400 / segment).clamp(1, io.batch_segments_max());
    let segments = segments.min(option(args, "--run", segments));
    let burst: usize = option(args, "--burst", 1);
    // Sends batches on each path in turn, `--burst` of them on one path.
    let split = flag(args, "--split");
    let mut batches: Vec<_> = (0..burst)
        .map(|_| (transmit(to, segment, segments), Batch::new(segment, segments, split)))
        .collect();
    let mut meter = Meter::new();
    let mut path = 0;
    while meter.first.elapsed() < time {
        path = (path + 1) % options.paths;
        for batch in &mut batches {
            batch.0.entropy = Entropy(path);
        }
        io.send(&batches)?;
        meter.bytes += (batches.len() * segment * segments) as u64;
    }
    meter.stop();
    meter.print("io-client");
    eprintln!("{:?} gso {}", io.stats(), io.segmentation());
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(50));
        io.send(&[(transmit(to, END_BYTES, 1), vec![vec![0; END_BYTES]])])?;
    }
    Ok(())
}

fn io_rr(io: &mut UdpIo, to: SocketAddr, args: &[String]) -> io::Result<()> {
    let size = option(args, "--size", 64).min(256);
    let ask = [(transmit(to, size, 1), vec![vec![1; size]])];
    let mut latencies = Vec::new();
    for _ in 0..option(args, "--count", 20_000) {
        let start = Instant::now();
        io.send(&ask)?;
        // A real protocol has timers while it waits: `--timer` shows their cost.
        let timer = srd_proto::time::Duration::from_micros(option(args, "--timer", 1_000_000));
        let give_up = start + Duration::from_secs(1);
        loop {
            let until = io.clock().now() + timer;
            if io.receive(Wait::until(until), |_, _, _| ())? > 0 {
                break;
            }
            if Instant::now() > give_up {
                return Err(io::Error::other("no answer within a second"));
            }
        }
        latencies.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    print_latencies("io-client", latencies);
    eprintln!("{:?}", io.stats());
    Ok(())
}
