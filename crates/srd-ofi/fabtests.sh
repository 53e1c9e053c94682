#!/usr/bin/env bash
# libfabric's own tests against the provider.
#
#   fabtests.sh build DIR
#       fetches libfabric 2.1.0 from Debian and builds it with its tests, in DIR
#   fabtests.sh run DIR PROVIDERS [OPTIONS]
#       runs them with the provider in the directory PROVIDERS, as root, in namespaces of its own
#
#   --set quick     about a hundred tests, minutes [default]
#   --set all       all of them, with full iterations and fi_ubertest's configurations: five minutes
#                   on an idle machine
#   --impaired      server and client in two hosts of `srd lab`, with a bad wire between them
#   --srd PROGRAM   the program srd, for --impaired [the one in PATH]
#   --wire OPTIONS  options of `srd lab impair` [--loss 0.5% --delay 50us..500us --jitter 100us]
#   --timeout S     seconds that one test may take [120, with --impaired 900]
#
# What is not run, and why, is in fabtests/srd.exclude. The log is DIR/log; after --impaired,
# DIR/wire-*.json say what the wire did.
#
# Exit codes: 0 all that ran passed, 1 a test failed or none ran, 2 usage, 3 something is missing.
#
# Debian does not package the tests, but the source of its `trixie` release has them. It is
# fetched from where this machine gets its own packages, with an apt state apart, so nothing of the
# machine changes. Needs autoconf, automake, libtool, make, gcc and xz.
set -euo pipefail

version=2.1.0
package=libfabric=$version-1.1
self=$(realpath "$0")
here=$(dirname "$self")
# The fabric of --impaired, and its two hosts.
fabric=fabtests$$
server=198.18.0.1
client=198.18.1.1
# Fewer tests than this many passes means that something else is wrong.
declare -A passes_min=([quick]=63 [all]=67)

usage() {
    sed -n '3,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$self" >&2
    exit 2
}

missing() {
    echo "fabtests.sh: $1" >&2
    exit 3
}

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

# Ends with 3 and a line that says what to install, if a program of the build is missing.
tools() {
    local tool lacks=
    for tool in autoconf automake libtoolize make gcc xz; do
        command -v "$tool" >/dev/null || lacks+=" $tool"
    done
    [ -z "$lacks" ] || missing "no$lacks: apt-get install autoconf automake libtool make gcc xz-utils"
}

build() {
    local off=() provider
    for provider in verbs efa psm2 psm3 opx usnic cxi ucx lpp lnx sm2 shm rxm rxd mrail \
        sockets udp hook_debug hook_hmem dmabuf_peer_mem perf profile trace; do
        off+=("--disable-$provider")
    done
    cd "$source"
    [ -f Makefile.in ] || ./autogen.sh
    ./configure --quiet --prefix="$prefix" --disable-static "${off[@]}"
    make -s -j"$(nproc)" install
    cd "$source/fabtests"
    [ -f Makefile.in ] || ./autogen.sh
    ./configure --quiet --prefix="$prefix" --with-libfabric="$prefix"
    make -s -j"$(nproc)" install
}

# Runs sets of tests inside of namespaces made for them: the tests end every process whose name
# begins with fi_, and must see no others. Called by run.
#
#   inside local|impaired SETS SECONDS
inside() {
    local good=$client hosts=("$server" "$client")
    if [ "$1" = local ]; then
        ip link set lo up
        ip address add 192.168.10.1/32 dev lo
        good=192.168.10.1 hosts=()
    fi
    # Its exit code is how many failed; the log says it, too.
    runfabtests.sh -vv -T "$3" -t "$2" -p "$prefix/bin" -g "$good" srd "${hosts[@]}" || true
}

# Runs sets of tests and adds to the log.
namespaced() {
    local mode=$1
    shift
    local apart=(unshare --pid --fork --kill-child --mount-proc)
    if [ "$mode" = local ]; then
        "${apart[@]}" --net "$self" inside "$directory" local "$@"
    else
        # shellcheck disable=SC2086 # options are several words
        "$srd" lab impair --name "$fabric" h0.0 h1.0 $wire \
            --json "$directory/wire-${1%%,*}.json" -- \
            "${apart[@]}" "$self" inside "$directory" impaired "$@"
    fi >>"$log" 2>&1
}

