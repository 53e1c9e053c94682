//! Packets between instances: a ping all the time, and single datagrams that show whether a host
//! applies a rule.

use std::collections::BTreeMap;
use std::fmt;
use std::net::UdpSocket;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::*;

/// UDP port of the echo services.
const ECHO: u16 = 6000;
/// Longest wait for an echo, or for the request to stop a service.
const ECHO_WAIT_MAX: Duration = Duration::from_millis(250);
/// Time between two pings.
const INTERVAL: &str = "0.02";

/// Permits datagrams to the echo services between the members of a group, or ends that. A request
/// whose answer is uncertain is repeated.
pub(super) fn permit(fleet: &Fleet, group: &str, is_permitted: bool) {
    let (action, done) = match is_permitted {
        true => ("AuthorizeSecurityGroupIngress", "InvalidPermission.Duplicate"),
        false => ("RevokeSecurityGroupIngress", "InvalidPermission.NotFound"),
    };
    let of = format!(
        "GroupId={group}&IpPermissions.1.IpProtocol=udp&IpPermissions.1.FromPort={ECHO}&\
         IpPermissions.1.ToPort={ECHO}&IpPermissions.1.Groups.1.GroupId={group}"
    );
    wait_until("a change during a fault", || {
        let (status, answer) = fleet.send(action, &of);
        if status != 200 {
            println!("{action}: {status} {answer}");
        }
        status == 200 || answer.contains(done)
    });
}

/// An echo service in the namespace of each instance.
pub(super) struct Echoes {
    services: BTreeMap<String, (Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Echoes {
    pub(super) fn start(instances: &[Placed]) -> Self {
        let mut echoes = Self { services: BTreeMap::new() };
        instances.iter().for_each(|of| echoes.restart(of));
        echoes
    }

    /// Starts the service in an instance whose namespace is new.
    pub(super) fn restart(&mut self, instance: &Placed) {
        self.stop(&instance.id);
        let socket = within(&instance.namespace(), || UdpSocket::bind(("0.0.0.0", ECHO)).unwrap());
        socket.set_read_timeout(Some(ECHO_WAIT_MAX)).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let ends = Arc::clone(&ends);
            move || {
                let mut bytes = [0; 64];
                while !ends.load(Ordering::Relaxed) {
                    if let Ok((count, from)) = socket.recv_from(&mut bytes) {
                        let _ = socket.send_to(&bytes[..count], from);
                    }
                }
            }
        });
        self.services.insert(instance.id.clone(), (ends, thread));
    }

    fn stop(&mut self, id: &str) {
        if let Some((ends, thread)) = self.services.remove(id) {
            ends.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        }
    }

    /// Whether the services of all instances answer, or none does. Each packet is of a new flow.
    pub(super) fn all_are(&self, instances: &[Placed], answers: bool) -> bool {
        let next = |at: usize| &instances[(at + 1) % instances.len()];
        instances.iter().enumerate().all(|(at, to)| echoes(next(at), to) == answers)
    }
}

impl Drop for Echoes {
    fn drop(&mut self) {
        let ids: Vec<String> = self.services.keys().cloned().collect();
        ids.iter().for_each(|id| self.stop(id));
    }
}

/// Whether a datagram of a new flow from an instance to another one is answered.
fn echoes(from: &Placed, to: &Placed) -> bool {
    let socket = within(&from.namespace(), || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(ECHO_WAIT_MAX)).unwrap();
    let to = (std::net::Ipv4Addr::from(to.address), ECHO);
    socket.send_to(b"echo", to).is_ok() && socket.recv(&mut [0; 64]).is_ok()
}

/// Pings from an instance to another one.
pub(super) struct Pings {
    process: Child,
    output: PathBuf,
}

/// Answers to pings.
pub(super) struct Silence {
    /// Longest time between two answers.
    pub(super) longest: Duration,
    answers: usize,
    sent: usize,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { longest, answers, sent } = self;
        write!(f, "{answers} of {sent} pings answered, longest time without an answer {longest:?}")
    }
}

impl Pings {
    pub(super) fn start(from: &Placed, to: &Placed, output: &Path) -> Self {
        let mut command = Command::new("ip");
        let address = std::net::Ipv4Addr::from(to.address).to_string();
        let inside = ["netns", "exec", &from.namespace(), "ping", "-D", "-i", INTERVAL, &address];
        command.args(inside).stdout(fs::File::create(output).unwrap());
        Self { process: command.spawn().unwrap(), output: output.to_owned() }
    }

    /// Ends the pings.
    pub(super) fn end(self) -> Silence {
        let mut running = Running(self.process);
        running.end(Signal::INT);
        let text = fs::read_to_string(&self.output).unwrap();
        let time = |line: &str| -> Option<f64> {
            line.strip_prefix('[')?
                .split_once(']')?
                .0
                .parse()
                .ok()
                .filter(|_| line.contains("time="))
        };
        let times: Vec<f64> = text.lines().filter_map(time).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        let sent = text.lines().find(|line| line.contains("packets transmitted"));
        let sent = sent.and_then(|line| line.split(' ').next()?.parse().ok());
        Silence {
            longest: Duration::from_secs_f64(longest),
            answers: times.len(),
            sent: sent.unwrap_or_else(|| panic!("{text}")),
        }
    }
}
