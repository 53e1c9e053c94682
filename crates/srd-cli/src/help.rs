//! Exit codes in the help of each command.

use clap::Command;

/// Heading of exit codes in a help text.
const HEADING: &str = "EXIT CODES";

/// Exit codes of a command whose help contains none of its own.
const USUAL: &str = "\
EXIT CODES
  0  it worked
  1  it ran and failed
  2  wrong arguments or configuration: nothing was started
  3  a privilege or a program is missing: the message says which";

/// Adds the usual exit codes to the help of each command without subcommands, unless the help lists
/// exit codes of its own.
pub(crate) fn with_exit_codes(command: Command) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(with_exit_codes);
    }
    match command.get_after_help().map(ToString::to_string) {
        Some(text) if text.contains(HEADING) => command,
        Some(text) => command.after_help(format!("{text}\n\n{USUAL}")),
        None => command.after_help(USUAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `look` with each visible command and its name.
    fn each(command: &Command, before: &str, look: &mut impl FnMut(&str, &Command)) {
        for of in command.get_subcommands().filter(|of| !of.is_hide_set()) {
            let name = format!("{before} {}", of.get_name());
            look(&name, of);
            each(of, &name, look);
        }
    }

    /// The help of most commands had no exit codes, and that of many commands for a running node no
    /// example.
    #[test]
    fn regression_the_help_of_each_command_has_exit_codes_and_the_usual_ones_have_examples() {
        let mut found = 0;
        each(&crate::command(), "srd", &mut |name: &str, command: &Command| {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_group = command.has_subcommands() && name != "srd control hosts";
            assert!(is_group || text.matches(HEADING).count() == 1, "{name}: {text}");
            let of_node = ["srd card", "srd control", "srd status", "srd stats", "srd paths"];
            let more = ["srd set", "srd peer", "srd reload", "srd capture", "srd up", "srd down"];
            if of_node.iter().chain(&more).any(|of| name.starts_with(of)) {
                assert!(text.contains("EXAMPLES\n"), "{name}: {text}");
                found += 1;
            }
        });
        assert!(found > 30, "{found}");
    }

    #[test]
    fn usual_exit_codes_are_added_to_what_a_help_contains() {
        let of = |command: Command| with_exit_codes(command).get_after_help().unwrap().to_string();
        assert_eq!(of(Command::new("a")), USUAL);
        assert_eq!(
            of(Command::new("a").after_help("EXAMPLES\n  a")),
            format!("EXAMPLES\n  a\n\n{USUAL}")
        );
        let own = "EXIT CODES\n  0  a";
        assert_eq!(of(Command::new("a").after_help(own)), own);
    }
}
