// Creates, reads and deletes objects of a virtual private cloud with the AWS SDK for Go, and compares
// each value of the answers. The environment contains the address, the region and the access key.
// `../run.py` runs this program and its two counterparts.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"sort"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

const waitMax = time.Minute

var (
	ctx    = context.Background()
	client *ec2.Client
	checks int
)

// equal compares two values, and ends the program if they differ.
func equal(name string, got, expected any) {
	checks++
	if !reflect.DeepEqual(got, expected) {
		fmt.Printf("%s: %#v, expected %#v\n", name, got, expected)
		os.Exit(1)
	}
}

// must returns the answer of a request that has to succeed.
func must[T any](answer *T, err error) *T {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return answer
}

// refused checks the code and the status of an error.
func refused[T any](code string, status int) func(*T, error) {
	return func(_ *T, err error) {
		var fault smithy.APIError
		equal(code+" is an error of the service", errors.As(err, &fault), true)
		equal("code", fault.ErrorCode(), code)
		var response *awshttp.ResponseError
		equal(code+" has an answer", errors.As(err, &response), true)
		equal("status", response.HTTPStatusCode(), status)
		equal("the request has an identifier", len(response.ServiceRequestID()), 36)
	}
}

func filter(name string, values ...string) []types.Filter {
	return []types.Filter{{Name: aws.String(name), Values: values}}
}

func named(kind types.ResourceType) []types.TagSpecification {
	tags := []types.Tag{{Key: aws.String("Name"), Value: aws.String("sdk <&> \u00fc")}}
	return []types.TagSpecification{{ResourceType: kind, Tags: tags}}
}

func network() (string, string) {
	made := must(client.CreateVpc(ctx, &ec2.CreateVpcInput{
		CidrBlock: aws.String("10.60.0.0/16"), TagSpecifications: named(types.ResourceTypeVpc)}))
	vpc := *made.Vpc.VpcId
	id, _ := middleware.GetRequestIDMetadata(made.ResultMetadata)
	equal("the request has an identifier", len(id), 36)
	equal("first state of the VPC", made.Vpc.State, types.VpcStatePending)
	equal("tag of the VPC", *made.Vpc.Tags[0].Value, "sdk <&> \u00fc")
	one := &ec2.DescribeVpcsInput{VpcIds: []string{vpc}}
	err := ec2.NewVpcAvailableWaiter(client).Wait(ctx, one, waitMax)
	equal("wait for the VPC", err, nil)
	found := must(client.DescribeVpcs(ctx, one)).Vpcs[0]
	equal("block", *found.CidrBlock, "10.60.0.0/16")
	equal("default", *found.IsDefault, false)
	equal("tenancy", found.InstanceTenancy, types.TenancyDefault)
	equal("owner", *found.OwnerId, "123456789012")
	state := found.CidrBlockAssociationSet[0].CidrBlockState.State
	equal("state of the block", state, types.VpcCidrBlockStateCodeAssociated)
	subnet := must(client.CreateSubnet(ctx, &ec2.CreateSubnetInput{
		VpcId: &vpc, CidrBlock: aws.String("10.60.1.0/24"),
		TagSpecifications: named(types.ResourceTypeSubnet)})).Subnet
	equal("free addresses", *subnet.AvailableIpAddressCount, int32(251))
	equal("state of the subnet", subnet.State, types.SubnetStateAvailable)
	equal("public addresses", *subnet.MapPublicIpOnLaunch, false)
	return vpc, *subnet.SubnetId
}

