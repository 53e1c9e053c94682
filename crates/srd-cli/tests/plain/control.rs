//! `srd control`: the list of actions, requests over a socket, HTTPS, and secrets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::api::{Endpoint, element};

fn srd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_srd"))
}

#[test]
fn actions_are_listed_with_those_that_are_missing() {
    let output = srd().args(["control", "actions", "--json", "-"]).output().unwrap();
    assert!(output.status.success());
    let actions: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let has = |list: &str, name: &str| actions[list].as_array().unwrap().iter().any(|n| n == name);
    assert!(has("served", "CreateVpc") && !has("missing", "CreateVpc"));
    assert!(has("autoscaling", "SetDesiredCapacity") && has("served", "CreateLaunchTemplate"));
    assert!(has("missing", "CreateIpam") && !has("served", "CreateIpam"));
}

#[test]
fn a_trial_answers_at_loopback_addresses_only() {
    let refused = |args: &[&str]| {
        let output = srd().args(["control", "up"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&[]).contains("--trial"));
    let plain = ["--trial", "--listen", "0.0.0.0:0", "--plain-http"];
    assert!(refused(&plain).contains("0.0.0.0:0 is no loopback address"));
    let open = ["--trial", "--listen", "0.0.0.0:0", "--any-credentials", "--state-only"];
    assert!(refused(&open).contains("--any-credentials"));
    let nameless = ["--trial", "--tls-cert", "/missing", "--tls-key", "/missing"];
    assert!(refused(&nameless).contains("--tls-name"));
    let mut server = srd()
        .args([
            "control",
            "up",
            "--trial",
            "--any-credentials",
            "--state-only",
            "--listen",
            "127.0.0.1:0",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines(&mut server);
    let address = lines[0].split("http://").nth(1).unwrap().split(' ').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let query = "Action=DescribeRegions&Version=2016-11-15";
    let credential = "x/20270115/us-east-1/ec2/aws4_request";
    write!(
        stream,
        "GET /?{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         x-amz-date: 20270115T080000Z\r\n\
         authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, \
         Signature=0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("<regionName>eu-west-1</regionName>"), "{answer}");
}

/// The socket stayed after the end of the server.
#[test]
fn regression_the_socket_of_the_operator_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let mut command = srd();
    command.args(["control", "up", "--trial", "--state-only", "--listen", "127.0.0.1:0"]);
    command.args(["--hosts", "127.0.0.1:0", "--admin"]).arg(&socket);
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(server.stdout.take().unwrap());
    let mut lines = output.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("admin:")) && socket.exists());
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

/// Reads the lines of a started server up to the last line.
fn lines(server: &mut std::process::Child) -> Vec<String> {
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut read = Vec::new();
    while !read.last().is_some_and(|line: &String| line.starts_with("instances")) {
        read.push(lines.next().unwrap());
    }
    read
}

#[test]
fn a_trial_writes_its_key_for_its_owner_only_and_refuses_other_credentials() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = (dir.path().join("key.env"), dir.path().join("target"));
    std::fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    let mut server = srd()
        .args(["control", "up", "--trial", "--state-only", "--listen", "127.0.0.1:0", "--key-file"])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines(&mut server);
    let address = lines[0].split("http://").nth(1).unwrap().split(' ').next().unwrap();
    let file = std::fs::read_to_string(&path).unwrap();
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "POST /reset HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(mode & 0o177_777, 0o100_600);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
    assert_eq!(lines[1], format!("the access key is in {}", path.display()));
    assert!(file.contains(&format!("AWS_ENDPOINT_URL=http://{address}")), "{file}");
    // Some SDKs read one of these names, others the other one.
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        assert!(file.lines().any(|line| line == format!("{name}=us-east-1")), "{file}");
    }
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn a_trial_without_a_key_file_prints_its_key() {
    let mut server = Server::start(&["--trial"]);
    let [first, second, ..] = &server.lines[..] else { panic!("{:?}", server.lines) };
    let url = first.split(' ').nth(2).unwrap();
    assert!(second.starts_with("export AWS_ACCESS_KEY_ID=SRD"), "{second}");
    assert!(second.ends_with(&format!("AWS_ENDPOINT_URL={url}")), "{second}");
    server.end();
}

/// A server whose output is kept.
struct Server {
    process: Child,
    /// The lines that it prints before it serves requests.
    lines: Vec<String>,
    output: Option<BufReader<std::process::ChildStdout>>,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let mut command = srd();
        command.args(["control", "up", "--state-only"]).args(options);
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.starts_with("instances")) {
            let mut line = String::new();
            if output.read_line(&mut line).unwrap() == 0 {
                let mut error = String::new();
                process.stderr.take().unwrap().read_to_string(&mut error).unwrap();
                panic!("the server has ended: {error}");
            }
            lines.push(line.trim_end().to_owned());
        }
        Self { process, lines, output: Some(output) }
    }

    /// Ends the server, and returns all that it has printed.
    fn end(&mut self) -> String {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let mut all = self.lines.join("\n");
        if let (Some(mut output), Some(mut errors)) =
            (self.output.take(), self.process.stderr.take())
        {
            output.read_to_string(&mut all).unwrap();
            errors.read_to_string(&mut all).unwrap();
        }
        all
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the program `aws` with the settings of a key file and these changes of its environment;
/// `None` if this machine does not have the program.
fn aws(settings: &str, changes: &[(&str, &str)], arguments: &[&str]) -> Option<Output> {
    // The environment that `.ci/run` makes for other programs of Python.
    let target = Path::new(env!("CARGO_BIN_EXE_srd")).ancestors().nth(2).unwrap();
    let old = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{old}", target.join("python/bin").display());
    let mut command = Command::new("aws");
    command.env("PATH", path).env("HOME", "/nonexistent").stdin(Stdio::null()).args(arguments);
    let pairs = settings.lines().filter_map(|line| line.split_once('='));
    for (name, value) in pairs.chain(changes.iter().copied()) {
        match value {
            "" => command.env_remove(name),
            value => command.env(name, value),
        };
    }
    let output = command.output().ok();
    if output.is_none() {
        println!("skipped: no aws (pip install awscli)");
    }
    output
}

#[test]
fn the_program_aws_uses_https_with_the_file_of_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (state, key, ca) = (path("state.db"), path("key.env"), path("ca.pem"));
    let mut options = vec!["--state", &state, "--key-file", &key, "--ca-file", &ca];
    options.extend(["--listen", "0.0.0.0:0", "--tls-name", "localhost"]);
    let mut server = Server::start(&options);
    assert!(server.lines[0].starts_with("EC2 API: https://localhost:"), "{:?}", server.lines);
    assert!(server.lines.iter().any(|line| line.contains("AWS_CA_BUNDLE")), "{:?}", server.lines);
    let settings = std::fs::read_to_string(&key).unwrap();
    assert!(settings.contains(&format!("AWS_CA_BUNDLE={ca}")), "{settings}");
    let describe = ["ec2", "describe-vpcs", "--query", "Vpcs[].IsDefault", "--output", "text"];
    let Some(output) = aws(&settings, &[], &describe) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "True", "{output:?}");
    let create = ["ec2", "create-vpc", "--cidr-block", "10.0.0.0/16"];
    assert!(aws(&settings, &[], &create).unwrap().status.success());
    // Without the file, the client does not trust the server.
    let output = aws(&settings, &[("AWS_CA_BUNDLE", "")], &describe).unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("certificate verify failed"), "{error}");
    server.end();

    // The next server has another certificate of the same authority, and another name.
    let authority = std::fs::read_to_string(&ca).unwrap();
    let count = options.len();
    options[count - 1] = "127.0.0.1";
    let mut server = Server::start(&options);
    assert_eq!(std::fs::read_to_string(&ca).unwrap(), authority);
    let settings = std::fs::read_to_string(&key).unwrap();
    assert!(settings.contains("AWS_ENDPOINT_URL=https://127.0.0.1:"), "{settings}");
    let output = aws(&settings, &[], &describe).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "True\tFalse", "{output:?}");
    server.end();
}

