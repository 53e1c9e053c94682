//! Programs that `srd lab fetch` downloads from public registries. They are accepted only if their
//! checksums equal those in this program. Experiments themselves never use the internet.
//!
//! | module | contents |
//! |---|---|
//! | `jars` | Hadoop and Spark, as jars from Maven Central |
//! | `python` | Dask, JAX and Moto, as Python environments with packages from PyPI |

mod jars;
mod python;

pub(in crate::experiment) use jars::{HADOOP, SPARK};
pub(in crate::experiment) use python::{DASK, JAX, MOTO};

use anyhow::{Context, Result, bail};
use srd_lab::DirectoryGuard;
use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A program that can be fetched.
trait Fetchable: Sync {
    /// Returns the program's name, as on the command line.
    fn name(&self) -> &'static str;
    /// Returns the program's name for people, with its version.
    fn title(&self) -> String;
    /// Describes the kind and number of the parts of the program, such as `182 jars`.
    fn parts(&self) -> String;
    /// Returns the program's directory in a cache.
    fn directory(&self, cache: &Path) -> PathBuf;
    /// Returns the name of a file that is missing in the program's directory; `None` if it is
    /// complete.
    fn missing(&self, directory: &Path) -> Option<String>;
    /// Checks that the files in the program's directory are the expected files.
    fn check(&self, directory: &Path) -> Result<()>;
    /// Downloads all parts of the program into an empty directory.
    fn fetch_into(&self, directory: &Path, say: &mut dyn FnMut(&str)) -> Result<()>;
}

/// Text between the name of a program and a process id in the name of a temporary directory.
const PART: &str = ".part-";
const ALL: [&dyn Fetchable; 5] = [&HADOOP, &SPARK, &DASK, &JAX, &MOTO];

/// Error: an experiment needs a program that has to be fetched first.
#[derive(Debug)]
pub struct NotFetched(String);

impl fmt::Display for NotFetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFetched {}

/// Returns the program's directory in a cache, if it is complete.
///
/// # Errors
/// If a part is missing; the message describes how to fetch it.
fn require(what: &dyn Fetchable, cache: &Path) -> Result<PathBuf> {
    let directory = what.directory(cache);
    let Some(missing) = what.missing(&directory) else {
        for place in [cache, &directory] {
            check_ours(place)?;
        }
        return Ok(directory);
    };
    let (title, name, parts) = (what.title(), what.name(), what.parts());
    let directory = directory.display();
    let text = format!(
        "{title} is not there: {directory} has no {missing}; `srd lab fetch {name}` fetches {parts}"
    );
    Err(NotFetched(text).into())
}

/// Refuses a directory that other users can modify, because programs in it are executed, usually by
/// root.
fn check_ours(directory: &Path) -> Result<()> {
    let metadata = fs::metadata(directory).with_context(|| directory.display().to_string())?;
    let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    let own = rustix::process::geteuid().as_raw();
    let is_ours = [Some(0), Some(own), caller].contains(&Some(metadata.uid()));
    if is_ours && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    bail!(
        "{} can be written by others, and what is in it is run: give a directory of your own, or \
         chmod go-w it after a look at what is there",
        directory.display()
    )
}

/// Returns the names of all programs that can be fetched.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(Fetchable::name)
}

/// Checks that a program is completely present in a cache.
///
/// # Errors
/// If there is no such program, or if it is missing in the cache: [`NotFetched`].
pub fn check_fetched(name: &str, cache: &Path) -> Result<()> {
    require(find(name)?, cache).map(drop)
}

/// Returns the name of the fetched program that an experiment needs; `None` if it needs no fetched
/// program.
pub(in crate::experiment) fn needed_by(experiment: &str) -> Option<&'static str> {
    let name = experiment.strip_suffix("-mpi").unwrap_or(experiment);
    let name = match name {
        "training" => JAX.name(),
        "objects" => MOTO.name(),
        name => name,
    };
    names().find(|known| *known == name)
}

