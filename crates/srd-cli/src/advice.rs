//! Advice on a command line that was not understood: the command that has the unknown word at
//! another place, and an argument that `--json` has taken for its file.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds advice to an error of the command line `words`, the arguments of `program`.
pub(crate) fn add(error: &mut clap::Error, program: &Command, words: &[OsString]) {
    let kind = match error.kind() {
        // A conflict: a command with commands below it takes the word after an option for one.
        ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict => {
            ContextKind::InvalidSubcommand
        }
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::MissingRequiredArgument => return of_json(error, words),
        _ => return,
    };
    let Some(ContextValue::String(unknown)) = error.get(kind) else { return };
    let advice = advice(unknown, program, words);
    if !advice.is_empty() {
        let advice = advice.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    }
}

/// Adds advice to the error that an argument is missing, if the word after `--json` may be this
/// argument.
fn of_json(error: &mut clap::Error, words: &[OsString]) {
    let is_file =
        |pair: &&[OsString]| pair[0] == "--json" && !pair[1].as_encoded_bytes().starts_with(b"-");
    let Some(file) = words.windows(2).find(is_file).map(|pair| pair[1].to_string_lossy()) else {
        return;
    };
    let text = format!(
        "`--json {file}` writes JSON to the file `{file}`: write `--json` after the other \
         arguments, or `--json=-`, for standard output"
    );
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(text)]));
}

fn advice(unknown: &str, program: &Command, words: &[OsString]) -> Vec<String> {
    // Only the first word of a command line can be a command that is below another one.
    if words.iter().find(|word| !word.as_encoded_bytes().starts_with(b"-")) != Some(&unknown.into())
    {
        return Vec::new();
    }
    let mut found = Vec::new();
    for group in visible(program) {
        let has = visible(group).any(|command| command.get_name() == unknown);
        if has {
            found.push(format!("the command is `srd {} {unknown}`", group.get_name()));
        }
    }
    found
}

/// The commands below a command, except hidden ones.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn error(words: &[&str]) -> String {
        let program = crate::Cli::command();
        let mut error = program.clone().try_get_matches_from([&["srd"][..], words].concat());
        let error = error.as_mut().expect_err("it is not understood");
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        add(error, &program, &words);
        error.to_string()
    }

    /// The error was only that there is no such command.
    #[test]
    fn regression_a_command_below_another_one_is_named() {
        for words in [&["hosts"][..], &["hosts", "--json"], &["-v", "hosts", "remove", "a"]] {
            let text = error(words);
            assert!(text.contains("the command is `srd control hosts`"), "{text}");
        }
        let text = error(&["trace"]);
        assert!(text.contains("`srd card trace`"), "{text}");
        for words in [&["fly"][..], &["control", "status"], &["card-helper", "hosts"]] {
            let text = error(words);
            assert!(!text.contains("the command is"), "{text}");
        }
    }

    /// The error was only that an argument is missing.
    #[test]
    fn an_argument_that_json_has_taken_for_its_file_is_explained() {
        let text = error(&["paths", "--json", "b"]);
        assert!(text.contains("writes JSON to the file `b`"), "{text}");
        for words in [&["paths", "--json"][..], &["paths", "--json", "-"], &["status", "b"]] {
            let text = error(words);
            assert!(!text.contains("writes JSON"), "{text}");
        }
    }

    /// Some commands refused a file, and some refused a hyphen.
    #[test]
    fn regression_each_command_with_json_takes_a_file_or_a_hyphen_or_nothing() {
        let program = crate::Cli::command();
        let mut found = 0;
        each(&program, "", &mut |name: &str, command: &Command| {
            let Some(json) = command.get_arguments().find(|of| of.get_id() == "json") else {
                return;
            };
            found += 1;
            // Standard output belongs to the program that these commands run.
            let needs_file = [" srd run", " srd lab impair"].contains(&name);
            let range = json.get_num_args().map(|range| range.min_values());
            assert_eq!(range == Some(0), !needs_file, "{name}");
        });
        assert!(found > 20, "{found}");
    }

    fn each(command: &Command, before: &str, look: &mut impl FnMut(&str, &Command)) {
        let name = format!("{before} {}", command.get_name());
        look(&name, command);
        command.get_subcommands().for_each(|of| each(of, &name, look));
    }
}
