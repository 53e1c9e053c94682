#!/usr/bin/env bash
# libfabric's own tests against the provider.
#
#   fabtests.sh build DIR            fetches libfabric 2.1.0 from Debian and builds it with its tests
#   fabtests.sh run DIR PROVIDERS    runs the quick set with the provider in the directory PROVIDERS,
#                                    in namespaces of its own, as root; fails if a test does
#
# Debian does not package the tests, but the source of its `trixie` release has them. It is
# fetched from where this machine gets its own packages, with an apt state apart, so nothing of the
# machine changes. Needs autoconf, automake, libtool, make, gcc and xz.
set -euo pipefail

version=2.1.0
package=libfabric=$version-1.1
command=${1:?build or run}
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

# What there is no endpoint or context for.
excluded='-e msg,^fi_msg,-e dgram -o writedata,shared_ctx -e dgram,cm_data,shared_ctx,scalable_ep,shared_av,rma_trigger,multi_mr,-k'

# The tests end every process whose name begins with fi_, so they get processes of their own. Only the
# tests' own timeouts and loopback are needed.
run() {
    local log
    FI_PROVIDER_PATH=$(cd "${1:?directory of the provider}" && pwd)
    export FI_PROVIDER_PATH LD_LIBRARY_PATH=$prefix/lib PATH=$prefix/bin:$PATH
    log=$directory/log
    cd "$directory"
    unshare --net --pid --fork --kill-child --mount-proc bash -c "
        ip link set lo up
        ip address add 192.168.10.1/32 dev lo
        runfabtests.sh -vv -T 60 -t quick -e '$excluded' -p '$prefix/bin' -g 192.168.10.1 srd" \
        >"$log" 2>&1 || true
    for result in Pass Fail Notrun Excluded; do
        echo "$result: $(grep -ac "result: $result" "$log")"
    done
    grep -a -B2 "result: Fail" "$log" | grep -a "name:" && return 1
    [ "$(grep -ac "result: Pass" "$log")" -ge 57 ]
}

case $command in
build)
    [ -d "$source" ] || fetch
    build
    ;;
run) run "${3:?directory of the provider}" ;;
*)
    echo "fabtests.sh: build or run, not $command" >&2
    exit 2
    ;;
esac
