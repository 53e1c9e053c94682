module pod

go 1.25

require (
	github.com/containerd/go-cni v1.1.13
	github.com/containernetworking/cni v1.3.0
)
