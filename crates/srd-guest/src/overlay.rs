//! Whether an interface is an overlay that encrypts: whether the `srd up` that it belongs to says
//! so.
//!
//! The kind of a device says nothing: programs make TUN devices that carry packets as they are, and
//! so does `srd up` with `protection = "plain"`. So its control socket is asked, as `srd status`
//! does. It is believed if root, the user of this card or the account `srd` listens there, and, as
//! far as this card may look, the process that listens holds the device open.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::net::sockopt::socket_peercred;
use serde::Deserialize;
use srd_trust::peer::{self, Stranger};
use srd_trust::socket::{connect, place_of};

/// Where `srd up` listens unless its file says another place.
const DIRECTORY: &str = "/run/srd";
/// The account of the package's unit.
const ACCOUNT: &str = "srd";
/// A daemon answers within this time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Bytes of a daemon's answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Sockets that are asked.
const SOCKETS_MAX: usize = 64;

/// The facts of a daemon's status that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    interface: String,
    encrypted: bool,
}

#[derive(Debug, Deserialize)]
struct Answer {
    ok: Option<Status>,
}

/// Fails, with the cause, unless the interface belongs to an `srd up` that encrypts.
pub(crate) fn check(interface: &str) -> Result<()> {
    let holders = holders(interface);
    let usual = Path::new(DIRECTORY).join(format!("{interface}.sock"));
    let others = holders.iter().flat_map(|pid| sockets_of(*pid));
    let mut causes = Vec::new();
    for path in [usual.clone()].into_iter().chain(others).take(SOCKETS_MAX) {
        match ask(&path, &holders) {
            Ok(status) if status.interface != interface => {}
            Ok(status) if status.encrypted => return Ok(()),
            Ok(_) => bail!("whose `srd up` does not encrypt (protection = \"plain\")"),
            Err(error) => causes.push(format!("{error:#}")),
        }
    }
    let cause = causes.first().map_or_else(String::new, |cause| format!(" ({cause})"));
    bail!("which no `srd up` calls its own at {}{cause}", usual.display())
}

/// Asks the daemon that listens at a socket.
fn ask(path: &Path, holders: &[i32]) -> Result<Status> {
    let mut stream = connect(path).context("nobody listens there")?;
    peer::check(&stream, account().as_slice()).map_err(|error| match peer::stranger(&error) {
        Some(Stranger { user }) => {
            anyhow!("user {user} listens there, who is neither root nor `{ACCOUNT}`")
        }
        None => anyhow!(error).context("who listens is not known"),
    })?;
    let pid = socket_peercred(&stream).context("who listens is not known")?.pid;
    if !holders.is_empty() && !holders.contains(&pid.as_raw_nonzero().get()) {
        bail!("the process that listens there does not hold the device");
    }
    stream.set_write_timeout(Some(WAIT_MAX))?;
    stream.write_all(b"{\"request\":\"status\"}\n")?;
    let answer = read_all(stream).context("no answer")?;
    let answer: Answer = serde_json::from_slice(&answer).context("no answer of `srd up`")?;
    answer.ok.context("`srd up` refuses to answer")
}

/// A whole answer. One that comes byte by byte has one deadline.
fn read_all(mut stream: UnixStream) -> Result<Vec<u8>> {
    let deadline = Instant::now() + WAIT_MAX;
    let (mut answer, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "it takes longer than {} s", WAIT_MAX.as_secs());
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Ok(answer),
            count => answer.extend_from_slice(&part[..count]),
        }
        ensure!(answer.len() <= ANSWER_BYTES_MAX, "it has more than {ANSWER_BYTES_MAX} bytes");
    }
}

/// The number of the account, if this machine has it.
fn account() -> Option<u32> {
    let all = fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = all.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|line| line.first() == Some(&ACCOUNT))?.get(2)?.parse().ok()
}

/// Processes of this network namespace that have the TUN device of this name open, as far as this
/// one may see them.
fn holders(interface: &str) -> Vec<i32> {
    let line = format!("iff:\t{interface}");
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let Some(own) = namespace("self") else { return Vec::new() };
    let is_holder = |pid: &i32| {
        if namespace(&pid.to_string()).as_ref() != Some(&own) {
            return false;
        }
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter(|of| is_link_to(&of.path(), "/dev/net/tun")).any(|of| {
            let info = Path::new(&format!("/proc/{pid}/fdinfo")).join(of.file_name());
            fs::read_to_string(info).is_ok_and(|text| text.lines().any(|of| of == line))
        })
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|of| of.file_name().to_str()?.parse().ok()).filter(is_holder).collect()
}

/// Paths of the Unix sockets at which a process listens.
fn sockets_of(pid: i32) -> Vec<PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = open.filter_map(|of| fs::read_link(of.path()).ok());
    let own: Vec<String> = links.filter_map(|link| Some(link.to_str()?.to_owned())).collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let listens = table.lines().skip(1).filter_map(|line| {
        // Number, users, protocol, flags, type, state, inode, path.
        const LISTENS: &str = "00010000";
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, LISTENS, _, _, inode, path] = fields[..] else { return None };
        let is_own = own.contains(&format!("socket:[{inode}]"));
        // In the directories that the process sees.
        let place = place_of(Path::new(path)).unwrap_or_else(|| PathBuf::from(path));
        let place = place.strip_prefix("/").ok()?;
        is_own.then(|| Path::new(&format!("/proc/{pid}/root")).join(place))
    });
    listens.take(SOCKETS_MAX).collect()
}

fn is_link_to(path: &Path, name: &str) -> bool {
    fs::read_link(path).is_ok_and(|link| link == Path::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_is_asked_as_srd_status_does_and_only_the_process_with_the_device_is_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("srd9.sock");
        assert!(ask(&path, &[]).unwrap_err().to_string().contains("nobody listens"));
        let listener = UnixListener::bind(&path).unwrap();
        let answers = [
            "{\"ok\":{\"interface\":\"srd9\",\"encrypted\":true,\"mtu\":1400}}",
            "{\"ok\":{\"interface\":\"srd9\",\"encrypted\":false}}",
            "{\"error\":{\"kind\":\"busy\",\"text\":\"no\"}}",
            "HTTP/1.1 400",
        ];
        let daemon = std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                assert_eq!(line, "{\"request\":\"status\"}\n");
                (&stream).write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
            listener
        });
        let own = i32::try_from(std::process::id()).unwrap();
        let status = ask(&path, &[own]).unwrap();
        assert!(status.encrypted && status.interface == "srd9");
        assert!(!ask(&path, &[]).unwrap().encrypted);
        assert!(ask(&path, &[]).is_err() && ask(&path, &[]).is_err());
        let _listener = daemon.join().unwrap();
        let refused = ask(&path, &[1]).unwrap_err();
        assert!(refused.to_string().contains("does not hold"), "{refused:#}");
        // It is found by the process that listens.
        assert!(sockets_of(own).iter().any(|found| found.ends_with("srd9.sock")));
    }
}
