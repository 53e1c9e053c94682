//! Command-line arguments and environment variables that start a job, for each MPI.
//!
//! The module is pure: experiments run the commands that it builds, and `srd mpi-check` prints
//! them.

use super::installed::{Kind, Mpi};
use super::offers::PROVIDER;
use std::path::{Path, PathBuf};

/// Transport of messages between nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP of the kernel.
    Tcp {
        /// The interface that TCP uses; `None` leaves the choice to the MPI.
        device: Option<String>,
    },
    /// SRD, through libfabric.
    Srd {
        /// The directory of the provider's library; `None` if libfabric finds the library in its
        /// default directories.
        providers: Option<PathBuf>,
        /// Further `FI_SRD_*` variables of the ranks, as name and value.
        settings: Vec<(String, String)>,
    },
}

/// A machine that takes part in a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Name or address of the machine.
    pub address: String,
    /// Number of ranks on this machine.
    pub ranks: u32,
}

/// An MPI job: its machines, and how it is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The machines; ranks are numbered machine by machine.
    pub nodes: Vec<Node>,
    /// Program and arguments that replace `ssh`; the MPI appends host and command. If the list is
    /// empty, the MPI uses its default.
    pub agent: Vec<String>,
    /// The interface for messages between the launcher and its agents; `None` leaves the choice to
    /// the MPI.
    pub control: Option<String>,
    /// Transport of messages between ranks on different machines.
    pub transport: Transport,
    /// Whether a waiting rank yields its processor, as is needed on machines with more ranks than
    /// cores.
    pub yields: bool,
}

/// Command line and environment that start a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Started {
    /// Environment variables of the launcher.
    pub environment: Vec<(String, String)>,
    /// The launcher, followed by its arguments and the program with its arguments.
    pub words: Vec<String>,
}

impl Launch {
    /// Returns the command line and environment that start `program` as a job of an MPI.
    #[must_use]
    pub fn started(&self, mpi: &Mpi, program: &[String]) -> Started {
        let mut started = match mpi.kind {
            Kind::OpenMpi => self.open_mpi(mpi),
            Kind::Mpich | Kind::Intel => self.hydra(mpi),
        };
        started.words.insert(0, mpi.mpirun.display().to_string());
        if mpi.kind == Kind::Intel {
            // One section of arguments for each node, because this launcher does not accept a
            // number of ranks after a host's name.
            for (number, node) in self.nodes.iter().enumerate() {
                let part = [":", "-n", &node.ranks.to_string(), "-host", &node.address];
                let part = &part[usize::from(number == 0)..];
                started.words.extend(part.iter().map(ToString::to_string));
                started.words.extend(program.iter().cloned());
            }
        } else {
            started.words.extend(program.iter().cloned());
        }
        started
    }

    /// Returns the number of ranks on all machines.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.nodes.iter().map(|node| node.ranks).sum()
    }

    fn hosts(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().map(|node| format!("{}:{}", node.address, node.ranks)).collect();
        hosts.join(",")
    }

    fn open_mpi(&self, mpi: &Mpi) -> Started {
        let since_5 = mpi.major() >= 5;
        let mut words = Arguments::default();
        words.add(&["-np", &self.ranks().to_string(), "--host", &self.hosts()]);
        words.add(&["--map-by", "slot", "--bind-to", "none"]);
        let (runtime, agent, control) = if since_5 {
            ("--prtemca", "plm_ssh_agent", "prte_if_include")
        } else {
            ("--mca", "plm_rsh_agent", "oob_tcp_if_include")
        };
        if !self.agent.is_empty() {
            words.add(&[runtime, agent, &self.agent.join(" ")]);
            // Without this option, the agents become daemons. As child processes they end with this
            // process, and their CPU time is included in the time of this process.
            words.add(&["--leave-session-attached"]);
        }
        if let Some(device) = &self.control {
            words.add(&[runtime, control, device]);
        }
        if self.yields {
            words.add(&["--mca", "mpi_yield_when_idle", "1"]);
        }
        for (name, value) in mca(&self.transport, since_5) {
            words.add(&["--mca", name, &value]);
        }
        for (name, value) in variables(&self.transport, mpi) {
            words.add(&["-x", &format!("{name}={value}")]);
        }
        // Without these variables the launcher refuses root; they have no effect for other users.
        let names = ["OMPI", "PRTE"]
            .into_iter()
            .flat_map(|who| ["", "_CONFIRM"].map(|what| format!("{who}_ALLOW_RUN_AS_ROOT{what}")));
        Started { environment: names.map(|name| (name, "1".into())).collect(), words: words.0 }
    }

    fn hydra(&self, mpi: &Mpi) -> Started {
        let mut words = Arguments::default();
        let mut environment = Vec::new();
        if let Some((program, arguments)) = self.agent.split_first() {
            // The launcher type is not `ssh`, because the MPI would then add options of ssh.
            words.add(&["-launcher", "rsh", "-launcher-exec", program]);
            environment.push(("HYDRA_LAUNCHER_EXTRA_ARGS".to_owned(), arguments.join(" ")));
        }
        if let Some(device) = &self.control {
            words.add(&["-iface", device]);
        }
        for (name, value) in variables(&self.transport, mpi) {
            words.add(&["-genv", &name, &value]);
        }
        if mpi.kind == Kind::Mpich {
            words.add(&["-n", &self.ranks().to_string(), "-hosts", &self.hosts()]);
        }
        Started { environment, words: words.0 }
    }
}

