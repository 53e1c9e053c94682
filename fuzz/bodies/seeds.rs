//! The seeds of fuzz targets, for tests that replay them on a stable toolchain.
#![allow(dead_code, clippy::unwrap_used)] // each test uses some of it

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the directory of all seeds, for a test program of any crate.
pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Returns the seeds of a target. Inputs that a fuzzer has added locally are named by a hash, and
/// are skipped.
pub(crate) fn paths(target: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus().join(target)).expect("every target has seeds");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.len() != 40));
    paths.sort();
    assert!(!paths.is_empty(), "no seeds for {target}");
    paths
}

/// Returns the bytes of the seeds of a target.
pub(crate) fn read(target: &str) -> Vec<Vec<u8>> {
    paths(target).into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs a body with each seed of a target; returns the number of seeds.
pub(crate) fn replay<T>(target: &str, mut body: impl FnMut(&[u8]) -> T) -> usize {
    let paths = paths(target);
    for path in &paths {
        println!("{}", path.display());
        drop(body(&fs::read(path).unwrap()));
    }
    paths.len()
}
