//! The client with the control plane as its server, whose instances exist in the state only.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;

use serde_json::json;
use srd_control::control::{Access as ServerAccess, Control, TRIAL_ACCOUNT};
use srd_control::machines::NoMachines;
use srd_control::server;
use srd_control::sign::DrawnKey;
use srd_control::store::MemoryStore;

use super::*;
use crate::config::{Access as Way, Config};

/// A server of the API with the file of its key.
struct Site {
    directory: tempfile::TempDir,
}

/// Writes a file of mode 0600.
fn write(path: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn key_text(key: &DrawnKey, address: SocketAddr) -> String {
    format!(
        "AWS_ACCESS_KEY_ID={}\nAWS_SECRET_ACCESS_KEY={}\nAWS_DEFAULT_REGION=eu-central-1\n\
         AWS_ENDPOINT_URL=http://{address}\n",
        key.id, key.secret
    )
}

impl Site {
    fn new() -> Self {
        let key = DrawnKey::draw().unwrap();
        let access = ServerAccess::Trial(key.only(TRIAL_ACCOUNT));
        let (store, machines) = (Box::<MemoryStore>::default(), Box::new(NoMachines));
        let control = Control::new(access, 7, store, machines).unwrap();
        let listener = server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        // The thread ends with the process.
        thread::spawn(move || server::serve(listener, control).map(|never| match never {}));
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("key.env"), &key_text(&key, address));
        Self { directory }
    }

    fn client(&self) -> Client {
        client(&self.directory.path().join("key.env"))
    }
}

fn client(key_file: &Path) -> Client {
    let text = json!({"cniVersion": "1.1.0", "name": "n", "type": "srd-cni", "keyFile": key_file});
    match Config::parse(text.to_string().as_bytes()).unwrap().access {
        Way::Api(access) => Client::new(access),
        other @ Way::Node(_) => panic!("{other:?}"),
    }
}

fn settings(subnet: &str) -> Settings {
    Settings {
        subnet: subnet.to_owned(),
        groups: Vec::new(),
        address: None,
        instance_type: "c7i.large".to_owned(),
        ipv6: false,
        name: Some("web \u{e9}&<1>".to_owned()),
    }
}

/// A subnet of the default VPC.
fn subnet(client: &Client) -> String {
    let root = client.call("DescribeSubnets", &[]).unwrap();
    root.text_at(&["subnetSet", "item", "subnetId"]).unwrap().to_owned()
}

#[test]
fn a_pod_is_launched_once_found_and_terminated() {
    let site = Site::new();
    let client = site.client();
    let subnet = subnet(&client);
    let free = client.free_addresses(&subnet).unwrap();
    let settings = settings(&subnet);
    let launch = Launch {
        pod: "cni-1",
        token: "token-1",
        network: "cloud*",
        node: "node-1",
        container: "c",
        settings: &settings,
    };
    let launched = client.launch(&launch).unwrap();
    assert!(launched.instance.starts_with("i-") && launched.interface.starts_with("eni-"));
    assert_eq!(client.launch(&launch).unwrap(), launched, "the token");
    assert_eq!(client.free_addresses(&subnet).unwrap(), free - 1);
    let found = vec![(launched.instance.clone(), "cni-1".to_owned())];
    assert_eq!(client.instances(Select::Pod("cni-1")).unwrap(), found);
    assert_eq!(client.instances(Select::Network("cloud*", "node-1")).unwrap(), found);
    for select in [Select::Pod("cni-2"), Select::Network("cloud*", "node-2"), Select::Pod("cni*")] {
        assert_eq!(client.instances(select).unwrap(), []);
    }
    // The name of the pod is in the tags of the interface as well.
    let root = client.call("DescribeNetworkInterfaces", &[]).unwrap();
    let tags = root.all(&["networkInterfaceSet", "item", "tagSet", "item", "value"]);
    assert!(tags.iter().any(|value| value.text == "web \u{e9}&<1>"), "{tags:?}");
    client.terminate(&launched.instance).unwrap();
    client.terminate(&launched.instance).unwrap();
    client.terminate("i-00000000000000001").unwrap();
    assert_eq!(client.instances(Select::Pod("cni-1")).unwrap(), []);
    assert_eq!(client.free_addresses(&subnet).unwrap(), free);
}

#[test]
fn refusals_have_the_code_and_the_message_of_the_api() {
    let site = Site::new();
    let client = site.client();
    let launch = |settings: &Settings| {
        let (pod, token) = ("cni-1", "t");
        client.launch(&Launch { pod, token, network: "n", node: "n", container: "c", settings })
    };
    let refused = |settings: &Settings| match launch(settings).unwrap_err() {
        ApiError::Refused { code, message } => {
            assert!(!message.is_empty());
            code
        }
        other => panic!("{other}"),
    };
    assert_eq!(refused(&settings("subnet-00000000")), "InvalidSubnetID.NotFound");
    let groups = vec!["sg-00000000".to_owned()];
    let wrong = Settings { groups, ..settings(&subnet(&client)) };
    assert_eq!(refused(&wrong), "InvalidGroup.NotFound");
    // Another secret.
    let path = site.directory.path().join("key.env");
    let text = std::fs::read_to_string(&path).unwrap();
    write(&path, &text.replace("AWS_SECRET_ACCESS_KEY=", "AWS_SECRET_ACCESS_KEY=0"));
    assert_eq!(refused(&settings("subnet-00000000")), "SignatureDoesNotMatch");
}

#[test]
fn a_silent_api_and_wrong_settings_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key.env");
    assert!(matches!(client(&path).free_addresses("s"), Err(ApiError::Settings(_))), "no file");
    write(&path, "AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n");
    let error = client(&path).free_addresses("s").unwrap_err();
    assert!(error.to_string().contains("AWS_ENDPOINT_URL"), "{error}");
    // A server that closes each connection, and counts them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        for _ in 0..ATTEMPTS {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 64];
            let _ = stream.read(&mut head);
            stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let key = DrawnKey { id: "a".into(), secret: "b".into() };
    write(&path, &key_text(&key, address));
    let error = client(&path).free_addresses("s").unwrap_err();
    assert!(matches!(&error, ApiError::Silent(what) if what.contains("status 503")), "{error}");
    server.join().unwrap();
    let error = client(&path).free_addresses("s").unwrap_err();
    assert!(matches!(error, ApiError::Silent(_)), "the server has ended: {error}");
}

#[test]
fn an_answer_with_too_many_pages_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        for _ in 0..PAGES_MAX {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"stopped") && !request.ends_with(b"NextToken=more") {
                let count = stream.read(&mut part).unwrap();
                assert!(count > 0);
                request.extend_from_slice(&part[..count]);
            }
            let body = "<R><reservationSet/><nextToken>more</nextToken></R>";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key.env");
    let key = DrawnKey { id: "a".into(), secret: "b".into() };
    write(&path, &key_text(&key, address));
    let error = client(&path).instances(Select::Pod("x")).unwrap_err();
    assert!(error.to_string().contains("more than 64 pages"), "{error}");
    server.join().unwrap();
}
