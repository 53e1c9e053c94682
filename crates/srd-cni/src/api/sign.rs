//! Signed requests that post a form to the path `/`.

use srd_control::http::HttpRequest;
use srd_control::sign::DrawnKey;

use super::key::Access;

/// Media type of a form.
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// Returns the headers of a signed request. `time` has the form of [`super::time::format`].
///
/// # Errors
/// If the request cannot be signed.
pub fn headers(
    access: &Access,
    region: &str,
    host: &str,
    body: &[u8],
    time: &str,
) -> Result<Vec<(String, String)>, String> {
    let headers = [("host", host), ("content-type", FORM)];
    let mut request = HttpRequest {
        method: "POST".to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        body: body.to_vec(),
    };
    let key = DrawnKey { id: access.id.clone(), secret: access.secret.clone() };
    let signed = key.authorize(&mut request, (region, "ec2"), time);
    signed.map_err(|error| error.message)?;
    Ok(request.headers)
}
