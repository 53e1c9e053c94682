//! Work of the process `srd network`: maintains the interface, its routes and its rules until the
//! daemon ends, then removes them.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage as Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;

use super::kernel::{Kernel, Routes, SyncReport};
use super::netlink::Netlink;
use super::plan::{PREFIXES_MAX, Spec};
use super::sockets;
use super::{Answer, CHANGES_MAX, LINE_BYTES_MAX, Request};
use srd_trust::privileges;

/// Interval at which routes and rules are checked even if the kernel sends no notification.
const VERIFY_EVERY: Duration = Duration::from_secs(5);
/// Longest wait for another process that is still removing its routes from the same table.
const TABLE_WAIT_MAX: Duration = Duration::from_secs(8);

/// Answers the requests that the daemon writes to standard input. When that input ends, removes the
/// interface, the routes and the rules.
///
/// # Errors
/// If `spec` cannot be read, privileges cannot be dropped, or routes and rules cannot be removed.
pub fn serve(spec: &str) -> Result<()> {
    // This process ends when its input ends, and ignores the signals of a terminal.
    ignore_signals();
    privileges::keep_network_only().context("cannot drop privileges")?;
    let spec: Spec = serde_json::from_str(spec).context("not a specification")?;
    let mut keeper = match Keeper::new(spec) {
        Ok(keeper) => keeper,
        Err(error) => {
            // The daemon reads this text as the answer to its first request.
            say(&Answer::Failed(format!("{error:#}")))?;
            return Ok(());
        }
    };
    if let (Some(TableLock::Squatted), Some(table)) = (&keeper.lock, keeper.kernel.spec().table) {
        say(&Answer::Note(format!(
            "a process of another user holds the name @srd-table-{table}, so that another `srd up` \
             with this table would not be noticed: find it with `ss -xlp`"
        )))?;
    }
    let ended = keeper.answer_until_end();
    keeper.give_back().context("cannot give routes and rules back")?;
    match ended {
        // A note to the daemon could not be written, because the daemon has ended.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended.context("lost the daemon"),
    }
}

/// Removes the routes and rules of a daemon that has ended. They remain if `kill_switch` is set, or
/// if the network process was killed as well. If a network process is still removing them, waits
/// for its end. Returns the number of those that this call has removed.
///
/// # Errors
/// If a daemon that uses this table runs, or the kernel refuses a change.
pub fn release(spec: &Spec) -> Result<usize> {
    let Some(table) = spec.table else { return Ok(0) };
    let lock = lock(table, TABLE_WAIT_MAX)?;
    if matches!(lock, TableLock::Taken) {
        bail!(
            "a daemon that uses routing table {table} runs: stop it first, by `systemctl stop`, \
             Ctrl-C or SIGTERM"
        );
    }
    let mut kernel = Kernel::open(spec.clone()).context("cannot talk to the kernel")?;
    kernel.clean(&[]).context("cannot remove routes and rules")
}

fn ignore_signals() {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    // The signals stay blocked: this process ends when its standard input ends.
    let _ = set.thread_block();
}

/// Reservation of a routing table within this network namespace: a listener at an abstract socket
/// name.
#[derive(Debug)]
enum TableLock {
    /// This process has reserved the table, as long as the listener exists.
    Ours { _name: UnixListener },
    /// Another process of ours still has the table reserved after the longest wait.
    Taken,
    /// A process of another user listens at the name, which any user may do. Its listener does not
    /// count as a reservation, so the table may be used.
    Squatted,
}

/// Reserves a routing table by binding a socket name, which only one process at a time can do.
/// Waits up to `patience` if the name is in use.
fn lock(table: u32, patience: Duration) -> io::Result<TableLock> {
    lock_against(table, patience, || false, privileges::may_be_ours)
}

