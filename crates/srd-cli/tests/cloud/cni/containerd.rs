//! containerd, and containers that its program `ctr` connects to the plugin's network. Needs root.

use super::*;

/// containerd starts containers whose network is the plugin's. Its end does not interrupt them.
#[test]
#[ignore = "needs containerd and runc: apt-get install containerd runc busybox-static"]
fn containers_of_containerd_reach_each_other_as_their_groups_allow() {
    let network = Network::new();
    let mut containerd = Containerd::new(&network);
    let server = format!("exec busybox httpd -f -p {PORT} -h /");
    let started = containerd.run(&network, "web", &network.web, &["-d"], &server);
    assert!(started.status.success(), "{started:#?}\n{}", network.api.log());
    let described = network.api.call("DescribeNetworkInterfaces", "");
    let address = element(&described, "privateIpAddress");
    let shown = containerd.must(&["task", "exec", "--exec-id", "a", "web", BUSYBOX, "ip", "addr"]);
    assert!(shown.contains(&format!("inet {address}/24")), "{shown}");

    let asks = |containerd: &Containerd, group: &str, wait_max: &str| {
        let get = "printf 'GET / HTTP/1.0\\r\\n\\r\\n'";
        let request = format!("{get} | busybox nc -w {wait_max} {address} {PORT}");
        let output = containerd.run(&network, "client", group, &["--rm"], &request);
        String::from_utf8(output.stdout).unwrap().contains("HTTP/1.")
    };
    wait_until("the server", || asks(&containerd, &network.client, LONG_S));
    assert!(!asks(&containerd, &network.web, "2"), "no rule allows it");
    assert_eq!(network.interfaces(), 1, "the end of `ctr run` has detached its container");

    containerd.restart();
    assert!(asks(&containerd, &network.client, LONG_S), "{}", network.api.log());
    containerd.must(&["task", "rm", "-f", "web"]);
    containerd.must(&["container", "rm", "web"]);
    // `ctr` does not detach a container that it has started with `-d`.
    network.must("DEL", "default-web", "", &[]);
    assert_eq!(network.interfaces(), 0);
    wait_until("the end of all names", || network.left().is_empty());
}

/// The program of the containers.
const BUSYBOX: &str = "/bin/busybox";

/// Script that runs a program of containerd in a mount namespace of its own. `ctr` reads networks
/// and plugins in two fixed directories, which are links to those of the test there: `$0` is the
/// directory of the test, `$1` that of the plugins. runc needs control groups, which a `/sys` of
/// another network namespace does not contain.
const WITHIN: &str = "\
set -e
mount -t tmpfs tmpfs /opt
mkdir -p /opt/cni /opt/upper /opt/work
mount -t overlay -o lowerdir=/etc,upperdir=/opt/upper,workdir=/opt/work overlay /etc
rm -rf /etc/cni
mkdir /etc/cni
ln -s \"$0\"/net.d /etc/cni/net.d
ln -s \"$1\" /opt/cni/bin
mount -t sysfs sysfs /sys 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
shift
exec \"$@\"
";

/// containerd with its own storage.
struct Containerd {
    directory: tempfile::TempDir,
    plugins: PathBuf,
    daemon: Running,
}

impl Containerd {
    /// Starts containerd.
    fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["net.d", "rootfs/bin", "rootfs/proc", "rootfs/sys", "rootfs/dev"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::copy(BUSYBOX, path("rootfs/bin/busybox")).unwrap();
        // The plugin `cri` needs more of the machine, and `ctr` does not use it.
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = {:?}\n",
            path("root"),
            path("state"),
            path("socket")
        );
        fs::write(path("config.toml"), config).unwrap();
        let plugins = network.directory.path().to_owned();
        let mounted = within_mounts(directory.path(), &plugins, &["true"]).output().unwrap();
        assert!(mounted.status.success(), "{mounted:#?}");
        let daemon = start(directory.path(), &plugins);
        let containerd = Self { directory, plugins, daemon };
        containerd.wait();
        containerd
    }

    fn wait(&self) {
        wait_until("containerd", || self.ctr(&["version"]).status.success());
    }

    /// Kills containerd, and starts it again.
    fn restart(&mut self) {
        self.daemon.end(Signal::KILL);
        self.daemon = start(self.directory.path(), &self.plugins);
        self.wait();
    }

    fn ctr(&self, words: &[&str]) -> Output {
        let socket = self.directory.path().join("socket").display().to_string();
        let words = [&["ctr", "--address", &socket][..], words].concat();
        let mut command = within_mounts(self.directory.path(), &self.plugins, &words);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn must(&self, words: &[&str]) -> String {
        let output = self.ctr(words);
        assert!(output.status.success(), "{words:?}: {output:#?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a script in a container with a security group, which the configuration of the network
    /// has: `ctr` passes no annotations.
    fn run(
        &self,
        network: &Network,
        name: &str,
        group: &str,
        options: &[&str],
        script: &str,
    ) -> Output {
        let mut plugin = network.config();
        plugin["securityGroups"] = json!([group]);
        let file = self.directory.path().join("net.d/cloud.conflist");
        fs::write(file, list_of(plugin)).unwrap();
        let root = self.directory.path().join("rootfs").display().to_string();
        // Control groups have the names of their container in all of the machine. A hierarchy may
        // be without the controller `cpu`.
        let cgroup = format!("srdcni-{name}-{}", own_suffix());
        let words = ["run", "--cni", "--cpu-shares", "0", "--cgroup", &cgroup, "--rootfs"];
        let container = [root.as_str(), name, BUSYBOX, "sh", "-c", script];
        self.ctr(&[&words[..6], options, &words[6..], &container].concat())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        for name in ["web", "client"] {
            let _ = self.ctr(&["task", "rm", "-f", name]);
        }
    }
}

/// Returns a program of containerd in a mount namespace of its own.
fn within_mounts(directory: &Path, plugins: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", WITHIN]).arg(directory).arg(plugins).args(words);
    command
}

fn start(directory: &Path, plugins: &Path) -> Running {
    let log = fs::File::options().create(true).append(true).open(directory.join("log")).unwrap();
    let config = directory.join("config.toml").display().to_string();
    let mut command = within_mounts(directory, plugins, &["containerd", "--config", &config]);
    Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
}
