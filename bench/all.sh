#!/usr/bin/env bash
# All tables of all comparisons in one run on one machine, as one page of Markdown. docs/benchmarks.md
# explains the methods. Run as root on a machine that is otherwise idle.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/common.sh
. bench/markdown.sh

usage() {
    cat <<'END'
usage: bench/all.sh [options]
  --out FILE        the page (default: docs/benchmark-results.md; with --quick
                    target/benchmark-results.md)
  --fabtests DIR    directory of `crates/srd-ofi/fabtests.sh build`, for the libfabric provider
  --providers DIR   directory of libsrd-fi.so (default: target/provider)
  --rounds N        rounds of bench/run.sh, bench/tunnel.sh and bench/cloud.sh (default: 5)
  --quick           short runs: shows that everything works, and measures nothing
Takes about an hour, with --quick about eight minutes. A part that fails is reported in the page, and
the other parts run. The page is written after each part. wireguard-go is needed for bench/tunnel.sh.
SRD, PEER_BENCH, WIREGUARD_GO and VPC_EXAMPLE name the programs
(default of the last: target/release/examples/vpc).
Exit codes: 0 all parts ran, 1 a part failed, 2 usage.
END
}

out='' fabtests='' providers=target/provider rounds='' quick=
read_options "out fabtests providers rounds" "quick" "$@"
[[ ${rounds:-1} =~ ^[1-9][0-9]?$ ]] || refuse "--rounds: a number from 1 to 99"
if [ -z "$out" ]; then
    out=docs/benchmark-results.md
    [ -z "$quick" ] || out=target/benchmark-results.md
fi
need_root
need_programs git python3 timeout
srd=${SRD:-target/release/srd}
card=${VPC_EXAMPLE:-target/release/examples/vpc}
export SRD=$srd
mkdir -p "$(dirname "$out")"
: >>"$out" || refuse "cannot write $out"

