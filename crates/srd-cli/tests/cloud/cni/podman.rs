//! Podman with its CNI back end, and containers whose network is the plugin's. Needs root.

use super::*;

/// Podman with its CNI back end starts containers whose network is the plugin's.
#[test]
fn containers_of_podman_reach_each_other_as_their_groups_allow() {
    if !ready_with_nsenter() {
        return;
    }
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let all = has("podman") && has("crun") && Path::new("/bin/busybox").exists();
    assert!(all || std::env::var_os("CI").is_none(), "podman, crun and busybox belong to CI");
    if !all {
        println!(
            "skipped: no podman, crun or busybox (apt-get install podman crun busybox-static)"
        );
        return;
    }
    let network = Network::new();
    let podman = Podman::new(&network);
    let run = |name: &str, group: &str, words: &[&str]| podman.run(&network, name, group, words);
    run("web", &network.web, &["httpd", "-f", "-p", &PORT.to_string()]);
    run("client", &network.client, &["sleep", LONG_S]);
    run("other", &network.web, &["sleep", LONG_S]);
    assert_eq!(network.interfaces(), 3, "{}", network.api.log());
    let inspect = |name: &str, format: &str| {
        podman.must(&["inspect", "--format", format, name]).trim().to_owned()
    };
    let address = inspect("web", ADDRESS_FORMAT).parse::<std::net::Ipv4Addr>().unwrap().octets();
    // The name of the namespace that the container has.
    let netns = |name: &str| {
        let path = PathBuf::from(inspect(name, "{{.NetworkSettings.SandboxKey}}"));
        path.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let (client, other) = (netns("client"), netns("other"));
    wait_until("the server", || connect_in_vain(&client, address, PORT).is_ok());
    assert!(connect_in_vain(&other, address, PORT).is_err(), "no rule allows it");
    podman.must(&["rm", "-f", "-t", "0", "web", "client", "other"]);
    assert_eq!(network.interfaces(), 0);
    wait_until("the end of all names", || network.left().is_empty());
}

/// Template of the address of a container.
const ADDRESS_FORMAT: &str = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";

/// Podman with its own storage.
struct Podman {
    directory: tempfile::TempDir,
}

impl Podman {
    fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let root = path("rootfs");
        for name in ["bin", "proc", "sys", "dev", "tmp", "etc"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
        for name in ["sleep", "httpd"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        let [plugins, networks] = [network.directory.path().to_owned(), path("net.d")];
        fs::create_dir(&networks).unwrap();
        fs::write(networks.join("cloud.conflist"), list_of(network.config())).unwrap();
        let config = format!(
            "[network]\nnetwork_backend = \"cni\"\nnetwork_config_dir = {networks:?}\n\
             cni_plugin_dirs = [{plugins:?}]\ndefault_network = \"cloud\"\n\
             [engine]\nruntime = \"crun\"\ncgroup_manager = \"cgroupfs\"\n\
             events_logger = \"file\"\n\
             [containers]\ndefault_ulimits = [\"nofile=10000:10000\", \"nproc=5000:5000\"]\n"
        );
        fs::write(path("containers.conf"), config).unwrap();
        // A test has a `/sys` of its own, without control groups. crun needs a file system there.
        let kind =
            Command::new("stat").args(["-f", "-c", "%T", "/sys/fs/cgroup"]).output().unwrap();
        if kind.stdout.starts_with(b"sysfs") {
            let mount = ["-t", "tmpfs", "none", "/sys/fs/cgroup"];
            assert!(Command::new("mount").args(mount).status().unwrap().success());
        }
        Self { directory }
    }

    fn podman(&self, words: &[&str]) -> Output {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", path("containers.conf")).stdin(Stdio::null());
        command.arg("--root").arg(path("root")).arg("--runroot").arg(path("runroot"));
        command.args(["--storage-driver", "vfs"]).args(words);
        command.output().unwrap()
    }

    fn must(&self, words: &[&str]) -> String {
        let output = self.podman(words);
        assert!(output.status.success(), "{words:?}: {output:#?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a container with a security group, whose annotations its runtime does not pass: the
    /// configuration of the network has the group.
    fn run(&self, network: &Network, name: &str, group: &str, words: &[&str]) {
        let path = self.directory.path().join("net.d/cloud.conflist");
        let mut list: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        list["plugins"][0]["securityGroups"] = json!([group]);
        fs::write(&path, list.to_string()).unwrap();
        let root = self.directory.path().join("rootfs").display().to_string();
        // A test may run where no hierarchy of control groups is mounted.
        let options = ["run", "-d", "--cgroups", "disabled", "--name", name];
        let options = [&options[..], &["--network", "cloud", "--rootfs", &root]].concat();
        let output = self.podman(&[&options, words].concat());
        assert!(output.status.success(), "{output:#?}\n{}", network.api.log());
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.podman(&["rm", "-a", "-f", "-t", "0"]);
    }
}
