//! Programs that `srd lab fetch` brings from their registries, and believes only with checksums
//! that this program knows. Experiments never use the network.
//!
//! | module | what |
//! |---|---|
//! | `jars` | Hadoop and Spark, as jars from Maven Central |
//! | `python` | Dask, Ray and JAX, as environments of Python with packages from PyPI |

mod jars;
mod python;

pub(super) use jars::{HADOOP, SPARK};
pub(super) use python::{DASK, JAX, RAY};

use anyhow::{Context, Result};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Something that can be fetched.
trait Fetchable: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// What it is, with its version.
    fn title(&self) -> String;
    /// What its parts are, and how many.
    fn parts(&self) -> String;
    /// Its directory in a cache.
    fn directory(&self, cache: &Path) -> PathBuf;
    /// What is missing in its directory, if something is.
    fn missing(&self, directory: &Path) -> Option<String>;
    /// Whether what is there is what this program knows.
    fn check(&self, directory: &Path) -> Result<()>;
    /// Fetches all of it into an empty directory.
    fn fetch_into(&self, directory: &Path, say: &mut dyn FnMut(&str)) -> Result<()>;
}

const ALL: [&dyn Fetchable; 5] = [&HADOOP, &SPARK, &DASK, &RAY, &JAX];

/// A program of an experiment that is to be fetched first.
#[derive(Debug)]
pub struct NotFetched(String);

impl fmt::Display for NotFetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFetched {}

/// The directory in a cache, all of which is there.
///
/// # Errors
/// Something is missing; the message says how to fetch it.
fn require(what: &dyn Fetchable, cache: &Path) -> Result<PathBuf> {
    let directory = what.directory(cache);
    let Some(missing) = what.missing(&directory) else { return Ok(directory) };
    let (title, name, parts) = (what.title(), what.name(), what.parts());
    let directory = directory.display();
    let text = format!(
        "{title} is not there: {directory} has no {missing}; `srd lab fetch {name}` fetches {parts}"
    );
    Err(NotFetched(text).into())
}

/// Names of what can be fetched.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(Fetchable::name)
}

/// What is missing of a program in a cache, and how to fetch it.
///
/// # Errors
/// There is no such program, or it is not there: [`NotFetched`].
pub fn check_fetched(name: &str, cache: &Path) -> Result<()> {
    require(find(name)?, cache).map(drop)
}

/// What an experiment needs of this, if anything.
pub(super) fn needed_by(experiment: &str) -> Option<&'static str> {
    let name = experiment.strip_suffix("-mpi").unwrap_or(experiment);
    let name = if name == "training" { JAX.name() } else { name };
    names().find(|known| *known == name)
}

fn find(name: &str) -> Result<&'static dyn Fetchable> {
    let known = || names().collect::<Vec<_>>().join(", ");
    let found = ALL.into_iter().find(|what| what.name() == name);
    found.with_context(|| format!("`{name}` cannot be fetched: {}", known()))
}

/// Fetches a program into a cache, unless it is there. If a checksum is another one it is
/// refused, and nothing of it is kept.
///
/// # Errors
/// There is no such program, its registry's client is not installed or fails, the disk is full,
/// or a checksum is wrong.
pub fn fetch(name: &str, cache: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let what = find(name)?;
    let (directory, title) = (what.directory(cache), what.title());
    if require(what, cache).is_ok() {
        what.check(&directory).context("remove the directory, and fetch again")?;
        say(&format!("{} has all of {title}", directory.display()));
        return Ok(directory);
    }
    let fresh = cache.join(format!("{name}.part-{}", std::process::id()));
    fs::create_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
    let result = what.fetch_into(&fresh, say).and_then(|()| {
        // An older, broken one makes room.
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| directory.display().to_string());
            }
            _ => {}
        }
        fs::rename(&fresh, &directory).with_context(|| directory.display().to_string())
    });
    if result.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    result?;
    say(&format!("{title}: {} in {}", what.parts(), directory.display()));
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of this test and of no other.
    pub(super) fn cache(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("srd-{name}-test-{}", std::process::id()))
    }

    #[test]
    fn what_is_not_there_is_refused_with_a_remedy() {
        for what in ALL {
            let error = require(what, &cache("nothing")).expect_err("nothing there");
            let remedy = format!("`srd lab fetch {}`", what.name());
            assert!(error.is::<NotFetched>() && error.to_string().contains(&remedy), "{error}");
        }
        let error = fetch("nonesuch", &cache("nothing"), &mut |_| {}).expect_err("unknown");
        assert!(error.to_string().contains("hadoop, spark, dask, ray, jax"), "{error}");
    }
}
