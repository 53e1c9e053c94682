//! Advice for the user: the command line that starts an MPI job over SRD.

use crate::check::finding::Subject;
use crate::mpi::installed::SYSTEM_LIBFABRIC;
use crate::mpi::{Kind, Mpi, Transport, launch, provider};
use serde::Serialize;
use srd_lab::enter::quoted;
use std::env;
use std::path::{Path, PathBuf};

/// Variables of the SRD provider that the launcher has to pass to the ranks if they are set.
const PASSED_ON: [&str; 4] = ["FI_SRD_KEY_FILE", "FI_SRD_ENCRYPTION", "FI_SRD_PATHS", "FI_SRD_MTU"];

/// Command line and environment variables that run an MPI job over SRD.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Advice {
    /// Command to run before the job, such as one that renames the provider; `None` if none is
    /// needed.
    pub(super) first: Option<String>,
    /// Environment variables of the ranks, as name and value.
    pub(super) variables: Vec<(String, String)>,
    /// The launcher and its arguments, without the number of ranks and the hosts.
    pub(super) command: Vec<String>,
    /// The remaining arguments, as placeholders: number of ranks, hosts and program.
    pub(super) rest: &'static str,
}

/// Returns the command line for a job of an MPI over the interface of `subject`. If the path of the
/// provider is unknown (`None`), a placeholder stands for its directory.
pub(super) fn of(
    mpi: &Mpi,
    provider: Option<&Path>,
    libfabric: &Path,
    subject: &Subject,
) -> Advice {
    let (first, directory) = place(provider);
    let is_default = libfabric == Path::new(SYSTEM_LIBFABRIC)
        && directory == Path::new(&default_directory())
        && env::var_os("FI_PROVIDER_PATH").is_none();
    let mut settings = vec![("FI_SRD_IFACE".to_owned(), subject.interface.clone())];
    let set = |name: &&str| Some(((*name).to_owned(), env::var(name).ok()?));
    settings.extend(PASSED_ON.iter().filter_map(set));
    let transport = Transport::Srd { providers: (!is_default).then_some(directory), settings };
    let variables = launch::variables(&transport, mpi);
    let mut command = vec![mpi.mpirun.display().to_string()];
    for (name, value) in &variables {
        match mpi.kind {
            Kind::OpenMpi => command.extend(["-x".into(), format!("{name}={value}")]),
            _ => command.extend(["-genv".into(), name.clone(), value.clone()]),
        }
    }
    if mpi.kind == Kind::OpenMpi {
        for (name, value) in launch::mca(&transport, mpi.major() >= 5) {
            command.extend(["--mca".into(), name.into(), value]);
        }
    }
    let rest = match mpi.kind {
        Kind::OpenMpi => "-np N --host HOSTS PROGRAM",
        Kind::Mpich | Kind::Intel => "-n N -hosts HOSTS PROGRAM",
    };
    Advice { first, variables, command, rest }
}

/// Returns the command that copies a provider to a file whose name libfabric finds (`*-fi.so`);
/// `None` if the provider's name has this form already.
pub(super) fn rename(provider: &Path) -> Option<String> {
    place(Some(provider)).0
}

/// Returns two values: the command to run before libfabric finds the provider, `None` if none is
/// needed; and the directory in which libfabric finds the provider.
fn place(provider: Option<&Path>) -> (Option<String>, PathBuf) {
    let Some(file) = provider else {
        return (None, PathBuf::from("DIRECTORY-OF-LIBSRD-FI.SO"));
    };
    let directory = file.parent().map(Path::to_owned).unwrap_or_default();
    if file.to_string_lossy().ends_with("-fi.so") {
        return (None, directory);
    }
    let own = directory.join("provider");
    let (from, to) = (file.display().to_string(), own.join(provider::FILE).display().to_string());
    (Some(format!("install -D {} {}", quoted(&from), quoted(&to))), own)
}

/// Returns the directory in which a distribution's libfabric searches for providers by default.
fn default_directory() -> String {
    format!("/usr/lib/{}-linux-gnu/libfabric", env::consts::ARCH)
}

/// Returns the advice as text that can be copied into a shell.
pub(super) fn people(advice: &Option<Advice>) -> String {
    let Some(Advice { first, command, rest, .. }) = advice else {
        return String::new();
    };
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    let mut text = "\nTo run a job over SRD:\n".to_owned();
    if let Some(first) = first {
        text += &format!("  {first}\n");
    }
    text += &format!("  {} {rest}", words.join(" "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Purpose;

    fn subject() -> Subject {
        Subject {
            interface: "eth9".into(),
            driver: None,
            purpose: Purpose::Daemon,
            low_rtt: true,
            transparent: false,
            latency: false,
        }
    }

    fn mpi(kind: Kind, version: &str) -> Mpi {
        let netmods = if kind == Kind::Mpich { vec!["ofi".into()] } else { Vec::new() };
        Mpi { mpirun: "mpirun".into(), kind, version: version.into(), netmods }
    }

    fn line(mpi: &Mpi, provider: &str) -> String {
        let own = Path::new("/opt/lib/libfabric.so.1");
        people(&Some(of(mpi, Some(Path::new(provider)), own, &subject())))
    }

    #[test]
    fn each_mpi_gets_its_own_words() {
        let text = line(&mpi(Kind::OpenMpi, "4.1.4"), "/p/libsrd-fi.so");
        for part in [
            "-x FI_PROVIDER=srd",
            "-x FI_PROVIDER_PATH=/p",
            "-x FI_SRD_IFACE=eth9",
            "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include srd",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let text = line(&mpi(Kind::Mpich, "5.0.2"), "/p/libsrd-fi.so");
        assert!(text.contains("-genv MPIR_CVAR_CH4_NETMOD ofi -genv FI_PROVIDER srd"), "{text}");
        assert!(!text.contains("--mca") && text.ends_with("-n N -hosts HOSTS PROGRAM"), "{text}");
    }

    #[test]
    fn a_file_of_the_wrong_name_is_put_right_first() {
        let text = line(&mpi(Kind::OpenMpi, "5.0.11"), "/t/libsrd_fi.so");
        assert!(text.contains("install -D /t/libsrd_fi.so /t/provider/libsrd-fi.so\n"), "{text}");
        assert!(text.contains("FI_PROVIDER_PATH=/t/provider "), "{text}");
    }

    #[test]
    fn a_provider_where_libfabric_looks_needs_no_path() {
        let file = format!("{}/libsrd-fi.so", default_directory());
        let system = Path::new(SYSTEM_LIBFABRIC);
        let advice = of(&mpi(Kind::OpenMpi, "4.1.4"), Some(Path::new(&file)), system, &subject());
        let named = advice.variables.iter().any(|(name, _)| name == "FI_PROVIDER_PATH");
        assert_eq!(named, env::var_os("FI_PROVIDER_PATH").is_some());
    }
}
