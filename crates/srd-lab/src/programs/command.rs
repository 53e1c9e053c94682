//! Runs `ip`, `tc`, `nft` and `ethtool`; an error names the command that failed.

use crate::programs::namespace;
use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// System directories that a plain user's `PATH` may lack.
const SYSTEM_DIRS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Finds an executable in `PATH` and the system directories. A name with a slash is a path.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let executable = |path: &Path| {
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| executable(path));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    directories(&path).map(|dir| dir.join(name)).find(|path| executable(path))
}

/// Returns the directories of `PATH`, then those of the system. An empty name would stand for the
/// current directory, and is left out.
fn directories(path: &OsStr) -> impl Iterator<Item = PathBuf> {
    let named = env::split_paths(path).filter(|dir| !dir.as_os_str().is_empty());
    named.chain(SYSTEM_DIRS.map(PathBuf::from))
}

/// Returns the path of a program with which a fabric is built.
pub fn program(name: &str) -> Result<PathBuf> {
    find_program(name).with_context(|| {
        format!("`{name}` is not installed: apt-get install iproute2 nftables ethtool")
    })
}

/// Runs `ip -batch -` in the caller's namespace.
pub fn ip_batch(text: &str) -> Result<()> {
    batch("ip", &[], text)
}

/// Runs `ip -force -batch -`, which continues after a line that fails, and reports the failure at
/// the end.
pub fn ip_batch_force(text: &str) -> Result<()> {
    batch("ip", &["-force"], text)
}

/// Runs `ip -n <namespace> -batch -`.
pub fn ip_batch_in(namespace: &str, text: &str) -> Result<()> {
    batch("ip", &["-n", namespace], text)
}

/// Runs `ip -6 -n <namespace> -batch -`.
pub fn ip_v6_batch_in(namespace: &str, text: &str) -> Result<()> {
    batch("ip", &["-6", "-n", namespace], text)
}

/// Runs `tc -n <namespace> -batch -`.
pub fn tc_batch_in(namespace: &str, text: &str) -> Result<()> {
    batch("tc", &["-n", namespace], text)
}

fn batch(name: &str, options: &[&str], text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(program(name)?);
    command.args(options).args(["-batch", "-"]);
    run(&mut command, text).map_err(|error| {
        let line = failed_line(&error.to_string(), text);
        error.context(format!("{name} {} {line}", options.join(" ")))
    })?;
    Ok(())
}

/// Returns the line of `text` to which `Command failed -:<number>` in `message` refers.
fn failed_line<'a>(message: &str, text: &'a str) -> &'a str {
    let number = message.split("-:").nth(1).and_then(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<usize>().ok()
    });
    number.and_then(|number| text.lines().nth(number.checked_sub(1)?)).unwrap_or("-batch -")
}

/// Runs `nft -f -` inside of a namespace.
pub fn nft_in(namespace: &str, text: &str) -> Result<()> {
    let mut command = Command::new(program("nft")?);
    command.args(["-f", "-"]);
    namespace::within(namespace, || run(&mut command, text))??;
    Ok(())
}

/// Runs `nft -j list ...` inside of a namespace and returns its output.
pub fn nft_list_in(namespace: &str, what: &str) -> Result<String> {
    let mut command = Command::new(program("nft")?);
    command.args(["-j", "list"]).args(what.split(' '));
    namespace::within(namespace, || run(&mut command, ""))?
}

/// Switches off the segmentation offloads of a device inside of a namespace.
pub fn offloads_off_in(namespace: &str, device: &str) -> Result<()> {
    let mut command = Command::new(program("ethtool")?);
    command.args(["-K", device, "tso", "off", "gso", "off", "tx-udp-segmentation", "off"]);
    namespace::within(namespace, || run(&mut command, ""))??;
    Ok(())
}

/// Returns the output of `ip -j link show` inside of a namespace.
pub fn links_json(namespace: &str) -> Result<String> {
    let mut command = Command::new(program("ip")?);
    command.args(["-j", "link", "show"]);
    namespace::within(namespace, || run(&mut command, ""))?
}

/// Returns the output of `tc -s -j qdisc show` inside of a namespace. `tc -n` is not used: it
/// mounts a separate file system and waits for the kernel, which takes seconds while programs spin
/// on every core.
pub fn qdisc_json(namespace: &str) -> Result<String> {
    let mut command = Command::new(program("tc")?);
    command.args(["-s", "-j", "qdisc", "show"]);
    namespace::within(namespace, || run(&mut command, ""))?
}

/// Runs a command to its end with `input` on standard input, and returns its standard output.
pub fn run(command: &mut Command, input: &str) -> Result<String> {
    let what = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| what.clone())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading prints the reason on standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| what.clone())?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_points_at_the_line_that_failed() {
        let text = "link add a\nlink add b\n";
        let stderr = "RTNETLINK answers: File exists\nCommand failed -:2";
        assert_eq!(failed_line(stderr, text), "link add b");
        assert_eq!(failed_line("no number", text), "-batch -");
    }

    #[test]
    fn missing_program_says_what_to_install() {
        let error = program("no-such-program-here").expect_err("missing").to_string();
        assert!(error.contains("apt-get install iproute2"), "{error}");
    }

    /// Regression: with an empty `PATH`, a program of the current directory was found first.
    #[test]
    fn regression_an_empty_path_does_not_name_the_current_directory() {
        let found = |path: &str| directories(OsStr::new(path)).collect::<Vec<_>>();
        assert_eq!(found(""), SYSTEM_DIRS.map(PathBuf::from));
        assert_eq!(found("/own::")[..2], ["/own", "/usr/sbin"].map(PathBuf::from));
    }

    #[test]
    fn programs_are_found_without_path() {
        assert!(find_program("sh").is_some());
        assert!(find_program("/bin/sh").is_some());
        assert!(find_program("/etc/passwd").is_none());
    }
}