/// The access key of the API is replaced by the documented commands, while the server runs.
#[test]
fn an_access_key_is_replaced_while_the_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (state, key, admin) = (path("state.db"), path("key.env"), path("admin.sock"));
    let mut server = Server::start(&["--state", &state, "--key-file", &key, "--admin", &admin]);
    let former = Endpoint::read(&std::fs::read_to_string(&key).unwrap());
    let run = |words: &[&str]| {
        let mut command = srd();
        command.args(["control", "key"]).args(words).args(["--admin", &admin]);
        let output = command.output().unwrap();
        let text = [&output.stdout, &output.stderr].map(|of| String::from_utf8_lossy(of));
        (output.status.code().unwrap(), text.concat())
    };
    let began = std::time::Instant::now();
    while run(&["list"]).0 != 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", run(&["list"]).1);
        std::thread::sleep(Duration::from_millis(50));
    }
    // On a full disk, the secret of a key was lost, and the key stayed.
    let (status, said) = run(&["create", "--json", "/dev/full"]);
    assert!(status == 1 && said.contains("was deleted again"), "{said}");
    assert!(!said.contains("AWS_SECRET_ACCESS_KEY"), "{said}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = srd();
    command.args(["control", "key", "create", "--admin", &admin]).stdout(full);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("was deleted again"), "{said}");
    assert_eq!(run(&["list"]).1.lines().filter(|line| line.contains("active")).count(), 1);
    let (status, made) = run(&["create"]);
    assert_eq!(status, 0, "{made}");
    let settings = std::fs::read_to_string(&key).unwrap();
    let url = settings.lines().find(|line| line.starts_with("AWS_ENDPOINT_URL")).unwrap();
    let new = Endpoint::read(&format!("{made}{url}\n"));
    assert_ne!(new.key, former.key);
    let statuses = || [&former, &new].map(|of| of.send("DescribeVpcs", "").unwrap().0);
    assert_eq!(statuses(), [200, 200]);
    let (_, listed) = run(&["list"]);
    assert!(listed.contains(&new.key[0]) && !listed.contains(&new.key[1]), "{listed}");
    let (status, said) = run(&["create"]);
    assert!(status == 1 && said.contains("srd control key delete ID"), "{said}");
    assert_eq!(run(&["deactivate", &former.key[0]]).0, 0);
    assert_eq!(statuses(), [403, 200]);
    let (status, said) = run(&["delete", &new.key[0]]);
    assert!(status == 1 && said.contains("no other access key is active"), "{said}");
    assert_eq!(run(&["activate", &former.key[0]]).0, 0);
    assert_eq!(statuses(), [200, 200]);
    assert_eq!(run(&["delete", &former.key[0]]).0, 0);
    assert_eq!(statuses(), [403, 200]);
    let (status, said) = run(&["activate", &former.key[0]]);
    assert!(status == 1 && said.contains("srd control key list"), "{said}");
    assert!(!server.end().contains(&new.key[1]));
    // The next start writes the new key to the file.
    let mut server = Server::start(&["--state", &state, "--key-file", &key]);
    assert_eq!(Endpoint::read(&std::fs::read_to_string(&key).unwrap()).key, new.key);
    server.end();
}

