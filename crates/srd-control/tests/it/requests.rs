//! Properties that all requests share.

use srd_control::control::{Access, Control};
use srd_control::machines::NoMachines;
use srd_control::sign::Keys;
use srd_control::store::MemoryStore;

use crate::support::{Client, NOW, all, first, request};

#[test]
fn a_new_region_has_what_a_new_account_has() {
    let mut client = Client::new();
    let vpcs = client.ok("Action=DescribeVpcs");
    assert_eq!(all(&vpcs, "cidrBlock")[0], "172.31.0.0/16");
    assert_eq!(all(&vpcs, "isDefault"), ["true"]);
    let subnets = client.ok("Action=DescribeSubnets");
    assert_eq!(all(&subnets, "defaultForAz").len(), 6);
    assert_eq!(all(&subnets, "availableIpAddressCount")[0], "4091");
    let tables = client
        .ok("Action=DescribeRouteTables&Filter.1.Name=association.main&Filter.1.Value.1=true");
    assert_eq!(all(&tables, "destinationCidrBlock"), ["172.31.0.0/16", "0.0.0.0/0"]);
    let groups = client.ok("Action=DescribeSecurityGroups&GroupName.1=default");
    assert_eq!(all(&groups, "groupDescription"), ["default VPC security group"]);
    assert_eq!(all(&client.ok("Action=DescribeInternetGateways"), "vpcId").len(), 1);
    let lists = client.ok("Action=DescribePrefixLists");
    let names = [
        "com.amazonaws.global.cloudfront.origin-facing",
        "com.amazonaws.global.groundstation",
        "com.amazonaws.us-east-1.dynamodb",
        "com.amazonaws.us-east-1.ipv6.vpc-lattice",
        "com.amazonaws.us-east-1.s3",
        "com.amazonaws.us-east-1.vpc-lattice",
    ];
    let mut shown = all(&lists, "prefixListName");
    shown.sort();
    assert_eq!(shown, names);
    let find = "Filter.1.Name=prefix-list-name&Filter.1.Value.1=*.ipv6.*";
    let of_ipv6 = client.ok(&format!("Action=DescribeManagedPrefixLists&{find}"));
    assert_eq!(all(&of_ipv6, "addressFamily"), ["IPv6"]);
    client.region = "eu-west-1";
    let other = client.ok("Action=DescribeVpcs");
    assert_ne!(first(&other, "vpcId"), first(&vpcs, "vpcId"));
    client.region = "mars-1";
    assert_eq!(client.code("Action=DescribeVpcs"), "SignatureDoesNotMatch");
}

#[test]
fn a_dry_run_changes_nothing_and_returns_the_error_of_the_request() {
    let mut client = Client::new();
    client.ok("Action=DescribeVpcs");
    let before = client.state().vpcs.len();
    let answer = client.send("Action=CreateVpc&CidrBlock=10.0.0.0/16&DryRun=true");
    assert_eq!((answer.status, first(&answer.body, "Code")), (412, "DryRunOperation".to_owned()));
    assert_eq!(client.state().vpcs.len(), before);
    assert_eq!(client.state().route_tables.len(), before);
    assert_eq!(
        client.code("Action=CreateVpc&CidrBlock=10.0.0.0/8&DryRun=true"),
        "InvalidVpc.Range"
    );
}

#[test]
fn a_failed_request_changes_nothing() {
    let mut client = Client::new();
    let group = client.take("Action=CreateSecurityGroup&GroupName=g&GroupDescription=d", "groupId");
    let rules = client.state().group_rules.len();
    let form = format!(
        "Action=AuthorizeSecurityGroupIngress&GroupId={group}&IpPermissions.1.IpProtocol=tcp\
         &IpPermissions.1.FromPort=80&IpPermissions.1.ToPort=80\
         &IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8&IpPermissions.1.IpRanges.2.CidrIp=10.0.0.0/8"
    );
    assert_eq!(client.code(&form), "InvalidPermission.Duplicate");
    assert_eq!(client.state().group_rules.len(), rules);
    assert!(!client.state().is_changed());
}

#[test]
fn a_token_repeats_the_answer_and_refuses_other_parameters() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let form = format!("Action=CreateNetworkAcl&VpcId={vpc}&ClientToken=t");
    let id = client.take(&form, "networkAclId");
    assert_eq!(client.take(&form, "networkAclId"), id);
    let other = format!("{form}&TagSpecification.1.ResourceType=network-acl");
    assert_eq!(client.code(&other), "IdempotentParameterMismatch");
    client.now += 24 * 3600;
    assert_ne!(client.take(&form, "networkAclId"), id);
}

