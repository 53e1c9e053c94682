//! `--out DIR`: writes the files that the results of runs consist of.

use crate::failure::Usage;
use anyhow::{Context, Result};
use srd_sim::report;
use srd_sim::run::RunResult;
use std::fs;
use std::path::Path;

/// Creates the directory for the files. It is called before the work starts, so that no result is
/// lost.
pub(super) fn prepare(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(|error| {
        Usage(format!("--out {}: cannot make the directory: {error}", directory.display())).into()
    })
}

/// Writes the files, and returns their number.
pub(super) fn write(directory: &Path, results: &[RunResult]) -> Result<usize> {
    let files = report::write_all(directory, results)
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    Ok(files.len())
}
