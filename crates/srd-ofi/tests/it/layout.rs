//! Every structure has the size and offsets that the headers of this machine define.

use std::fs;
use std::process::Command;

use crate::support::{has_headers, is_here};
use srd_fi::abi::{LAYOUTS, Layout};

/// Structures that later releases append to.
const GROWING: [&str; 4] = ["fi_domain_attr", "fi_ops_av", "fi_mr_attr", "fi_cq_err_entry"];

const HEADERS: [&str; 10] = [
    "fabric.h",
    "fi_domain.h",
    "fi_endpoint.h",
    "fi_cm.h",
    "fi_tagged.h",
    "fi_rma.h",
    "fi_atomic.h",
    "fi_eq.h",
    "fi_collective.h",
    "providers/fi_prov.h",
];

/// Returns a C program that fails to compile if a size or offset in C differs from ours.
fn program() -> String {
    let mut source = String::from("#include <stddef.h>\n");
    for header in HEADERS {
        source += &format!("#include <rdma/{header}>\n");
    }
    for Layout { name, bytes, fields } in LAYOUTS {
        let relation = if GROWING.contains(name) { ">=" } else { "==" };
        let size = format!("sizeof(struct {name}) {relation} {bytes}");
        source += &format!("_Static_assert({size}, \"size of {name}\");\n");
        for (field, at) in *fields {
            let field = field.trim_start_matches("r#");
            let offset = format!("offsetof(struct {name}, {field}) == {at}");
            source += &format!("_Static_assert({offset}, \"{name}.{field}\");\n");
        }
    }
    source + "int main(void) { return 0; }\n"
}

fn compile(source: &str) -> (bool, String) {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let file = directory.path().join("layout.c");
    fs::write(&file, source).expect("a file in a new directory");
    let mut command = Command::new("cc");
    let output = command.arg("-fsyntax-only").arg(&file).output().expect("cc was found before");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn can_compile() -> bool {
    is_here("cc", "gcc") && has_headers()
}

#[test]
fn sizes_and_offsets_are_those_of_the_headers() {
    if can_compile() {
        let (agreed, complaints) = compile(&program());
        assert!(agreed, "{complaints}");
        let compared: usize = LAYOUTS.iter().map(|layout| layout.fields.len()).sum();
        println!("{} structures, {compared} fields", LAYOUTS.len());
    }
}

#[test]
fn a_wrong_offset_would_be_found() {
    if can_compile() {
        let wrong = program().replacen("offsetof(struct fid, context) == 8", "0", 1);
        let (agreed, complaints) = compile(&wrong);
        assert!(!agreed && complaints.contains("fid.context"), "{complaints}");
    }
}
