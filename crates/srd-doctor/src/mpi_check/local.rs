//! Checks of this machine: its MPI, the libfabric that the MPI loads, and whether this libfabric
//! offers SRD over the interface.

use super::advice::{self, Advice};
use super::{List, Options};
use crate::check::finding::{Class, Fix, Outcome, Purpose, Subject};
use crate::check::rules;
use crate::check::system::System;
use crate::mpi::installed::SYSTEM_LIBFABRIC;
use crate::mpi::{Mpi, Offers, offers, provider};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Names of the checks of `srd check` that also matter for the libfabric provider.
const SHARED: [&str; 3] = ["mtu", "srd-buffers", "udp-offload"];
const INSTALL_MPI: &str = "sudo apt-get install openmpi-bin libopenmpi-dev";
const INSTALL_LIBFABRIC: &str = "sudo apt-get install libfabric1";

/// Properties of this machine; [`Machine::check`] derives findings from them.
pub(super) struct Machine {
    /// The MPI to check; `None` if no MPI is installed.
    pub(super) mpi: Option<Mpi>,
    /// The MPIs that are installed in addition to the MPI to check.
    pub(super) others: Vec<Mpi>,
    /// The libfabric that the MPI loads.
    pub(super) libfabric: PathBuf,
    /// Path of the provider, or the paths that were searched.
    pub(super) provider: Result<PathBuf, provider::NotFound>,
    /// Offers of this libfabric without the SRD provider. They show that the libfabric can be
    /// loaded, and which version it has.
    pub(super) bare: Result<Offers, String>,
    /// Offers of this libfabric with the SRD provider, and the last lines of its log; `None` if the
    /// provider was not found.
    pub(super) offered: Option<Result<(Offers, Vec<String>), String>>,
    /// The interface that SRD uses, and the options of the checks that it shares with `srd check`.
    pub(super) subject: Subject,
}

/// Reads the properties of this machine. `work` is a directory for a link to the provider.
pub(super) fn look(options: &Options, system: &System, work: &Path) -> Result<Machine> {
    let mut all = match &options.mpirun {
        Some(file) => match Mpi::of(file) {
            Ok(mpi) => vec![mpi],
            Err(error) => bail!("--mpirun: {error:#}"),
        },
        None => Mpi::installed(),
    };
    let mpi = (!all.is_empty()).then(|| all.remove(0));
    let libfabric = mpi.as_ref().map_or_else(|| SYSTEM_LIBFABRIC.into(), Mpi::libfabric);
    let srd = std::env::current_exe().context("the path of this program")?;
    let provider = provider::find(options.provider.as_deref(), &srd);
    let staged = provider.as_ref().ok().map(|file| provider::stage(file, work)).transpose()?;
    let ask = |providers| {
        offers::of(&srd, &libfabric, providers, &[]).map_err(|error| format!("{error:#}"))
    };
    let bare = ask(None).map(|(offers, _)| offers);
    let offered = staged.as_deref().map(|directory| ask(Some(directory)));
    let subject = subject(options, system)?;
    Ok(Machine { mpi, others: all, libfabric, provider, bare, offered, subject })
}

/// Returns the interface that the provider uses if there is no default route: the first interface
/// that is up and has an address. Loopback is used only if there is no other interface.
fn first_interface() -> Option<String> {
    let mut addresses = srd_net::local_addresses().ok()?;
    addresses.sort_by_key(|address| address.loopback);
    addresses.into_iter().next().map(|address| address.interface)
}

fn subject(options: &Options, system: &System) -> Result<Subject> {
    let named = options.interface.clone().or_else(|| system.default_interface());
    let Some(interface) = named.or_else(first_interface) else {
        bail!("no interface is up: name one with --interface");
    };
    if !system.has_interface(&interface) {
        bail!("no interface `{interface}`");
    }
    let (driver, purpose) = (None, Purpose::Daemon);
    Ok(Subject { interface, driver, purpose, low_rtt: true, transparent: false, latency: false })
}

impl Machine {
    /// Checks all properties, and adds the findings to `list`.
    pub(super) fn check(&self, system: &System, list: &mut List) {
        list.add("mpi", "jobs are started by it", self.check_mpi());
        list.add(
            "mpi-libfabric",
            "an MPI that was built without libfabric cannot use any provider",
            self.check_support(),
        );
        list.add(
            "mpi-settings",
            "some distributions switch libfabric off in a configuration file",
            self.check_settings(),
        );
        list.add(
            "libfabric",
            "older releases have other structures than the provider writes",
            self.check_libfabric(),
        );
        list.add("provider", "libfabric loads SRD from this file", self.check_provider());
        list.add("offer", "an MPI uses only what its libfabric offers", self.check_offer());
        let names = SHARED.map(str::to_owned);
        for rule in rules::select(&names).unwrap_or_default() {
            list.add(rule.name, rule.why, (rule.check)(system, &self.subject));
        }
    }

    /// Whether the libfabric offers SRD, so that a job over SRD can be tried.
    pub(super) fn offers_srd(&self) -> bool {
        matches!(&self.offered, Some(Ok((offers, _))) if offers.srd().next().is_some())
    }

