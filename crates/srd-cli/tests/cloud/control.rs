//! `srd control up`: instances that requests of the EC2 API start, with their rules, their user
//! data and their end. Needs root.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::api::{Endpoint, element};
use crate::support::machine::*;
use crate::support::pair::must;
use rustix::process::{Pid, Signal};

/// Port of the web server in the instances.
const PORT: u16 = 8000;
/// Longest wait of a request for its change. If the request takes longer, a busy machine may make
/// the change later.
const APPLY_WAIT_MAX: Duration = Duration::from_secs(2);
/// User data that starts a web server. The script would run on EC2 as well.
const WEB_SERVER: &str = "#!/bin/sh\necho begun\nexec python3 -m http.server 8000\n";

/// A server of the API with its own directory for cards.
pub(crate) struct Api {
    pub(crate) server: Running,
    endpoint: Endpoint,
    pub(crate) directory: tempfile::TempDir,
}

impl Api {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), &["--trial"])
    }

    pub(crate) fn start_in(directory: tempfile::TempDir, options: &[&str]) -> Self {
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(SRD);
        command.args(["control", "up", "--user-data", "--listen", "127.0.0.1:0"]).args(options);
        command.arg("--key-file").arg(directory.path().join("key.env"));
        command.env("XDG_RUNTIME_DIR", directory.path()).stdin(Stdio::null());
        let mut server = Running(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
        let mut line = String::new();
        let mut output = BufReader::new(server.0.stdout.take().unwrap());
        let address = loop {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the server has ended");
            let url = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
            if let Some(address) = url.and_then(|url| url.trim_end_matches('/').parse().ok()) {
                break address;
            }
        };
        // The pipe stays open as long as the server writes.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let settings = fs::read_to_string(directory.path().join("key.env")).unwrap();
        let endpoint = Endpoint::read(&settings);
        assert_eq!(endpoint.at, address);
        Self { server, endpoint, directory }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Sends a request that has to succeed.
    pub(crate) fn call(&self, action: &str, parameters: &str) -> String {
        let (status, body) = self.endpoint.send(action, parameters).unwrap();
        assert_eq!(status, 200, "{action}: {body}\n{}", self.log());
        body
    }

    /// Changes a rule, and returns the duration of the request.
    fn rule(&self, action: &str, group: &str) -> Duration {
        let of = format!(
            "GroupId={group}&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort={PORT}&\
             IpPermissions.1.ToPort={PORT}&IpPermissions.1.Groups.1.GroupId={group}"
        );
        self.timed(action, &of)
    }

    /// Sends a request that has to succeed, and returns its duration.
    fn timed(&self, action: &str, parameters: &str) -> Duration {
        let began = Instant::now();
        self.call(action, parameters);
        began.elapsed()
    }

    /// Makes a VPC with a subnet and a group. Returns the subnet and the group.
    fn network(&self) -> [String; 2] {
        let vpc = self.call("CreateVpc", "CidrBlock=10.0.0.0/16");
        let vpc = element(&vpc, "vpcId");
        let of = format!("VpcId={vpc}&CidrBlock=10.0.1.0/24");
        let subnet = element(&self.call("CreateSubnet", &of), "subnetId");
        let of = format!("VpcId={vpc}&GroupName=web&GroupDescription=web");
        let group = element(&self.call("CreateSecurityGroup", &of), "groupId");
        [subnet, group]
    }

    /// Starts an instance, and waits until it has its address and its routes. Returns its
    /// identifier, its namespace and its address.
    fn launch(&self, [subnet, group]: &[String; 2], user_data: &str) -> [String; 3] {
        let of = format!(
            "ImageId=ami-12345678&InstanceType=c7i.large&MinCount=1&MaxCount=1&SubnetId={subnet}&\
             SecurityGroupId.1={group}&UserData={}",
            percent(&base64(user_data))
        );
        let answer = self.call("RunInstances", &of);
        let id = element(&answer, "instanceId");
        let (namespace, address) = (format!("srd-i-{id}"), element(&answer, "privateIpAddress"));
        wait_until("the instance", || {
            let show = |what: &str| must(&format!("-n {namespace} -4 {what}"));
            is_mounted(&namespace)
                && show("addr show").contains(&format!("inet {address}/"))
                && !show("route show default").is_empty()
        });
        [id, namespace, address]
    }

    /// Directories of cards.
    pub(crate) fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path().join("srd-control"));
        let entries = entries.into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect()
    }
}

