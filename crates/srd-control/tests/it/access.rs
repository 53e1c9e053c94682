//! Access: requests of web pages and of strangers change nothing.

use srd_control::control::keys::ACCOUNTS_MAX;
use srd_control::control::{Access, Control, TRIAL_ACCOUNT};
use srd_control::http::HttpRequest;
use srd_control::machines::{Machines, NoMachines};
use srd_control::sign::{DrawnKey, Signature};
use srd_control::state::{Instance, Region};
use srd_control::store::MemoryStore;

use crate::support::{Client, NOW, first, request};

const CREATE: &str = "Action=CreateVpc&CidrBlock=10.0.0.0/16";
const PRESIGNED: &str = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a/20270115/us-east-1/\
                         ec2/aws4_request&X-Amz-Date=20270115T080000Z&X-Amz-Expires=60\
                         &X-Amz-SignedHeaders=host&X-Amz-Signature=x";

fn with(mut request: HttpRequest, name: &str, value: &str) -> HttpRequest {
    request.headers.retain(|(header, _)| header != name);
    request.headers.push((name.to_owned(), value.to_owned()));
    request
}

/// A regression: a web page in a browser on this machine could create objects, and reset the state.
#[test]
fn requests_that_a_web_page_causes_change_nothing() {
    let mut client = Client::new();
    client.network();
    let vpcs = client.state().vpcs.len();
    let form = || request("us-east-1", CREATE);
    let reset = || HttpRequest { path: "/reset".to_owned(), ..request("us-east-1", "") };
    let mut presigned = form();
    presigned.headers.retain(|(name, _)| name != "authorization");
    presigned.query = PRESIGNED.to_owned();
    let mut get = presigned.clone();
    get.method = "GET".to_owned();
    get.query = format!("{PRESIGNED}&{CREATE}");
    get.body = Vec::new();
    let mut twice = form();
    twice.headers.push(("host".to_owned(), "localhost".to_owned()));
    for (request, status) in [
        (with(form(), "origin", "https://evil.example"), 403),
        (with(form(), "host", "evil.example:4599"), 403),
        (with(form(), "sec-fetch-site", "cross-site"), 403),
        (with(reset(), "origin", "https://evil.example"), 403),
        (with(reset(), "host", "evil.example:4599"), 403),
        (with(reset(), "sec-fetch-site", "same-site"), 403),
        (twice, 403),
        (presigned, 403),
        (get, 405),
    ] {
        let answer = client.control.handle(&request, NOW);
        assert_eq!(answer.status, status, "{request:?}");
        assert_eq!(client.state().vpcs.len(), vpcs);
    }
    let mut read = request("us-east-1", "");
    read.method = "GET".to_owned();
    read.query = "Action=DescribeVpcs".to_owned();
    assert_eq!(client.control.handle(&read, NOW).status, 200);
}

/// A request that this key signs.
pub(crate) fn signed(key: &DrawnKey, mut request: HttpRequest) -> HttpRequest {
    let (_, header) = request.headers.iter_mut().find(|(n, _)| n == "authorization").unwrap();
    *header = header.replace("Credential=x/", &format!("Credential={}/", key.id));
    let signature = Signature::read(&request).unwrap().sign(&request, &key.secret).unwrap();
    let (_, header) = request.headers.iter_mut().find(|(n, _)| n == "authorization").unwrap();
    *header = header.replace("Signature=0", &format!("Signature={signature}"));
    request
}

#[test]
fn a_trial_serves_its_key_only() {
    let key = DrawnKey::draw().unwrap();
    let other = DrawnKey::draw().unwrap();
    assert_eq!(key.secret.len(), 64);
    assert_ne!(key.secret, other.secret);
    assert!(!format!("{key:?}").contains(&key.secret));
    let access = Access::Trial(key.only(TRIAL_ACCOUNT));
    let store = Box::new(MemoryStore::default());
    let mut control = Control::new(access, 1, store, Box::new(NoMachines)).unwrap();
    let create = || request("us-east-1", CREATE);
    let reset = || HttpRequest { path: "/moto-api/reset".to_owned(), ..request("us-east-1", "") };
    for stranger in [create(), reset(), signed(&other, create()), signed(&other, reset())] {
        assert_eq!(control.handle(&stranger, NOW).status, 403);
    }
    let forged = DrawnKey { id: key.id.clone(), secret: other.secret };
    let answer = control.handle(&signed(&forged, create()), NOW);
    assert_eq!(first(&answer.body, "Code"), "SignatureDoesNotMatch");
    assert!(control.cloud().regions.is_empty());
    assert_eq!(control.handle(&signed(&key, create()), NOW).status, 200);
    assert_eq!(control.cloud().regions.len(), 1);
    let page = with(signed(&key, reset()), "origin", "https://evil.example");
    assert_eq!(control.handle(&page, NOW).status, 403);
    assert_eq!(control.cloud().regions.len(), 1);
    assert_eq!(control.handle(&signed(&key, reset()), NOW).status, 200);
    assert!(control.cloud().regions.is_empty());
}

/// Machines that clients can run programs on.
struct Real;

impl Machines for Real {
    fn start(&mut self, _: &Region, _: &Instance) -> Result<(), String> {
        Ok(())
    }

    fn stop(&mut self, _: &Region, _: &Instance) {}
}

#[test]
fn any_credentials_are_refused_together_with_machines_that_run_programs() {
    let with = |access| Control::new(access, 1, Box::new(MemoryStore::default()), Box::new(Real));
    assert!(with(Access::AnyCredentials).unwrap_err().contains("run programs as root"));
    assert!(with(Access::Trial(DrawnKey::draw().unwrap().only(TRIAL_ACCOUNT))).is_ok());
}

