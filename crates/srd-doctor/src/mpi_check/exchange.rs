//! Runs MPI jobs with one rank on this machine and one on another machine. The first job uses TCP
//! and shows whether jobs can be started at all; later jobs use SRD.

use super::List;
use super::local::Machine;
use super::remote::Host;
use crate::check::finding::{Class, Fix, Outcome};
use crate::mpi::launch::{Launch, Node};
use crate::mpi::{Mpi, Transport, ask_for, ranks};
use srd_lab::enter::quoted;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit of a job from its launch. The job itself measures for about one second.
const JOB_MAX: Duration = Duration::from_secs(40);
const SECONDS: &str = "1";
/// Bytes of each message in the job that measures latency; [`LARGE_BYTES`] is for the job that
/// measures the rate.
const SMALL_BYTES: &str = "8";
const LARGE_BYTES: u64 = 1 << 20;

/// Environment of the jobs: the machine of each rank, and a directory for files.
pub(super) struct JobEnvironment<'a> {
    pub(super) host: &'a Host<'a>,
    /// The address by which the other machine reaches this machine.
    pub(super) here: &'a str,
    pub(super) work: &'a Path,
}

/// Copies of the measuring program, at the same path on both machines. They are removed when this
/// value is dropped.
struct Copies<'a> {
    host: &'a Host<'a>,
    directory: PathBuf,
}

/// Results of the jobs: latency in us, and rate in Mbit/s.
struct Performance {
    us: f64,
    mbps: f64,
}

/// Runs a job over TCP and a job over SRD with the other machine, and adds the findings to `list`.
pub(super) fn check(place: &JobEnvironment<'_>, machine: &Machine, list: &mut List) {
    let host = place.host.name;
    let name = |what: &str| format!("{host}: {what}");
    let why_tcp = "what fails here is not SRD's: the launcher, or the MPI there";
    let why_srd = "all that was looked at, put to use";
    let nothing = |why: &str| Outcome::not_applicable(why.to_owned());
    let Some(mpi) = &machine.mpi else {
        list.add(name("tcp"), why_tcp, nothing("there is no MPI"));
        return;
    };
    let copies = ranks::compiler(mpi)
        .and_then(|_| ranks::compile(mpi, place.work))
        .map_err(|error| format!("{error:#}"))
        .and_then(|program| Copies::make(place, &program));
    let copies = match copies {
        Ok(copies) => copies,
        Err(why) => return list.add(name("tcp"), why_tcp, nothing(&why)),
    };
    let tcp = Transport::Tcp { device: None };
    let seen = exchange(place, mpi, &copies, &tcp);
    let is_alive = seen.is_ok();
    list.add(name("tcp"), why_tcp, outcome(Class::Required, &seen, "ranks exchange messages"));
    let outcome = match (is_alive, machine.is_named(), machine.offers_srd()) {
        (false, _, _) => nothing("not even TCP works"),
        (true, false, true) => nothing("give the provider the name that libfabric looks for"),
        (true, true, true) => {
            // The variables are the same as in the advice. If the provider is on this machine, it
            // also has to be on the other one.
            let advice = machine.advice().map(|advice| advice.variables).unwrap_or_default();
            let path = advice.iter().find(|(name, _)| name == "FI_PROVIDER_PATH");
            let providers = path.map(|(_, path)| PathBuf::from(path));
            let ours = |(name, _): &(String, String)| name.starts_with("FI_SRD_");
            let settings = advice.into_iter().filter(ours).collect();
            let srd = Transport::Srd { providers, settings };
            let seen = exchange(place, mpi, &copies, &srd);
            outcome(Class::Required, &seen, "the same over SRD")
        }
        _ => nothing("libfabric offers no SRD here: see above"),
    };
    list.add(name("srd"), why_srd, outcome);
}

fn outcome(class: Class, seen: &Result<Performance, String>, wanted: &str) -> Outcome {
    match seen {
        Ok(Performance { us, mbps }) => {
            let found = format!("{us:.1} us for 8 bytes one way, {mbps:.0} Mb/s");
            Outcome::ok(class, found, wanted)
        }
        Err(why) => {
            let command = "srd mpi-check".to_owned();
            let fix = Fix::by_hand(command, "there, with the same MPI installed");
            Outcome::failed(class, why.clone(), wanted, fix)
        }
    }
}

fn exchange(
    place: &JobEnvironment<'_>,
    mpi: &Mpi,
    copies: &Copies<'_>,
    transport: &Transport,
) -> Result<Performance, String> {
    let us = run(place, mpi, copies, transport, ["ping-pong", SMALL_BYTES])?.median_us();
    let large = LARGE_BYTES.to_string();
    let window_us = run(place, mpi, copies, transport, ["bandwidth", &large])?.median_us();
    let bits = (LARGE_BYTES * ranks::WINDOW * 8) as f64;
    Ok(Performance { us, mbps: bits / window_us })
}

