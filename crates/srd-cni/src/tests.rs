//! The program from its input to its output, in the cases of the specification.

use std::path::PathBuf;

use serde_json::json;

use super::*;

/// Runs the plugin. Returns the exit code and the output.
fn run_with(variables: &[(&str, &str)], input: &[u8]) -> (u8, Value) {
    let variable = |name: &str| {
        let found = variables.iter().find(|(of, _)| *of == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let mut output = Vec::new();
    let host = Machine::new(Path::new("/run/srd-card/pods"));
    let code = run(&variable, &mut &*input, &mut output, &host);
    let value = match output.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&output).unwrap(),
    };
    (code, value)
}

const ADD: [(&str, &str); 4] = [
    ("CNI_COMMAND", "ADD"),
    ("CNI_CONTAINERID", "c-1"),
    ("CNI_NETNS", "/proc/self/ns/net"),
    ("CNI_IFNAME", "eth0"),
];

fn config(directory: &Path) -> Value {
    json!({"cniVersion": "1.1.0", "name": "cloud", "type": "srd-cni", "subnet": "subnet-1",
           "keyFile": directory.join("key.env"), "stateDir": directory.join("state")})
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[test]
fn version_reports_all_versions_without_a_configuration() {
    for (input, version) in [("{\"cniVersion\":\"1.0.0\"}", "1.0.0"), ("", "1.1.0")] {
        let (code, answer) = run_with(&[("CNI_COMMAND", "VERSION")], input.as_bytes());
        let all = json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
        assert_eq!(code, 0);
        assert_eq!(answer, json!({"cniVersion": version, "supportedVersions": all}));
    }
}

#[test]
fn errors_are_json_with_the_codes_of_the_specification() {
    let directory = tempfile::tempdir().unwrap();
    let good = config(directory.path());
    let without = |key: &str| {
        let mut value = good.clone();
        value.as_object_mut().unwrap().remove(key);
        bytes(&value)
    };
    let with = |key: &str, of: Value| {
        let mut value = good.clone();
        value[key] = of;
        bytes(&value)
    };
    for (variables, input, code) in [
        (&ADD[1..], bytes(&good), 4),
        (&ADD[..1], bytes(&good), 4),
        (&ADD[..], b"{".to_vec(), 6),
        (&ADD[..], Vec::new(), 6),
        (&ADD[..], with("cniVersion", json!("2.0.0")), 1),
        (&ADD[..], without("cniVersion"), 1),
        (&ADD[..], without("name"), 7),
        (&ADD[..], without("keyFile"), 7),
        (&ADD[..], without("subnet"), 7),
        (&ADD[..], with("ipam", json!({"type": "dhcp"})), 2),
        // The network of the machine is no namespace of a container.
        (&ADD[..], bytes(&good), 3),
        (&[("CNI_COMMAND", "GC")][..], with("cni.dev/valid-attachments", json!(1)), 7),
        (&[("CNI_COMMAND", "GC")][..], with("cniVersion", json!("1.0.0")), 1),
        (&[("CNI_COMMAND", "STATUS")][..], bytes(&good), 50),
    ] {
        let (exit, answer) = run_with(variables, &input);
        let shown = String::from_utf8_lossy(&input).into_owned();
        assert_eq!((exit, &answer["code"]), (1, &json!(code)), "{shown}: {answer}");
        assert!(answer["msg"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
        assert!(answer["cniVersion"].is_string(), "{answer}");
    }
    let state: Vec<PathBuf> = std::fs::read_dir(directory.path().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|of| of == "json"))
        .collect();
    assert_eq!(state, Vec::<PathBuf>::new(), "no record is left");
}

#[test]
fn a_delete_without_an_add_succeeds_and_prints_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let del = [("CNI_COMMAND", "DEL"), ADD[1], ADD[3]];
    let (code, answer) = run_with(&del, &bytes(&config(directory.path())));
    assert_eq!((code, answer), (0, Value::Null));
}

#[test]
fn an_input_beyond_its_bound_is_refused() {
    let long = vec![b' '; usize::try_from(INPUT_BYTES_MAX).unwrap() + 1];
    let (code, answer) = run_with(&ADD, &long);
    assert_eq!((code, &answer["code"]), (1, &json!(6)));
    assert!(answer["msg"].as_str().unwrap().contains("more than"), "{answer}");
}

#[test]
fn the_example_of_the_package_is_that_of_the_document_and_valid() {
    let example = include_str!("../../../packaging/cni/10-srd.conflist.example");
    assert!(include_str!("../../../docs/cni.md").contains(example.trim()));
    let list: Value = serde_json::from_str(example).unwrap();
    // A runtime passes one plugin of the list, with the version and the name of the list.
    let mut plugin = list["plugins"][0].clone();
    for key in ["cniVersion", "name"] {
        plugin[key] = list[key].clone();
    }
    let config = Config::parse(&bytes(&plugin)).unwrap();
    assert_eq!((plugin["type"].as_str(), config.name.as_str()), (Some(PROGRAM), "cloud"));
    // Runtimes with version 1.0.0 refuse a result of 1.1.0; those with 1.1.0 select the highest.
    assert_eq!(list["cniVersion"], "1.0.0");
    assert_eq!(list["cniVersions"], json!(["1.0.0", "1.1.0"]));
}
