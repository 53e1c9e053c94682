//! Random requests: valid ones, and ones that are broken in many ways.

use srd_control::http::HttpRequest;
use srd_control::sign::Signature;
use srd_control::wire::form::encode;
use srd_control::wire::model::model;

use super::chance::Chance;
use super::values::Values;

/// Time of the requests, in seconds since 1970, and as requests name it.
pub(crate) const NOW: u64 = 1_800_000_000;
const TIME: &str = "20270115T080000Z";

/// Access keys of two accounts: identifier, secret, account.
pub(crate) const KEYS: [[&str; 3]; 2] = [
    ["SRDKEYONE", "first-secret-0123456789abcdef", "111111111111"],
    ["SRDKEYTWO", "second-secret-fedcba9876543210", "222222222222"],
];

/// Kinds of requests, each with its share in percent.
const KINDS: [(Kind, usize); 9] = [
    (Kind::Valid, 52),
    (Kind::Foreign, 8),
    (Kind::Damaged, 14),
    (Kind::Signature, 9),
    (Kind::Deep, 4),
    (Kind::Large, 2),
    (Kind::Unknown, 3),
    (Kind::Service, 3),
    (Kind::Http, 5),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An action with random parameters of the model.
    Valid,
    /// An action on objects of another account.
    Foreign,
    /// An action whose form has random errors, with a valid signature.
    Damaged,
    /// A wrong signature, time or credential.
    Signature,
    /// Names of parameters with many parts.
    Deep,
    /// Many parameters, long texts, or XML that grows when it is expanded.
    Large,
    /// An action that does not exist or is not served.
    Unknown,
    /// Another service.
    Service,
    /// Another method, path or header.
    Http,
}

/// Returns a request with a valid signature.
fn signed(key: usize, service: &str, form: Vec<u8>) -> HttpRequest {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut request = HttpRequest {
        method: "POST".to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: vec![header("host", "localhost"), header("x-amz-date", TIME)],
        body: form,
    };
    sign(&mut request, key, service);
    request
}

fn sign(request: &mut HttpRequest, key: usize, service: &str) {
    let [id, secret, _] = KEYS[key];
    let day = &TIME[..8];
    let fields = format!(
        "AWS4-HMAC-SHA256 Credential={id}/{day}/us-east-1/{service}/aws4_request, \
         SignedHeaders=host;x-amz-date"
    );
    request.headers.retain(|(name, _)| name != "authorization");
    request.headers.push(("authorization".to_owned(), format!("{fields}, Signature=0")));
    let signature = Signature::read(request).unwrap().sign(request, secret).unwrap();
    let last = request.headers.len() - 1;
    request.headers[last].1 = format!("{fields}, Signature={signature}");
}