fn run(
    place: &JobEnvironment<'_>,
    mpi: &Mpi,
    copies: &Copies<'_>,
    transport: &Transport,
    what: [&str; 2],
) -> Result<ranks::Measurements, String> {
    let node = |address: &str| Node { address: address.to_owned(), ranks: 1 };
    let launch = Launch {
        nodes: vec![node(place.here), node(place.host.name)],
        agent: place.host.agent.to_vec(),
        control: None,
        transport: transport.clone(),
        yields: false,
    };
    let program = copies.directory.join("ranks").display().to_string();
    let [operation, bytes] = what;
    let words = [&program, operation, bytes, SECONDS].map(ToString::to_string);
    let started = launch.started(mpi, &words);
    let (launcher, rest) = started.words.split_first().ok_or("no launcher")?;
    let mut command = Command::new(launcher);
    command.args(rest).envs(started.environment).stdin(Stdio::null());
    let answer = ask_for(&mut command, JOB_MAX).map_err(|error| format!("{error:#}"))?;
    if !answer.succeeded {
        return Err(complaint(&answer.err).unwrap_or_else(|| "the job failed".into()));
    }
    ranks::parse(&answer.out).map_err(|error| format!("{error:#}"))
}

/// Returns the relevant lines of a launcher's error output; `None` if it is empty.
fn complaint(text: &str) -> Option<String> {
    let is_frame = |line: &str| line.chars().all(|c| "-=*".contains(c) || c.is_whitespace());
    let lines = text.lines().map(str::trim).filter(|line| !is_frame(line));
    let lines: Vec<&str> = lines.collect();
    // Some launchers print the cause of an error first, and others print it last.
    let mut said: Vec<&str> = lines.iter().take(3).copied().collect();
    said.extend(lines.last().filter(|_| lines.len() > said.len()));
    (!said.is_empty()).then(|| said.join(" "))
}

impl<'a> Copies<'a> {
    fn make(place: &JobEnvironment<'a>, program: &Path) -> Result<Self, String> {
        let name = place.work.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let directory = Path::new("/tmp").join(format!("{name}-ranks"));
        let here = directory.join("ranks");
        // The directory must not exist yet. Another user may have created it, and could replace the
        // program, or put a link to another file in its place.
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let copies = Copies { host: place.host, directory };
        fs::copy(program, &here).map_err(|error| format!("{}: {error}", here.display()))?;
        // If both machines share /tmp, the program is there already.
        let at = quoted(&copies.directory.display().to_string());
        let script = format!(
            "{{ test -O {at} && test -x {at}/ranks; }} || {{ umask 077 && mkdir {at} && \
             cat > {at}/ranks && chmod 700 {at}/ranks; }}"
        );
        place.host.must(&script, Some(&here))?;
        Ok(copies)
    }
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        let at = quoted(&self.directory.display().to_string());
        // If the login fails now, a small file below /tmp remains.
        let _ = self.host.must(&format!("rm -f {at}/ranks; rmdir {at}"), None);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_cut_out_of_its_frame() {
        let text = "-----------\n\nNo such\n  program\n-------\n";
        assert_eq!(complaint(text).as_deref(), Some("No such program"));
        assert_eq!(complaint("a\nb\nc\nd\ne\n").as_deref(), Some("a b c e"));
        assert_eq!(complaint("----\n"), None);
    }

    #[test]
    fn copies_go_when_they_are_no_longer_needed() {
        let work = tempfile::tempdir().unwrap();
        let program = work.path().join("program");
        fs::write(&program, "text").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let agent = ["sh", "-c", "eval \"$1\""].map(str::to_owned);
        let host = Host { name: "b", agent: &agent };
        let place = JobEnvironment { host: &host, here: "192.0.2.1", work: work.path() };
        let copies = Copies::make(&place, &program).unwrap();
        let file = copies.directory.join("ranks");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        drop(copies);
        assert!(!file.exists() && !file.parent().unwrap().exists());
    }

    /// Regression: a directory that another user had created first was used, so that user could
    /// choose the program of the ranks, and the file that was overwritten by it.
    #[test]
    fn regression_a_directory_that_exists_is_not_used() {
        let work = tempfile::tempdir().unwrap();
        let [program, other] = ["program", "other"].map(|name| work.path().join(name));
        fs::write(&program, "text").unwrap();
        fs::write(&other, "precious").unwrap();
        let name = work.path().file_name().unwrap().to_string_lossy().into_owned();
        let taken = Path::new("/tmp").join(format!("{name}-ranks"));
        fs::create_dir(&taken).unwrap();
        std::os::unix::fs::symlink(&other, taken.join("ranks")).unwrap();
        let agent = ["true".to_owned()];
        let host = Host { name: "b", agent: &agent };
        let place = JobEnvironment { host: &host, here: "192.0.2.1", work: work.path() };
        let made = Copies::make(&place, &program).map(drop);
        let (is_link, text) = (taken.join("ranks").is_symlink(), fs::read_to_string(&other));
        let _ = fs::remove_dir_all(&taken);
        let error = made.unwrap_err();
        assert!(error.contains("exists"), "{error}");
        assert_eq!((is_link, text.unwrap().as_str()), (true, "precious"));
    }
}
