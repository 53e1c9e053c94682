//! Search for `libsrd-fi.so`, the libfabric provider of this project.
//!
//! libfabric loads files called `*-fi.so` from the directories of `FI_PROVIDER_PATH`. Cargo gives
//! the library another name, so [`stage`] creates a link with the right name in a directory.

use anyhow::{Context, Result};
use std::env;
use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// File name for which libfabric searches.
pub const FILE: &str = "libsrd-fi.so";
/// File name that cargo gives the library.
const BUILT: &str = "libsrd_fi.so";
/// Directories into which packages install libfabric providers.
const LIBRARIES: [&str; 5] = [
    "/usr/lib/libfabric",
    "/usr/lib64/libfabric",
    "/usr/local/lib/libfabric",
    "/usr/lib/srd",
    "/usr/local/lib/srd",
];

/// Error: the SRD provider was not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotFound {
    /// Paths that were searched.
    pub looked: Vec<PathBuf>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.looked[..] {
            [one] => write!(f, "there is no {}", one.display()),
            [first, .., last] => {
                let (first, last, all) = (first.display(), last.display(), self.looked.len());
                write!(f, "there is no {FILE}: not {first}, not {last}, nor any of {all} in all")
            }
            [] => write!(f, "there is no {FILE}"),
        }
    }
}

impl std::error::Error for NotFound {}

/// Finds the SRD provider. If `given` is set, only this file or directory is searched. Otherwise
/// the search covers `FI_PROVIDER_PATH`, the directory of `program`, and the
/// directories of packages.
///
/// # Errors
/// [`NotFound`], if the provider is in none of these paths.
pub fn find(given: Option<&Path>, program: &Path) -> Result<PathBuf, NotFound> {
    let looked = match given {
        Some(path) if path.is_dir() => files_in(path),
        Some(path) => vec![path.to_owned()],
        None => {
            let variable = env::var("FI_PROVIDER_PATH").unwrap_or_default();
            candidates(&variable, program)
        }
    };
    match looked.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(NotFound { looked }),
    }
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    vec![directory.join(FILE), directory.join(BUILT)]
}

/// Returns the paths at which the provider may be, in the order of the search. `variable` is the
/// value of `FI_PROVIDER_PATH`.
fn candidates(variable: &str, program: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in variable.split(':').filter(|entry| !entry.is_empty()) {
        // In `FI_PROVIDER_PATH`, `@DIR` is a preferred directory, and `+FILE` is a single library.
        match entry.strip_prefix('+') {
            Some(file) => all.push(file.into()),
            None => all.push(Path::new(entry.strip_prefix('@').unwrap_or(entry)).join(FILE)),
        }
    }
    let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    if let Some(beside) = program.parent() {
        all.push(beside.join("../provider").join(FILE));
        all.extend(files_in(beside));
        all.push(beside.join("../lib/libfabric").join(FILE));
    }
    let triplet = format!("/usr/lib/{}-linux-gnu/libfabric", env::consts::ARCH);
    let libraries = [triplet.as_str()].into_iter().chain(LIBRARIES);
    all.extend(libraries.map(|directory| Path::new(directory).join(FILE)));
    all
}

/// Creates a directory below `below` that contains only a link to the provider, under the name for
/// which libfabric searches. Returns the directory.
///
/// # Errors
/// An error of the operating system, if the directory or the link cannot be created.
pub fn stage(provider: &Path, below: &Path) -> Result<PathBuf> {
    let directory = below.join("provider");
    let what = || format!("a link to {} in {}", provider.display(), directory.display());
    fs::create_dir_all(&directory).with_context(what)?;
    let (link, target) = (directory.join(FILE), provider.canonicalize().with_context(what)?);
    if fs::read_link(&link).ok().as_deref() != Some(target.as_path()) {
        symlink(&target, &link).with_context(what)?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_comes_first_then_the_program_then_packages() {
        let all = candidates("/a:@/b:+/c/x-fi.so:", Path::new("/no/such/bin/srd"));
        assert_eq!(all[0], Path::new("/a/libsrd-fi.so"));
        assert_eq!(all[1], Path::new("/b/libsrd-fi.so"));
        assert_eq!(all[2], Path::new("/c/x-fi.so"));
        assert_eq!(all[3], Path::new("/no/such/bin/../provider/libsrd-fi.so"));
        assert!(all.contains(&"/no/such/bin/libsrd_fi.so".into()));
        assert_eq!(all.last().unwrap(), Path::new("/usr/local/lib/srd/libsrd-fi.so"));
    }

    #[test]
    fn what_was_given_is_all_that_is_looked_at() {
        let missing = Path::new("/no/such/libsrd-fi.so");
        let error = find(Some(missing), Path::new("/bin/sh")).expect_err("missing");
        assert_eq!(error.to_string(), "there is no /no/such/libsrd-fi.so");
        let error = find(Some(Path::new("/proc")), Path::new("/bin/sh")).expect_err("missing");
        assert_eq!(error.looked.len(), 2);
        assert_eq!(find(Some(Path::new("/bin/sh")), missing), Ok("/bin/sh".into()));
    }

    #[test]
    fn a_staged_provider_has_the_name_that_libfabric_looks_for() {
        let below = env::temp_dir().join(format!("srd-provider-{}", std::process::id()));
        fs::create_dir_all(&below).unwrap();
        for _ in 0..2 {
            let directory = stage(Path::new("/bin/sh"), &below).unwrap();
            assert!(directory.join(FILE).is_file());
        }
        fs::remove_dir_all(&below).unwrap();
        assert!(stage(Path::new("/no/such/file"), Path::new("/proc")).is_err());
    }
}