#[test]
fn pages_end_and_tokens_belong_to_their_action() {
    let mut client = Client::new();
    let mut form = "Action=DescribeSubnets&MaxResults=5".to_owned();
    let page = client.ok(&form);
    assert_eq!(all(&page, "subnetId").len(), 5);
    let token = first(&page, "nextToken");
    form = format!("{form}&NextToken={token}");
    let last = client.ok(&form);
    assert_eq!(all(&last, "subnetId").len(), 1);
    assert!(!last.contains("nextToken"));
    let wrong = format!("Action=DescribeVpcs&NextToken={token}");
    assert_eq!(client.code(&wrong), "InvalidNextToken");
    assert_eq!(client.code("Action=DescribeVpcs&MaxResults=0"), "InvalidParameterValue");
}

#[test]
fn tags_are_given_filtered_and_removed() {
    let mut client = Client::new();
    let create = "Action=CreateVpc&CidrBlock=10.0.0.0/16&TagSpecification.1.ResourceType=vpc\
                  &TagSpecification.1.Tag.1.Key=Name&TagSpecification.1.Tag.1.Value=\
                  one%20%26%20two";
    let vpc = client.take(create, "vpcId");
    let find = "Action=DescribeVpcs&Filter.1.Name=tag%3AName&Filter.1.Value.1=one*";
    assert_eq!(client.take(find, "vpcId"), vpc);
    assert!(client.ok(find).contains("<value>one &amp; two</value>"));
    client.ok(&format!("Action=DeleteTags&ResourceId.1={vpc}&Tag.1.Key=Name&Tag.1.Value=other"));
    assert_eq!(client.take(find, "vpcId"), vpc);
    client.ok(&format!("Action=DeleteTags&ResourceId.1={vpc}&Tag.1.Key=Name"));
    assert!(!client.ok(find).contains("vpcId"));
    let wrong = create.replace("ResourceType=vpc", "ResourceType=subnet");
    assert_eq!(client.code(&wrong), "InvalidParameter");
    let wrong = "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1\
                 &TagSpecification.1.ResourceType=vpc&TagSpecification.1.Tag.1.Key=a";
    assert_eq!(client.code(wrong), "InvalidParameterValue");
    assert_eq!(
        client.code("Action=CreateTags&ResourceId.1=vpc-1&Tag.1.Key=a"),
        "InvalidVpcID.NotFound"
    );
}

#[test]
fn without_a_valid_signature_nothing_is_served() {
    let mut keys = Keys::default();
    keys.add("x", "secret", "123456789012");
    let store = Box::new(MemoryStore::default());
    let mut control = Control::new(Access::Keys(keys), 1, store, Box::new(NoMachines)).unwrap();
    let signed = request("us-east-1", "Action=DescribeVpcs");
    let answer = control.handle(&signed, NOW);
    assert_eq!(
        (answer.status, first(&answer.body, "Code")),
        (403, "SignatureDoesNotMatch".to_owned())
    );
    let mut anonymous = signed.clone();
    anonymous.headers.retain(|(name, _)| name != "authorization");
    let answer = control.handle(&anonymous, NOW);
    assert_eq!(first(&answer.body, "Code"), "MissingAuthenticationToken");
    let mut reset = anonymous;
    reset.path = "/reset".to_owned();
    assert_eq!(control.handle(&reset, NOW).status, 403);
    assert!(control.cloud().regions.is_empty());
}

#[test]
fn a_reset_empties_the_state_of_a_trial() {
    let mut client = Client::new();
    client.network();
    let mut reset = request("us-east-1", "");
    reset.path = "/moto-api/reset".to_owned();
    assert_eq!(client.control.handle(&reset, NOW).status, 200);
    assert_eq!(all(&client.ok("Action=DescribeVpcs"), "vpcId").len(), 1);
}

#[test]
fn the_identity_of_the_caller_is_served() {
    let mut client = Client::new();
    let mut identity = request("us-east-1", "Action=GetCallerIdentity&Version=2011-06-15");
    for (_, value) in &mut identity.headers {
        *value = value.replace("/ec2/", "/sts/");
    }
    let answer = client.control.handle(&identity, NOW);
    assert_eq!(first(&answer.body, "Account"), "123456789012");
    for (_, value) in &mut identity.headers {
        *value = value.replace("/sts/", "/iam/");
    }
    assert_eq!(client.control.handle(&identity, NOW).status, 501);
}