fn text(form: &[(String, String)]) -> String {
    let pairs = form.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns the parameters of a random action.
fn action(chance: &mut Chance, ids: &[String]) -> Vec<(String, String)> {
    let names: Vec<&String> = model().operations.keys().collect();
    let name = (*chance.pick(&names)).clone();
    let input = model().operations[&name].input.clone();
    let mut values = Values { chance, ids, form: vec![("Action".to_owned(), name)] };
    if let Some(input) = input {
        values.structure(&input, "", 0);
    }
    values.form
}

/// Returns a request of a client that has this key. `ids`: identifiers of the objects of each
/// account.
pub(crate) fn any(chance: &mut Chance, ids: &[Vec<String>; 2]) -> (Kind, HttpRequest) {
    let key = usize::from(chance.percent(30));
    let mut share = chance.below(100);
    let kind = KINDS.iter().find(|(_, percent)| {
        let is_here = share < *percent;
        share = share.wrapping_sub(*percent);
        is_here
    });
    let kind = kind.map_or(Kind::Valid, |(kind, _)| *kind);
    let request = match kind {
        Kind::Valid => signed(key, "ec2", text(&action(chance, &ids[key])).into()),
        Kind::Foreign => signed(key, "ec2", text(&action(chance, &ids[1 - key])).into()),
        Kind::Damaged => {
            let form = action(chance, &ids[key]);
            signed(key, "ec2", damaged(chance, form))
        }
        Kind::Signature => {
            let form = text(&action(chance, &ids[key]));
            forged(chance, signed(key, "ec2", form.into()))
        }
        Kind::Deep => signed(key, "ec2", deep(chance).into()),
        Kind::Large => signed(key, "ec2", large(chance)),
        Kind::Unknown => {
            let names: Vec<&String> = model().names.iter().collect();
            let name = match chance.below(3) {
                0 => "",
                1 => "DropDatabase\u{0}<x>",
                _ => chance.pick(&names).as_str(),
            };
            signed(key, "ec2", format!("Action={}", encode(name)).into())
        }
        Kind::Service => {
            let service = *chance.pick(&["sts", "s3", "iam", "logs", "x-1", "ssm"]);
            let form = *chance.pick(&["Action=GetCallerIdentity", "Action=AssumeRole", "{}", ""]);
            signed(key, service, form.into())
        }
        Kind::Http => {
            let form = text(&action(chance, &ids[key]));
            broken(chance, signed(key, "ec2", form.into()), key)
        }
    };
    (kind, request)
}

/// A form with errors.
fn damaged(chance: &mut Chance, mut form: Vec<(String, String)>) -> Vec<u8> {
    for _ in 0..=chance.below(3) {
        let at = chance.below(form.len());
        let (name, value) = form[at].clone();
        match chance.below(9) {
            0 => form.push((name, value)),
            1 => drop(form.remove(at)),
            2 => form[at].0 = format!("{name}.1"),
            3 => form[at].1 = "x".repeat(*chance.pick(&[256, 1025, 65_537])),
            4 => {
                form[at].0 =
                    name.replace(".1", chance.pick::<&str>(&[".0", ".-1", ".01", ".4294967296"]))
            }
            5 => form[at].1 = "9".repeat(400),
            6 => form[at].1 = String::new(),
            7 => form.push((format!("Filter.1.Name{}", chance.below(3)), value)),
            _ => form[at].0 = name.to_lowercase(),
        }
        if form.is_empty() {
            form.push(("Action".to_owned(), "DescribeVpcs".to_owned()));
        }
    }
    let mut bytes = text(&form).into_bytes();
    match chance.below(5) {
        0 => bytes.truncate(chance.below(bytes.len() + 1)),
        1 => {
            let at = chance.below(bytes.len());
            bytes[at] = u8::try_from(chance.below(256)).unwrap_or_default();
        }
        2 => {
            bytes.extend(*chance.pick(&[&b"%"[..], b"%f", b"%ff", b"=&=&==", b"\xff\xfe", b"&%00"]))
        }
        _ => {}
    }
    bytes
}

/// A request whose signature is not the one of its content, its time or its key.
fn forged(chance: &mut Chance, mut request: HttpRequest) -> HttpRequest {
    let authorization = request.headers[2].1.clone();
    match chance.below(12) {
        0 => request.body.push(b'&'),
        1 => request.headers[1].1 = "20270115T120000Z".to_owned(),
        2 => request.headers[1].1 = "20260115T080000Z".to_owned(),
        3 => request.headers[1].1 = "\u{e4}99999999T999999".to_owned(),
        4 => drop(request.headers.remove(2)),
        5 => request.headers[2].1 = authorization.replace("SRDKEY", "AKIA"),
        6 => request.headers[2].1 = authorization.replace("us-east-1", "mars-1"),
        7 => request.headers[2].1 = authorization.replace("host;x-amz-date", "x-amz-date"),
        8 => request.headers[2].1 = authorization[..chance.below(authorization.len())].to_owned(),
        9 => request.headers[2].1.push_str(&",Credential=a".repeat(2000)),
        10 => drop(request.headers.remove(1)),
        _ => request.headers[2].1.push('0'),
    }
    request
}

fn deep(chance: &mut Chance) -> String {
    let part = *chance.pick(&["1", "Filter", "Value", "", "a"]);
    let name = vec![part; *chance.pick(&[7, 8, 9, 100, 10_000])].join(".");
    let first = *chance.pick(&["Filter", "IpPermissions", "TagSpecification", "x"]);
    let action = *chance.pick(&["DescribeVpcs", "AuthorizeSecurityGroupIngress", "CreateVpc"]);
    format!("Action={action}&{first}.{name}=1")
}

fn large(chance: &mut Chance) -> Vec<u8> {
    let count = *chance.pick(&[1000, 1001, 20_000, 20_001]);
    match chance.below(7) {
        0 => {
            let ids = (1..=count).map(|n| format!("&VpcId.{n}=v{n}"));
            format!("Action=DescribeVpcs{}", ids.collect::<String>()).into_bytes()
        }
        1 => format!("Action=DescribeVpcs{}", "&a=1".repeat(count)).into_bytes(),
        2 => format!("Action=CreateVpc&CidrBlock={}", "x".repeat(1 << 20)).into_bytes(),
        3 => "&".repeat(1 << 20).into_bytes(),
        4 => {
            let values = (1..=200).map(|n| format!("&Filter.1.Value.{n}={}", "*a".repeat(127)));
            let values: String = values.collect();
            format!("Action=DescribeSubnets&Filter.1.Name=subnet-arn{values}").into_bytes()
        }
        5 => {
            let entity =
                |n: u32| format!("<!ENTITY e{n} \"{}\">", format!("&e{};", n - 1).repeat(10));
            let all: String = (1..10).map(entity).collect();
            format!("<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY e0 \"lol\">{all}]><x>&e9;</x>")
                .into_bytes()
        }
        _ => {
            let rules = (1..=count).map(|n| {
                format!("&IpPermissions.1.IpRanges.{n}.CidrIp=10.{}.{}.0/24", n >> 8, n & 255)
            });
            let rules: String = rules.collect();
            let first = "Action=AuthorizeSecurityGroupIngress&GroupName=default";
            format!("{first}&IpPermissions.1.IpProtocol=-1{rules}").into_bytes()
        }
    }
}

/// A request with another method, path or header.
fn broken(chance: &mut Chance, mut request: HttpRequest, key: usize) -> HttpRequest {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    match chance.below(10) {
        0 => request.method = (*chance.pick(&["GET", "PUT", "DELETE", "", "\u{e4}"])).to_owned(),
        1 => request.path = (*chance.pick(&["/reset", "/moto-api/reset", "", "/../x"])).to_owned(),
        2 => request.headers.push(header("host", "localhost")),
        3 => request.headers.retain(|(name, _)| name != "host"),
        4 => request.headers.push(header("origin", "https://evil.example")),
        5 => request.headers.push(header("sec-fetch-site", "cross-site")),
        6 => request.query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=x&%".to_owned(),
        7 => {
            // The parameters are in the query of a `GET`.
            request.method = "GET".to_owned();
            request.query = String::from_utf8(std::mem::take(&mut request.body)).unwrap();
            sign(&mut request, key, "ec2");
        }
        8 => {
            request.query = "Action=DescribeVpcs&Action=DeleteVpc".to_owned();
            sign(&mut request, key, "ec2");
        }
        _ => {
            let bytes =
                (0..chance.below(200)).map(|_| u8::try_from(chance.below(256)).unwrap_or(0));
            request.body = bytes.collect();
            sign(&mut request, key, "ec2");
        }
    }
    request
}
