//! C programs, compiled like programs of users, with the library that was just built.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Compiler options for every program.
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"];

/// Seconds after which a program that hangs is killed.
pub(crate) const LIMIT_S: &str = "300";

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether a program is installed. If not, prints this; in CI, fails.
pub(crate) fn is_here(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(found || !ci, "CI lacks {program}");
    if !found {
        let package = if program == "c++" { "g++" } else { "gcc" };
        println!("skipped: no {program} (apt-get install {package})");
    }
    found
}

/// A directory with the library under the names that linkers and loaders expect, and with the
/// compiled programs.
pub(crate) struct LibraryDir(pub(crate) TempDir);

impl LibraryDir {
    pub(crate) fn new() -> Self {
        let beside = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir().unwrap();
        for (name, file) in
            [("libsrd.so", "libsrd.so.0"), ("libsrd.so", "libsrd.so"), ("libsrd.a", "libsrd.a")]
        {
            let built = beside.with_file_name(name);
            assert!(built.exists(), "{} is built with the tests", built.display());
            std::os::unix::fs::symlink(built, directory.path().join(file)).unwrap();
        }
        Self(directory)
    }

    pub(crate) fn compile(&self, compiler: &str, arguments: &[&str], source: &Path) -> PathBuf {
        let program = self.0.path().join(source.file_stem().unwrap());
        let mut command = Command::new(compiler);
        command.args(STRICT).arg("-I").arg(here("include")).arg("-o").arg(&program).arg(source);
        let output = command.arg("-L").arg(self.0.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    pub(crate) fn run(&self, program: &Path) -> Output {
        Command::new("timeout")
            .arg(LIMIT_S)
            .arg(program)
            .env("LD_LIBRARY_PATH", self.0.path())
            .output()
            .unwrap()
    }

    /// Runs a program of the tests, whose output must equal `words`.
    pub(crate) fn says(&self, source: &str, words: &str) {
        let program = self.compile("cc", &["-std=c11", "-lsrd", "-lpthread"], &here(source));
        let output = self.run(&program);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.trim() == words, "{said}");
    }
}
