//! Packets from one card to another: two processes, each with the service that `srd card up` runs
//! and a core of its own, in two network namespaces that a veth pair joins. Their guests are in
//! memory: one sends UDP packets as fast as its card takes them, the other counts and checks them.
//! All between is what `srd card up` does with `poll = "spin"` and other hosts.
//!
//! ```sh
//! card_to_card [FLOWS [SECONDS [BYTES [PACKETS_PER_SECOND]]]] [split]
//! ```
//!
//! BYTES is the size of a packet, including its IP header (64). With `split`, the kernel of the
//! sending side segments a batch before the veth, so that each datagram crosses the veth alone, as
//! on a physical network. Without `split`, the batch of one system call crosses the veth whole. The
//! program needs root, `iproute2`, `taskset` and `ethtool`.

mod cloud;
#[allow(clippy::unwrap_used)] // the file of tests fails loudly
#[path = "../../srd-net/tests/support/operational.rs"]
mod operational;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use srd_card::offload::OFFLOAD_BYTES;
use srd_daemon::config::{Config, Control};
use srd_daemon::plane::Command as StopNode;
use srd_guest::protocol::{Answer, Request};
use srd_guest::{Client, MemoryGuest};
use srd_net::keys::SecretKey;

/// Size in bytes of the IPv4 and UDP headers, which the number of the packet follows.
const HEADERS: usize = 28;
const NUMBER_AT: usize = OFFLOAD_BYTES + HEADERS;
const FIRST_PORT: u16 = 1024;
/// First UDP port of each host.
const PORT: u16 = 7471;
/// Addresses of the two hosts on the veth pair.
const ADDRESSES: [&str; 2] = ["198.18.77.1", "198.18.77.2"];
/// MTU of the veth pair in bytes.
const MTU: &str = "9216";
/// Number of packets between two readings of the clock.
const LOOK_EVERY: u64 = 64;
/// Time between the first packet and all further packets. In this time each card queries its
/// directory for the other card's interface.
const PAUSE: Duration = Duration::from_millis(200);

/// Parameters of a measurement: number of flows, duration, size of packets in bytes, and rate.
#[derive(Clone, Copy)]
struct Parameters {
    flows: u16,
    seconds: u64,
    bytes: u16,
    /// Rate at which packets are sent; 0: as many as the card takes.
    packets_per_second: u64,
}

/// Counters of a guest.
#[derive(Clone, Copy, Default)]
struct Counted {
    packets: u64,
    /// Packets that arrived after a later packet of their flow, or a second time.
    late: u64,
    /// Packets that differ from the packets that were sent.
    wrong: u64,
    /// Duration of the measurement in seconds, without the first packet and the pause after it.
    seconds: f64,
    /// Part of `seconds` for which the thread ran on a core.
    core_seconds: f64,
}

/// Clock of a measurement.
struct Timer {
    began: Instant,
    core: f64,
}

/// Returns the seconds for which this thread has run on a core.
fn core_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or_default() / 1e9
}

impl Timer {
    fn start() -> Self {
        Self { began: Instant::now(), core: core_seconds() }
    }

    fn read(&self, into: &mut Counted) {
        into.seconds = self.began.elapsed().as_secs_f64();
        into.core_seconds = core_seconds() - self.core;
    }
}

fn template(flow: u16, bytes: u16) -> Vec<u8> {
    let mut frame = vec![0; OFFLOAD_BYTES];
    let length = bytes.to_be_bytes();
    frame.extend([0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 1, 10, 10, 0, 1, 20]);
    frame.extend((FIRST_PORT + flow).to_be_bytes());
    frame.extend(2000_u16.to_be_bytes());
    frame.extend((bytes - 20).to_be_bytes());
    frame.extend([0; 2]);
    frame.extend([0; 8]);
    let rest = OFFLOAD_BYTES + usize::from(bytes) - frame.len();
    frame.extend((0..=u8::MAX).cycle().take(rest).map(|at| at ^ 0x5a));
    frame
}

/// The sending guest, which sends packets of its flows in turn.
struct Source {
    wanted: Parameters,
    templates: Vec<Vec<u8>>,
    next: usize,
    number: u64,
    /// Time of the first packet.
    first_at: Option<Instant>,
    timer: Option<Timer>,
    /// Packets that may be sent before the clock is read again.
    left: u64,
    counted: Counted,
    shared: Arc<Mutex<Counted>>,
    is_done: Arc<AtomicBool>,
}