/// Returns the MCA parameters, as name and value, with which Open MPI uses the transport. `since_5`
/// is set for Open MPI 5 and later.
#[must_use]
pub fn mca(transport: &Transport, since_5: bool) -> Vec<(&'static str, String)> {
    match transport {
        Transport::Tcp { device } => {
            let shared_memory = if since_5 { "sm" } else { "vader" };
            let components = format!("self,{shared_memory},tcp");
            let mut all = vec![("pml", "ob1".to_owned()), ("btl", components)];
            all.extend(device.clone().map(|device| ("btl_tcp_if_include", device)));
            all
        }
        Transport::Srd { .. } => {
            let all = [("pml", "cm"), ("mtl", "ofi"), ("mtl_ofi_provider_include", PROVIDER)];
            all.map(|(name, value)| (name, value.to_owned())).to_vec()
        }
    }
}

/// Returns the environment variables, as name and value, with which the ranks use the transport.
#[must_use]
pub fn variables(transport: &Transport, mpi: &Mpi) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: &str| all.push((name.to_owned(), value.to_owned()));
    let ofi = mpi.netmods.iter().any(|netmod| netmod == "ofi");
    match (mpi.kind, transport) {
        (Kind::Mpich, Transport::Tcp { .. }) if !ofi => {
            add("MPIR_CVAR_CH4_NETMOD", "ucx");
            add("UCX_TLS", "tcp,self,sysv,posix");
        }
        (Kind::Mpich, _) => add("MPIR_CVAR_CH4_NETMOD", "ofi"),
        (Kind::Intel, _) => add("I_MPI_FABRICS", "shm:ofi"),
        (Kind::OpenMpi, _) => {}
    }
    match transport {
        Transport::Tcp { device } if mpi.kind != Kind::OpenMpi => {
            let by_ucx = mpi.kind == Kind::Mpich && !ofi;
            if !by_ucx {
                add("FI_PROVIDER", "tcp");
            }
            if let Some(device) = device {
                add(if by_ucx { "UCX_NET_DEVICES" } else { "FI_TCP_IFACE" }, device);
            }
        }
        Transport::Tcp { .. } => {}
        Transport::Srd { providers, settings } => {
            add("FI_PROVIDER", PROVIDER);
            if let Some(directory) = providers {
                add("FI_PROVIDER_PATH", &directory.display().to_string());
            }
            settings.iter().for_each(|(name, value)| add(name, value));
        }
    }
    all
}

/// Returns an error if the agent's path has a character at which an MPI would split it, such as a
/// space or colon.
///
/// # Errors
/// A text for the user, if the path has such a character.
pub fn check_agent(agent: &Path) -> Result<(), String> {
    let name = agent.display().to_string();
    let splits = |c: char| c.is_whitespace() || c == ':' || c == ',';
    if name.contains(splits) {
        return Err(format!("`{name}`: MPI splits an agent's name at spaces, colons and commas"));
    }
    Ok(())
}

