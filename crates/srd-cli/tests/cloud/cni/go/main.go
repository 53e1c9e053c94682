// Attaches, checks, collects and detaches a pod with go-cni, the library by which containerd calls
// CNI plugins. The arguments are the directory of the plugin, the file of the network configuration,
// and the path of the pod's network namespace. `../go_cni.rs` runs this program.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	gocni "github.com/containerd/go-cni"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

const pod = "go-cni-pod"

// succeeds ends the program if a step has failed.
func succeeds(step string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", step, err)
		os.Exit(1)
	}
}

// fails ends the program if a step has succeeded, or if its error does not contain a text.
func fails(step string, err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		fmt.Printf("%s: %v, expected an error with %q\n", step, err, text)
		os.Exit(1)
	}
}

// options returns the arguments and capabilities that containerd passes for a pod.
func options() []gocni.NamespaceOpts {
	labels := map[string]string{
		"IgnoreUnknown":              "1",
		"K8S_POD_NAMESPACE":          "default",
		"K8S_POD_NAME":               "web",
		"K8S_POD_INFRA_CONTAINER_ID": pod,
		"K8S_POD_UID":                "0d5a6a1e-8a7b-4a55-b0f6-6f4a7f3e2f10",
	}
	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	return []gocni.NamespaceOpts{
		gocni.WithLabels(labels),
		gocni.WithCapability("io.kubernetes.cri.pod-annotations", annotations),
		gocni.WithCapabilityPortMap(nil),
	}
}

func main() {
	ctx := context.Background()
	plugins, file, netns := os.Args[1], os.Args[2], os.Args[3]
	network, err := gocni.New(gocni.WithMinNetworkCount(1), gocni.WithPluginDir([]string{plugins}))
	succeeds("New", err)
	succeeds("Load", network.Load(gocni.WithConfListFile(file)))
	succeeds("Status", network.Status())

	// The library validates a configuration with VERSION, and collects garbage with GC.
	list, err := libcni.ConfListFromFile(file)
	succeeds("ConfListFromFile", err)
	library := libcni.NewCNIConfig([]string{plugins}, nil)
	_, err = library.ValidateNetworkList(ctx, list)
	succeeds("ValidateNetworkList", err)

	_, err = network.Setup(ctx, pod, "/run/netns/go-cni-missing", options()...)
	fails("Setup in a missing namespace", err, "go-cni-missing")
	succeeds("Remove after a Setup that failed", network.Remove(ctx, pod, netns, options()...))
	result, err := network.Setup(ctx, pod, netns, options()...)
	succeeds("Setup", err)
	interfaces := result.Interfaces["eth0"]
	if interfaces == nil || len(interfaces.IPConfigs) != 1 || interfaces.Sandbox != netns {
		fmt.Printf("Setup: the result is %+v\n", result)
		os.Exit(1)
	}
	_, err = network.Setup(ctx, pod, netns, options()...)
	fails("a second Setup", err, "already")
	succeeds("Check", network.Check(ctx, pod, netns, options()...))

	valid := []types.GCAttachment{{ContainerID: pod, IfName: "eth0"}}
	succeeds("GC", library.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}))
	succeeds("Check after GC", network.Check(ctx, pod, netns, options()...))
	valid = []types.GCAttachment{}
	succeeds("GC of all", library.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}))
	fails("Check after GC of all", network.Check(ctx, pod, netns, options()...), "")

	_, err = network.Setup(ctx, pod, netns, options()...)
	succeeds("Setup after GC", err)
	succeeds("Remove", network.Remove(ctx, pod, netns, options()...))
	succeeds("Remove again", network.Remove(ctx, pod, netns, options()...))
	succeeds("Remove without a namespace", network.Remove(ctx, pod, "", options()...))
	fmt.Println("all steps are as expected")
}