/// Checks that a change is in force after its request, which took this time. After the longest
/// wait of a request, the change may come later.
#[track_caller]
fn applies(took: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    if took < APPLY_WAIT_MAX {
        assert!(is_so(), "{what}");
    } else {
        wait_until(what, is_so);
    }
}

fn base64(text: &str) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text)
}

fn percent(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

fn address(text: &str) -> [u8; 4] {
    text.parse::<std::net::Ipv4Addr>().unwrap().octets()
}

pub(crate) fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

/// Whether a namespace can be entered. Its file exists a moment before the namespace is mounted
/// there.
pub(crate) fn is_mounted(namespace: &str) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|facts| facts.dev());
    let all = Path::new("/run/netns");
    device(&all.join(namespace)).is_ok_and(|own| device(all).is_ok_and(|of_all| own != of_all))
}

fn pids(namespace: &str) -> Vec<Pid> {
    let all = must(&format!("netns pids {namespace}"));
    all.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
}

/// Whether a process runs. The process that adopts an ended process may leave it a zombie.
fn runs(pid: Pid) -> bool {
    let stat =
        fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Waits until the web server of an instance listens.
fn wait_for_server(namespace: &str) {
    wait_until("the web server", || {
        let to = SocketAddr::from(([127, 0, 0, 1], PORT));
        within(namespace, || TcpStream::connect_timeout(&to, SILENCE)).is_ok()
    });
}

/// Requests a page from a web server, and returns whether it has the page.
fn fetches(namespace: &str, server: &str) -> bool {
    let Ok(mut stream) = connect(namespace, address(server), PORT) else { return false };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).is_ok() && page.contains("200 OK")
}

#[test]
fn rules_of_the_api_apply_to_the_next_packet_and_nothing_is_left() {
    if !ready_with_nsenter() {
        return;
    }
    let mut api = Api::start();
    let network = api.network();
    let [web, web_namespace, web_address] = api.launch(&network, WEB_SERVER);
    let [client, client_namespace, _] = api.launch(&network, "");
    wait_for_server(&web_namespace);
    let refused = || connect_in_vain(&client_namespace, address(&web_address), PORT).is_err();
    assert!(refused(), "no rule allows it");
    api.rule("AuthorizeSecurityGroupIngress", &network[1]);
    assert!(fetches(&client_namespace, &web_address), "{}", api.log());
    let took = api.rule("RevokeSecurityGroupIngress", &network[1]);
    applies(took, "the rule is revoked", refused);

    let directory = api.left().pop().unwrap();
    let output = format!("{directory}/user-data/{web}.log");
    assert!(fs::read_to_string(output).unwrap().starts_with("begun\n"));
    let programs = pids(&web_namespace);
    assert!(!programs.is_empty());
    api.call("TerminateInstances", &format!("InstanceId.1={web}&InstanceId.2={client}"));
    wait_until("the end of the instances", || {
        !exists(&web_namespace) && !exists(&client_namespace)
    });
    wait_until("the end of the programs", || !programs.iter().any(|pid| runs(*pid)));
    assert_eq!(api.server.end(Signal::TERM), 0, "{}", api.log());
    assert_eq!(api.left(), Vec::<String>::new());
}

#[test]
fn nothing_is_left_of_a_server_that_is_killed_or_ends() {
    if !ready_with_nsenter() {
        return;
    }
    for signal in [Signal::KILL, Signal::INT] {
        let mut api = Api::start();
        let network = api.network();
        let [_, namespace, _] = api.launch(&network, WEB_SERVER);
        wait_for_server(&namespace);
        let programs = pids(&namespace);
        api.server.end(signal);
        wait_until("the end of the instance", || !exists(&namespace));
        wait_until("an empty directory", || api.left().is_empty());
        wait_until("the end of the programs", || !programs.iter().any(|pid| runs(*pid)));
    }
}