fn find(name: &str) -> Result<&'static dyn Fetchable> {
    let known = || names().collect::<Vec<_>>().join(", ");
    let found = ALL.into_iter().find(|what| what.name() == name);
    found.with_context(|| format!("`{name}` cannot be fetched: {}", known()))
}

/// Fetches a program into a cache, unless it is already present. If a checksum differs, no file of
/// the program is kept.
///
/// # Errors
/// If there is no such program, the client of its registry is not installed or fails, the disk is
/// full, or a checksum is wrong.
pub fn fetch(name: &str, cache: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let what = find(name)?;
    let (directory, title) = (what.directory(cache), what.title());
    if what.missing(&directory).is_none() {
        require(what, cache)?;
        what.check(&directory).context("remove the directory, and fetch again")?;
        say(&format!("{} has all of {title}", directory.display()));
        return Ok(directory);
    }
    let made = DirBuilder::new().recursive(true).mode(0o755).create(cache);
    made.with_context(|| cache.display().to_string())?;
    check_ours(cache)?;
    remove_left_behind(cache);
    let fresh = cache.join(format!("{name}{PART}{}", std::process::id()));
    let mut guard = DirectoryGuard::make(&fresh)?
        .with_context(|| format!("{} is there: remove it", fresh.display()))?;
    what.fetch_into(&fresh, say)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
    // Another process may have fetched the program in the meantime, and its directory may be in
    // use.
    if require(what, cache).is_err() {
        // An incomplete directory of an earlier version is replaced.
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| directory.display().to_string());
            }
            _ => {}
        }
        fs::rename(&fresh, &directory).with_context(|| directory.display().to_string())?;
        guard.keep();
    }
    say(&format!("{title}: {} in {}", what.parts(), directory.display()));
    Ok(directory)
}

/// Removes temporary directories of processes that were killed while they fetched a program.
fn remove_left_behind(cache: &Path) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let Some((name, pid)) = file.to_str().and_then(|file| file.split_once(PART)) else {
            continue;
        };
        let is_one = find(name).is_ok() && pid.parse::<u32>().is_ok();
        if is_one && !Path::new("/proc").join(pid).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: killed processes left hundreds of megabytes in the cache, which were never
    /// removed.
    #[test]
    fn regression_what_killed_processes_left_behind_is_removed() {
        let cache = cache("left");
        // No process has such a high number. That of an ended process may get another owner.
        let gone = 4_194_305_u32;
        let own = std::process::id();
        let names = [
            format!("dask.part-{gone}"),
            format!("dask.part-{own}"),
            format!("other.part-{gone}"),
            "dask.part-".to_owned(),
        ];
        for name in &names {
            fs::create_dir_all(cache.join(name).join("lib")).unwrap();
        }
        remove_left_behind(&cache);
        let left = names.iter().filter(|name| cache.join(name).exists());
        assert_eq!(left.collect::<Vec<_>>(), names[1..].iter().collect::<Vec<_>>());
        fs::remove_dir_all(&cache).unwrap();
    }

    /// Regression: a program in a directory to which other users could write was executed as root.
    #[test]
    fn regression_programs_out_of_a_directory_of_others_are_refused() {
        let cache = cache("others");
        let directory = DASK.directory(&cache);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("srd.lock"), include_str!("dask.lock")).unwrap();
        assert!(check_fetched("dask", &cache).is_ok());
        for place in [&cache, &directory] {
            fs::set_permissions(place, Permissions::from_mode(0o777)).unwrap();
            let error = check_fetched("dask", &cache).expect_err("others").to_string();
            assert!(error.contains("written by others"), "{error}");
            let error = fetch("dask", &cache, &mut |_| {}).expect_err("others").to_string();
            assert!(error.contains("written by others"), "{error}");
            fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
        }
        fs::remove_dir_all(&cache).unwrap();
    }

    /// Returns the path of a cache that only one test uses.
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
        assert!(error.to_string().contains("hadoop, spark, dask, jax, moto"), "{error}");
    }
}