# Two hosts, and what the tests call as ssh.
hosts_up() {
    "$srd" lab up --name "$fabric" --leaves 2 --hosts 1 --spines 1 >/dev/null
    trap '"$srd" lab down --name "$fabric" >/dev/null' EXIT
    mkdir -p "$directory/agent"
    # A test that is killed takes its program in the host along: no other could use its port.
    cat >"$directory/agent/ssh" <<-AGENT
	#!/bin/sh
	while :; do
	    case \$1 in
	    -o) shift 2 ;;
	    -*) shift ;;
	    *) break ;;
	    esac
	done
	host=\$1
	shift
	exec setpriv --pdeathsig KILL '$srd' lab enter --name $fabric "\$host" exec "\$@"
	AGENT
    chmod +x "$directory/agent/ssh"
    export PATH=$directory/agent:$PATH
}

run() {
    local mode=local set=quick seconds
    FI_PROVIDER_PATH=$(cd "${1:?}" 2>/dev/null && pwd) || missing "no directory $1"
    shift
    srd=$(command -v srd || true)
    wire="--loss 0.5% --delay 50us..500us --jitter 100us"
    while [ $# -gt 0 ]; do
        case $1 in
        --impaired) mode=impaired && shift && continue ;;
        --set | --srd | --wire | --timeout) [ $# -ge 2 ] || usage ;;&
        --set) set=$2 ;;
        --srd) srd=$(realpath "$2") ;;
        --wire) wire=$2 ;;
        --timeout) seconds=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
    # Tests of a thousand round trips for each type and operation wait for a longer wire.
    : "${seconds:=$([ $mode = local ] && echo 120 || echo 900)}"
    if [ -z "${passes_min[$set]:-}" ] || ! [ "$seconds" -gt 0 ] 2>/dev/null; then
        usage
    fi
    [ -e "$FI_PROVIDER_PATH/libsrd-fi.so" ] || missing "no libsrd-fi.so in $FI_PROVIDER_PATH"
    [ -x "$prefix/bin/runfabtests.sh" ] || missing "no tests in $directory: fabtests.sh build"
    [ "$(id -u)" = 0 ] || missing "namespaces need root"
    [ "$mode" = local ] || [ -x "$srd" ] || missing "no program srd: --srd PROGRAM"
    export FI_PROVIDER_PATH LD_LIBRARY_PATH=$prefix/lib PATH=$prefix/bin:$PATH
    # Tests spin. Where processors are few, one may not run for longer than peers wait by default.
    export FI_SRD_PEER_TIMEOUT_MS=${FI_SRD_PEER_TIMEOUT_MS:-30000}
    log=$directory/log
    : >"$log"
    mkdir -p "$directory/test_configs/srd"
    cp "$here"/fabtests/* "$directory/test_configs/srd/"
    cd "$directory"
    [ "$mode" = local ] || hosts_up
    if [ "$set" = quick ]; then
        namespaced "$mode" quick "$seconds"
    else
        namespaced "$mode" unit,regression,functional,standard,multinode "$seconds"
        # One test with hundreds of configurations.
        namespaced "$mode" complex $((seconds * 15))
    fi
    summary "$set"
}

# What the log says, and whether that is good.
summary() {
    local result passes
    for result in Pass Fail Notrun Excluded; do
        echo "$result: $(grep -ac "result: $result" "$log")"
    done
    grep -a -B2 "result: Fail" "$log" | grep -a "name:" && return 1
    passes=$(grep -ac "result: Pass" "$log")
    [ "$passes" -ge "${passes_min[$1]}" ] && return
    echo "fabtests.sh: only $passes tests passed: see $log" >&2
    return 1
}

[ $# -ge 2 ] || usage
command=$1
directory=$(mkdir -p "$2" && cd "$2" && pwd)
source=$directory/source
prefix=$directory/prefix
shift 2
case $command in
build)
    tools
    [ -d "$source" ] || fetch
    build
    ;;
run)
    [ $# -ge 1 ] || usage
    run "$@"
    ;;
inside) inside "$@" ;;
*) usage ;;
esac