/// A request to EC2 with this access key, for a server that accepts any credentials.
fn with_key(key: &str, region: &str, form: &str) -> HttpRequest {
    let mut request = request(region, form);
    let (_, header) = request.headers.iter_mut().find(|(n, _)| n == "authorization").unwrap();
    *header = header.replace("Credential=x/", &format!("Credential={key}/"));
    request
}

#[test]
fn with_any_credentials_a_key_of_twelve_digits_is_an_account() {
    let mut client = Client::new();
    for (key, account) in [
        ("111111111111", "111111111111"),
        ("222222222222", "222222222222"),
        ("x", TRIAL_ACCOUNT),
        ("11111111111", TRIAL_ACCOUNT),
        ("1111111111111", TRIAL_ACCOUNT),
        ("11111111111x", TRIAL_ACCOUNT),
    ] {
        let answer = client.control.handle(&with_key(key, "us-east-1", CREATE), NOW);
        assert_eq!(first(&answer.body, "ownerId"), account, "{key}");
    }
}

#[test]
fn the_accounts_of_any_credentials_are_bounded() {
    let mut client = Client::new();
    let mut status = |key: &str| {
        let request = with_key(key, "us-east-1", "Action=DescribeVpcs");
        client.control.handle(&request, NOW).status
    };
    for number in 0..ACCOUNTS_MAX {
        assert_eq!(status(&format!("{number:012}")), 200);
    }
    assert_eq!(status("222222222222"), 403);
    assert_eq!((status("000000000000"), status("x")), (200, 200));
}

#[test]
fn a_peering_request_is_answered_by_its_accepter_in_its_region() {
    let mut client = Client::new();
    let [own, other] = ["111111111111", "222222222222"];
    let [here, there] = ["us-east-1", "eu-west-1"];
    let mut send = |key: &str, region: &str, form: &str| {
        let answer = client.control.handle(&with_key(key, region, form), NOW);
        (answer.status, answer.body)
    };
    let vpc = first(&send(own, here, CREATE).1, "vpcId");
    let of = |verb: &str, id: &str| {
        format!("Action={verb}VpcPeeringConnection&VpcPeeringConnectionId={id}")
    };
    for peer_owner in [own, other] {
        let make = "Action=CreateVpc&CidrBlock=10.9.0.0/16";
        let peer = first(&send(peer_owner, there, make).1, "vpcId");
        let form = format!(
            "Action=CreateVpcPeeringConnection&VpcId={vpc}&PeerVpcId={peer}\
             &PeerOwnerId={peer_owner}&PeerRegion={there}"
        );
        let id = first(&send(own, here, &form).1, "vpcPeeringConnectionId");
        for (verb, noun, permitted) in
            [("Accept", "accept", "accepted"), ("Reject", "reject", "accepted or rejected")]
        {
            let message = match peer_owner == own {
                true => format!(
                    "Incorrect region ({here}) specified for this request. VPC peering connection \
                     {id} must be {permitted} in region {there}"
                ),
                false => format!("User ({own}) cannot {noun} peering {id}"),
            };
            let (_, body) = send(own, here, &of(verb, &id));
            let error = (first(&body, "Code"), first(&body, "Message"));
            assert_eq!(error, ("OperationNotPermitted".to_owned(), message));
        }
        // Only the requester deletes a request that waits.
        let (status, body) = send(peer_owner, there, &of("Delete", &id));
        assert_eq!(status == 200, peer_owner == own, "{body}");
        if peer_owner == other {
            assert_eq!(send(other, there, &of("Accept", &id)).0, 200);
            assert_eq!(send(other, there, &of("Delete", &id)).0, 200);
        }
        let (_, shown) = send(own, here, "Action=DescribeVpcPeeringConnections");
        assert!(shown.contains(&format!("Deleted by {peer_owner}")), "{shown}");
    }
}

/// A regression: the answer to a peering request disclosed whether its VPC overlaps the address
/// blocks of a VPC in another account.
#[test]
fn a_peering_request_tells_nothing_about_the_blocks_of_another_account() {
    let own = DrawnKey::draw().unwrap();
    let other = DrawnKey::draw().unwrap();
    let mut keys = own.only("111111111111");
    keys.add(&other.id, &other.secret, "222222222222");
    let store = Box::new(MemoryStore::default());
    let mut control = Control::new(Access::Keys(keys), 1, store, Box::new(NoMachines)).unwrap();
    let mut ok = |key: &DrawnKey, form: &str| {
        let answer = control.handle(&signed(key, request("us-east-1", form)), NOW);
        assert_eq!(answer.status, 200, "{form}: {}", answer.body);
        answer.body
    };
    let a = first(&ok(&own, CREATE), "vpcId");
    let b = first(&ok(&other, CREATE), "vpcId");
    let form = format!(
        "Action=CreateVpcPeeringConnection&VpcId={a}&PeerVpcId={b}&PeerOwnerId=222222222222"
    );
    let id = first(&ok(&own, &form), "vpcPeeringConnectionId");
    let shown = ok(&own, "Action=DescribeVpcPeeringConnections");
    assert_eq!(first(&shown, "code"), "pending-acceptance");
    let accept = format!("Action=AcceptVpcPeeringConnection&VpcPeeringConnectionId={id}");
    assert_eq!(first(&ok(&other, &accept), "code"), "failed");
    for key in [&own, &other] {
        let shown = ok(key, "Action=DescribeVpcPeeringConnections");
        assert_eq!(first(&shown, "code"), "failed");
    }
}
