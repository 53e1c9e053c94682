#!/usr/bin/env bash
# Runs what holds unsafe code, or threads, under the tools that see what tests do not.
#
#   sanitize.sh short               of `address`, the hosts and the liar for three seconds, as CI runs it
#   sanitize.sh address [SECONDS]   a peer that lies over loopback, under AddressSanitizer
#   sanitize.sh thread              hosts and the provider's objects, under ThreadSanitizer
#   sanitize.sh undefined           what is pure enough, under Miri
#   sanitize.sh fuzz [SECONDS [TARGET...]]
#                                   fuzz targets, each for so long, under AddressSanitizer: those given,
#                                   else those of the messaging layer and the card; `all` is every one
#
# `short` and `address` also run with the stable toolchain, which comes with the sanitizer. The others
# need a nightly toolchain: `rustup toolchain install nightly`, and of its components `rust-src`
# (thread) and `miri` (undefined); `fuzz` needs `cargo install cargo-fuzz`. Linux on x86-64 or
# arm64. Everything is built apart, below `fuzz/target`, or where CARGO_TARGET_DIR says.
set -euo pipefail
cd "$(dirname "$0")/.."
command=${1:?short, address, thread, undefined or fuzz}
seconds=${2:-60}
export CARGO_INCREMENTAL=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/fuzz/target}/sanitize

toolchain=+nightly
if ! cargo +nightly --version >/dev/null 2>&1; then
    case $command in
    short | address)
        # The stable compiler has the same option, and takes it if it is told to.
        toolchain=+stable
        export RUSTC_BOOTSTRAP=1
        ;;
    *)
        echo "sanitize.sh: needs a nightly toolchain: rustup toolchain install nightly" >&2
        exit 1
        ;;
    esac
fi
target=$(rustc "$toolchain" -vV | sed -n 's/^host: //p')

# component NAME: fails, with the remedy, if nightly lacks it.
component() {
    rustup component list --toolchain nightly --installed | grep -q "^$1" && return
    echo "sanitize.sh: needs rustup component add --toolchain nightly $1" >&2
    exit 1
}

case $command in
short)
    export RUSTFLAGS="-Zsanitizer=address"
    export SRD_HOSTILE_SECONDS=3
    cargo "$toolchain" test --target "$target" -p srd-host --lib --tests
    ;;
address)
    export RUSTFLAGS="-Zsanitizer=address"
    export SRD_HOSTILE_SECONDS=$seconds
    cargo "$toolchain" test --target "$target" -p srd-host
    cargo "$toolchain" test --target "$target" -p srd-ofi --lib
    ;;
thread)
    # The standard library has to be built with it: its locks are what is to be seen.
    component rust-src
    export RUSTFLAGS="-Zsanitizer=thread"
    export SRD_HOSTILE_SECONDS=$seconds
    # Examples in the documentation would be built without it.
    cargo +nightly test -Zbuild-std --target "$target" -p srd-host --lib --tests
    cargo +nightly test -Zbuild-std --target "$target" -p srd-ofi -p srd-capi -p srd-nccl --lib
    ;;
undefined)
    component miri
    # Buffers of applications are known by address only.
    export MIRIFLAGS="-Zmiri-permissive-provenance"
    cargo +nightly miri test -p srd-host --lib memory::
    cargo +nightly miri test -p srd-ofi --lib -- ledger:: arithmetic:: address:: failure:: negotiate:: offers::
    cargo +nightly miri test -p srd-capi --lib -- table:: shares:: peers:: status::
    cargo +nightly miri test -p srd-nccl --lib -- flow:: wire::
    ;;
fuzz)
    unset CARGO_TARGET_DIR
    names=("${@:3}")
    [ ${#names[@]} -gt 0 ] || names=(rdm hostile card)
    [ "${names[*]}" != all ] || mapfile -t names < <(basename -s .rs fuzz/targets/*.rs)
    for name in "${names[@]}"; do
        cargo +nightly fuzz run "$name" -- -max_total_time="$seconds" -max_len=4096
    done
    ;;
*)
    echo "sanitize.sh: short, address, thread, undefined or fuzz" >&2
    exit 1
    ;;
esac
