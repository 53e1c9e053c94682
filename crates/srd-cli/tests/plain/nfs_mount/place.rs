//! A test machine: namespaces with an NFS server, and scripts that replace programs of the system.

use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// Maximum time that a test waits for one event.
const WAIT: Duration = Duration::from_secs(120);
/// The address and port of the NFS server in each test machine.
const NFSD: &str = "127.0.0.1:2049";

/// Script that sets up a test machine: `sh -c SET_UP sh PROGRAM PACKAGING`, where PROGRAM is `srd`,
/// and PACKAGING is the directory of the package's files. The machine has a separate network and a
/// separate `/run`, a kernel that reports NFS support, and the user srd-nfs.
const SET_UP: &str = "\
set -e
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/bin /run/test
touch /run/bin/srd
mount --bind \"$1\" /run/bin/srd
for name in mount.srd-nfs umount.srd-nfs; do cp \"$2/mount.srd-nfs\" /run/bin/$name; done
printf 'nodev\\tnfs4\\n' >/run/test/filesystems
mount --bind /run/test/filesystems /proc/filesystems
for file in passwd group; do
    grep -v ^srd-nfs: /etc/$file >/run/test/$file
done
echo 'srd-nfs:x:64999:64999::/nonexistent:/bin/false' >>/run/test/passwd
echo 'srd-nfs:x:64999:' >>/run/test/group
for file in passwd group; do mount --bind /run/test/$file /etc/$file; done
";
/// Text that is appended to `SET_UP`: the shell sleeps, which keeps the namespaces of the machine.
const WAIT_THERE: &str = "echo there; exec sleep 600";
/// Text that is appended to `SET_UP`: the shell becomes systemd. Its only units are the units of
/// the package, and the targets that these units name.
const BECOME_SYSTEMD: &str = "\
mkdir /run/units
for name in basic sysinit sockets shutdown network-online remote-fs-pre nss-user-lookup; do
    sed '/^Wants=/d; /^Requires=/d' /lib/systemd/system/$name.target >/run/units/$name.target
done
sed 's,/usr/bin/srd,/run/bin/srd,' \"$2/srd-nfs-proxy@.service\" >/run/units/srd-nfs-proxy@.service
cp \"$2/srd-nfs-proxy@.socket\" /run/units/
echo '[Unit]' >/run/units/default.target
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export container=lxc SYSTEMD_UNIT_PATH=/run/units
echo there
exec /lib/systemd/systemd --system --log-target=null --show-status=no
";
/// Replacement of mount(8): records its arguments, and makes one call as the kernel does.
const MOUNT: &str = "\
echo \"$*\" >>/run/test/mount
case $* in *remount*) exit 0 ;; esac
port=$(echo \"$*\" | sed -n 's/.*[ ,]port=\\([0-9]*\\).*/\\1/p')
exec srd nfs-proxy --plain --probe 127.0.0.1:$port >>/run/test/probes 2>&1
";
const UMOUNT: &str = "echo \"$*\" >>/run/test/umount\n";
const FINDMNT: &str = "[ -f /run/test/mounted ] && cat /run/test/mounted\n";
/// Replacement of systemctl(1): records its arguments, and starts a service as the unit of the
/// package does.
pub(super) const SYSTEMCTL: &str = "\
echo \"$*\" >>/run/test/systemctl
unit=/run/test/$(echo \"$*\" | grep -o 'srd-nfs-proxy@[0-9]*' | head -n1)
case $* in
'start '*.service)
    port=${unit#*@}
    words=$(sed -n 's/^ARGS=//p' /run/srd-nfs/$port/env)
    setsid srd nfs-proxy $words </dev/null >/dev/null 2>>$unit.log 9>&- &
    echo $! >$unit.pid
    # As Type=notify does.
    until grep -q ' to ' $unit.log || ! kill -0 $(cat $unit.pid); do sleep 0.05; done
    kill -0 $(cat $unit.pid)
    ;;
'show '*) cat $unit.pid ;;
'kill '*) kill -s USR1 $(cat $unit.pid) ;;
'stop '*.service) [ ! -e $unit.pid ] || kill $(cat $unit.pid) ;;
esac
";

/// A systemctl(1) that starts nothing, and reports success.
pub(super) const FAILS_TO_START: &str = "case $* in show*) echo 0 ;; is-active*) exit 3 ;; esac\n";

/// Whether the test can run; otherwise prints why not.
pub(super) fn ready() -> bool {
    if !geteuid().is_root() {
        println!("skipped: needs root");
        return false;
    }
    for program in ["unshare", "nsenter", "setpriv", "setsid", "flock", "ip"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if !found.unwrap().status.success() {
            println!("skipped: no {program} (apt-get install util-linux iproute2)");
            return false;
        }
    }
    true
}

/// The source port of each call that an NFS server has received, in order of arrival.
pub(super) type Calls = Arc<Mutex<Vec<u16>>>;

/// A machine with an NFS server.
pub(super) struct NfsHost {
    holder: Child,
    /// The ID of a process in the namespaces of the machine.
    inside: u32,
    directory: tempfile::TempDir,
    pub(super) calls: Calls,
}

impl Drop for NfsHost {
    fn drop(&mut self) {
        // Ends all processes in the network namespace of the machine.
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = namespace(&self.inside.to_string());
        for process in fs::read_dir("/proc").unwrap().map_while(Result::ok) {
            let name = process.file_name().into_string().unwrap_or_default();
            let pid = name.parse().ok().and_then(Pid::from_raw);
            if let (Some(pid), true) = (pid, own.is_some() && namespace(&name) == own) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.holder.wait();
    }
}

impl NfsHost {
    pub(super) fn new() -> Self {
        Self::with(&[], WAIT_THERE)
    }

