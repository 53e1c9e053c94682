//! Python programs, each in an environment of its own (`venv`). Every package has a pinned version
//! and a SHA-256 checksum. Only wheels are installed, so that no code of a package runs during the
//! installation. Python is isolated (`-I`): otherwise it would search for modules first in the
//! caller's directory.

use super::{Fetchable, require};
use anyhow::{Context, Result, bail};
use srd_lab::command::{find_program, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python program with all its packages.
#[derive(Debug)]
pub(in crate::experiment) struct Environment {
    name: &'static str,
    title: &'static str,
    version: &'static str,
    /// The packages with their versions and checksums, in the format of pip.
    lock: &'static str,
}

/// Dask, with its scheduler, workers and data frames.
pub(in crate::experiment) static DASK: Environment = Environment {
    name: "dask",
    title: "Dask",
    version: "2026.8.0",
    lock: include_str!("dask.lock"),
};

/// JAX for CPUs, and mpi4py, which finds the library of an installed MPI.
pub(in crate::experiment) static JAX: Environment =
    Environment { name: "jax", title: "JAX", version: "0.10.2", lock: include_str!("jax.lock") };

/// Moto, whose server is an object store, and boto3, a client.
pub(in crate::experiment) static MOTO: Environment =
    Environment { name: "moto", title: "Moto", version: "5.2.1", lock: include_str!("moto.lock") };

/// Name of a copy of the lock file, which is written when the environment is complete.
const DONE: &str = "srd.lock";

/// Returns a command for Python that ignores modules in the caller's directory and environment
/// variables.
fn isolated(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg("-I");
    command
}

impl Environment {
    /// Returns the path of the environment's Python interpreter, if all packages are present.
    ///
    /// # Errors
    /// If packages are missing; the message describes how to fetch them.
    pub(in crate::experiment) fn python(&self, cache: &Path) -> Result<PathBuf> {
        require(self, cache).map(|directory| directory.join("bin/python"))
    }

    fn count(&self) -> usize {
        self.lock.lines().filter(|line| line.contains("==")).count()
    }
}

impl Fetchable for Environment {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        format!("{} {}", self.title, self.version)
    }

    fn parts(&self) -> String {
        format!("{} packages of Python", self.count())
    }

    fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name, self.version))
    }

    fn missing(&self, directory: &Path) -> Option<String> {
        let done = fs::read_to_string(directory.join(DONE)).unwrap_or_default();
        (done != self.lock).then(|| format!("{DONE} of this version"))
    }

    fn check(&self, directory: &Path) -> Result<()> {
        let mut command = isolated(&directory.join("bin/python"));
        command.args(["-m", "pip", "check", "--disable-pip-version-check"]);
        run(&mut command, "").map(drop)
    }

    fn fetch_into(&self, directory: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
        let Some(python) = find_program("python3") else {
            bail!("not installed: python3; as root: apt-get install python3-venv");
        };
        let mut command = isolated(&python);
        command.args(["-c", "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"]);
        run(&mut command, "").with_context(|| {
            format!(
                "{} must be Python 3.11 or later, with `venv`; as root: apt-get install \
                 python3-venv",
                python.display()
            )
        })?;
        say(&format!("fetching {} with {}", self.parts(), python.display()));
        let mut command = isolated(&python);
        command.args(["-m", "venv"]).arg(directory);
        run(&mut command, "").context("venv")?;
        let lock = directory.join("wanted.lock");
        fs::write(&lock, self.lock).with_context(|| lock.display().to_string())?;
        let mut command = isolated(&directory.join("bin/python"));
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        command.args(["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r"]);
        command.arg(&lock);
        run(&mut command, "").context("pip")?;
        let done = directory.join(DONE);
        fs::rename(&lock, &done).with_context(|| done.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::cache;
    use super::*;

    #[test]
    fn every_package_is_pinned_and_has_checksums() {
        for what in [&DASK, &JAX, &MOTO] {
            let own = format!("{}=={} \\", what.name, what.version);
            assert!(what.lock.lines().any(|line| line.ends_with(&own)), "{own}");
            let mut hashes = 1;
            for line in what.lock.lines() {
                if line.contains("==") {
                    assert!(hashes > 0, "before {line}");
                    hashes = 0;
                } else {
                    let (_, sum) = line.split_once("--hash=sha256:").expect("a checksum");
                    assert_eq!(sum.trim_end_matches(" \\").len(), 64, "{line}");
                    hashes += 1;
                }
            }
            assert!(hashes > 0, "{}", what.name);
        }
    }

    /// Regression: Python executed a foreign `pip.py` in the caller's directory, usually as root.
    #[test]
    fn regression_modules_of_the_caller_s_directory_are_not_run() {
        let Some(python) = find_program("python3") else {
            println!("skipped: no python3 (apt-get install python3)");
            return;
        };
        let place = cache("modules");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("ensurepip.py"), "open('was-run', 'w')").unwrap();
        let mut command = isolated(&python);
        command.args(["-c", "import ensurepip"]).current_dir(&place);
        let _ = command.output().unwrap();
        assert!(!place.join("was-run").exists());
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn an_environment_of_another_lock_is_refused() {
        let cache = cache("python");
        let directory = DASK.directory(&cache);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(DONE), "numpy==1").unwrap();
        let error = DASK.python(&cache).expect_err("another lock").to_string();
        assert!(error.contains("srd.lock") && error.contains("srd lab fetch dask"), "{error}");
        fs::write(directory.join(DONE), DASK.lock).unwrap();
        assert_eq!(DASK.python(&cache).unwrap(), directory.join("bin/python"));
        fs::remove_dir_all(&cache).unwrap();
    }
}
