//! Tables of modules: the page of a crate lists the modules of the crate.

use std::collections::BTreeSet;

/// Returns a finding for each module that the page of a crate does not list. `name` is the path of
/// a file with the content `text`; only `lib.rs` and `main.rs` of a crate are checked. Modules of
/// tests need not be listed.
pub(super) fn unlisted(name: &str, text: &str) -> Vec<String> {
    if !name.ends_with("/src/lib.rs") && !name.ends_with("/src/main.rs") {
        return Vec::new();
    }
    let listed = listed(text);
    let of_crate = declared(text).into_iter().filter(|(_, module)| !listed.contains(module));
    let finding = |(line, module)| {
        format!("{name}:{line}: the table of modules in the page of the crate has no `{module}`")
    };
    of_crate.map(finding).collect()
}

/// Returns the names between backticks in the first column of the tables of a page.
fn listed(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | "));
    let first = rows.filter_map(|row| row.split(" | ").next());
    first.flat_map(|column| column.split('`').skip(1).step_by(2)).collect()
}

/// Returns the modules that a file declares, with their lines, without modules of tests.
fn declared(text: &str) -> Vec<(usize, &str)> {
    let mut modules = Vec::new();
    let mut is_test = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[cfg(test)]");
            continue;
        }
        let item = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let module = item.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        if let Some(module) = module.filter(|_| !is_test) {
            modules.push((number, module));
        }
        is_test = false;
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_the_page_does_not_list_is_found() {
        let page = "//! Page of `c`.\n//!\n//! | module | content |\n//! |---|---|\n\
                    //! | [`a`], `b` | two, beside `d` |\n";
        let items = "#[cfg(test)]\n#[path = \"x.rs\"]\nmod support;\npub mod a;\nmod b;\n\
                     #[allow(unused)]\nmod c;\nmod d;\nmod inline {}\n#[cfg(test)]\nmod tests;\n";
        let text = format!("{page}{items}");
        let findings = unlisted("crates/x/src/lib.rs", &text);
        let lines: Vec<&str> = findings.iter().map(|found| &found[..23]).collect();
        assert_eq!(lines, ["crates/x/src/lib.rs:12:", "crates/x/src/lib.rs:13:"], "{findings:?}");
        assert!(findings[0].ends_with("has no `c`") && findings[1].ends_with("has no `d`"));
        assert_eq!(unlisted("xtask/src/main.rs", &text).len(), 2);
        assert!(unlisted("crates/x/src/a/mod.rs", &text).is_empty());
        assert!(unlisted("crates/x/tests/it/main.rs", &text).is_empty());
        let whole = text.replace("//! | [`a`], `b`", "//! | [`a`], `b`, [`c`], `d`");
        assert!(unlisted("crates/x/src/lib.rs", &whole).is_empty());
    }
}