    /// Returns a machine on which a real systemd runs; `None` if systemd is not installed.
    pub(super) fn with_real_systemd() -> Option<Self> {
        if !Path::new("/lib/systemd/systemd").exists() {
            println!("skipped: no systemd (apt-get install systemd)");
            return None;
        }
        let apart =
            ["--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc", "--cgroup"];
        let mut place = Self::with(&apart, BECOME_SYSTEMD);
        let parent = place.holder.id();
        let children =
            fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        place.inside = children.trim().parse().unwrap();
        place.eventually("systemd answers", || place.sh("systemctl list-units").status.success());
        Some(place)
    }

    fn with(apart: &[&str], then: &str) -> Self {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private"]).args(apart);
        command.args(["sh", "-c", &format!("{SET_UP}{then}"), "sh"]);
        command.arg(SRD).arg(packaging).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "there\n");
        let directory = tempfile::tempdir().unwrap();
        let inside = holder.id();
        let mut place = Self { holder, inside, directory, calls: Calls::default() };
        for (name, text) in [("mount", MOUNT), ("umount", UMOUNT), ("findmnt", FINDMNT)] {
            place.program(name, text);
        }
        place.calls = place.serve(NFSD);
        place
    }

    /// Returns a machine on which the script `systemctl` replaces systemctl(1).
    pub(super) fn with_systemd(systemctl: &str) -> Self {
        let place = Self::new();
        place.must("mkdir -p /run/systemd/system");
        place.program("systemctl", systemctl);
        place
    }

    pub(super) fn within(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.inside.to_string();
        command.args(["--target", &pid, "--mount", "--net"]);
        if self.inside != self.holder.id() {
            command.args(["--pid", "--cgroup"]);
        }
        command.args(words);
        command.env("PATH", "/run/bin:/usr/sbin:/usr/bin:/sbin:/bin").env_remove("RUST_LOG");
        command.stdin(Stdio::null());
        command
    }

    pub(super) fn sh(&self, text: &str) -> Output {
        self.within(&["sh", "-c", text]).output().unwrap()
    }

    #[track_caller]
    pub(super) fn must(&self, text: &str) -> String {
        let output = self.sh(text);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Installs a shell script as a program that comes first in PATH.
    pub(super) fn program(&self, name: &str, text: &str) {
        let file = self.directory.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        self.must(&format!("cp {} /run/bin/", file.display()));
    }

    /// Returns the lines that a replacement program has recorded in a file of `/run/test`.
    pub(super) fn noted(&self, file: &str) -> Vec<String> {
        let output = self.sh(&format!("cat /run/test/{file}"));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Starts an NFS 4 server at an address of the machine. It answers NULL calls. Returns the list
    /// to which it adds the source port of each call.
    pub(super) fn serve(&self, at: &str) -> Calls {
        let namespace = File::open(format!("/proc/{}/ns/net", self.inside)).unwrap();
        let (calls, at): (Calls, SocketAddr) = (Arc::default(), at.parse().unwrap());
        let counted = Arc::clone(&calls);
        let listener = thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            TcpListener::bind(at).unwrap()
        });
        let listener = listener.join().unwrap();
        thread::spawn(move || {
            while let Ok((mut stream, from)) = listener.accept() {
                let counted = Arc::clone(&counted);
                thread::spawn(move || {
                    let mut call = [0; 44];
                    while stream.read_exact(&mut call).is_ok() {
                        counted.lock().unwrap().push(from.port());
                        let mut reply = [0; 28];
                        reply[..4].copy_from_slice(&[0x80, 0, 0, 24]);
                        reply[4..8].copy_from_slice(&call[4..8]);
                        reply[11] = 1;
                        let _ = stream.write_all(&reply);
                    }
                });
            }
        });
        calls
    }

    /// Creates a directory at which a test mounts, and returns its path.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        let directory = self.directory.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    pub(super) fn mount(&self, name: &str, options: &str, more: &[&str]) -> Command {
        let at = self.at(name);
        let words = ["mount.srd-nfs", "127.0.0.1:2049:/export", at.to_str().unwrap()];
        let mut command = self.within(&[&words, more].concat());
        command.args(["-o", options]);
        command
    }

    #[track_caller]
    pub(super) fn mounts(&self, name: &str, options: &str, more: &[&str]) {
        let output = self.mount(name, options, more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[track_caller]
    pub(super) fn refuses(&self, name: &str, options: &str, more: &[&str], code: i32) -> String {
        let output = self.mount(name, options, more).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        error
    }

    /// Returns the ports below 1024 at which a program of the machine listens, in ascending order.
    pub(super) fn ports(&self) -> Vec<u16> {
        let table = self.must("cat /proc/net/tcp");
        let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let listening = lines.filter(|fields| fields[3] == "0A");
        let port = |fields: Vec<&str>| {
            u16::from_str_radix(fields[1].split_once(':').unwrap().1, 16).unwrap()
        };
        let mut ports: Vec<_> = listening.map(port).filter(|port| *port < 1024).collect();
        ports.sort_unstable();
        ports
    }

    #[track_caller]
    pub(super) fn eventually(&self, what: &str, is: impl Fn() -> bool) {
        let deadline = Instant::now() + WAIT;
        while !is() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a program as the user 65534 (`nobody`). The program is killed when the result is
    /// dropped.
    pub(super) fn nobody(&self, words: &[&str]) -> Started {
        let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        let mut command = self.within(&[&["setpriv"], &user[..], words].concat());
        Started(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

pub(super) struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
