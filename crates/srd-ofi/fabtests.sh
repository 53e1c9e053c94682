#!/usr/bin/env bash
# libfabric's own tests against the provider.
#
#   fabtests.sh build DIR            fetches libfabric 2.1.0 from Debian and builds it with its tests
#   fabtests.sh unit DIR PROVIDERS   runs the unit tests of fi_getinfo, event queues, address
#                                    vectors, completion queues, counters and memory regions
#                                    with the provider in the directory PROVIDERS
#
# Debian does not package the tests, but the source of its `trixie` release has them. It is
# fetched from where this machine gets its own packages, with an apt state apart, so nothing of the
# machine changes. Needs autoconf, automake, libtool, make, gcc and xz.
set -euo pipefail

version=2.1.0
package=libfabric=$version-1.1
command=${1:?build or unit}
directory=$(mkdir -p "${2:?directory}" && cd "$2" && pwd)
source=$directory/source
prefix=$directory/prefix

# The archive that this machine's packages come from.
archive() {
    apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' |
        grep -v security | head -n 1
}

fetch() {
    local from
    from=$(archive)
    : "${from:?apt knows no archive of Debian: run apt-get update}"
    mkdir -p "$directory"/apt/{lists,cache/archives}/partial
    cat >"$directory/apt/sources.list" <<-LIST
	deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from trixie main
	LIST
    cat >"$directory/apt/apt.conf" <<-CONF
	Dir::Etc::sourcelist "$directory/apt/sources.list";
	Dir::Etc::sourceparts "-";
	Dir::State::lists "$directory/apt/lists";
	Dir::Cache "$directory/apt/cache";
	CONF
    cd "$directory"
    export APT_CONFIG=$directory/apt/apt.conf
    apt-get update -qq
    apt-get source --tar-only --download-only "$package"
    mkdir -p "$source"
    tar -C "$source" --strip-components=1 -xf "libfabric_$version.orig.tar.xz"
}

build() {
    local off=() provider
    for provider in verbs efa psm2 psm3 opx usnic cxi ucx lpp lnx sm2 shm rxm rxd mrail \
        sockets udp hook_debug hook_hmem dmabuf_peer_mem perf profile trace; do
        off+=("--disable-$provider")
    done
    cd "$source"
    [ -x configure ] || ./autogen.sh
    ./configure --quiet --prefix="$prefix" --disable-static "${off[@]}"
    make -s -j"$(nproc)" install
    cd "$source/fabtests"
    [ -x configure ] || ./autogen.sh
    ./configure --quiet --prefix="$prefix" --with-libfabric="$prefix"
    make -s -j"$(nproc)" install
}

# Each test prints a line for each case, and a summary.
unit() {
    local providers=${1:?directory of the provider} failed=0 test
    export LD_LIBRARY_PATH=$prefix/lib FI_PROVIDER_PATH=$providers FI_PROVIDER=srd
    export FI_SRD_INCOMPLETE=1
    cd "$source/fabtests/unit"
    for test in getinfo_test eq_test "av_test -g 127.0.0.1 -n 4 -s 127.0.0.1" cq_test cntr_test \
        mr_test dom_test; do
        echo "== fi_$test"
        # shellcheck disable=SC2086
        timeout 120 ./fi_$test -p srd || failed=$((failed + 1))
    done
    return "$failed"
}

case $command in
build)
    [ -d "$source" ] || fetch
    build
    ;;
unit) unit "${3:?directory of the provider}" ;;
*)
    echo "fabtests.sh: build or unit, not $command" >&2
    exit 2
    ;;
esac
