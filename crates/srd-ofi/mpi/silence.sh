#!/usr/bin/env bash
# Every way in which a peer does not answer, with libfabric's own ping-pong and with MPIs: each must
# end in the time that docs/faults.md promises, with its sentence. Makes two network namespaces; root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'END'
usage: crates/srd-ofi/mpi/silence.sh [options]
  --provider DIR   directory of libsrd-fi.so (default: target/provider; `make provider`)
  --fabtests DIR   where `fabtests.sh build DIR` has built libfabric and its tests
  --mpi NAME=DIR   an MPI: DIR/bin/mpirun and DIR/bin/mpicc; may be repeated
  --limit MS       FI_SRD_ANSWER_TIMEOUT_MS (default: 3000)
  --slack MS       what starting processes and a busy machine may add (default: 6000)
Each case is a line: pass or FAIL, who, what, seconds, and how it ended.
Exit: 0 if all passed; 1 if one failed; 2 for wrong usage; 3 if something is missing.
END
}

refuse() { echo "silence.sh: $*" >&2; exit 2; }
lacks() { echo "silence.sh: $*" >&2; exit 3; }

provider=target/provider fabtests='' limit=3000 slack=6000
declare -A mpi=()
names=()
while [ $# -gt 0 ]; do
    case $1 in
    --provider) provider=${2:?} ;;
    --fabtests) fabtests=${2:?} ;;
    --mpi)
        [[ $2 == ?*=/* ]] || refuse "--mpi wants NAME=DIRECTORY, absolute, not $2"
        mpi[${2%%=*}]=${2#*=}
        names+=("${2%%=*}") ;;
    --limit) limit=${2:?} ;;
    --slack) slack=${2:?} ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift 2
done
[ "$(id -u)" = 0 ] || lacks "network namespaces take root"
[ -e "$provider/libsrd-fi.so" ] || lacks "no libsrd-fi.so in $provider: make provider"
[ -n "$fabtests" ] || [ ${#names[@]} -gt 0 ] || refuse "give --fabtests or --mpi"
provider=$(realpath "$provider")

work=$(mktemp -d)
left=srdsa$$ right=srdsb$$
started=()
finish() {
    # Processes that this script has started, by number.
    for process in "${started[@]}"; do kill -9 "$process" 2>/dev/null || true; done
    ip netns del "$left" 2>/dev/null || true
    ip netns del "$right" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

ip netns add "$left"
ip netns add "$right"
ip -n "$left" link add srdv0 type veth peer name srdv0 netns "$right"
ip -n "$left" address add 10.77.0.1/24 dev srdv0
ip -n "$right" address add 10.77.0.2/24 dev srdv0
for namespace in "$left" "$right"; do
    ip -n "$namespace" link set lo up
    ip -n "$namespace" link set srdv0 up
done
. "$here/../../../bench/veth.sh"
await_up srdv0 "$left" "$right"
umask 077
for key in a b; do head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/$key.key"; done

export FI_PROVIDER_PATH=$provider FI_SRD_ANSWER_TIMEOUT_MS=$limit
failures=0 told=''

now_ms() { date +%s%3N; }

# verdict WHO WHAT START_MS LEAST_MS MOST_MS CODE LOG PATTERN: judges a case that has just ended.
verdict() {
    local took=$((${told:-$(now_ms)} - $3)) result=pass said
    said=$(grep -m1 -oE "$8" "$7" || true)
    if [ "$took" -lt "$4" ] || [ "$took" -gt "$5" ] || [ "$6" = 0 ] || [ -z "$said" ]; then
        result=FAIL failures=$((failures + 1))
    fi
    printf '%s | %s | %s | %s s | exit %s | %s\n' "$result" "$1" "$2" \
        "$(awk "BEGIN { printf \"%.1f\", $took / 1000 }")" "$6" "${said:-nothing was said}"
    if [ "$result" = FAIL ]; then tail -n 5 "$7" | sed 's/^/    /'; fi
}

# keyed KEY COMMAND...: with the key of that name, or with none.
keyed() {
    local key=$1
    shift
    if [ "$key" = none ]; then "$@"; else FI_SRD_KEY_FILE=$work/$key.key "$@"; fi
}

pingpong() { fabtest fi_rdm_tagged_pingpong -S 64 "$@"; }

# A sender that always has something under way: who only waits for a message is told of nothing.
stream() { fabtest fi_rma_bw -S 65536 -I 100000000 "$@" -o write; }

# fabtest TEST -S BYTES [-I N] NAMESPACE KEY OPTIONS...
fabtest() {
    local test=$1 size=$3 rounds=()
    shift 3
    if [ "$1" = -I ]; then rounds=(-I "$2"); shift 2; fi
    local namespace=$1 key=$2
    shift 2
    keyed "$key" env LD_LIBRARY_PATH="$fabtests/prefix/lib" FI_LOG_LEVEL=warn ip netns exec \
        "$namespace" "$fabtests/prefix/bin/$test" -p srd -S "$size" "${rounds[@]}" "$@"
}

# ping_case WHAT CLIENT_KEY SERVER_KEY|nobody ADDRESS
ping_case() {
    local code=0 start server=''
    if [ "$3" != nobody ]; then
        pingpong "$right" "$3" -I 10 -B 9400 -s "$4" >"$work/server" 2>&1 &
        server=$!
        started+=("$server")
        sleep 1
    fi
    start=$(now_ms)
    pingpong "$left" "$2" -I 10 -P 9400 -s 10.77.0.1 "$4" >"$work/client" 2>&1 &
    local client=$!
    started+=("$client")
    wait_at_most "$client" $((limit + slack)) || code=$?
    verdict fi_rdm_tagged_pingpong "$1" "$start" $((limit - 200)) $((limit + slack)) "$code" \
        "$work/client" 'the peer never answered[^")]*'
    if [ -n "$server" ]; then end "$server"; fi
}

# wait_at_most PROCESS MS: its code, or 124 after so long.
wait_at_most() {
    local last=$(($(now_ms) + $2))
    while kill -0 "$1" 2>/dev/null; do
        if [ "$(now_ms)" -gt "$last" ]; then
            end "$1"
            return 124
        fi
        sleep 0.02
    done
    wait "$1"
}

# end PROCESS: and the one that it runs in the namespace.
end() {
    local child
    for child in $(ps -o pid= --ppid "$1"); do kill -9 "$child" 2>/dev/null || true; done
    kill -9 "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

if [ -n "$fabtests" ]; then
    ping_case "plain; nobody at the port" none nobody 10.77.0.2
    ping_case "plain; no such host" none nobody 10.77.0.99
    ping_case "key; nobody at the port" a nobody 10.77.0.2
    ping_case "key; no such host" a nobody 10.77.0.99
    ping_case "plain; the peer has a key" none a 10.77.0.2
    ping_case "key; the peer has another" a b 10.77.0.2
    ping_case "key; the peer has none" a none 10.77.0.2
    for key in none a; do
        # Linux says at most one word a second to each host, after six: those above are spent.
        sleep 7
        stream "$right" "$key" -B 9400 -s 10.77.0.2 >"$work/server" 2>&1 &
        server=$!
        started+=("$server")
        sleep 1
        stream "$left" "$key" -P 9400 -s 10.77.0.1 10.77.0.2 >"$work/client" 2>&1 &
        client=$!
        started+=("$client")
        sleep 2
        start=$(now_ms)
        end "$server"
        # When it is told, not when it ends: closing may take a second more.
        code=0
        until grep -q 'the peer answered before' "$work/client" || ! kill -0 "$client" 2>/dev/null ||
            [ "$(now_ms)" -gt $((start + 8000)) ]; do
            sleep 0.02
        done
        told=$(now_ms)
        wait_at_most "$client" 3000 || code=$?
        verdict fi_rma_bw "key $key; the peer is killed, its host lives" "$start" 0 \
            1500 "$code" "$work/client" 'the peer answered before[^")]*'
        told=''
    done
fi

for name in "${names[@]}"; do
    mpirun=${mpi[$name]}/bin/mpirun mpicc=${mpi[$name]}/bin/mpicc
    [ -x "$mpirun" ] && [ -x "$mpicc" ] || lacks "no mpirun and mpicc in ${mpi[$name]}/bin"
    "$mpicc" -O1 -o "$work/ring" "$here/ring.c"
    cat >"$work/rank" <<'END'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
file=$SILENCE_KEYS/$rank
[ -e "$file" ] && export FI_SRD_KEY_FILE=$file
exec "$@"
END
    chmod 700 "$work/rank"
    words=(-n 2)
    if "$mpirun" --version 2>&1 | grep -q "Open MPI\|OpenRTE\|PRRTE"; then
        words+=(--allow-run-as-root --oversubscribe --mca pml cm --mca mtl ofi
            --mca mtl_ofi_provider_include srd --mca mpi_yield_when_idle 1)
    fi
    for case in "key; the other rank has another:a b" "key; the other rank has none:a -"; do
        mkdir -p "$work/keys"
        rm -f "$work"/keys/*
        read -r first second <<<"${case#*:}"
        cp "$work/$first.key" "$work/keys/0"
        [ "$second" = - ] || cp "$work/$second.key" "$work/keys/1"
        start=$(now_ms)
        SILENCE_KEYS=$work/keys FI_SRD_IFACE=lo FI_PROVIDER=srd FI_LOG_LEVEL=info FI_LOG_PROV=srd \
            MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 ip netns exec "$left" \
            "$mpirun" "${words[@]}" "$work/rank" "$work/ring" >"$work/job" 2>&1 &
        job=$!
        started+=("$job")
        code=0
        wait_at_most "$job" $((2 * limit + slack)) || code=$?
        verdict "$name, 2 ranks" "${case%%:*}" "$start" $((limit - 200)) $((2 * limit + slack)) \
            "$code" "$work/job" 'the peer never answered[^"]*'
    done
done
[ "$failures" = 0 ]
