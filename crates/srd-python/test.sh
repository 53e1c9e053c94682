#!/usr/bin/env bash
# Builds the wheel, installs it into a virtual environment, and runs the tests there.
#
#   crates/srd-python/test.sh          the tests that take seconds, with pyarrow, pandas, polars and matplotlib
#   crates/srd-python/test.sh all      also Dask, Ray, mypy, and the notebook
#   crates/srd-python/test.sh fetch    makes the environments of the first form, and no more
#
# Everything goes below target/python-package (or CARGO_TARGET_DIR): the wheel is in wheels/. With
# PROFILE=dev the simulator is built as the other tests build it, sooner and slower. The command
# that results are compared with is OPENSRD_SRD, else the newest srd in target/. An environment stays
# until the list of its packages changes; the package under test is installed anew each time.
set -euo pipefail
cd "$(dirname "$0")"
what=${1:-quick}
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
place=$target/python-package
profile=${PROFILE:-release}
mkdir -p "$place/wheels"

# environment NAME PACKAGES...: a virtual environment with these packages.
environment() {
    local directory=$place/$1
    shift
    [ "$(cat "$directory/packages" 2>/dev/null)" = "$*" ] && "$directory/bin/python" -c '' && return
    rm -rf "$directory"
    python3 -m venv "$directory"
    "$directory/bin/pip" install --quiet --no-compile --disable-pip-version-check "$@"
    echo "$*" >"$directory/packages"
}

packages=(pytest pyarrow pandas polars matplotlib)
select="not slow"
if [ "$what" = all ]; then
    packages+=(distributed ray tqdm nbclient nbformat ipykernel mypy)
    select=""
fi
environment build 'maturin>=1.7,<2'
environment fresh "${packages[@]}"
if [ "$what" = fetch ]; then
    exit
fi

rm -f "$place"/wheels/opensrd-*.whl
"$place/build/bin/maturin" build --quiet --profile "$profile" --out "$place/wheels"
"$place/fresh/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps \
    "$place"/wheels/opensrd-*.whl

if [ -z "${OPENSRD_SRD-}" ]; then
    for program in "$target"/{release,quick,debug}/srd; do
        [ -x "$program" ] || continue
        [ -n "${OPENSRD_SRD-}" ] && [ "$OPENSRD_SRD" -nt "$program" ] && continue
        export OPENSRD_SRD=$program
    done
fi
"$place/fresh/bin/python" -m pytest -q -rs tests -m "$select"
if [ "$what" = all ]; then
    "$place/fresh/bin/python" -m mypy --strict -p opensrd
fi