func group(vpc string) string {
	id := *must(client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		GroupName: aws.String("sdk"), Description: aws.String("rules"), VpcId: &vpc})).GroupId
	permissions := []types.IpPermission{
		{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(443), ToPort: aws.Int32(443),
			IpRanges: []types.IpRange{{CidrIp: aws.String("10.0.0.0/8"), Description: aws.String("web")}}},
		{IpProtocol: aws.String("udp"), FromPort: aws.Int32(4000), ToPort: aws.Int32(4010),
			UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &id}}},
	}
	authorize := &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &id, IpPermissions: permissions}
	rules := must(client.AuthorizeSecurityGroupIngress(ctx, authorize)).SecurityGroupRules
	equal("new rules", len(rules), 2)
	equal("protocol", *rules[0].IpProtocol, "tcp")
	equal("port", *rules[0].FromPort, int32(443))
	equal("source", *rules[0].CidrIpv4, "10.0.0.0/8")
	equal("description", *rules[0].Description, "web")
	equal("direction", *rules[0].IsEgress, false)
	equal("group of the rule", *rules[1].ReferencedGroupInfo.GroupId, id)
	refused[ec2.AuthorizeSecurityGroupIngressOutput]("InvalidPermission.Duplicate", 400)(
		client.AuthorizeSecurityGroupIngress(ctx, authorize))
	all := must(client.DescribeSecurityGroupRules(ctx, &ec2.DescribeSecurityGroupRulesInput{
		Filters: filter("group-id", id)})).SecurityGroupRules
	equal("rules with the rule for outgoing packets", len(all), 3)
	shown := must(client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
		GroupIds: []string{id}})).SecurityGroups[0]
	equal("permissions", len(shown.IpPermissions), 2)
	equal("outgoing", *shown.IpPermissionsEgress[0].IpProtocol, "-1")
	equal("ports of all protocols", shown.IpPermissionsEgress[0].FromPort, (*int32)(nil))
	return id
}

// express starts an instance whose interface uses ENA Express, and changes the interface.
func express(subnet, group string) string {
	udp := &types.EnaSrdUdpSpecificationRequest{EnaSrdUdpEnabled: aws.Bool(true)}
	card := types.InstanceNetworkInterfaceSpecification{
		DeviceIndex: aws.Int32(0), SubnetId: &subnet, Groups: []string{group},
		PrivateIpAddress: aws.String("10.60.1.9"), DeleteOnTermination: aws.Bool(true),
		EnaSrdSpecification: &types.EnaSrdSpecificationRequest{
			EnaSrdEnabled: aws.Bool(true), EnaSrdUdpSpecification: udp},
	}
	instance := must(client.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-12345678"), InstanceType: types.InstanceTypeC7i12xlarge,
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{card}})).Instances[0]
	id := *instance.InstanceId
	equal("first state", instance.State.Name, types.InstanceStateNamePending)
	equal("start", time.Since(*instance.LaunchTime).Abs() < time.Hour, true)
	one := &ec2.DescribeInstancesInput{InstanceIds: []string{id}}
	equal("wait for the instance", ec2.NewInstanceRunningWaiter(client).Wait(ctx, one, waitMax), nil)
	shown := must(client.DescribeInstances(ctx, one)).Reservations[0].Instances[0]
	equal("address", *shown.PrivateIpAddress, "10.60.1.9")
	equal("type", shown.InstanceType, types.InstanceTypeC7i12xlarge)
	find := &ec2.DescribeNetworkInterfacesInput{Filters: filter("attachment.instance-id", id)}
	face := must(client.DescribeNetworkInterfaces(ctx, find)).NetworkInterfaces[0]
	equal("ENA Express", *face.Attachment.EnaSrdSpecification.EnaSrdEnabled, true)
	udpShown := face.Attachment.EnaSrdSpecification.EnaSrdUdpSpecification
	equal("ENA Express for UDP", *udpShown.EnaSrdUdpEnabled, true)
	equal("state", face.Status, types.NetworkInterfaceStatusInUse)
	equal("attachment", face.Attachment.Status, types.AttachmentStatusAttached)
	equal("group of the interface", *face.Groups[0].GroupId, group)
	must(client.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: face.NetworkInterfaceId,
		EnaSrdSpecification: &types.EnaSrdSpecification{EnaSrdEnabled: aws.Bool(true),
			EnaSrdUdpSpecification: &types.EnaSrdUdpSpecification{EnaSrdUdpEnabled: aws.Bool(false)}}}))
	face = must(client.DescribeNetworkInterfaces(ctx, find)).NetworkInterfaces[0]
	udpShown = face.Attachment.EnaSrdSpecification.EnaSrdUdpSpecification
	equal("ENA Express for UDP after the change", *udpShown.EnaSrdUdpEnabled, false)
	return id
}