/// A regression: the answer to a request without `MaxResults` contained all objects.
#[test]
fn an_answer_has_at_most_a_thousand_objects() {
    let mut client = Client::new();
    let tags: String = (1..=50).map(|n| format!("&TagSpecification.1.Tag.{n}.Key=k{n}")).collect();
    for _ in 0..21 {
        let form = "Action=CreateInternetGateway&TagSpecification.1.ResourceType=internet-gateway";
        client.ok(&format!("{form}{tags}"));
    }
    let page = client.ok("Action=DescribeTags");
    assert_eq!(all(&page, "resourceId").len(), 1000);
    let token = first(&page, "nextToken");
    let rest = client.ok(&format!("Action=DescribeTags&NextToken={token}"));
    assert_eq!(all(&rest, "resourceId").len(), 50);
}

/// Reads all pages of a list, and deletes the objects of each page before it reads the next one.
fn purge(client: &mut Client, list: &str, element: &str, delete: &str) -> Vec<String> {
    let (mut shown, mut form) = (Vec::new(), list.to_owned());
    for _ in 0..20 {
        let page = client.ok(&form);
        for id in all(&page, element) {
            client.ok(&format!("{delete}={id}"));
            shown.push(id);
        }
        let Some(token) = all(&page, "nextToken").pop() else { return shown };
        form = format!("{list}&NextToken={token}");
    }
    panic!("the list has no end: {shown:?}");
}

/// The second page left out as many objects as the first one had shown.
#[test]
fn regression_a_client_that_deletes_each_page_sees_all_objects() {
    let mut client = Client::new();
    let create = "Action=CreateVolume&AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3\
                  &TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=k\
                  &TagSpecification.1.Tag.1.Value=v";
    (0..7).for_each(|_| drop(client.ok(create)));
    let tags = "Action=DescribeTags&MaxResults=5&Filter.1.Name=key&Filter.1.Value.1=k";
    let untag = "Action=DeleteTags&Tag.1.Key=k&ResourceId.1";
    assert_eq!(purge(&mut client, tags, "resourceId", untag).len(), 7);
    let volumes = "Action=DescribeVolumes&MaxResults=5";
    let delete = "Action=DeleteVolume&VolumeId";
    assert_eq!(purge(&mut client, volumes, "volumeId", delete).len(), 7);
    let (vpc, subnet) = client.network();
    let create = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    (0..7).for_each(|_| drop(client.ok(&create)));
    let interfaces = format!(
        "Action=DescribeNetworkInterfaces&MaxResults=5&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}"
    );
    let delete = "Action=DeleteNetworkInterface&NetworkInterfaceId";
    assert_eq!(purge(&mut client, &interfaces, "networkInterfaceId", delete).len(), 7);
}

/// A group with several rules was shown several times, and the pages had no end.
#[test]
fn regression_the_users_of_a_prefix_list_are_shown_once() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let list = client.take(
        "Action=CreateManagedPrefixList&PrefixListName=l&AddressFamily=IPv4&MaxEntries=1\
         &Entry.1.Cidr=10.9.0.0/16",
        "prefixListId",
    );
    let groups = ["x", "y"].map(|name| {
        let form =
            format!("Action=CreateSecurityGroup&GroupName={name}&GroupDescription=x&VpcId={vpc}");
        client.take(&form, "groupId")
    });
    for (group, port) in [(&groups[0], 1), (&groups[1], 2), (&groups[0], 3)] {
        client.ok(&format!(
            "Action=AuthorizeSecurityGroupIngress&GroupId={group}&IpPermissions.1.IpProtocol=tcp\
             &IpPermissions.1.FromPort={port}&IpPermissions.1.ToPort={port}\
             &IpPermissions.1.PrefixListIds.1.PrefixListId={list}"
        ));
    }
    let associations =
        format!("Action=GetManagedPrefixListAssociations&PrefixListId={list}&MaxResults=1");
    let keep = "Action=DescribeSecurityGroups&GroupId.1";
    let shown = purge(&mut client, &associations, "resourceId", keep);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(groups.iter().all(|group| shown.contains(group)));
}