#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(ToString::to_string));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mpi(kind: Kind, version: &str, netmods: &[&str]) -> Mpi {
        let netmods = netmods.iter().map(ToString::to_string).collect();
        Mpi { mpirun: "/bin/mpirun".into(), kind, version: version.into(), netmods }
    }

    fn launch(transport: Transport) -> Launch {
        let node = |address: &str, ranks| Node { address: address.into(), ranks };
        Launch {
            nodes: vec![node("10.0.0.1", 1), node("10.0.0.2", 3)],
            agent: ["/bin/srd", "lab", "enter"].map(str::to_owned).to_vec(),
            control: Some("eth0".into()),
            transport,
            yields: true,
        }
    }

    fn tcp() -> Transport {
        Transport::Tcp { device: Some("eth0".into()) }
    }

    fn srd() -> Transport {
        let settings = vec![("FI_SRD_IFACE".to_owned(), "eth0".to_owned())];
        Transport::Srd { providers: Some("/p".into()), settings }
    }

    fn line(transport: Transport, mpi: &Mpi) -> String {
        launch(transport).started(mpi, &["prog".into(), "8".into()]).words.join(" ")
    }

    #[test]
    fn open_mpi_4_and_5_differ_in_the_names_of_their_runtime() {
        let (old, new) = (mpi(Kind::OpenMpi, "4.1.4", &[]), mpi(Kind::OpenMpi, "5.0.11", &[]));
        let before = "/bin/mpirun -np 4 --host 10.0.0.1:1,10.0.0.2:3 --map-by slot --bind-to none";
        assert_eq!(
            line(tcp(), &old),
            format!(
                "{before} --mca plm_rsh_agent /bin/srd lab enter --leave-session-attached \
                 --mca oob_tcp_if_include eth0 \
                 --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl self,vader,tcp \
                 --mca btl_tcp_if_include eth0 prog 8"
            )
        );
        assert_eq!(
            line(srd(), &new),
            format!(
                "{before} --prtemca plm_ssh_agent /bin/srd lab enter \
                 --leave-session-attached --prtemca prte_if_include eth0 \
                 --mca mpi_yield_when_idle 1 --mca pml cm --mca mtl ofi \
                 --mca mtl_ofi_provider_include srd -x FI_PROVIDER=srd \
                 -x FI_PROVIDER_PATH=/p -x FI_SRD_IFACE=eth0 prog 8"
            )
        );
        let started = launch(srd()).started(&new, &[]);
        let agent = started.words.iter().position(|word| word == "plm_ssh_agent").unwrap();
        assert_eq!(started.words[agent + 1], "/bin/srd lab enter", "one word");
        let names: Vec<&str> = started.environment.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "{names:?}");
    }

    #[test]
    fn an_mpich_is_told_its_network_and_the_agent_s_arguments_by_variable() {
        let both = mpi(Kind::Mpich, "5.0.2", &["ucx", "ofi"]);
        assert_eq!(
            line(srd(), &both),
            "/bin/mpirun -launcher rsh -launcher-exec /bin/srd -iface eth0 \
             -genv MPIR_CVAR_CH4_NETMOD ofi -genv FI_PROVIDER srd -genv FI_PROVIDER_PATH /p \
             -genv FI_SRD_IFACE eth0 -n 4 -hosts 10.0.0.1:1,10.0.0.2:3 prog 8"
        );
        let started = launch(tcp()).started(&both, &[]);
        assert_eq!(
            started.environment,
            [("HYDRA_LAUNCHER_EXTRA_ARGS".to_owned(), "lab enter".to_owned())]
        );
        let ucx = mpi(Kind::Mpich, "4.0.2", &["ucx"]);
        let words = line(tcp(), &ucx);
        assert!(words.contains("CH4_NETMOD ucx") && words.contains("UCX_NET_DEVICES eth0"));
        assert!(!words.contains("FI_PROVIDER"), "{words}");
    }

    #[test]
    fn intel_mpi_gets_a_part_for_each_node() {
        let words = line(tcp(), &mpi(Kind::Intel, "2021.19", &[]));
        let end = "-n 1 -host 10.0.0.1 prog 8 : -n 3 -host 10.0.0.2 prog 8";
        assert!(words.ends_with(end), "{words}");
        assert!(words.contains("-genv FI_PROVIDER tcp"), "{words}");
    }

    #[test]
    fn nothing_is_named_that_was_not_given() {
        let bare = Launch {
            agent: Vec::new(),
            control: None,
            yields: false,
            ..launch(Transport::Tcp { device: None })
        };
        let words = bare.started(&mpi(Kind::OpenMpi, "4.1.4", &[]), &[]).words.join(" ");
        for absent in ["agent", "include", "yield"] {
            assert!(!words.contains(absent), "{words}");
        }
        let started = bare.started(&mpi(Kind::Mpich, "4.3.2", &["ofi"]), &[]);
        assert!(started.environment.is_empty());
        assert!(!started.words.contains(&"-launcher".to_owned()));
    }

    #[test]
    fn an_agent_that_would_be_split_is_refused() {
        assert!(check_agent(Path::new("/usr/bin/srd")).is_ok());
        for bad in ["/my programs/srd", "/a:b/srd", "/a,b/srd"] {
            assert!(check_agent(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
