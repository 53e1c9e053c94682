//! Lines for the log about requests of the operator that change something or create a secret.

use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use serde_json::Value;

use super::admin::Request;

/// Returns the line about a request and its answer, with the user and the process at the other end
/// of the socket; `None`: the request changes nothing. The line contains no secret.
pub(super) fn line(
    stream: &UnixStream,
    request: &Request,
    answer: &Result<Value, String>,
) -> Option<String> {
    let what = in_words(request)?;
    let by = match socket_peercred(stream) {
        Ok(by) => format!("user {}, process {}", by.uid.as_raw(), by.pid.as_raw_nonzero()),
        Err(error) => format!("an unknown user: {error}"),
    };
    // The answers about a new access key and a new token contain its identifier.
    let end = match answer {
        Ok(answer) => match answer.get("id").and_then(Value::as_str) {
            Some(id) => format!(": {id}"),
            None => String::new(),
        },
        Err(why) => format!(": refused, {why}"),
    };
    Some(format!("asked {what} ({by}){end}"))
}

/// Returns the words about a request that changes something or creates a secret.
fn in_words(request: &Request) -> Option<String> {
    Some(match request {
        Request::Hosts | Request::Identity | Request::Keys | Request::Tokens => return None,
        Request::Remove { name } => format!("to remove the host {name:?}"),
        Request::Rotate { name } => format!("to change the key of the host {name:?}"),
        Request::RotateAuthority => String::from("to replace the authority"),
        Request::RotateIdentity => String::from("to begin a change of the identity"),
        Request::FinishIdentity { excludes: false } => {
            String::from("to end the change of the identity, with the next one")
        }
        Request::FinishIdentity { excludes: true } => String::from(
            "to end the change of the identity, with the next one, and to exclude hosts without it",
        ),
        Request::CancelIdentity => {
            String::from("to end the change of the identity, with the present one")
        }
        Request::CreateKey => String::from("to create an access key"),
        Request::SetKey { id, is_active: true } => format!("to activate the access key {id:?}"),
        Request::SetKey { id, is_active: false } => format!("to deactivate the access key {id:?}"),
        Request::DeleteKey { id } => format!("to delete the access key {id:?}"),
        Request::CreateToken { lifetime_s, uses } => {
            format!("to create a token for {uses} hosts, which expires in {lifetime_s} s")
        }
        Request::RevokeToken { id } => format!("to revoke the token {id:?}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The server logged nothing about keys, tokens and hosts that were changed.
    #[test]
    fn regression_a_change_is_logged_with_its_user_and_without_its_secret() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let said = |request: Request, answer| line(&stream, &request, &answer);
        let by = format!(
            "(user {}, process {})",
            rustix::process::geteuid().as_raw(),
            std::process::id()
        );
        let key = json!({"id": "SRD1", "secret": "hidden"});
        let created = said(Request::CreateKey, Ok(key)).unwrap();
        assert_eq!(created, format!("asked to create an access key {by}: SRD1"));
        let token = json!({"id": "T1", "token": "hidden", "expires_at": 1, "uses": 2});
        let created = said(Request::CreateToken { lifetime_s: 60, uses: 2 }, Ok(token)).unwrap();
        assert!(created.ends_with(": T1") && !created.contains("hidden"), "{created}");
        let removal = Request::Remove { name: String::from("web-1") };
        let removed = said(removal.clone(), Ok(Value::Null)).unwrap();
        assert_eq!(removed, format!("asked to remove the host \"web-1\" {by}"));
        let refused = said(removal, Err(String::from("there is no such host"))).unwrap();
        assert!(refused.ends_with(": refused, there is no such host"), "{refused}");
        assert_eq!(said(Request::Hosts, Ok(Value::Null)), None);
    }
}
