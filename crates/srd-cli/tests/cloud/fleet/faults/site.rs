//! Machines of the test, and faults of one of them.

use std::io::Write as _;

use super::*;
use crate::etcd::{Cluster, Location};

/// Number of hosts.
pub(super) const HOSTS: usize = 3;
/// Number of members of etcd.
const MEMBERS: usize = 3;
/// Machine of the first member. The second controller has the machine before.
const FIRST_MEMBER: usize = HOSTS + 2;
/// The controllers, each on a machine of its own.
static SITES: [Site; 2] = [
    Site { name: "first", machine: 0, hosts: "198.18.0.1", clients: "127.0.0.1:4599" },
    Site { name: "second", machine: HOSTS + 1, hosts: "198.18.0.5", clients: "127.0.0.1:4599" },
];
/// Size of the disk that becomes full: enough for two files of 64 MB, which etcd reserves, and a
/// small database.
const DISK: &str = "size=160m";
/// The member on this disk.
const OF_DISK: usize = 0;

/// A fault of one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A member of etcd is killed.
    KillMember(usize),
    /// A controller is killed.
    KillController(usize),
    /// `srd up` of a host is killed.
    KillHost(usize),
    /// A member of etcd loses its network.
    CutMember(usize),
    /// A controller loses its network.
    CutController(usize),
    /// A controller does not reach the members of etcd. Hosts reach the controller.
    CutStore(usize),
    /// A host does not reach the controllers. Hosts reach each other.
    CutHost(usize),
    /// The disk of a member of etcd is full.
    FillDisk,
}

impl Fault {
    /// A fault of each kind. `victim`: the host that may be killed.
    pub(super) fn all(dice: &mut Dice, victim: usize) -> Vec<Self> {
        vec![
            Self::KillMember(dice.below(MEMBERS)),
            Self::KillController(dice.below(2)),
            Self::KillHost(victim),
            Self::CutMember(dice.below(MEMBERS)),
            Self::CutController(dice.below(2)),
            Self::CutStore(dice.below(2)),
            Self::CutHost(1 + dice.below(HOSTS)),
            Self::FillDisk,
        ]
    }
}

/// The machines with their programs.
pub(super) struct Bed {
    pub(super) fleet: Fleet,
    cluster: Cluster,
    controllers: Vec<Option<Running>>,
    disk: PathBuf,
}

