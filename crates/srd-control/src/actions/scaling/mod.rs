//! Auto Scaling groups: a service with actions of its own, whose groups start and end instances of
//! EC2.
//!
//! Actions change what a group shall be. `plan` decides on the next step that brings a group
//! closer to that, and `step` takes the step; the control plane repeats both after each change
//! until there is no step left.
//!
//! | module | content |
//! |---|---|
//! | `group` | actions on groups |
//! | `configuration` | launch configurations |
//! | `member` | actions on instances of groups |
//! | `tag` | actions on tags of groups |
//! | `view` | descriptions |
//! | `check` | checks of parameters |
//! | `source` | parameters of the launches of groups |
//! | `activity` | the record of starts and ends |
//! | `plan` | the next step of a group |
//! | `step` | a step that is taken |

mod activity;
mod check;
mod configuration;
mod group;
mod member;
pub(crate) mod plan;
mod source;
pub(crate) mod step;
mod tag;
mod view;

use super::{Actions, Handler, find_in, names_in};
use crate::error::ApiError;

/// Actions of all files, in one table for each file.
const ALL: [Actions; 5] =
    [configuration::ACTIONS, group::ACTIONS, member::ACTIONS, tag::ACTIONS, view::ACTIONS];

/// Returns the implementation of an action.
pub fn find(name: &str) -> Option<Handler> {
    find_in(&ALL, name)
}

/// Names of all actions, sorted.
pub fn names() -> Vec<&'static str> {
    names_in(&ALL)
}

/// Codes of EC2 for wrong parameters. Auto Scaling has one code for them.
const PARAMETER_CODES: [&str; 7] = [
    "MissingParameter",
    "InvalidParameterValue",
    "InvalidParameterCombination",
    "InvalidQueryParameter",
    "UnknownParameter",
    "FilterLimitExceeded",
    "InvalidUserData.Malformed",
];

/// Returns the error with the code that Auto Scaling documents.
pub(crate) fn documented(mut error: ApiError) -> ApiError {
    if PARAMETER_CODES.contains(&error.code.as_str()) {
        "ValidationError".clone_into(&mut error.code);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::model::autoscaling;

    #[test]
    fn the_table_and_the_cut_of_the_model_name_the_same_actions() {
        let cut: Vec<&str> = autoscaling().operations.keys().map(String::as_str).collect();
        assert_eq!(names(), cut);
    }
}
