# `make demo` compares SRD with kernel TCP, `make test` runs every test, `make deb` makes packages,
# `make book` makes HTML pages of the documents.
# Each goal runs without questions and may be repeated. As root, it installs the Debian or Ubuntu
# packages that it needs. Without root, it prints the missing packages, and runs the parts that do
# not need them.

TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test sanitize book deb provider nccl

demo:
	.ci/packages demo
	cargo build --profile quick -p srd-cli
	$(TARGET)/quick/srd demo

test:
	.ci/packages test
	.ci/python || echo "going on without; tests that need one are skipped"
	.ci/test

# Tests of unsafe code and of threads under the sanitizers of the compiler. A nightly toolchain is
# necessary; the output names other missing requirements.
sanitize:
	fuzz/sanitize.sh address
	fuzz/sanitize.sh thread
	fuzz/sanitize.sh undefined

# The documents and the manual of every command as HTML, below target/book.
book:
	.ci/packages book
	packaging/book/book.sh

# Debian packages, beside what cargo builds.
deb:
	.ci/packages book
	packaging/deb.sh --book

# The libfabric provider, under the name that libfabric looks for.
provider:
	.ci/packages build
	cargo build --release -p srd-ofi
	install -D $(TARGET)/release/libsrd_fi.so $(TARGET)/provider/libsrd-fi.so

# The network plugin of NCCL, under the name that NCCL looks for.
nccl:
	.ci/packages build
	cargo build --release -p srd-nccl
	install -D $(TARGET)/release/libnccl_net_srd.so $(TARGET)/nccl/libnccl-net-srd.so
