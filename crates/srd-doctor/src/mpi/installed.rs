//! The MPI implementations that are installed on this machine, identified by what each launcher
//! prints for `--version`.

use super::ask;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use srd_lab::command::find_program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names that launchers have, in the order of the search.
const LAUNCHERS: [&str; 6] =
    ["mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra"];
/// Paths at which an MPI may have a private libfabric, relative to the MPI's installation directory
/// (the parent of the launcher's directory).
const OWN_LIBFABRIC: [&str; 6] = [
    "lib/openmpi/libfabric.so.1",
    "lib/mpich/libfabric.so.1",
    "libfabric/lib/libfabric.so.1",
    "opt/mpi/libfabric/lib/libfabric.so.1",
    "lib/libfabric.so.1",
    "lib64/libfabric.so.1",
];
/// Name by which the dynamic linker finds the system's libfabric.
pub const SYSTEM_LIBFABRIC: &str = "libfabric.so.1";

/// The supported implementations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
    /// Intel MPI.
    Intel,
}

/// An MPI implementation that is installed on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mpi {
    /// Path of the launcher.
    pub mpirun: PathBuf,
    /// Kind of the implementation.
    pub kind: Kind,
    /// Version of the MPI, such as `4.1.4`.
    pub version: String,
    /// The network modules of an MPICH, such as `ofi`; empty for other MPIs.
    pub netmods: Vec<String>,
}

impl Mpi {
    /// Returns the MPI of a launcher; a name without a slash is searched in `PATH`.
    ///
    /// # Errors
    /// A text for the user, if the program does not exist or is not a supported launcher.
    pub fn of(mpirun: &Path) -> Result<Self> {
        let name = mpirun.to_string_lossy();
        let found = find_program(&name).with_context(|| format!("{name}: no such program"))?;
        let mut command = Command::new(&found);
        let answer = ask(command.arg("--version"))?;
        let Some((kind, version)) = recognise(&answer.out) else {
            let first =
                answer.out.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
            bail!("{name} is not the launcher of Open MPI, MPICH or Intel MPI: it says `{first}`");
        };
        let netmods = if kind == Kind::Mpich { netmods(&answer.out) } else { Vec::new() };
        Ok(Self { mpirun: found, kind, version, netmods })
    }

    /// Returns all MPIs in `PATH`, each once. The first MPI in the list is the MPI whose `mpirun` a
    /// shell starts.
    #[must_use]
    pub fn installed() -> Vec<Self> {
        let mut real = Vec::new();
        let mut all = Vec::new();
        for name in LAUNCHERS {
            let Some(path) = find_program(name) else { continue };
            let target = path.canonicalize().unwrap_or_else(|_| path.clone());
            if let Ok(mpi) = Self::of(&path)
                && !real.contains(&target)
                && !all.iter().any(|other: &Self| other.is_the_same(&mpi))
            {
                real.push(target);
                all.push(mpi);
            }
        }
        all
    }

    fn is_the_same(&self, other: &Self) -> bool {
        let directory = |mpi: &Self| mpi.mpirun.parent().map(Path::to_owned);
        (self.kind, &self.version) == (other.kind, &other.version)
            && directory(self) == directory(other)
    }

    /// Returns the major version, the first number of the version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Returns the name of the MPI.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::OpenMpi => "Open MPI",
            Kind::Mpich => "MPICH",
            Kind::Intel => "Intel MPI",
        }
    }

    /// Returns the path of a program that was installed with the launcher: `mpicc` beside `mpirun`,
    /// `mpicc.mpich` beside `mpirun.mpich`.
    #[must_use]
    pub fn sibling(&self, name: &str) -> Option<PathBuf> {
        let directory = self.mpirun.parent()?;
        let own = self.mpirun.file_name()?.to_string_lossy().into_owned();
        let suffix = own.split_once('.').map(|(_, suffix)| format!("{name}.{suffix}"));
        let names = suffix.into_iter().chain([name.to_owned()]);
        let mut paths = names.map(|name| directory.join(name).to_string_lossy().into_owned());
        paths.find_map(|path| find_program(&path))
    }

    /// Returns the libfabric that the MPI loads: the path of the MPI's private libfabric, or the
    /// name of the system's libfabric.
    #[must_use]
    pub fn libfabric(&self) -> PathBuf {
        let target = self.mpirun.canonicalize().unwrap_or_else(|_| self.mpirun.clone());
        let prefix = target.parent().and_then(Path::parent);
        let own = |prefix: &Path| {
            OWN_LIBFABRIC.iter().map(|file| prefix.join(file)).find(|file| file.is_file())
        };
        prefix.and_then(own).unwrap_or_else(|| SYSTEM_LIBFABRIC.into())
    }

    /// Checks that the MPI can use libfabric, and returns the evidence as text.
    ///
    /// # Errors
    /// The reason as text, if the MPI cannot use libfabric.
    pub fn uses_libfabric(&self) -> Result<String, String> {
        match self.kind {
            Kind::Intel => Ok("it knows no other network".into()),
            Kind::Mpich if self.netmods.iter().any(|netmod| netmod == "ofi") => {
                Ok(format!("built for {}", self.netmods.join(" and ")))
            }
            Kind::Mpich if self.netmods.is_empty() => {
                Err("it does not say which networks it was built for".into())
            }
            Kind::Mpich => Err(format!("built for {} only", self.netmods.join(" and "))),
            Kind::OpenMpi => match self.settings() {
                Ok(settings) if settings.contains("mca:mtl:ofi:") => Ok("it has mtl/ofi".into()),
                Ok(_) => Err("it was built without mtl/ofi".into()),
                Err(error) => Err(format!("it cannot be asked: {error:#}")),
            },
        }
    }

    /// Returns the configuration file, and its setting, that excludes libfabric from an Open MPI;
    /// `None` if there is no such file.
    #[must_use]
    pub fn excludes_libfabric(&self) -> Option<String> {
        if self.kind != Kind::OpenMpi {
            return None;
        }
        excluded(&self.settings().ok()?)
    }

    fn settings(&self) -> Result<String> {
        let program = self.sibling("ompi_info").context("there is no ompi_info beside it")?;
        let answer = ask(Command::new(program).args(["--parsable", "--all"]))?;
        if !answer.succeeded {
            bail!("ompi_info: {}", answer.err.lines().next().unwrap_or("failed"));
        }
        Ok(answer.out)
    }
}