/// The output of a server, and all its answers, in a session that uses an access key, tokens and
/// private keys in right and in wrong ways.
#[test]
fn no_secret_is_in_the_output_and_the_answers_of_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (state, key, ca) = (path("state.db"), path("key.env"), path("ca.pem"));
    let mut server = Server::start(&["--state", &state, "--key-file", &key]);
    let settings = std::fs::read_to_string(&key).unwrap();
    let endpoint = Endpoint::read(&settings);
    let secret = endpoint.key[1].clone();
    assert_eq!(secret.len(), 64);
    let token = "session-token-1f5c";
    let mut all = String::new();
    for (action, parameters) in [
        ("DescribeVpcs", String::new()),
        ("CreateVpc", format!("CidrBlock={secret}")),
        ("CreateVpc", format!("CidrBlock=10.0.0.0/16&{secret}={token}")),
        ("DescribeVpcs", format!("X-Amz-Security-Token={token}")),
        ("DescribeVpcs", "MaxResults=x".to_owned()),
        ("Bogus", String::new()),
    ] {
        let (_, answer) = endpoint.send(action, &parameters).unwrap();
        // The client itself has put the secret into these two requests.
        if !parameters.contains(&secret) {
            all.push_str(&answer);
        }
    }
    // Another secret for the same key, and a key that does not exist.
    for key in [["SRD0", &secret], [endpoint.key[0].as_str(), "wrong-secret-77aa"]] {
        let other = Endpoint { at: endpoint.at, key: key.map(str::to_owned) };
        let (status, answer) = other.send("DescribeVpcs", "").unwrap();
        assert_eq!(status, 403, "{answer}");
        assert!(
            ["AuthFailure", "SignatureDoesNotMatch"].contains(&element(&answer, "Code").as_str())
        );
        all.push_str(&answer);
    }
    all.push_str(&server.end());
    let tls = ["--tls", "--ca-file", &ca, "--state", &state, "--key-file", &key];
    let mut server = Server::start(&tls);
    all.push_str(&server.end());
    // A broken record of the authority, of the key and of the files of TLS.
    let bad = path("bad.pem");
    let private = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg";
    std::fs::write(&bad, format!("-----BEGIN PRIVATE KEY-----\n{private}\n")).unwrap();
    Command::new("chmod").args(["600", &bad]).status().unwrap();
    let output = srd()
        .args(["control", "up", "--trial", "--state-only", "--listen", "127.0.0.1:0"])
        .args(["--tls-name", "a", "--tls-cert", &ca, "--tls-key", &bad])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    all.push_str(&String::from_utf8_lossy(&output.stdout));
    all.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(all.contains("bad.pem") && all.contains("the access key is in"), "{all}");
    for hidden in [secret.as_str(), token, "wrong-secret-77aa", private, "PRIVATE KEY"] {
        assert!(!all.contains(hidden), "{hidden} is in:\n{all}");
    }
}
