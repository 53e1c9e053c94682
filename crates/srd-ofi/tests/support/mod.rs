//! The library as libfabric loads it, and checks for programs and headers that a machine may lack.

#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory with the provider under the name that libfabric looks for.
pub(crate) struct Provider {
    directory: TempDir,
}

impl Provider {
    /// Copies the library that was built with this test.
    pub(crate) fn new() -> Self {
        let beside = std::env::current_exe().expect("a test is a file");
        let library = beside.with_file_name("libsrd_fi.so");
        assert!(library.exists(), "{} is built with the tests", library.display());
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let link = directory.path().join("libsrd-fi.so");
        std::os::unix::fs::symlink(library, link).expect("a link in a new directory");
        Self { directory }
    }

    /// Returns the path of the library.
    pub(crate) fn library(&self) -> PathBuf {
        self.directory.path().join("libsrd-fi.so")
    }

    /// Runs `fi_info` with the provider and returns its output.
    pub(crate) fn fi_info(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
        let mut command = Command::new("fi_info");
        command.args(arguments).env("FI_PROVIDER_PATH", self.directory.path());
        command.envs(settings.iter().copied());
        command.output().expect("fi_info was found before")
    }
}

/// Whether a program is installed. If it is missing, prints a notice; in CI, fails.
pub(crate) fn is_here(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        lacks(&format!("no {program} (apt-get install {package})"));
    }
    found
}

/// Whether libfabric's headers are installed. If they are missing, prints a notice; in CI, fails.
pub(crate) fn has_headers() -> bool {
    let found = Path::new("/usr/include/rdma/providers/fi_prov.h").exists();
    if !found {
        lacks("no libfabric headers (apt-get install libfabric-dev)");
    }
    found
}

/// Prints why a test cannot run; in CI, fails.
pub(crate) fn lacks(what: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "in CI: {what}");
    println!("skipped: {what}");
}