/// Reserves a routing table for the daemon. Stops waiting if the daemon ends.
fn lock_for_daemon(table: u32) -> io::Result<TableLock> {
    let input = io::stdin();
    let has_ended = || {
        let mut fds = [PollFd::new(&input, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    };
    lock_against(table, TABLE_WAIT_MAX, has_ended, privileges::may_be_ours)
}

fn lock_against(
    table: u32,
    patience: Duration,
    is_given_up: impl Fn() -> bool,
    may_be_ours: impl Fn(Uid) -> bool,
) -> io::Result<TableLock> {
    let text = format!("srd-table-{table}");
    let name = SocketAddr::from_abstract_name(&text)?;
    let deadline = Instant::now() + patience;
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(listener) => return Ok(TableLock::Ours { _name: listener }),
            Err(e) if e.kind() != io::ErrorKind::AddrInUse => return Err(e),
            Err(_) if Instant::now() >= deadline || is_given_up() => break,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    if holder(&text)?.is_some_and(may_be_ours) {
        return Ok(TableLock::Taken);
    }
    // The process that was bound to the name may have ended just now.
    let name = UnixListener::bind_addr(&name);
    Ok(name.map_or(TableLock::Squatted, |listener| TableLock::Ours { _name: listener }))
}

/// Returns the user whose process listens at a socket name. Returns `None` if no process listens,
/// or if it accepts no connections; a process of ours accepts them, unless thousands are pending.
fn holder(name: &str) -> io::Result<Option<Uid>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) => Ok(Some(net::sockopt::socket_peercred(&socket)?.uid)),
        Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::PROTOTYPE) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn say(answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_string(answer).map_err(io::Error::other)?;
    let fits = (0..=LINE_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(fits.unwrap_or(0));
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// State of the process `srd network`.
#[derive(Debug)]
struct Keeper {
    kernel: Kernel,
    watch: Netlink,
    wanted: Routes,
    /// Whether the interface was up at the last check; `None`: it does not exist.
    up: Option<bool>,
    /// Whether the daemon has sent all required routes, so that other routes in the table may be
    /// removed.
    complete: bool,
    verify_at: Instant,
    /// The errors in the last note, so that errors that stay are reported once.
    reported: Vec<String>,
    lock: Option<TableLock>,
}

impl Keeper {
    fn new(spec: Spec) -> Result<Self> {
        let lock = match spec.table {
            None => None,
            Some(table) => match lock_for_daemon(table).context("cannot reserve a table")? {
                TableLock::Taken => bail!(
                    "another `srd up` uses routing table {table}: choose an unused number for \
                         one of the two, `table` in [expert]"
                ),
                lock => Some(lock),
            },
        };
        let watch = Kernel::watch().context("cannot watch the network")?;
        let mut kernel = Kernel::open(spec).context("cannot talk to the kernel")?;
        kernel.check_table().map_err(anyhow::Error::msg)?;
        let verify_at = Instant::now() + VERIFY_EVERY;
        let (wanted, up, complete, reported) = (Routes::new(), None, false, Vec::new());
        Ok(Self { kernel, watch, wanted, up, complete, verify_at, reported, lock })
    }

    fn answer_until_end(&mut self) -> io::Result<()> {
        let input = io::stdin();
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let (has_input, has_news) = self.wait(&input)?;
            if has_news || Instant::now() >= self.verify_at {
                self.look()?;
            }
            if !has_input {
                continue;
            }
            let mut chunk = [0; 16 * 1024];
            let n = match rustix::io::read(input.as_fd(), &mut chunk) {
                Err(rustix::io::Errno::INTR) => continue,
                n => n?,
            };
            if n == 0 {
                return Ok(());
            }
            buffer.extend_from_slice(&chunk[..n]);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                say(&self.execute(&line))?;
            }
            if buffer.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("a request is too long"));
            }
        }
    }

    /// Waits for a request, a notification of the kernel, or the time of the next check. Returns
    /// whether there is a request, and whether there is a notification.
    fn wait(&self, input: &io::Stdin) -> io::Result<(bool, bool)> {
        let left = self.verify_at.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(input, PollFlags::IN), PollFd::new(&self.watch, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty()))
    }

    fn execute(&mut self, line: &[u8]) -> Answer {
        let Ok(request) = serde_json::from_slice::<Request>(line) else {
            return Answer::Failed("not a request of the network process".into());
        };
        let done = match request {
            Request::Begin(number) => {
                self.wanted.clear();
                self.complete = false;
                return Answer::Begun(number);
            }
            Request::Up { mtu } => self.bring_up(mtu),
            Request::Change { add, remove } => {
                if add.len() + remove.len() > CHANGES_MAX {
                    return Answer::Failed("too many changes in one request".into());
                }
                for prefix in remove {
                    self.wanted.remove(&prefix.trunc());
                }
                self.wanted.extend(add.into_iter().map(|r| (r.prefix.trunc(), r.source)));
                if self.wanted.len() <= PREFIXES_MAX {
                    Ok(())
                } else {
                    self.wanted.clear();
                    Err("more prefixes than a configuration may have".into())
                }
            }
            Request::Apply => {
                self.complete = true;
                self.synchronise().and_then(|done| done.verdict())
            }
        };
        done.map_or_else(Answer::Failed, |()| Answer::Done)
    }

    fn bring_up(&mut self, mtu: u16) -> Result<(), String> {
        if self.kernel.index().is_some() {
            return Err("the interface is set up already".into());
        }
        // The rules for the subnet are installed before the first packet can be sent to it.
        self.synchronise()?.verdict()?;
        self.kernel.bring_up(mtu)?;
        self.up = Some(true);
        Ok(())
    }

    fn synchronise(&mut self) -> Result<SyncReport, String> {
        self.verify_at = Instant::now() + VERIFY_EVERY;
        let done = self.kernel.synchronise(&self.wanted, self.complete);
        done.map_err(|e| format!("routes and rules: {e}"))
    }

    /// Checks addresses, routes and rules after a notification, or at the regular time. Restores
    /// what is missing, and reports it in a note.
    fn look(&mut self) -> io::Result<()> {
        let is_relevant = match self.watch.notifications() {
            Ok(all) => all.iter().any(|n| self.concerns_us(n)),
            // The socket's buffer has overflowed, so any part may have changed.
            Err(_) => true,
        };
        let is_due = Instant::now() >= self.verify_at;
        if is_due {
            self.verify_at = Instant::now() + VERIFY_EVERY;
        }
        if self.kernel.index().is_none() || !(is_relevant || is_due) {
            return Ok(());
        }
        let mut errors = Vec::new();
        let note = self.restore(&mut errors);
        let news = errors != self.reported;
        self.reported = errors;
        if let Some(note) = note {
            say(&Answer::Note(note))?;
        }
        if news && !self.reported.is_empty() {
            let name = &self.kernel.spec().interface;
            say(&Answer::Note(format!("{name}: {}", self.reported.join("; "))))?;
        }
        Ok(())
    }

    /// Restores addresses, routes and rules. Returns a note if the interface went down or up, or if
    /// something was missing. A failure does not end this process, which would remove everything:
    /// the next check tries again.
    fn restore(&mut self, errors: &mut Vec<String>) -> Option<String> {
        let name = self.kernel.spec().interface.clone();
        let up = match self.kernel.is_up() {
            Ok(up) => up,
            Err(error) => {
                errors.push(format!("reading the state of the interface: {error}"));
                return None;
            }
        };
        let is_news = std::mem::replace(&mut self.up, up) != up;
        if is_news && up.is_none() {
            // The daemon has ended, or will report that its interface was deleted.
            return None;
        }
        // Addresses are restored before routes, because routes depend on them.
        let addresses = if up == Some(true) { self.kernel.give_addresses() } else { Ok(0) };
        let addresses = addresses.unwrap_or_else(|error| {
            errors.push(format!("giving the interface its addresses again: {error}"));
            0
        });
        let done = self.synchronise().unwrap_or_else(|error| {
            errors.push(error);
            SyncReport::default()
        });
        let what = restored(addresses, &done);
        errors.extend(done.errors);
        match (is_news, up) {
            (true, Some(true)) if errors.is_empty() => {
                Some(format!("{name} is up again: its routes are restored"))
            }
            (true, Some(true)) => Some(format!("{name} is up again")),
            (true, _) => Some(format!(
                "{name} was set down by another program: nothing passes until it is set up"
            )),
            (false, _) => {
                let what = what?;
                Some(format!("another program removed {what} of {name}, which were restored"))
            }
        }
    }

    fn concerns_us(&self, message: &Message) -> bool {
        match message {
            Message::NewLink(link) | Message::DelLink(link) => {
                Some(link.header.index) == self.kernel.index()
            }
            Message::DelAddress(address) => Some(address.header.index) == self.kernel.index(),
            Message::DelRule(_) => self.kernel.spec().table.is_some(),
            _ => false,
        }
    }

    /// Deletes the daemon's interface, and then routes and rules. In this order no packet of the
    /// overlay can leave by another route as long as an address of the overlay exists. With IPv4,
    /// no packet can be sent from an address that was removed. With IPv6, a socket that uses such
    /// an address can still send; for such addresses the rules that reject their packets stay.
    ///
    /// The daemon may have ended, so that the kernel is already closing the interface. Deleting the
    /// interface is still faster: closing takes one grace period of the kernel for each queue, and
    /// deleting takes one for all queues together.
    fn give_back(&mut self) -> io::Result<()> {
        self.kernel.delete_link()?;
        if !self.kernel.spec().kill_switch {
            let addresses = &self.kernel.spec().addresses;
            let held = sockets::held(addresses.iter().map(IpNet::addr));
            self.kernel.clean(&held)?;
        }
        Ok(())
    }
}

