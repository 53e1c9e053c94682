# `make demo` shows what SRD is for, `make test` runs every test, `make deb` makes a package.
# All ask nothing and may be repeated. As root they install the Debian or Ubuntu packages that
# they need; without root they say what is missing and go on with what is possible.

TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test sanitize deb provider nccl packages

demo: packages
	cargo build --release -p srd-cli
	$(TARGET)/release/srd demo

test: packages
	.ci/test --workspace

# What holds unsafe code or threads, under tools that see more. Takes a nightly toolchain; what else
# is missing is said.
sanitize:
	fuzz/sanitize.sh address
	fuzz/sanitize.sh thread
	fuzz/sanitize.sh undefined

# A Debian package, beside what cargo builds.
deb: packages
	packaging/deb.sh

# The libfabric provider, under the name that libfabric looks for.
provider: packages
	cargo build --release -p srd-ofi
	install -D $(TARGET)/release/libsrd_fi.so $(TARGET)/provider/libsrd-fi.so

# The network plugin of NCCL, under the name that NCCL looks for.
nccl: packages
	cargo build --release -p srd-nccl
	install -D $(TARGET)/release/libnccl_net_srd.so $(TARGET)/nccl/libnccl-net-srd.so

# Each program, and the package that brings it. `cc` links Rust programs and compiles the
# cryptography; `man` shows whether the man pages are fit to be read; `fi_info` and libfabric's
# headers are what the provider is tested with.
packages:
	@missing=; \
	for pair in ip:iproute2 tc:iproute2 iperf3:iperf3 nft:nftables curl:curl ethtool:ethtool sysctl:procps cc:gcc man:man-db \
	    fi_info:libfabric-bin readelf:binutils; do \
	    program=$${pair%%:*}; package=$${pair#*:}; \
	    PATH="$$PATH:/usr/sbin:/sbin" command -v $$program >/dev/null && continue; \
	    case " $$missing " in *" $$package "*) ;; *) missing="$$missing $$package" ;; esac; \
	    if [ $$package = gcc ]; then missing="$$missing libc6-dev"; fi; \
	done; \
	if [ ! -e /usr/include/rdma/fabric.h ]; then missing="$$missing libfabric-dev"; fi; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing:$$missing"; \
	    apt-get update -qq </dev/null && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing </dev/null || \
	    echo "could not install:$$missing; going on without"; \
	else \
	    echo "not installed:$$missing (as root: apt-get install$$missing); going on without"; \
	fi
