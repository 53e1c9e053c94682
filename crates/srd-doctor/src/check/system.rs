//! The system that checks read and fixes write: files below a root directory, and a few programs.
//!
//! All access to the system goes through this module, so that tests can use their own directory
//! trees, and a container can check its host through a directory. Nothing is cached: after a fix,
//! the functions return the new values.

use super::files::{Batch, Files};
use super::image;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// System directories that a plain user's `PATH` may lack.
const SYSTEM_DIRS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// Largest number of bytes of an interface's name.
const INTERFACE_BYTES_MAX: usize = 15;

/// Paths at which packages install this program in a machine image, relative to the image's root.
const PROGRAMS: [&str; 2] = ["usr/bin/srd", "usr/local/bin/srd"];

/// Interface to the programs and processes of a system; tests replace it.
pub(crate) trait Programs {
    /// Runs a program to the end. Returns its standard output, or the reason of its failure.
    fn run(&self, argv: &[&str]) -> Result<String>;

    /// Whether a TCP socket of a process has TCP_NODELAY; `None` if this cannot be read.
    fn nodelay(&self, pid: u32, fd: u32) -> Option<bool>;

    /// Returns the path of the running program.
    fn own(&self) -> std::io::Result<PathBuf> {
        std::env::current_exe()
    }
}

/// Access to the installed programs and running processes of this machine.
struct Installed;

impl Programs for Installed {
    fn run(&self, argv: &[&str]) -> Result<String> {
        let (program, arguments) = argv.split_first().context("no program")?;
        let output = Command::new(program)
            .args(arguments)
            .env("PATH", search_path(std::env::var_os("PATH")))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                let is_missing = error.kind() == ErrorKind::NotFound;
                let what = if is_missing { "is not installed" } else { "cannot be run" };
                anyhow::Error::new(error).context(format!("{program} {what}"))
            })?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}", argv.join(" "), error.lines().next().unwrap_or("failed").trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn nodelay(&self, pid: u32, fd: u32) -> Option<bool> {
        use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
        let process = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
        let fd = i32::try_from(fd).ok()?;
        let socket = pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).ok()?;
        rustix::net::sockopt::tcp_nodelay(&socket).ok()
    }
}

/// Returns the directories that are searched for programs: those of `PATH`, then the directories of
/// the system. An empty `PATH` adds nothing, because an empty name would stand for the current
/// directory.
fn search_path(own: Option<OsString>) -> OsString {
    let mut path = own.unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(SYSTEM_DIRS);
    path
}

/// A system to check and to change.
pub(crate) struct System {
    root: PathBuf,
    files: Files,
    programs: Option<Box<dyn Programs>>,
    is_image: bool,
}

impl System {
    /// Returns the system whose files are below `root`. Programs are run only if `root` is `/`,
    /// because they query the kernel of the running system.
    pub(crate) fn below(root: &Path) -> Self {
        let programs: Option<Box<dyn Programs>> =
            if root == Path::new("/") { Some(Box::new(Installed)) } else { None };
        let files = Files::below(root, false);
        Self { root: root.to_owned(), files, programs, is_image: false }
    }

    /// Returns the system of a machine image below `root`, whose kernel settings are read from its
    /// files.
    pub(crate) fn image(root: &Path) -> Self {
        let files = Files::below(root, true);
        Self { root: root.to_owned(), files, programs: None, is_image: true }
    }

    /// Whether this system is a machine image, without a running kernel.
    pub(crate) fn is_image(&self) -> bool {
        self.is_image
    }

    /// Returns a system below `root` that uses `programs`, for tests.
    #[cfg(test)]
    pub(crate) fn with_programs(root: &Path, programs: Box<dyn Programs>) -> Self {
        let files = Files::below(root, false);
        Self { root: root.to_owned(), files, programs: Some(programs), is_image: false }
    }

    /// Whether this system is the running system of this machine.
    pub(crate) fn is_this_one(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the text of a file such as `proc/sys/kernel/osrelease`, without white space around
    /// it.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        self.files.text(file).ok().map(|text| text.trim().to_owned())
    }