/// Returns a text with the numbers of restored addresses, routes and rules; `None` if nothing was
/// restored.
fn restored(addresses: usize, done: &SyncReport) -> Option<String> {
    let counts = [
        (addresses, "address", "addresses"),
        (done.routes_added, "route", "routes"),
        (done.rules_added, "rule", "rules"),
    ];
    let words = counts.iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| {
        let what = if *count == 1 { one } else { many };
        format!("{count} {what}")
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(" and "))
}

impl SyncReport {
    fn verdict(self) -> Result<(), String> {
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netconf::namespace::{in_new_namespace, ip};

    #[test]
    fn a_table_has_one_user_at_a_time() {
        let table = 4_000_000_000 - std::process::id();
        let first = lock(table, Duration::ZERO).unwrap();
        assert!(matches!(first, TableLock::Ours { .. }));
        assert!(matches!(lock(table, Duration::from_millis(1)).unwrap(), TableLock::Taken));
        drop(first);
        // A process that another test is starting may inherit the listener, and has the name for a
        // moment.
        assert!(matches!(lock(table, Duration::from_secs(60)).unwrap(), TableLock::Ours { .. }));
    }

    /// A regression: right after a daemon was killed, its network process was still removing the
    /// routes, and `srd down` reported that a daemon runs.
    #[test]
    fn regression_release_waits_for_a_network_process_that_removes_its_routes() {
        let table = 2_000_000_000 - std::process::id();
        let first = lock(table, Duration::ZERO).unwrap();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(first);
        });
        let spec = Spec {
            interface: "srd-unused".to_owned(),
            addresses: Vec::new(),
            table: Some(table),
            mark: 0,
            kill_switch: false,
        };
        assert_eq!(release(&spec).unwrap(), 0);
        ends.join().unwrap();
    }

    #[test]
    fn regression_another_user_that_takes_the_name_of_a_table_keeps_nobody_from_it() {
        let table = 3_000_000_000 - std::process::id();
        let first = lock(table, Duration::ZERO).unwrap();
        let second = lock_against(table, Duration::ZERO, || false, |_| false).unwrap();
        assert!(matches!(second, TableLock::Squatted), "{second:?}");
        // The name is now bound by a socket that does not listen.
        drop(first);
        let flags = SocketFlags::CLOEXEC;
        let silent =
            net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let name = SocketAddrUnix::new_abstract_name(format!("srd-table-{table}").as_bytes());
        let (name, began) = (name.unwrap(), Instant::now());
        // A process that another test is starting may inherit the first listener, and has the name
        // for a moment.
        while let Err(error) = net::bind(&silent, &name) {
            assert!(began.elapsed() < Duration::from_secs(60), "{error}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(lock(table, Duration::ZERO).unwrap(), TableLock::Squatted));
    }

    /// Returns a keeper of an interface that the daemon has not set up yet.
    fn keeper(table: Option<u32>) -> Keeper {
        let spec = Spec {
            interface: "srd-kept".to_owned(),
            addresses: vec!["10.78.0.1/24".parse().unwrap()],
            table,
            mark: 7471,
            kill_switch: false,
        };
        Keeper::new(spec).unwrap()
    }

    /// In an earlier version the errors of the regular check were dropped.
    #[test]
    fn regression_a_route_that_cannot_be_restored_is_reported_and_tried_again() {
        in_new_namespace(|| {
            ip("tuntap add dev srd-kept mode tun");
            let mut keeper = keeper(Some(7471));
            keeper.bring_up(1500).unwrap();
            let (prefix, source) = ("10.9.0.0/16".parse().unwrap(), "192.0.2.9".parse().unwrap());
            keeper.wanted.insert(prefix, Some(source));
            keeper.verify_at = Instant::now();
            keeper.look().unwrap();
            let text = keeper.reported.join("; ");
            assert!(text.contains("adding a route to 10.9.0.0/16"), "{text}");
            ip("address add 192.0.2.9/32 dev srd-kept");
            keeper.verify_at = Instant::now();
            keeper.look().unwrap();
            assert_eq!(keeper.reported, [""; 0]);
            assert!(ip("route list table 7471").contains("10.9.0.0/16"));
        });
    }

    /// In an earlier version the time of the next check stayed in the past until the interface was
    /// set up, so that the process never waited.
    #[test]
    fn regression_the_next_check_is_later_even_if_there_is_no_interface_yet() {
        let mut keeper = keeper(None);
        let past = Instant::now();
        keeper.verify_at = past;
        keeper.look().unwrap();
        assert!(keeper.verify_at > past);
    }

    #[test]
    fn requests_name_neither_interfaces_nor_tables() {
        let route = |text: &str| {
            let text = format!(r#"{{"Change":{{"add":[{text}],"remove":[]}}}}"#);
            serde_json::from_str::<Request>(&text)
        };
        assert!(route(r#"{"prefix":"10.0.0.0/8","source":null}"#).is_ok());
        for bad in [
            r#"{"prefix":"10.0.0.0/8","source":null,"table":254}"#,
            r#"{"prefix":"10.0.0.0/8","source":null,"interface":"eth0"}"#,
            r#"{"prefix":"10.0.0.0/8","source":null,"via":"192.0.2.1"}"#,
            r#"{"prefix":"default","source":null}"#,
        ] {
            assert!(route(bad).is_err(), "{bad}");
        }
        for bad in [
            r#"{"Up":{"mtu":1500,"interface":"eth0"}}"#,
            r#"{"Up":{"mtu":70000}}"#,
            r#"{"Xdp":{"object":"x.o"}}"#,
            r#"{"Down":{}}"#,
            "link set dev eth0 xdp object x.o",
            "+ link set dev eth0 netns 1",
            "+ route replace default via 192.0.2.1",
            "",
        ] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
    }
}
