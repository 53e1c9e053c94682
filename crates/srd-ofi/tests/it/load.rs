//! libfabric loads the provider, and lists its offers.

use std::process::Command;

use crate::support::{Provider, is_here};

fn text(output: &std::process::Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn fi_info_shows_loopback() {
    if !is_here("fi_info", "libfabric-bin") {
        return;
    }
    let output = Provider::new().fi_info(&["-p", "srd", "-d", "lo"], &[]);
    let shown = text(&output);
    assert!(output.status.success(), "{shown}");
    let lines =
        ["provider: srd", "fabric: srd\n", "domain: lo", "FI_EP_DGRAM", "fabric: srd-direct"];
    for line in lines {
        assert!(shown.contains(line), "no {line:?} in {shown}");
    }
    let first = shown.lines().find(|line| line.contains("type:")).unwrap();
    assert!(first.contains("FI_EP_RDM"), "the native endpoint is not the first: {shown}");
    assert!(!shown.contains("ofi_rx"), "a layer stands on the provider: {shown}");
}

#[test]
fn who_names_no_interface_sees_one() {
    if !is_here("fi_info", "libfabric-bin") {
        return;
    }
    let shown = text(&Provider::new().fi_info(&["-p", "srd"], &[]));
    let mut domains: Vec<_> = shown.lines().filter(|line| line.contains("domain:")).collect();
    domains.dedup();
    assert_eq!(domains.len(), 1, "{shown}");
}

#[test]
fn fi_info_documents_every_parameter() {
    if !is_here("fi_info", "libfabric-bin") {
        return;
    }
    let shown = text(&Provider::new().fi_info(&["-g", "srd"], &[]));
    for parameter in srd_fi::settings::PARAMETERS {
        let name = format!("FI_SRD_{}", parameter.name.to_string_lossy().to_uppercase());
        assert!(shown.contains(&name), "no {name} in {shown}");
    }
}

#[test]
fn a_setting_that_cannot_be_is_refused_with_its_bounds() {
    if !is_here("fi_info", "libfabric-bin") {
        return;
    }
    let settings = [("FI_SRD_PATHS", "100000"), ("FI_LOG_LEVEL", "warn")];
    let output = Provider::new().fi_info(&["-p", "srd"], &settings);
    assert!(!output.status.success());
    assert!(text(&output).contains("FI_SRD_PATHS=100000: give a number"), "{}", text(&output));
}

#[test]
fn hints_choose_and_refuse_with_a_reason() {
    if !is_here("fi_info", "libfabric-bin") {
        return;
    }
    let provider = Provider::new();
    let shown = text(&provider.fi_info(&["-p", "srd", "-t", "FI_EP_RDM", "-d", "lo"], &[]));
    assert!(shown.contains("domain: lo"), "{shown}");
    let output = provider.fi_info(&["-p", "srd", "-t", "FI_EP_MSG"], &[]);
    assert!(!output.status.success(), "{}", text(&output));
    let settings = [("FI_LOG_LEVEL", "info")];
    let output = provider.fi_info(&["-p", "srd", "-c", "FI_HMEM"], &settings);
    assert!(!output.status.success());
    assert!(text(&output).contains("caps: asked"), "{}", text(&output));
}

#[test]
fn layers_stand_on_datagrams_only_where_that_is_set() {
    if !is_here("fi_info", "libfabric-bin") {
        return;
    }
    let provider = Provider::new();
    let layered = ["-p", "srd;ofi_rxd"];
    assert!(!provider.fi_info(&layered, &[]).status.success());
    let shown = text(&provider.fi_info(&layered, &[("FI_SRD_LAYERS", "1")]));
    assert!(shown.contains("srd;ofi_rxd"), "{shown}");
    assert!(!shown.contains("ofi_rxm"), "{shown}");
}

#[test]
fn the_library_needs_no_libfabric_and_stays_loaded() {
    if !is_here("readelf", "binutils") {
        return;
    }
    let provider = Provider::new();
    let output = Command::new("readelf").arg("-dW").arg(provider.library()).output().unwrap();
    let dynamic = text(&output);
    assert!(!dynamic.contains("libfabric"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}