    /// Returns the number in a file.
    pub(crate) fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.parse().ok()
    }

    /// Returns the value of a kernel setting such as `net.ipv4.tcp_autocorking`.
    pub(crate) fn sysctl(&self, key: &str) -> Option<String> {
        if self.is_image { image::sysctl(&self.files, key) } else { self.read(&sysctl_file(key)) }
    }

    /// Returns the whole text of a file; `None` if the file is missing.
    pub(crate) fn text(&self, file: &str) -> Result<Option<String>> {
        match self.files.text(file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.shown(file)),
        }
    }

    /// Returns the path of a file including the root, for the user.
    pub(crate) fn shown(&self, file: &str) -> String {
        self.root.join(file).display().to_string()
    }

    /// Returns the files of an image that may contain kernel settings and cannot be read, with the
    /// reason.
    pub(crate) fn unread(&self) -> Vec<String> {
        if self.is_image { image::unread(&self.files) } else { Vec::new() }
    }

    /// Whether the path is a symbolic link, even if its target is missing.
    pub(crate) fn is_link(&self, file: &str) -> bool {
        self.files.link_target(file).is_some()
    }

    /// Returns the path of this program in an image, if it is installed there.
    pub(crate) fn program(&self) -> Option<&'static str> {
        PROGRAMS.into_iter().find(|file| self.exists(file))
    }

    /// Returns the path of the running program.
    pub(crate) fn own_program(&self) -> Result<PathBuf> {
        let path = self.programs.as_ref().map_or_else(std::env::current_exe, |of| of.own());
        path.context("the path of this program")
    }

    /// Whether the path is a directory.
    pub(crate) fn is_directory(&self, file: &str) -> bool {
        self.files.is_directory(file)
    }

    /// Writes a text to the disk under a temporary name. The batch renames it to `file` when it is
    /// committed.
    pub(super) fn stage(&self, batch: &mut Batch, file: &str, text: &str) -> Result<()> {
        self.files.stage(batch, file, text).with_context(|| self.shown(file))
    }

    /// Creates or replaces a file atomically.
    pub(crate) fn put(&self, file: &str, text: &str) -> Result<()> {
        let mut batch = Batch::default();
        self.stage(&mut batch, file, text)?;
        batch.commit().with_context(|| self.shown(file))
    }

    /// Creates a symbolic link.
    pub(crate) fn link(&self, target: &str, file: &str) -> Result<()> {
        self.files.link(target, file).with_context(|| self.shown(file))
    }

    /// Removes a file or link; a missing file is not an error.
    pub(crate) fn remove(&self, file: &str) -> Result<()> {
        self.files.remove(file).with_context(|| self.shown(file))
    }

    /// Whether a socket of a process has TCP_NODELAY; `None` if this cannot be read.
    pub(crate) fn nodelay(&self, pid: u32, fd: u32) -> Option<bool> {
        self.programs.as_ref()?.nodelay(pid, fd)
    }

    /// Writes a value to a file that must exist already, such as a file of `/proc/sys`.
    pub(crate) fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.root.join(file);
        let mut options = fs::OpenOptions::new();
        options.write(true).truncate(true);
        let opened = options.open(&path).with_context(|| format!("/{file}"))?;
        std::io::Write::write_all(&mut &opened, format!("{value}\n").as_bytes())
            .with_context(|| format!("/{file}: the kernel refuses {value}"))
    }

    /// Whether a kernel setting has this value. The comparison ignores the kind of white space,
    /// because the kernel separates words by tabs.
    pub(crate) fn sysctl_is(&self, key: &str, value: &str) -> bool {
        let now = self.sysctl(key);
        now.is_some_and(|now| now.split_whitespace().eq(value.split_whitespace()))
    }

    /// Sets a kernel setting.
    pub(crate) fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.write(&sysctl_file(key), value)
    }

    /// Whether a file or directory exists.
    pub(crate) fn exists(&self, file: &str) -> bool {
        self.files.exists(file)
    }

    /// Returns the last component of a symbolic link's target.
    pub(crate) fn link_target(&self, file: &str) -> Option<String> {
        let target = self.files.link_target(file)?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns the names in a directory, in order.
    pub(crate) fn entries(&self, directory: &str) -> Vec<String> {
        self.files.entries(directory)
    }

    /// Runs a program on this system and returns its output.
    pub(crate) fn run(&self, argv: &[&str]) -> Result<String> {
        match &self.programs {
            Some(programs) => programs.run(argv),
            None if self.is_image => bail!("nothing runs in an image"),
            None => bail!("programs do not run under --root {}", self.root.display()),
        }
    }

    /// Returns the interface of the default route: that of IPv4 if it exists, otherwise that of
    /// IPv6.
    pub(crate) fn default_interface(&self) -> Option<String> {
        let v4 = self.read("proc/net/route").and_then(|table| default_v4(&table));
        v4.or_else(|| self.read("proc/net/ipv6_route").and_then(|table| default_v6(&table)))
    }

    /// Whether an interface has this name.
    pub(crate) fn has_interface(&self, name: &str) -> bool {
        let is_name = !name.is_empty()
            && name.len() <= INTERFACE_BYTES_MAX
            && !name.contains('/')
            && name != "."
            && name != "..";
        is_name && self.exists(&format!("sys/class/net/{name}/mtu"))
    }
}