// pages reads the subnets of the VPC page by page.
func pages(vpc string) []string {
	expected := []string{"10.60.1.0/24"}
	for n := 2; n <= 7; n++ {
		block := fmt.Sprintf("10.60.%d.0/24", n)
		must(client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &vpc, CidrBlock: &block}))
		expected = append(expected, block)
	}
	var blocks, ids []string
	count := 0
	paginator := ec2.NewDescribeSubnetsPaginator(client, &ec2.DescribeSubnetsInput{
		Filters: filter("vpc-id", vpc), MaxResults: aws.Int32(5)})
	for paginator.HasMorePages() {
		page := must(paginator.NextPage(ctx))
		count++
		for _, subnet := range page.Subnets {
			blocks, ids = append(blocks, *subnet.CidrBlock), append(ids, *subnet.SubnetId)
		}
	}
	sort.Strings(blocks)
	equal("pages", count, 2)
	equal("blocks of all pages", blocks, expected)
	return ids
}

func tags(vpc string) {
	added := []types.Tag{{Key: aws.String("stage"), Value: aws.String("")}}
	resources := []string{vpc}
	must(client.CreateTags(ctx, &ec2.CreateTagsInput{Resources: resources, Tags: added}))
	find := &ec2.DescribeTagsInput{Filters: filter("resource-id", vpc)}
	shown := must(client.DescribeTags(ctx, find)).Tags
	equal("tags", len(shown), 2)
	equal("kind of the object", shown[0].ResourceType, types.ResourceTypeVpc)
	byTag := must(client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: filter("tag-key", "stage")}))
	equal("VPCs with the tag", *byTag.Vpcs[0].VpcId, vpc)
	must(client.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: resources, Tags: added}))
	equal("tags that are left", len(must(client.DescribeTags(ctx, find)).Tags), 1)
}

func faults(vpc, group string) {
	refused[ec2.DescribeVpcsOutput]("InvalidVpcID.NotFound", 400)(client.DescribeVpcs(ctx,
		&ec2.DescribeVpcsInput{VpcIds: []string{"vpc-0123456789abcdef0"}}))
	refused[ec2.DeleteVpcOutput]("DependencyViolation", 400)(client.DeleteVpc(ctx,
		&ec2.DeleteVpcInput{VpcId: &vpc}))
	refused[ec2.DeleteSecurityGroupOutput]("DependencyViolation", 400)(client.DeleteSecurityGroup(ctx,
		&ec2.DeleteSecurityGroupInput{GroupId: &group}))
	refused[ec2.CreateVpcOutput]("DryRunOperation", http.StatusPreconditionFailed)(client.CreateVpc(ctx,
		&ec2.CreateVpcInput{CidrBlock: aws.String("10.61.0.0/16"), DryRun: aws.Bool(true)}))
}

func remove(vpc, group, instance string, subnets []string) {
	ids := []string{instance}
	ended := must(client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids}))
	equal("state before", ended.TerminatingInstances[0].PreviousState.Name, types.InstanceStateNameRunning)
	one := &ec2.DescribeInstancesInput{InstanceIds: ids}
	equal("wait for the end", ec2.NewInstanceTerminatedWaiter(client).Wait(ctx, one, waitMax), nil)
	for _, subnet := range subnets {
		must(client.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &subnet}))
	}
	must(client.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &group}))
	must(client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &vpc}))
	left := must(client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: filter("is-default", "false")}))
	equal("VPCs that are left", len(left.Vpcs), 0)
	refused[ec2.DeleteVpcOutput]("InvalidVpcID.NotFound", 400)(client.DeleteVpc(ctx,
		&ec2.DeleteVpcInput{VpcId: &vpc}))
}

func main() {
	settings, err := config.LoadDefaultConfig(ctx)
	equal("settings", err, nil)
	client = ec2.NewFromConfig(settings)
	vpc, subnet := network()
	rules := group(vpc)
	instance := express(subnet, rules)
	subnets := pages(vpc)
	tags(vpc)
	faults(vpc, rules)
	remove(vpc, rules, instance, subnets)
	fmt.Printf("%d values are as expected\n", checks)
}
