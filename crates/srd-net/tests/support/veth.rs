//! Two network namespaces with a veth between them, which are removed when the value is dropped.

#[path = "cable.rs"]
pub(crate) mod cable;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Longest time until a packet or a device appears or disappears.
const PATIENCE: Duration = Duration::from_secs(60);

/// Name of the interface at each end.
pub(crate) const INTERFACE: &str = "v0";

/// A pair of namespaces: `10.77.0.1` and `fd77::1` in the first, `.2` and `::2` in the second.
pub(crate) struct Pair {
    pub(crate) names: [String; 2],
}

impl Pair {
    /// Makes a pair with this MTU and this number of queues at each end. Returns `None` without the
    /// right to make it, which is an error in CI.
    pub(crate) fn new(mtu: u16, queues: u8) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("xdp-{}-{count}{end}", std::process::id());
        let pair = Self { names: [name('a'), name('b')] };
        if !can_add(&pair.names[0]) {
            return None;
        }
        must("ip", &["netns", "add", &pair.names[1]]);
        pair.names.iter().for_each(|name| must("ip", &["-n", name, "link", "set", "lo", "up"]));
        let [a, b] = &pair.names;
        let end = |namespace, addresses| cable::End { namespace, interface: INTERFACE, addresses };
        let ends =
            [end(a, &["10.77.0.1/24", "fd77::1/64"]), end(b, &["10.77.0.2/24", "fd77::2/64"])];
        cable::plug(&ends, &format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}"));
        Some(pair)
    }

    /// Runs `work` on a thread inside the namespace of one end. Sockets and threads made there stay
    /// in the namespace.
    pub(crate) fn within<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.names[end])).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), kind).unwrap();
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Makes each of the two kernels resolve the IPv4 address of the other kernel. Afterwards a
    /// packet of each end has arrived at the other end.
    pub(crate) fn acquaint(&self) {
        let sockets = [(0, "10.77.0.1:0"), (1, "10.77.0.2:0")].map(|(end, at)| {
            let socket = self.within(end, || UdpSocket::bind(at).unwrap());
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            socket
        });
        let until = Instant::now() + PATIENCE;
        for (from, to) in [(0, 1), (1, 0)] {
            let address = sockets[to].local_addr().unwrap();
            loop {
                sockets[from].send_to(&[1], address).unwrap();
                if sockets[to].recv(&mut [0]).is_ok() {
                    break;
                }
                assert!(Instant::now() < until, "nothing arrives at {address}");
            }
        }
    }

    /// Runs `ip` in the namespace of one end.
    pub(crate) fn ip(&self, end: usize, arguments: &[&str]) {
        must("ip", &[&["-n", &self.names[end]], arguments].concat());
    }

    /// Returns the kernel's IPv4 neighbours in the namespace of one end.
    pub(crate) fn neighbours(&self, end: usize) -> String {
        let arguments = ["-4", "-n", &self.names[end], "neigh", "show", "dev", INTERFACE];
        let output = Command::new("ip").args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sets a variable of the kernel in the namespace of one end.
    pub(crate) fn set(&self, end: usize, variable: &str) {
        must("ip", &["netns", "exec", &self.names[end], "sysctl", "-qw", variable]);
    }

    /// Whether an XDP program is attached at one end.
    pub(crate) fn has_program(&self, end: usize) -> bool {
        let shown = Command::new("ip")
            .args(["-n", &self.names[end], "-d", "link", "show", "dev", INTERFACE])
            .output()
            .unwrap();
        assert!(shown.status.success());
        String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
    }

    /// Waits until no XDP program is attached at one end. The program stays as long as its
    /// descriptor is open, and a process that another test starts has a copy of the descriptor for
    /// a moment.
    pub(crate) fn await_no_program(&self, end: usize) {
        let until = Instant::now() + PATIENCE;
        while self.has_program(end) {
            assert!(Instant::now() < until, "the program is still attached");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            run("ip", &["netns", "del", name]);
        }
    }
}

/// Makes a network namespace. Without the right or without `ip`, prints the reason and returns
/// false; in CI, fails.
pub(crate) fn can_add(namespace: &str) -> bool {
    let lacks = match Command::new("ip").args(["netns", "add", namespace]).output() {
        Ok(output) if output.status.success() => return true,
        Ok(_) if !rustix::process::geteuid().is_root() => "it needs root",
        Ok(_) => "no right to make a network namespace",
        Err(_) => "no ip (apt-get install iproute2)",
    };
    assert!(std::env::var_os("CI").is_none(), "in CI: {lacks}");
    println!("skipped: {lacks}");
    false
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Runs a program, which must succeed.
pub(crate) fn must(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}