/// The state is in a file. A server that starts again has the instances, rules and keys of the
/// killed one.
#[test]
fn instances_start_again_with_a_server_that_was_killed() {
    if !ready_with_nsenter() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db").display().to_string();
    let options = ["--state", state.as_str()];
    let mut api = Api::start_in(directory, &options);
    let network = api.network();
    let [web, web_namespace, web_address] = api.launch(&network, WEB_SERVER);
    let [stopped, stopped_namespace, _] = api.launch(&network, "");
    let [client, client_namespace, _] = api.launch(&network, "");
    api.rule("AuthorizeSecurityGroupIngress", &network[1]);
    api.call("StopInstances", &format!("InstanceId.1={stopped}"));
    wait_for_server(&web_namespace);
    let (programs, key) = (pids(&web_namespace), api.endpoint.key.clone());
    api.server.end(Signal::KILL);
    let mut api = Api::start_in(api.directory, &options);
    assert_eq!(api.endpoint.key, key);
    wait_until("the instances", || is_mounted(&web_namespace) && is_mounted(&client_namespace));
    // The user data runs again, since its programs ended with the server.
    wait_for_server(&web_namespace);
    assert!(fetches(&client_namespace, &web_address), "{}", api.log());
    wait_until("the end of the programs", || !programs.iter().any(|pid| runs(*pid)));
    assert!(!exists(&stopped_namespace));
    let shown = api.call("DescribeInstances", "");
    assert!(shown.contains(&web) && shown.contains(&client) && shown.contains(&stopped));
    assert_eq!(shown.matches("<name>running</name>").count(), 2, "{shown}");
    assert_eq!(api.server.end(Signal::TERM), 0, "{}", api.log());
    assert_eq!(api.left(), Vec::<String>::new());
}