/// Returns kind and version from the output of `--version`.
fn recognise(text: &str) -> Option<(Kind, String)> {
    let after = |marker: &str| text.split_once(marker).map(|(_, rest)| rest);
    let (kind, rest) = if let Some(rest) = after("(Open MPI)").or_else(|| after("(OpenRTE)")) {
        (Kind::OpenMpi, rest)
    } else if let Some(rest) = after("Intel(R) MPI Library").and(after("Version")) {
        (Kind::Intel, rest)
    } else {
        (Kind::Mpich, after("HYDRA build details:").and(after("Version:"))?)
    };
    let version = rest.split_whitespace().next()?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| (kind, version.to_owned()))
}

/// Returns the network modules of an MPICH, from its configure options:
/// `--with-device=ch4:ucx,ofi`.
fn netmods(text: &str) -> Vec<String> {
    let device = text.split_once("--with-device=").map_or("", |(_, rest)| rest);
    let device = device.split(|c: char| c.is_whitespace() || "'\"".contains(c)).next();
    let list = device.and_then(|device| device.strip_prefix("ch4:")).unwrap_or_default();
    let names = list.split(',').filter(|name| !name.is_empty());
    // `ofi:sockets` means `ofi` with a provider chosen at build time.
    names.map(|name| name.split(':').next().unwrap_or(name).to_owned()).collect()
}

/// Returns the setting that excludes mtl/ofi: `mtl = ^ofi`, or a list without it.
fn excluded(settings: &str) -> Option<String> {
    let field = |name: &str| {
        let key = format!("mca:mtl:base:param:mtl:{name}:");
        settings.lines().find_map(|line| line.strip_prefix(&key))
    };
    let value = field("value").filter(|value| !value.is_empty())?;
    let listed = value.trim_start_matches('^').split(',').any(|name| name == "ofi");
    let by = field("source").unwrap_or("its configuration");
    let by = by.strip_prefix("file (").map_or(by, |file| file.trim_end_matches(')'));
    (listed == value.starts_with('^')).then(|| format!("`mtl = {value}` in {by}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYDRA: &str = "HYDRA build details:\n    Version:     5.0.2\n    CC:  cc\n    Configure \
        options:   '--with-device=ch4:ucx,ofi' '--with-pm=hydra:gforker'\n";

    #[test]
    fn launchers_are_known_by_what_they_say() {
        for (text, kind, version) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs", Kind::OpenMpi, "4.1.4"),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n", Kind::OpenMpi, "4.1.4"),
            (HYDRA, Kind::Mpich, "5.0.2"),
            (
                "Intel(R) MPI Library for Linux* OS, Version 2021.19 Build 20260101\n",
                Kind::Intel,
                "2021.19",
            ),
        ] {
            assert_eq!(recognise(text), Some((kind, version.to_owned())), "{text}");
        }
        for text in ["", "srun 23.02\n", "mpirun (Open MPI)\n", "HYDRA build details:\n"] {
            assert_eq!(recognise(text), None, "{text}");
        }
    }

    #[test]
    fn networks_of_an_mpich_are_in_its_configure_options() {
        assert_eq!(netmods(HYDRA), ["ucx", "ofi"]);
        assert_eq!(netmods("--with-device=ch4:ucx --x"), ["ucx"]);
        assert_eq!(netmods("--with-device=ch4:ofi:sockets"), ["ofi"]);
        assert!(netmods("--with-device=ch3:nemesis").is_empty());
        assert!(netmods("").is_empty());
    }

    #[test]
    fn a_configuration_that_excludes_libfabric_is_found_with_its_file() {
        let settings = |value: &str| {
            format!(
                "mca:mtl:base:param:mtl:value:{value}\n\
                 mca:mtl:base:param:mtl:source:file (/etc/openmpi/openmpi-mca-params.conf:67)\n"
            )
        };
        let file = "/etc/openmpi/openmpi-mca-params.conf:67";
        assert_eq!(excluded(&settings("^ofi")), Some(format!("`mtl = ^ofi` in {file}")));
        assert_eq!(excluded(&settings("psm2")), Some(format!("`mtl = psm2` in {file}")));
        for fine in ["", "ofi", "psm2,ofi", "^psm2"] {
            assert_eq!(excluded(&settings(fine)), None, "{fine}");
        }
    }

    #[test]
    fn what_is_no_launcher_is_refused_with_what_it_says() {
        let error = Mpi::of(Path::new("/bin/sh")).expect_err("no launcher").to_string();
        assert!(error.contains("/bin/sh is not the launcher of"), "{error}");
        let error = Mpi::of(Path::new("/no/such/mpirun")).expect_err("nothing").to_string();
        assert!(error.contains("no such program"), "{error}");
    }
}