impl Bed {
    /// Starts all programs except the second controller, and waits until the hosts are ready, which
    /// are connected to the first one. `None` if there is no etcd.
    pub(super) fn start() -> Option<Self> {
        let mut fleet = Fleet::with("x", HOSTS, FIRST_MEMBER + MEMBERS);
        let names = SITES.each_ref().map(|site| format!("{} control.test\n", site.hosts));
        fs::write("/run/test/names", names.concat() + "127.0.0.1 localhost\n").unwrap();
        let mount = ["--bind", "/run/test/names", "/etc/hosts"];
        assert!(Command::new("mount").args(mount).status().unwrap().success());
        fleet.controllers = format!("control.test:{HOSTS_PORT}");
        let disk = fleet.path("disk");
        fs::create_dir(&disk).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "none"]).arg(&disk);
        assert!(mount.status().unwrap().success());
        let place = |at: usize| Location {
            namespace: fleet.names[FIRST_MEMBER + at].clone(),
            address: format!("198.18.0.{}", FIRST_MEMBER + at + 1),
            data: if at == OF_DISK {
                disk.join("data")
            } else {
                fleet.path(&format!("member{at}"))
            },
        };
        let cluster = Cluster::start_at((0..MEMBERS).map(place).collect())?;
        let controllers = vec![None, None];
        let mut bed = Self { fleet, cluster, controllers, disk };
        let (etcd, copy) = (bed.cluster.urls().join(","), bed.fleet.path("copy.db"));
        wait_until("the cluster", || {
            let mut command = bed.fleet.srd(SITES[0].machine);
            command.args(["control", "store", "copy", &etcd]).arg(&copy);
            command.output().unwrap().status.success()
        });
        bed.start_controller(0);
        bed.fleet.write_token(HOSTS);
        (1..=HOSTS).for_each(|host| bed.fleet.start_host(host, ZONE));
        bed.fleet.wait_for_hosts(HOSTS);
        Some(bed)
    }

    /// Starts a controller.
    pub(super) fn start_controller(&mut self, at: usize) {
        let etcd = self.cluster.urls().join(",");
        self.controllers[at] = Some(self.fleet.start_at(&SITES[at], &etcd));
    }

    /// The network namespaces and the addresses of the controllers.
    pub(super) fn endpoints(&self) -> Vec<(String, Endpoint)> {
        let read = |site: &Site| {
            let settings = fs::read_to_string(self.fleet.path(&format!("{}.env", site.name)));
            (self.fleet.names[site.machine].clone(), Endpoint::read(&settings.unwrap()))
        };
        SITES.iter().map(read).collect()
    }

    /// A controller that a fault does not concern.
    pub(super) fn spared(&self, fault: Fault) -> &'static Site {
        match fault {
            Fault::KillController(at) | Fault::CutController(at) | Fault::CutStore(at) => {
                &SITES[1 - at]
            }
            _ => &SITES[0],
        }
    }

    pub(super) fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::KillMember(at) => self.cluster.kill(at),
            Fault::KillController(at) => _ = self.controllers[at].take().unwrap().end(Signal::KILL),
            Fault::KillHost(at) => _ = self.fleet.processes[at].take().unwrap().end(Signal::KILL),
            Fault::CutMember(at) => self.link(FIRST_MEMBER + at, "down"),
            Fault::CutController(at) => self.link(SITES[at].machine, "down"),
            Fault::CutStore(at) => {
                let others = (0..MEMBERS).map(|member| FIRST_MEMBER + member);
                self.drop_packets(SITES[at].machine, &others.collect::<Vec<_>>());
            }
            Fault::CutHost(at) => self.drop_packets(at, &SITES.each_ref().map(|of| of.machine)),
            Fault::FillDisk => {
                let mut file = fs::File::create(self.disk.join("filler")).unwrap();
                // The last write fails.
                while file.write_all(&[1; 1 << 16]).is_ok() {}
            }
        }
    }

    pub(super) fn end(&mut self, fault: Fault) {
        match fault {
            Fault::KillMember(at) => self.cluster.revive(at),
            Fault::KillController(at) => self.start_controller(at),
            Fault::KillHost(at) => self.fleet.start_host(at, ZONE),
            Fault::CutMember(at) => self.link(FIRST_MEMBER + at, "up"),
            Fault::CutController(at) => self.link(SITES[at].machine, "up"),
            Fault::CutStore(at) => self.pass_packets(SITES[at].machine),
            Fault::CutHost(at) => self.pass_packets(at),
            Fault::FillDisk => {
                fs::remove_file(self.disk.join("filler")).unwrap();
                let has_ended = !self.cluster.is_running(OF_DISK);
                println!("the member with the full disk has ended: {has_ended}");
                if has_ended {
                    self.cluster.kill(OF_DISK);
                    self.cluster.revive(OF_DISK);
                }
            }
        }
    }

    /// Waits until each controller answers.
    pub(super) fn settle(&mut self) {
        for site in &SITES {
            self.fleet.turn_to(site);
            wait_until("the controller", || self.fleet.send("DescribeVpcs", "").0 == 200);
        }
    }

    /// Sets the link of a machine at the switch.
    fn link(&self, machine: usize, state: &str) {
        must(&format!("-n {} link set p{machine} {state}", self.fleet.switch));
    }

    /// Drops all packets between a machine and others, without an answer.
    fn drop_packets(&self, machine: usize, others: &[usize]) {
        let others: Vec<String> = others.iter().map(|n| format!("198.18.0.{}", n + 1)).collect();
        let others = others.join(", ");
        let rules = format!(
            "add table ip cut\n\
             add chain ip cut i {{ type filter hook input priority 0; }}\n\
             add chain ip cut o {{ type filter hook output priority 0; }}\n\
             add rule ip cut i ip saddr {{ {others} }} drop\n\
             add rule ip cut o ip daddr {{ {others} }} drop\n"
        );
        let file = self.fleet.path("cut.nft");
        fs::write(&file, rules).unwrap();
        self.nft(machine, &["-f", &file.display().to_string()]);
    }

    fn pass_packets(&self, machine: usize) {
        self.nft(machine, &["delete", "table", "ip", "cut"]);
    }

    fn nft(&self, machine: usize, words: &[&str]) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.fleet.names[machine])).arg("nft");
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.controllers.clear();
        (0..MEMBERS).for_each(|at| self.cluster.kill(at));
        let _ = Command::new("umount").arg("-l").arg(&self.disk).status();
    }
}
