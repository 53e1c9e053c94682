//! Directions of dependencies between this workspace's crates, and reasons for dependencies on
//! other crates.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

/// The crates of this workspace from the bottom up, each with its layer. A crate may only depend on
/// crates of a lower layer. For example, the driver cannot depend on the simulator, and the
/// protocol core cannot depend on the crates that use it.
const LAYERS: [(&str, u8); 32] = [
    ("srd-crypto", 0),
    ("srd-pcapng", 0),
    ("srd-http", 0),
    ("srd-trust", 0),
    ("srd-enrol", 0),
    ("srd-proto", 1),
    ("srd-vpc", 1),
    ("srd-config", 1),
    ("srd-vpc-file", 2),
    ("srd-efa", 2),
    ("srd-card", 2),
    ("srd-chart", 2),
    ("srd-sim", 3),
    ("srd-net", 3),
    ("srd-lab", 3),
    ("srd-vhost", 3),
    ("srd-control", 3),
    ("srd-host", 4),
    ("srd-nfs", 4),
    ("srd-daemon", 4),
    ("srd-doctor", 4),
    ("srd-watch", 4),
    ("srd-guest", 5),
    ("srd-profile", 5),
    ("srd-ofi", 5),
    ("srd-capi", 5),
    ("srd-nccl", 5),
    ("srd-python", 5),
    ("srd-bench", 5),
    ("srd-cni", 6),
    ("srd-cli", 7),
    ("xtask", 8),
];
/// Crates that must not use a clock, a socket or `unsafe`.
const PURE: [&str; 5] = ["srd-crypto", "srd-proto", "srd-vpc", "srd-efa", "srd-card"];
/// Crates that start programs, and do not depend on other crates of this workspace.
const ALONE: [&str; 1] = ["srd-lab"];

/// A crate of this workspace, with its dependencies.
#[derive(Debug)]
pub(super) struct Package {
    /// Name of the crate.
    pub(super) name: String,
    ours: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl Package {
    fn layer(&self) -> Option<u8> {
        layer(&self.name)
    }

    /// Whether the crate must be `no_std` and must forbid `unsafe`.
    pub(super) fn is_pure(&self) -> bool {
        PURE.contains(&self.name.as_str())
    }
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(n, _)| *n == name).map(|(_, layer)| *layer)
}

/// Returns the crates in the output of `cargo metadata --no-deps`.
pub(super) fn read(metadata: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    Ok(packages.iter().map(package).collect())
}

fn package(value: &Value) -> Package {
    let (mut ours, mut others) = (BTreeSet::new(), BTreeSet::new());
    for dependency in value["dependencies"].as_array().into_iter().flatten() {
        let name = dependency["name"].as_str().unwrap_or_default().to_string();
        if dependency["source"].is_null() {
            ours.insert(name)
        } else {
            others.insert(name)
        };
    }
    Package { name: value["name"].as_str().unwrap_or_default().to_string(), ours, others }
}

/// Returns findings for dependencies on a crate that is not in a lower layer, and for crates
/// without a layer.
pub(super) fn arrows(packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let name = &package.name;
        let Some(from) = package.layer() else {
            findings.push(format!("{name}: has no layer; give it one in xtask/src/tidy/crates.rs"));
            continue;
        };
        for to in &package.ours {
            if ALONE.contains(&name.as_str()) {
                findings.push(format!("{name} -> {to}: {name} starts programs, it links none"));
            } else if layer(to).is_none_or(|layer| layer >= from) {
                findings.push(format!("{name} -> {to}: arrows run downwards only"));
            }
        }
    }
    findings
}

/// Returns findings for dependencies without a line `# why NAME: reason` in deny.toml, and for
/// lines about a dependency that does not exist. `fuzz` is the manifest of the fuzzing workspace,
/// which `cargo metadata` does not include.
pub(super) fn reasons(packages: &[Package], fuzz: &str, deny: &str) -> Vec<String> {
    let mut used: BTreeSet<String> = packages.iter().flat_map(|p| p.others.clone()).collect();
    used.extend(manifest_dependencies(fuzz));
    let mut given = BTreeSet::new();
    let mut findings = Vec::new();
    for line in deny.lines().filter_map(|line| line.strip_prefix("# why ")) {
        let (name, reason) = line.split_once(':').unwrap_or((line, ""));
        if reason.trim().len() < 10 {
            findings.push(format!("deny.toml: `{name}` has no reason worth the name"));
        }
        if !given.insert(name.to_string()) {
            findings.push(format!("deny.toml: `{name}` is given twice"));
        }
    }
    for name in used.difference(&given) {
        findings.push(format!("`{name}`: add `# why {name}: ...` to deny.toml, or do without it"));
    }
    for name in given.difference(&used) {
        findings.push(format!("deny.toml: nothing depends on `{name}` any more"));
    }
    findings
}

/// Returns the names of the dependencies of a manifest that come from a registry, and not from a
/// path.
fn manifest_dependencies(manifest: &str) -> impl Iterator<Item = String> {
    let table = manifest.split("\n[dependencies]").nth(1).unwrap_or_default();
    let table = table.split("\n[").next().unwrap_or_default();
    let entries = table.lines().filter_map(|line| line.split_once('='));
    entries.filter(|(_, value)| !value.contains("path")).map(|(name, _)| name.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(packages: &[(&str, &[(&str, bool)])]) -> Vec<Package> {
        let packages: Vec<String> = packages
            .iter()
            .map(|(name, deps)| {
                let deps: Vec<String> = deps
                    .iter()
                    .map(|(name, ours)| {
                        let source = if *ours { "null" } else { r#""registry""# };
                        format!(r#"{{"name":"{name}","source":{source}}}"#)
                    })
                    .collect();
                format!(r#"{{"name":"{name}","dependencies":[{}]}}"#, deps.join(","))
            })
            .collect();
        read(&format!(r#"{{"packages":[{}]}}"#, packages.join(","))).unwrap()
    }

    #[test]
    fn arrows_run_downwards_only() {
        let good = metadata(&[
            ("srd-proto", &[("bytes", false)]),
            ("srd-sim", &[("srd-proto", true)]),
            ("srd-cli", &[("srd-sim", true), ("srd-proto", true)]),
        ]);
        assert!(arrows(&good).is_empty());
        assert!(good[0].is_pure() && !good[1].is_pure());
        for (from, to) in [("srd-proto", "srd-sim"), ("srd-sim", "srd-net"), ("srd-net", "xtask")] {
            assert_eq!(arrows(&metadata(&[(from, &[(to, true)])])).len(), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn the_lab_links_nothing_and_unknown_crates_need_a_layer() {
        assert_eq!(arrows(&metadata(&[("srd-lab", &[("srd-proto", true)])])).len(), 1);
        assert_eq!(arrows(&metadata(&[("srd-new", &[])])).len(), 1);
    }

    #[test]
    fn every_dependency_needs_a_reason_and_every_reason_a_dependency() {
        let packages = metadata(&[("srd-proto", &[("bytes", false), ("ring", false)])]);
        let deny = "# why bytes: shared without copies\n# why gone: it was useful once\n";
        let findings = reasons(&packages, "", deny);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("`ring`") && findings[1].contains("`gone`"));
        assert!(
            !reasons(&packages, "", "# why ring: x\n# why bytes: shared, no copies").is_empty()
        );
    }

    #[test]
    fn the_fuzzing_workspace_counts_too() {
        let manifest =
            "[package]\n\n[dependencies]\nfuzzer = \"1\"\nours = { path = \"..\" }\n\n[x]\n";
        let findings = reasons(&[], manifest, "");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("`fuzzer`"));
    }
}