    /// Whether the provider's file has a name for which libfabric searches.
    pub(super) fn is_named(&self) -> bool {
        self.provider.as_ref().is_ok_and(|path| advice::rename(path).is_none())
    }

    /// Returns the command line that starts a job over SRD; `None` if no MPI is installed.
    pub(super) fn advice(&self) -> Option<Advice> {
        let mpi = self.mpi.as_ref()?;
        Some(advice::of(mpi, self.provider.as_deref().ok(), &self.libfabric, &self.subject))
    }

    fn check_mpi(&self) -> Outcome {
        let wanted = "Open MPI, MPICH or Intel MPI";
        let Some(mpi) = &self.mpi else {
            let fix = Fix::by_hand(INSTALL_MPI.into(), "any MPI that uses libfabric will do");
            return Outcome::failed(Class::Required, "none in PATH", wanted, fix);
        };
        let named =
            |mpi: &Mpi| format!("{} {} ({})", mpi.name(), mpi.version, mpi.mpirun.display());
        let mut found = named(mpi);
        if !self.others.is_empty() {
            let others: Vec<String> = self.others.iter().map(named).collect();
            found += &format!("; --mpirun chooses {}", others.join(", "));
        }
        Outcome::ok(Class::Required, found, wanted)
    }

    fn check_support(&self) -> Outcome {
        let Some(mpi) = &self.mpi else { return Outcome::not_applicable("there is no MPI") };
        match mpi.uses_libfabric() {
            Ok(found) => Outcome::ok(Class::Required, found, "built with libfabric"),
            Err(found) => {
                let command = format!("srd mpi-check --mpirun FILE   # or: {INSTALL_MPI}");
                let fix = Fix::by_hand(command, "another MPI is needed, or another build of it");
                Outcome::failed(Class::Required, found, "built with libfabric", fix)
            }
        }
    }

    fn check_settings(&self) -> Outcome {
        let Some(mpi) = &self.mpi else { return Outcome::not_applicable("there is no MPI") };
        let wanted = "libfabric is not excluded";
        match mpi.excludes_libfabric() {
            None => Outcome::ok(Class::Recommended, "nothing excludes it", wanted),
            Some(found) => {
                let fix = Fix::by_hand(
                    "mpirun --mca pml cm --mca mtl ofi ...".into(),
                    "it can stay if jobs are started with the words below",
                );
                Outcome::failed(Class::Recommended, found, wanted, fix)
            }
        }
    }

    fn check_libfabric(&self) -> Outcome {
        let (major, minor) = offers::OLDEST;
        let (wanted, path) = (format!("{major}.{minor} or later"), self.libfabric.display());
        let class = Class::Required;
        match &self.bare {
            Ok(offers) => {
                let found = format!("{}.{} ({path})", offers.major, offers.minor);
                if offers.is_new_enough() {
                    return Outcome::ok(class, found, wanted);
                }
                let fix = Fix::by_hand(INSTALL_LIBFABRIC.into(), "of a newer distribution");
                Outcome::failed(class, found, wanted, fix)
            }
            Err(why) => {
                let fix = Fix::by_hand(INSTALL_LIBFABRIC.into(), "if this MPI brings none itself");
                Outcome::failed(class, format!("{path}: {why}"), wanted, fix)
            }
        }
    }

    fn check_provider(&self) -> Outcome {
        match &self.provider {
            Ok(path) => Outcome::ok(Class::Required, path.display().to_string(), provider::FILE),
            Err(missing) => {
                let command = "srd mpi-check --provider FILE".to_owned();
                let fix = Fix::by_hand(command, "or install it where FI_PROVIDER_PATH says");
                Outcome::failed(Class::Required, missing.to_string(), provider::FILE, fix)
            }
        }
    }

    fn check_offer(&self) -> Outcome {
        let wanted = "reliable endpoints (FI_EP_RDM) of provider srd";
        let command = format!(
            "FI_LOG_LEVEL=info FI_PROVIDER_PATH={} fi_info -p srd",
            self.provider_directory().display()
        );
        let fix = Fix::by_hand(command, "libfabric's log says why");
        match &self.offered {
            None => Outcome::not_applicable("there is no provider"),
            Some(Err(why)) => Outcome::failed(Class::Required, why.clone(), wanted, fix),
            Some(Ok((offers, log))) => {
                let mut domains: Vec<&str> =
                    offers.srd().map(|offer| offer.domain.as_str()).collect();
                domains.dedup();
                if domains.is_empty() {
                    let why = log.first().cloned().or_else(|| offers.error.clone());
                    let found = format!("nothing: {}", why.unwrap_or_default());
                    return Outcome::failed(Class::Required, found, wanted, fix);
                }
                Outcome::ok(Class::Required, format!("srd on {}", domains.join(", ")), wanted)
            }
        }
    }

    fn provider_directory(&self) -> PathBuf {
        let found = self.provider.as_ref().ok();
        found.and_then(|file| file.parent()).unwrap_or(Path::new("DIRECTORY")).to_owned()
    }
}