/// Instances with public addresses reach each other by them, through the internet gateway. Packets
/// to these addresses were dropped, because the server has no internet.
#[test]
fn regression_instances_reach_each_other_by_their_public_addresses() {
    if !ready_with_nsenter() {
        return;
    }
    let mut api = Api::start();
    let network = api.network();
    let [_, web, _] = api.launch(&network, WEB_SERVER);
    let [_, client, client_address] = api.launch(&network, "");
    wait_for_server(&web);
    let vpc = element(&api.call("DescribeSubnets", &format!("SubnetId.1={}", network[0])), "vpcId");
    let gateway = element(&api.call("CreateInternetGateway", ""), "internetGatewayId");
    api.call("AttachInternetGateway", &format!("InternetGatewayId={gateway}&VpcId={vpc}"));
    let tables =
        api.call("DescribeRouteTables", &format!("Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}"));
    let table = element(&tables, "routeTableId");
    let of = format!("RouteTableId={table}&DestinationCidrBlock=0.0.0.0/0&GatewayId={gateway}");
    api.call("CreateRoute", &of);
    let instance = |namespace: &str| namespace.trim_start_matches("srd-i-").to_owned();
    let [server_public, client_public] = [&web, &client].map(|namespace| {
        let made = api.call("AllocateAddress", "Domain=vpc");
        let of = format!(
            "AllocationId={}&InstanceId={}",
            element(&made, "allocationId"),
            instance(namespace)
        );
        api.call("AssociateAddress", &of);
        element(&made, "publicIp")
    });
    let rule = |action: &str, from: &str| {
        let of = format!(
            "GroupId={}&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort={PORT}&\
             IpPermissions.1.ToPort={PORT}&IpPermissions.1.IpRanges.1.CidrIp={from}/32",
            network[1]
        );
        api.timed(action, &of)
    };
    let refused = || connect_in_vain(&client, address(&server_public), PORT).is_err();
    // The server sees the public address of the client.
    rule("AuthorizeSecurityGroupIngress", &client_address);
    assert!(refused());
    rule("AuthorizeSecurityGroupIngress", &client_public);
    assert!(fetches(&client, &server_public), "{}", api.log());
    let took = rule("RevokeSecurityGroupIngress", &client_public);
    applies(took, "the rule is revoked", refused);
    // The gateway also translates the packet that an ICMP error quotes.
    let of = format!(
        "GroupId={}&IpPermissions.1.IpProtocol=udp&IpPermissions.1.FromPort={PORT}&\
         IpPermissions.1.ToPort={PORT}&IpPermissions.1.IpRanges.1.CidrIp={client_public}/32",
        network[1]
    );
    api.call("AuthorizeSecurityGroupIngress", &of);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((server_public.as_str(), PORT))?;
        socket.set_read_timeout(Some(SILENCE))?;
        socket.send(b"?")?;
        socket.recv(&mut [0; 8])
    };
    wait_until("the error", || {
        within(&client, send).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    assert_eq!(api.server.end(Signal::TERM), 0, "{}", api.log());
}

/// A card that is killed starts again, and programs of its instances continue.
#[test]
fn a_card_that_is_killed_starts_again() {
    if !ready_with_nsenter() {
        return;
    }
    let mut api = Api::start();
    let network = api.network();
    let [_, web, web_address] = api.launch(&network, WEB_SERVER);
    let [_, client, _] = api.launch(&network, "");
    wait_for_server(&web);
    let programs = pids(&web);
    kill_process_of(&api.left().pop().unwrap(), "card up");
    wait_until("a message", || api.log().contains("starts again"));
    // The answer arrives when the new card uses the rule, or after two seconds.
    api.rule("AuthorizeSecurityGroupIngress", &network[1]);
    wait_until("a page", || {
        let to = SocketAddr::from((address(&web_address), PORT));
        within(&client, || TcpStream::connect_timeout(&to, SILENCE)).is_ok()
    });
    assert!(fetches(&client, &web_address));
    assert_eq!(pids(&web), programs);
    assert_eq!(api.server.end(Signal::TERM), 0);
    assert!(!exists(&web) && !exists(&client), "{}", api.log());
    assert_eq!(api.left(), Vec::<String>::new());
}

/// A killed keeper and its card start again, also without a request. Regression: the instances were
/// gone until the next request that changed something.
#[test]
fn regression_a_keeper_that_is_killed_starts_again() {
    if !ready_with_nsenter() {
        return;
    }
    let mut api = Api::start();
    let network = api.network();
    let [_, web, web_address] = api.launch(&network, WEB_SERVER);
    let [_, client, _] = api.launch(&network, "");
    api.rule("AuthorizeSecurityGroupIngress", &network[1]);
    wait_for_server(&web);
    let programs = pids(&web);
    kill_process_of(&api.left().pop().unwrap(), "control-keeper");
    wait_until("the end of the programs", || !programs.iter().any(|pid| runs(*pid)));
    wait_until("a message", || api.log().contains("has ended the keeper of the card"));
    // The programs of the instance have ended, so its kernel refuses the connection. The namespaces
    // of the former card may go away meanwhile.
    let connect = format!("exec 3<>/dev/tcp/{web_address}/{PORT}");
    wait_until("a connection", || {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", client.as_str(), "timeout", "1", "bash", "-c", &connect]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("Connection refused")
    });
    assert_eq!(api.server.end(Signal::TERM), 0);
    assert!(!exists(&web) && !exists(&client), "{}", api.log());
    assert_eq!(api.left(), Vec::<String>::new());
}

/// Kills the process whose command line has the directory of a card and these words.
fn kill_process_of(directory: &str, words: &str) {
    let is_meant = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(words) && line.contains(directory)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut all = all.filter_map(|entry| entry.file_name().into_string().ok());
    let pid = all.find(is_meant).expect(words);
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Returns the search path of programs, which begins with the environment that `.ci/run` makes for
/// programs of Python.
pub(crate) fn path_with_python() -> String {
    let target = Path::new(SRD).ancestors().nth(2).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", target.join("python/bin").display())
}

/// Returns the search path of programs that has the program `aws`; `None` if it is not installed.
pub(crate) fn path_with_aws() -> Option<String> {
    path_with("aws", "pip install awscli")
}

/// Returns the search path of programs that has this program of Python; `None` if it is not
/// installed. `install` is the command that installs it.
pub(crate) fn path_with(program: &str, install: &str) -> Option<String> {
    let path = path_with_python();
    if !std::env::split_paths(&path).any(|place| place.join(program).is_file()) {
        println!("skipped: no {program} ({install})");
        return None;
    }
    Some(path)
}

/// The commands of `docs/control-start.md` with the program `aws`, in one script.
#[test]
fn the_commands_of_the_start_page_work() {
    if !ready_with_nsenter() {
        return;
    }
    let Some(path) = path_with_aws() else { return };
    let mut api = Api::start();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control-start.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("work -->\n```sh\n").skip(1);
    let mut script: String = blocks.map(|block| block.split("```").next().unwrap()).collect();
    // The server runs already, at another port, and has written its key.
    let install = "python3 -m venv aws && aws/bin/pip install awscli\n";
    assert!(script.contains(install), "{script}");
    script = script.replace(install, "").replace("sudo srd control", ": srd");
    script = script.replace("sudo ", "");
    let mut shell = Command::new("timeout");
    shell.env("PATH", path);
    shell.args(["900", "sh", "-eu", "-c", &script]).current_dir(api.directory.path());
    let output = shell.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:#?}\n{}", api.log());
    let text = String::from_utf8(output.stdout).unwrap();
    let (before, after) = text.split_once("refused").unwrap();
    assert!(!before.contains("Directory listing") && after.contains("Directory listing"), "{text}");
    assert!(after.contains("shutting-down"), "{text}");
    assert_eq!(api.server.end(Signal::TERM), 0, "{}", api.log());
    assert_eq!(api.left(), Vec::<String>::new());
}
