//! Lines for the log about requests of the operator that change something or create a secret.

use std::os::unix::net::UnixStream;

use serde_json::Value;
use srd_trust::peer;

/// Returns the line about a request in words, such as `to create an access key`, and its answer,
/// with the user and the process at the other end of the socket. The line contains no secret.
pub(super) fn line(stream: &UnixStream, what: &str, answer: &Result<Value, String>) -> String {
    // The answers about a new access key and a new token contain its identifier.
    let end = match answer {
        Ok(answer) => match answer.get("id").and_then(Value::as_str) {
            Some(id) => format!(": {id}"),
            None => String::new(),
        },
        Err(why) => format!(": refused, {why}"),
    };
    format!("asked {what} ({}){end}", peer::in_words(stream))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The server logged nothing about keys, tokens and hosts that were changed.
    #[test]
    fn regression_a_change_is_logged_with_its_user_and_without_its_secret() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let said = |what: &str, answer| line(&stream, what, &answer);
        let user = rustix::process::geteuid().as_raw();
        let by = format!("(user {user}, process {})", std::process::id());
        let key = json!({"id": "SRD1", "secret": "hidden"});
        let created = said("to create an access key", Ok(key));
        assert_eq!(created, format!("asked to create an access key {by}: SRD1"));
        let removed = said("to remove the host", Ok(Value::Null));
        assert_eq!(removed, format!("asked to remove the host {by}"));
        let refused = said("to remove the host", Err(String::from("there is no such host")));
        assert!(refused.ends_with(": refused, there is no such host"), "{refused}");
    }
}