impl Source {
    /// Returns the number of packets that may be sent before the clock is read again.
    fn look(&mut self) -> u64 {
        let Some(first_at) = self.first_at else {
            self.first_at = Some(Instant::now());
            return 1;
        };
        if first_at.elapsed() < PAUSE {
            return 0;
        }
        let timer = self.timer.get_or_insert_with(Timer::start);
        let spent = timer.began.elapsed();
        if spent >= Duration::from_secs(self.wanted.seconds) {
            if !self.is_done.load(Ordering::Relaxed) {
                timer.read(&mut self.counted);
                *self.shared.lock().expect("no thread dies with it") = self.counted;
                self.is_done.store(true, Ordering::Relaxed);
            }
            return 0;
        }
        match self.wanted.packets_per_second {
            0 => LOOK_EVERY,
            rate => {
                let due = spent.as_nanos() * u128::from(rate) / 1_000_000_000;
                let due = u64::try_from(due).unwrap_or(u64::MAX);
                due.saturating_sub(self.counted.packets).min(LOOK_EVERY)
            }
        }
    }
}

impl MemoryGuest for Source {
    fn send(&mut self) -> Option<Vec<u8>> {
        if self.left == 0 {
            self.left = self.look();
            if self.left == 0 {
                return None;
            }
        }
        self.left -= 1;
        self.counted.packets += 1;
        let mut frame = self.templates[self.next].clone();
        frame[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&self.number.to_le_bytes());
        self.next += 1;
        if self.next == self.templates.len() {
            self.next = 0;
            self.number += 1;
        }
        Some(frame)
    }

    fn receive(&mut self, _: Vec<u8>) {}
}

/// The receiving guest.
struct Sink {
    templates: Vec<Vec<u8>>,
    /// For each flow, one more than the largest packet number received so far. A packet with a
    /// smaller number is late.
    next: Vec<u64>,
    timer: Option<Timer>,
    counted: Counted,
    shared: Arc<Mutex<Counted>>,
}

impl Sink {
    /// Returns the flow of a packet and its number; `None` if the packet differs from the packets
    /// that were sent.
    fn read(&self, frame: &[u8]) -> Option<(usize, u64)> {
        let port = frame.get(OFFLOAD_BYTES + 20..OFFLOAD_BYTES + 22)?;
        let flow = usize::from(u16::from_be_bytes([port[0], port[1]]).checked_sub(FIRST_PORT)?);
        let template = self.templates.get(flow)?;
        let (head, number) = frame.split_at_checked(NUMBER_AT)?;
        let (number, rest) = number.split_first_chunk::<8>()?;
        let same = head == &template[..NUMBER_AT] && rest == &template[NUMBER_AT + 8..];
        same.then_some((flow, u64::from_le_bytes(*number)))
    }
}

