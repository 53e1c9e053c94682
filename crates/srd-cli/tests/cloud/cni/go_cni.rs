//! The library by which containerd calls CNI plugins. Needs root, Go and its module proxy.

use super::*;

/// Files of the program that calls the library.
const PROGRAM: [(&str, &str); 2] =
    [("go.mod", include_str!("go/go.mod")), ("main.go", include_str!("go/main.go"))];

#[test]
#[ignore = "needs Go, which fetches github.com/containerd/go-cni"]
fn go_cni_attaches_checks_collects_and_detaches() {
    let network = Network::new();
    let pods = Pods::new("o", 1);
    let program = network.directory.path().join("program");
    fs::create_dir(&program).unwrap();
    for (name, text) in PROGRAM {
        fs::write(program.join(name), text).unwrap();
    }
    for words in [&["mod", "tidy"][..], &["build", "-o", "client", "."]] {
        let output = Command::new("go").args(words).current_dir(&program).output().unwrap();
        assert!(output.status.success(), "go {words:?}: {output:#?}");
    }
    let mut plugin = network.config();
    plugin["capabilities"] =
        json!({"portMappings": true, "io.kubernetes.cri.pod-annotations": true});
    // The library selects the highest of the versions; `GC` needs 1.1.0.
    let file = network.directory.path().join("cloud.conflist");
    fs::write(&file, list_of(plugin)).unwrap();
    let mut client = Command::new(program.join("client"));
    client.arg(network.directory.path()).arg(&file).arg(format!("/run/netns/{}", pods.0[0]));
    let output = client.output().unwrap();
    assert!(output.status.success(), "{output:#?}\n{}", network.api.log());
    assert!(!has_device(&pods.0[0]));
    assert_eq!(network.interfaces(), 0);
    wait_until("the end of all names", || network.left().is_empty());
}
