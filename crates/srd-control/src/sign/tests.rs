//! Tests of signatures.

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const NOW: u64 = 1_440_938_160;

fn keys() -> Keys {
    let mut keys = Keys::default();
    keys.add("AKIDEXAMPLE", SECRET, "123456789012");
    keys
}

fn request(query: &str, headers: &[(&str, &str)]) -> HttpRequest {
    let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    HttpRequest {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        query: query.to_owned(),
        headers,
        body: Vec::new(),
    }
}

/// The example of the AWS documentation: `ListUsers` of IAM.
fn list_users() -> HttpRequest {
    request(
        "Action=ListUsers&Version=2010-05-08",
        &[
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", "iam.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
                 SignedHeaders=content-type;host;x-amz-date, Signature=\
                 5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
            ),
        ],
    )
}

/// `get-vanilla` of the published test suite.
fn vanilla() -> HttpRequest {
    request(
        "",
        &[
            ("host", "example.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 \
                 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date, Signature=\
                 5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
        ],
    )
}

fn verify(request: &HttpRequest, now: u64) -> Result<String, String> {
    let signature = Signature::read(request).map_err(|error| error.code)?;
    signature.verify(request, &keys(), now).map_err(|error| error.code)
}

#[test]
fn the_published_examples_are_accepted() {
    for request in [list_users(), vanilla()] {
        assert_eq!(verify(&request, NOW).as_deref(), Ok("123456789012"));
    }
    assert_eq!(parse_time("20150830T123600Z"), Some(NOW));
}

#[test]
fn a_client_signs_as_the_published_examples_do() {
    let key = DrawnKey { id: "AKIDEXAMPLE".to_owned(), secret: SECRET.to_owned() };
    for (mut example, service) in [(list_users(), "iam"), (vanilla(), "service")] {
        let wanted = example.headers.pop().unwrap();
        let (_, time) = example.headers.pop().unwrap();
        key.authorize(&mut example, ("us-east-1", service), &time).unwrap();
        assert_eq!(example.headers.last(), Some(&wanted));
        assert!(verify(&example, NOW).is_ok());
    }
}

#[test]
fn changes_old_times_and_strangers_are_refused() {
    let code = |request: &HttpRequest, now| verify(request, now).unwrap_err();
    let mut changed = list_users();
    changed.query.push_str("&UserName=x");
    assert_eq!(code(&changed, NOW), "SignatureDoesNotMatch");
    let mut body = list_users();
    body.body.push(b'x');
    assert_eq!(code(&body, NOW), "SignatureDoesNotMatch");
    assert_eq!(code(&vanilla(), NOW + WINDOW_S + 1), "RequestExpired");
    assert_eq!(code(&vanilla(), NOW - WINDOW_S - 1), "RequestExpired");
    assert!(verify(&vanilla(), NOW + WINDOW_S).is_ok());
    assert_eq!(code(&request("", &[]), NOW), "MissingAuthenticationToken");
    let mut stranger = vanilla();
    stranger.headers[2].1 = stranger.headers[2].1.replace("AKIDEXAMPLE", "AKIDOTHER");
    assert_eq!(code(&stranger, NOW), "AuthFailure");
    for cut in
        ["AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=a/b", "Basic x", "AWS4-HMAC-SHA256 x"]
    {
        let mut broken = vanilla();
        broken.headers[2].1 = cut.to_owned();
        assert_eq!(code(&broken, NOW), "IncompleteSignature", "{cut}");
    }
    for (from, to) in [
        ("/20150830/", "/2/"),
        ("/20150830/", "/20150831/"),
        ("/us-east-1/", "/us-east-1\n/"),
        ("/service/", "/Service/"),
    ] {
        let mut broken = vanilla();
        broken.headers[2].1 = broken.headers[2].1.replace(from, to);
        assert_eq!(code(&broken, NOW), "IncompleteSignature", "{to}");
    }
    let mut late = vanilla();
    late.headers[1].1 = "20150830T123600Z\nx".to_owned();
    assert_eq!(code(&late, NOW), "IncompleteSignature");
}

#[test]
fn a_presigned_request_is_valid_for_as_long_as_it_states() {
    let query = "Action=DescribeVpcs&X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIDEXAMPLE%2F20150830%2Fus-east-1%2Fec2%2Faws4_request\
        &X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host";
    let unsigned = request(&format!("{query}&X-Amz-Signature=0"), &[("host", "h")]);
    let signature = Signature::read(&unsigned).unwrap().sign(&unsigned, SECRET).unwrap();
    let signed = request(&format!("{query}&X-Amz-Signature={signature}"), &[("host", "h")]);
    assert!(verify(&signed, NOW + 60).is_ok());
    assert_eq!(verify(&signed, NOW + 61).unwrap_err(), "RequestExpired");
    assert_eq!(verify(&unsigned, NOW).unwrap_err(), "SignatureDoesNotMatch");
}

#[test]
fn hostile_times_are_no_times() {
    for text in [
        "",
        "20150830",
        "20150830T1236000",
        "2015083aT123600Z",
        "20151330T123600Z",
        "00000830T123600Z",
        "2015083\u{e4}T12360Z",
        "+0150830T123600Z",
    ] {
        assert_eq!(parse_time(text), None, "{text}");
    }
}
