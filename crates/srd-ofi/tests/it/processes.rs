//! Processes that fork, load and unload libfabric, load two of them, and use one endpoint from many
//! threads: programs in C, with the libfabric of this machine.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Provider, has_headers, is_here, lacks};

/// Time after which a program that hangs is killed.
const LIMIT: Duration = Duration::from_secs(300);

/// A program of `tests/programs`, compiled, with the provider beside it.
struct Program {
    directory: tempfile::TempDir,
    provider: Provider,
}

impl Program {
    /// Compiles the program; `None` if this machine cannot compile it.
    fn new(name: &str, libraries: &[&str]) -> Option<Self> {
        if !is_here("cc", "gcc") {
            return None;
        }
        Self::compiled("cc", name, libraries)
    }

    fn compiled(compiler: &str, name: &str, libraries: &[&str]) -> Option<Self> {
        if !has_headers() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let mut compile = Command::new(compiler);
        compile.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"]);
        compile.arg(directory.path().join("program"));
        compile.arg(programs.join(name).with_extension("c")).args(libraries);
        let output = compile.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { directory, provider: Provider::new() })
    }

    /// Runs the program and asserts that it succeeds.
    fn run(&self, arguments: &[&Path]) {
        let mut run = Command::new(self.file());
        run.args(arguments);
        self.finish(run);
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    fn finish(&self, mut run: Command) {
        let said = self.directory.path().join("said");
        let file = std::fs::File::create(&said).unwrap();
        run.env("FI_PROVIDER_PATH", self.provider.library().parent().unwrap());
        run.env("FI_PROVIDER", "srd").env("FI_SRD_PATHS", "4");
        run.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut child = run.spawn().unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = std::fs::read_to_string(said).unwrap();
        assert!(status.success(), "{status} after {:?}: {said}", start.elapsed());
        println!("{said}");
    }
}

#[test]
fn a_forked_child_knows_its_place_and_its_parent_goes_on() {
    if let Some(program) = Program::new("fork", &["-lfabric", "-lpthread"]) {
        program.run(&[]);
    }
}

#[test]
fn a_process_may_let_libfabric_go_and_load_it_again() {
    if let Some(program) = Program::new("unload", &["-ldl", "-lpthread"]) {
        program.run(&[]);
    }
}

#[test]
fn eight_threads_share_an_endpoint_while_others_come_and_go() {
    if let Some(program) = Program::new("threads", &["-lfabric", "-lpthread"]) {
        program.run(&[]);
    }
}

#[test]
fn regression_memory_is_not_written_after_its_registration_ended_beside_a_close() {
    if let Some(program) = Program::new("close", &["-lfabric", "-lpthread"]) {
        program.run(&[]);
    }
}

/// Returns the path of the libfabric that the linker finds.
fn of_the_system() -> Option<PathBuf> {
    let output = Command::new("ldconfig").arg("-p").output().ok()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = listed.lines().find(|line| line.trim_start().starts_with("libfabric.so.1 "))?;
    Some(PathBuf::from(line.rsplit(' ').next()?))
}

/// One libfabric twice is enough to see that two do not disturb each other; if `SRD_TEST_LIBFABRIC`
/// names another release (and `SRD_TEST_LIBFABRIC_VERSION` its version), the second libfabric is
/// that release.
#[test]
fn two_libfabrics_in_one_process_talk_to_each_other() {
    let Some(program) = Program::new("two", &["-ldl", "-lpthread"]) else { return };
    let Some(system) = of_the_system() else {
        return lacks("no libfabric.so.1 (apt-get install libfabric1)");
    };
    let copy = program.directory.path().join("libfabric-again.so.1");
    let (other, version) = match std::env::var_os("SRD_TEST_LIBFABRIC") {
        Some(other) => {
            let version = std::env::var("SRD_TEST_LIBFABRIC_VERSION");
            (PathBuf::from(other), version.unwrap_or_else(|_| "1.17".into()))
        }
        None => {
            std::fs::copy(&system, &copy).unwrap();
            (copy, "1.17".into())
        }
    };
    let old = Path::new("1.17");
    let version = Path::new(&version);
    for how in ["local", "apart"] {
        program.run(&[&system, old, &other, version, Path::new(how)]);
        program.run(&[&other, version, &system, old, Path::new(how)]);
    }
}

#[test]
fn threads_of_mpi_ranks_exchange_messages_beside_forks_and_endpoints_of_their_own() {
    if !is_here("mpicc", "libopenmpi-dev") || !is_here("mpirun", "openmpi-bin") {
        return;
    }
    let said = Command::new("mpirun").arg("--version").output().unwrap().stdout;
    if !String::from_utf8_lossy(&said).contains("Open MPI") {
        return lacks("no mpirun of Open MPI (apt-get install openmpi-bin)");
    }
    let Some(program) = Program::compiled("mpicc", "ranks", &["-lfabric", "-lpthread"]) else {
        return;
    };
    let mut run = Command::new("mpirun");
    run.args(["--allow-run-as-root", "--oversubscribe", "-np", "2"]);
    run.args(["--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
    run.args(["--mca", "mtl_ofi_provider_include", "srd", "-x", "FI_PROVIDER_PATH"]);
    run.args(["-x", "FI_PROVIDER", "-x", "FI_SRD_IFACE", "-x", "FI_SRD_PATHS"]);
    run.arg(program.file()).env("FI_SRD_IFACE", "lo");
    program.finish(run);
}