impl MemoryGuest for Sink {
    fn send(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn receive(&mut self, frame: Vec<u8>) {
        self.counted.packets += 1;
        if self.counted.packets > 1 {
            self.timer.get_or_insert_with(Timer::start);
        }
        if let Some(timer) = &self.timer
            && self.counted.packets.is_multiple_of(LOOK_EVERY * 64)
        {
            timer.read(&mut self.counted);
        }
        let Some((flow, number)) = self.read(&frame) else {
            self.counted.wrong += 1;
            return;
        };
        self.counted.late += u64::from(number < self.next[flow]);
        self.next[flow] = self.next[flow].max(number + 1);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        *self.shared.lock().expect("no thread dies with it") = self.counted;
    }
}

/// Returns a key as hexadecimal digits.
fn hex(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs one card in its own process and namespace. The sending card ends after its measurement; the
/// receiving one ends when it reads a line from standard input.
fn card(host: &str, directory: &Path, wanted: Parameters) -> Result<()> {
    let (own, name) = if host == "alpha" { (0, "a") } else { (1, "b") };
    let address = |at: usize| -> Result<IpAddr> { Ok(ADDRESSES[at].parse()?) };
    let other = if own == 0 { "beta" } else { "alpha" };
    let keys = [[1; 32], [2; 32]].map(|key| SecretKey::parse(&hex(&key)).expect("a key"));
    let file = directory.join(format!("{host}.key"));
    std::fs::write(&file, keys[own].expose())?;
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let socket = directory.join(format!("{host}.sock"));
    let text = format!(
        "[interface]\nmode = \"cloud\"\nlisten = \"{}\"\nprivate_key_file = \"{host}.key\"\n\
         link_rate = \"100G\"\npoll = \"spin\"\n[cloud]\nvpc = \"cloud.toml\"\nhost = \"{host}\"\n\
         [cloud.vhost_user]\n{name} = \"{name}.sock\"\n[[peer]]\nhost = \"{other}\"\n\
         endpoint = \"{}\"\npublic_key = \"{}\"\n",
        SocketAddr::new(address(own)?, PORT),
        SocketAddr::new(address(1 - own)?, PORT),
        keys[1 - own].public()
    );
    let config = Config::parse(&text, &directory.join(format!("{host}.toml")))?;
    let config = Config { file: PathBuf::new(), control: Control::at(socket.clone()), ..config };
    let templates: Vec<_> = (0..wanted.flows).map(|flow| template(flow, wanted.bytes)).collect();
    let shared = Arc::new(Mutex::new(Counted::default()));
    let is_done = Arc::new(AtomicBool::new(false));
    let (timer, counted) = (None, Counted::default());
    let guest: Box<dyn MemoryGuest> = if own == 0 {
        let (shared, is_done) = (Arc::clone(&shared), Arc::clone(&is_done));
        let (next, number, left) = (0, 0, 0);
        Box::new(Source {
            wanted,
            templates,
            next,
            number,
            first_at: None,
            timer,
            left,
            counted,
            shared,
            is_done,
        })
    } else {
        let (shared, next) = (Arc::clone(&shared), vec![0; templates.len()]);
        Box::new(Sink { templates, next, timer, counted, shared })
    };
    let node = srd_guest::node::start_with(config, Some((name, guest)))?;
    println!("ready");
    let (handle, waits_for_word) = (node.daemon.handle(), own == 1);
    let ender = thread::spawn(move || {
        if waits_for_word {
            let _ = std::io::stdin().lines().next();
            is_done.store(true, Ordering::Relaxed);
        }
        while !is_done.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        let drops = drops(&socket);
        let _ = handle.command(StopNode::Stop);
        drops
    });
    node.daemon.run()?;
    let drops = ender.join().map_err(|_| anyhow::anyhow!("the thread that ends it"))?;
    let Counted { packets, late, wrong, seconds, core_seconds } =
        *shared.lock().expect("no thread dies with it");
    println!("{packets} {late} {wrong} {seconds} {core_seconds}");
    println!("{}", drops.unwrap_or_else(|error| format!("{error:#}")));
    Ok(())
}

/// Returns the drops of this card and of the kernel as text.
fn drops(socket: &Path) -> Result<String> {
    let Answer::Status(status) = Client::connect(socket)?.ask(&Request::Status)? else {
        bail!("no status");
    };
    let status = serde_json::to_value(&status)?;
    let instances = status["instances"].as_array().into_iter().flatten();
    let interfaces = instances.flat_map(|of| of["interfaces"].as_array().into_iter().flatten());
    let mut all: Vec<String> = interfaces.map(|of| of["drops"].to_string()).collect();
    all.extend(["drops", "lost"].map(|name| format!("{name} {}", status[name])));
    let sockets = std::fs::read_to_string("/proc/net/udp")?;
    let own = sockets.lines().filter(|line| line.contains(":17C1 "));
    all.extend(
        own.map(|line| format!("socket {}", line.split_whitespace().next_back().unwrap_or("?"))),
    );
    Ok(all.join(", "))
}

/// Two namespaces and the veth between them, which are removed when this is dropped.
struct Network {
    names: [String; 2],
}

fn run(program: &str, arguments: &str) -> Result<()> {
    let status = Command::new(program).args(arguments.split(' ')).status();
    let status = status.with_context(|| format!("`{program}` cannot be run"))?;
    ensure!(status.success(), "`{program} {arguments}` failed: this needs root");
    Ok(())
}

impl Network {
    fn make(split: bool) -> Result<Self> {
        let names = ["a", "b"].map(|end| format!("srd-c2c-{}-{end}", std::process::id()));
        for name in &names {
            run("ip", &format!("netns add {name}"))?;
        }
        let network = Self { names };
        let [a, b] = &network.names;
        run("ip", &format!("-n {a} link add under0 type veth peer name under0 netns {b}"))?;
        for (name, address) in network.names.iter().zip(ADDRESSES) {
            run("ip", &format!("-n {name} address add {address}/24 dev under0"))?;
            run("ip", &format!("-n {name} link set under0 mtu {MTU} up"))?;
            run("ip", &format!("-n {name} link set lo up"))?;
            if split {
                let off = "-K under0 tx-udp-segmentation off gso off tso off";
                run("ip", &format!("netns exec {name} ethtool {off}"))?;
            }
        }
        network.names.iter().for_each(|name| operational::wait(name, "under0"));
        Ok(network)
    }

    fn card(&self, own: usize, directory: &Path, words: &[String]) -> Result<Child> {
        let program = std::env::current_exe()?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[own], "taskset", "-c", &own.to_string()]);
        command.arg(program).arg("card").arg(["alpha", "beta"][own]).arg(directory).args(words);
        Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &format!("netns delete {name}"));
        }
    }
}

