//! Tests of the measuring program `ranks`, with all ranks on this machine. Every operation
//! transfers the right data words, wrong words are detected, and unsupported requests are refused.
//! The tests need an MPI and its compiler.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use srd_doctor::mpi::launch::Node;
use srd_doctor::mpi::{Answer, Launch, Mpi, Transport, ask_for, ranks};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const OPERATIONS: [&str; 7] =
    ["ping-pong", "bandwidth", "all-to-all", "across", "all-reduce", "gather", "incast"];

/// A directory with the compiled program, which is removed when this value is dropped.
struct Built {
    mpi: Mpi,
    directory: PathBuf,
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Built {
    /// Compiles the measuring program; `None` if no MPI with a compiler is installed.
    fn new(name: &str) -> Option<Built> {
        let mpi = Mpi::installed().into_iter().find(|mpi| ranks::compiler(mpi).is_ok());
        let Some(mpi) = mpi else {
            println!("skipped: no MPI with mpicc (apt-get install libopenmpi-dev openmpi-bin)");
            return None;
        };
        let directory = std::env::temp_dir().join(format!("srd-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let built = Built { mpi, directory };
        ranks::compile(&built.mpi, &built.directory).unwrap();
        Some(built)
    }

    fn run(&self, count: u32, words: [&str; 3]) -> Answer {
        let launch = Launch {
            nodes: vec![Node { address: "localhost".into(), ranks: count }],
            agent: Vec::new(),
            control: None,
            transport: Transport::Tcp { device: None },
            yields: true,
        };
        let program = self.directory.join("ranks").display().to_string();
        let program: Vec<String> = [program].into_iter().chain(words.map(str::to_owned)).collect();
        let started = launch.started(&self.mpi, &program);
        let mut command = Command::new(&started.words[0]);
        command.args(&started.words[1..]).envs(started.environment);
        ask_for(&mut command, Duration::from_secs(120)).unwrap()
    }
}

#[test]
fn every_operation_brings_the_right_words_for_any_number_of_ranks() {
    let Some(built) = Built::new("ranks-all") else { return };
    for operation in OPERATIONS {
        for (count, bytes) in [(2, "8"), (3, "65536")] {
            let answer = built.run(count, [operation, bytes, "0.05"]);
            let seen = ranks::parse(&answer.out)
                .unwrap_or_else(|error| panic!("{operation} {count} {bytes}: {error}: {answer:?}"));
            assert_eq!(seen.hosts.len(), count as usize, "{operation}");
            assert!(seen.at_ms.is_sorted() && seen.us.iter().all(|us| *us > 0.0), "{operation}");
        }
    }
}

#[test]
fn wrong_words_are_noticed_by_every_operation() {
    let Some(built) = Built::new("ranks-wrong") else { return };
    let source = built.directory.join("ranks.c");
    let text = fs::read_to_string(&source).unwrap();
    // The changed program sends a last word that is one too large.
    let fill = "block[i] = first + (uint64_t)i * STEP;";
    assert_eq!(text.matches(fill).count(), 1);
    let spoilt = text.replace(fill, &format!("{fill}\n    block[words - 1]++;"));
    fs::write(&source, spoilt).unwrap();
    let mpicc = ranks::compiler(&built.mpi).unwrap();
    compile(&mpicc, &source, &built.directory.join("ranks"));
    for operation in OPERATIONS {
        let answer = built.run(2, [operation, "64", "0.05"]);
        let error = ranks::parse(&answer.out).expect_err(operation).to_string();
        assert!(error.contains("arrived wrong"), "{operation}: {error}");
    }
}

fn compile(mpicc: &Path, source: &Path, program: &Path) {
    let mut command = Command::new(mpicc);
    command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-o"]).arg(program).arg(source);
    assert!(command.status().unwrap().success());
}

#[test]
fn what_it_cannot_do_is_refused() {
    let Some(built) = Built::new("ranks-bad") else { return };
    for (count, words, says) in [
        (2, ["fly", "8", "1"], "no such operation"),
        (2, ["gather", "0", "1"], "multiple of 8"),
        (2, ["gather", "12", "1"], "multiple of 8"),
        (2, ["gather", "268435464", "1"], "2^28"),
        (2, ["gather", "134217728", "1"], "2^30"),
        (2, ["gather", "8", "0"], "SECONDS"),
        (2, ["gather", "8", "nan"], "SECONDS"),
        (1, ["gather", "8", "1"], "two ranks"),
    ] {
        // Open MPI's launcher may lose the output of ranks that it ends, or fail itself. So the job
        // is repeated.
        let mut errors = Vec::new();
        let says_it = (0..8).any(|_| {
            let answer = built.run(count, words);
            assert!(!answer.succeeded, "{words:?}");
            errors.push(answer.err);
            errors.last().is_some_and(|error| error.contains(says))
        });
        assert!(says_it, "{words:?}: {errors:?}");
    }
}