work=$(mktemp -d)
child=
clean_up() {
    trap - EXIT INT TERM
    # `timeout` passes the signal on, and the script that it runs removes what it has made.
    if [ -n "$child" ]; then
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Parts in their order: title, filter of the output (see bench/markdown.sh), estimated seconds, and
# command. A part without a command is not measured; its filter is the reason.
titles=() filters=() seconds=() commands=()
part() {
    titles+=("$1")
    filters+=("$2")
    seconds+=("$3")
    commands+=("$4")
}

# length NORMAL QUICK: the value for this run.
length() { if [ -z "$quick" ]; then echo "$1"; else echo "$2"; fi; }

rounds=${rounds:-$(length 5 1)} time=$(length 3 1)
for mode in wire asis; do
    for mtu in 9000 1500; do
        part "Sockets, $mode, MTU $mtu" sockets_table $(((15 * time + 12) * rounds + 5)) \
            "bench/run.sh --mtu $mtu --mode $mode --time $time --rounds $rounds"
    done
done
for mode in wire asis; do
    for mtu in 9000 1500; do
        part "Tunnels, $mode, MTU $mtu" sockets_table $((3 * (time + 1) * rounds + 5)) \
            "bench/tunnel.sh --mtu $mtu --mode $mode --time $time --rounds $rounds"
    done
done
for mtu in 9000 1500; do
    part "Instances of two hosts, MTU $mtu" cloud_table $((9 * (time + 1) * rounds + 10)) \
        "bench/cloud.sh --mtu $mtu --kinds tcp1,tcp8,udp --time $time --rounds $rounds"
done
if [ -x "$card" ]; then
    program=$(printf %q "$card") lines=()
    for arguments in "established out 1000" "established out 65536" "established out 1000000" \
        "established hairpin 1000" "new out 60 3" "new hairpin 60 3" "new out 1000 10000" "alone 1000"; do
        lines+=("$program $arguments $time")
    done
    printf -v joined '%s && ' "${lines[@]}"
    part "The card alone" card_table $((8 * time + 20)) "${joined% && }"
else
    part "The card alone" "needs \`cargo build --release -p srd-card --example vpc\`" 0 ""
fi
lab="$(printf %q "$srd") lab run" short=$(length "" " --reps 1 --seconds 2")
part "One connection over several paths" paths_table "$(length 400 90)" \
    "$lab single-flow$short --json - && $lab failover$short --case 'link slows to a tenth, 1 flow,link slows to a tenth, 16 flows' --json -"
for wire in " --wire" ""; do
    title="libfabric, $([ -n "$wire" ] && echo wire || echo asis), MTU 9000"
    if [ -n "$fabtests" ]; then
        part "$title" provider_table "$(length 330 50)" \
            "crates/srd-ofi/pairs.sh $(printf %q "$fabtests") $(printf %q "$providers")$(length "" " --rounds 1 --cold 1")$wire"
    else
        part "$title" "needs --fabtests with the directory of \`crates/srd-ofi/fabtests.sh build\`" 0 ""
    fi
done

# left FIRST: prints the estimated minutes of the parts from FIRST on. Estimates are corrected by the
# duration of the parts that have run.
left() {
    local at expected=0 ran=0
    for at in "${!seconds[@]}"; do
        if [ "$at" -lt "$1" ]; then
            ran=$((ran + seconds[at]))
        else
            expected=$((expected + seconds[at]))
        fi
    done
    [ "$ran" = 0 ] || expected=$((expected * (SECONDS - began) / ran))
    echo $(((expected + 59) / 60))
}

# shown COMMAND: prints the command as the page shows it, without the directories of this machine.
shown() {
    local text=$1 directory
    directory=$(printf %q "$fabtests")
    [ -z "$fabtests" ] || text=${text/"$directory"/FABTESTS}
    directory=$(printf %q "$providers")
    [ "$providers" = target/provider ] || text=${text/"$directory"/PROVIDERS}
    sed 's/ && /\n/g' <<<"$text"
}
fenced() { printf '```text\n'; cat; printf '```\n'; }

# has_table FILE: whether the file has a table with a row.
has_table() { awk 'rule && /^\|/ { found = 1 } { rule = /^\|[-:|]+$/ } END { exit !found }' "$1"; }

# write_part NUMBER RC: adds the section of a part that has run to the page.
write_part() {
    local at=$1 rc=$2
    {
        printf '\n## %s\n\n' "${titles[at]}"
        if [ -z "${commands[at]}" ]; then
            echo "Not measured: this part ${filters[at]}."
            return
        fi
        shown "${commands[at]}" | fenced
        echo
    } >>"$work/page"
    if [ "$rc" = 0 ] && "${filters[at]}" <"$work/stdout" >"$work/table" 2>>"$work/stderr" &&
        has_table "$work/table"; then
        {
            cat "$work/table"
            if grep -q ' failed: ' "$work/stderr"; then
                printf '\nMeasurements that failed:\n\n'
                grep ' failed: ' "$work/stderr" | fenced
            fi
        } >>"$work/page"
        return
    fi
    [ "$rc" != 0 ] || echo "the output has no table" >>"$work/stderr"
    failed+=("${titles[at]}")
    {
        echo "**Failed**, with exit code $rc. The last lines of the standard error:"
        echo
        tail -n 3 "$work/stderr" | cut -c 1-400 | fenced
    } >>"$work/page"
    echo "    failed ($rc): $(tail -n 1 "$work/stderr")" >&2
}

# git as root refuses the repository of another user.
repository() { git -c safe.directory='*' "$@" 2>/dev/null; }
commit=$(repository rev-parse --short=12 HEAD || echo unknown)
rc=0
repository diff --quiet HEAD -- . ":(exclude)docs/benchmark-results.md" || rc=$?
[ "$rc" != 1 ] || commit+=", with changes"
cat >"$work/page" <<END
# Results of the benchmarks

\`bench/all.sh\` makes this page in one run on one machine; [benchmarks.md](benchmarks.md) describes the
methods. Absolute figures depend on the machine. Compare ratios: each is the median of the ratios
within a round, if the text does not describe another.
$([ -z "$quick" ] || printf '\n**A run with --quick: the figures mean nothing.**\n')

| machine | |
|---|---|
| date | $(date -u '+%Y-%m-%d %H:%M') UTC |
| processor | $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1) |
| cores | $(nproc) |
| kernel | $(uname -sr) |
| load at the start | $(cut -d' ' -f1-3 /proc/loadavg) |
| commit | $commit |
| program | $("$srd" --version 2>/dev/null || echo "no $srd") |

In sections with *wire*, segmentation offload is off on the link, so that every packet is real; in
sections with *asis*, super-packets pass the link whole.
END

failed=() began=$SECONDS
for at in "${!titles[@]}"; do
    rc=0
    if [ -n "${commands[at]}" ]; then
        echo "[$((at + 1))/${#titles[@]}] ${titles[at]}; about $(left "$at") min left" >&2
        # A part that hangs is ended, and does not delay the other parts for ever.
        timeout -k 60 $((5 * seconds[at] + 300)) bash -c "${commands[at]}" \
            </dev/null >"$work/stdout" 2>"$work/stderr" &
        child=$!
        wait "$child" || rc=$?
        child=
        [ "$rc" != 124 ] || echo "ended after $((5 * seconds[at] + 300)) s" >>"$work/stderr"
    else
        echo "[$((at + 1))/${#titles[@]}] ${titles[at]}: ${filters[at]}" >&2
    fi
    write_part "$at" "$rc"
    cat "$work/page" >"$out"
done
printf '\nThe run took %d minutes.\n' $(((SECONDS - began + 59) / 60)) >>"$work/page"
cat "$work/page" >"$out"
echo "$out" >&2
[ ${#failed[@]} -eq 0 ] || {
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
}