/// Output of a card, in lines.
type Lines = std::io::Lines<BufReader<std::process::ChildStdout>>;

fn lines(card: &mut Child) -> Result<Lines> {
    let mut lines = BufReader::new(card.stdout.take().context("a pipe")?).lines();
    ensure!(lines.next().transpose()?.as_deref() == Some("ready"), "a card did not start");
    Ok(lines)
}

fn end(mut card: Child, mut lines: Lines) -> Result<(Counted, String)> {
    let line = lines.next().context("a card says nothing")??;
    let words: Vec<&str> = line.split(' ').collect();
    let [packets, late, wrong, seconds, core_seconds] = words[..] else {
        bail!("a card says `{line}`");
    };
    let (packets, late, wrong) = (packets.parse()?, late.parse()?, wrong.parse()?);
    let (seconds, core_seconds) = (seconds.parse()?, core_seconds.parse()?);
    let drops = lines.next().transpose()?.unwrap_or_default();
    card.wait()?;
    Ok((Counted { packets, late, wrong, seconds, core_seconds }, drops))
}

fn measure(words: &[String], split: bool) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("srd-c2c-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let cloud = cloud::two_instances(["alpha", "beta"]);
    std::fs::write(directory.join("cloud.toml"), cloud)?;
    let network = Network::make(split)?;
    let mut beta = network.card(1, &directory, words)?;
    let of_beta = lines(&mut beta)?;
    let mut alpha = network.card(0, &directory, words)?;
    let of_alpha = lines(&mut alpha)?;
    let (sent, at_source) = end(alpha, of_alpha)?;
    thread::sleep(Duration::from_millis(200));
    if let Some(word) = beta.stdin.as_mut() {
        word.write_all(b"\n")?;
    }
    let (got, at_sink) = end(beta, of_beta)?;
    let _ = std::fs::remove_dir_all(&directory);
    println!(
        "sent    {} in {:.2} s, {:.2} s of a core",
        sent.packets, sent.seconds, sent.core_seconds
    );
    println!(
        "arrived {} in {:.2} s, {:.2} s of a core",
        got.packets, got.seconds, got.core_seconds
    );
    let lost = sent.packets.saturating_sub(got.packets);
    println!("lost {lost}, late {}, wrong {}", got.late, got.wrong);
    let rate = |of: Counted, seconds: f64| of.packets as f64 / seconds / 1e6;
    println!(
        "M packets/s: sent {:.2}, arrived {:.2}; of a core's time: sent {:.2}, arrived {:.2}",
        rate(sent, sent.seconds),
        rate(got, got.seconds),
        rate(sent, sent.core_seconds),
        rate(got, got.core_seconds)
    );
    println!("dropped: at the sender {at_source}; at the receiver {at_sink}");
    Ok(())
}

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    // A card starts this program a second time, as its privileged helper.
    if words.first().is_some_and(|word| word == "card-helper") {
        return srd_guest::helper::serve();
    }
    let split = words.iter().any(|word| word == "split");
    words.retain(|word| word != "split");
    let is_card = words.first().is_some_and(|word| word == "card");
    let numbers = if is_card { &words[3..] } else { &words[..] };
    let number = |at: usize, default: u64| numbers.get(at).map_or(Ok(default), |word| word.parse());
    let wanted = Parameters {
        flows: u16::try_from(number(0, 64)?)?.clamp(1, 60_000),
        seconds: number(1, 4)?,
        bytes: u16::try_from(number(2, 64)?)?.clamp(64, 9000),
        packets_per_second: number(3, 0)?,
    };
    if is_card {
        return card(&words[1], Path::new(&words[2]), wanted);
    }
    measure(&words, split)
}