/// Returns the path of the file of a kernel setting in `/proc/sys`, relative to the root.
fn sysctl_file(key: &str) -> String {
    format!("proc/sys/{}", key.replace('.', "/"))
}

/// Returns the interface of the default route with the smallest metric in `/proc/net/route`.
fn default_v4(table: &str) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, "00000000", _, _, _, _, metric, "00000000", ..] = fields[..] else {
            return None;
        };
        Some((metric.parse::<u32>().ok()?, interface.to_owned()))
    });
    routes.min().map(|(_, interface)| interface)
}

/// Returns the interface of the default route with the smallest metric in `/proc/net/ipv6_route`. A
/// route to loopback is skipped, because it means "unreachable" in this file.
fn default_v6(table: &str) -> Option<String> {
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, "00", _, _, _, metric, .., interface] = fields[..] else { return None };
        let is_default = destination.bytes().all(|b| b == b'0') && interface != "lo";
        let metric = u32::from_str_radix(metric, 16).ok()?;
        is_default.then(|| (metric, interface.to_owned()))
    });
    routes.min().map(|(_, interface)| interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_with_the_smallest_metric_wins() {
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tW\tI\n\
                  wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                  eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                  eth1\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n";
        assert_eq!(default_v4(v4).as_deref(), Some("eth1"));
        assert_eq!(default_v4("Iface\tDestination\n"), None);
        let zeros = "0".repeat(32);
        let v6 = format!(
            "{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200       lo\n\
             {zeros} 00 {zeros} 00 {zeros} 00000400 00000001 00000000 00450003     eth2\n"
        );
        assert_eq!(default_v6(&v6).as_deref(), Some("eth2"));
    }

    /// Regression: without `PATH`, programs were searched in the current directory first, also by
    /// `srd check --fix`, which runs as root.
    #[test]
    fn regression_without_a_path_no_program_of_the_current_directory_is_found() {
        for own in [None, Some(OsString::new())] {
            assert_eq!(search_path(own), SYSTEM_DIRS);
        }
        assert_eq!(search_path(Some("/own".into())), *format!("/own:{SYSTEM_DIRS}"));
    }

    #[test]
    fn names_of_interfaces_are_no_paths() {
        let system = System::below(Path::new("/"));
        assert!(system.has_interface("lo"));
        for name in ["", ".", "..", "../net/lo", "nosuch0", "longer-than-fifteen"] {
            assert!(!system.has_interface(name), "{name}");
        }
    }

    #[test]
    fn no_program_runs_for_another_root() {
        let system = System::below(Path::new("/nowhere"));
        let error = system.run(&["true"]).expect_err("refused").to_string();
        assert!(error.contains("--root /nowhere"), "{error}");
        assert!(System::below(Path::new("/")).run(&["true"]).is_ok());
        let error = System::below(Path::new("/")).run(&["nosuchprogram"]).expect_err("missing");
        assert!(error.to_string().contains("not installed"), "{error}");
    }

    /// Regression: the message was that the program is not installed.
    #[test]
    fn regression_a_program_that_cannot_be_run_is_told_from_a_missing_one() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().to_str().unwrap();
        let error = System::below(Path::new("/")).run(&[program]).expect_err("a directory");
        assert!(format!("{error:#}").contains("cannot be run: Permission denied"), "{error:#}");
    }
}
