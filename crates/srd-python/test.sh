#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh virtual environment, and runs the tests there.
#
#   crates/srd-python/test.sh          the tests that take seconds
#   crates/srd-python/test.sh all      also Dask, Ray, the types under mypy, and the notebook
#
# Everything goes below target/python-package (or CARGO_TARGET_DIR): the wheel is in wheels/. With
# PROFILE=dev the simulator is built as the other tests build it, sooner and slower. The command
# that results are compared with is OPENSRD_SRD, else target/release/srd or target/debug/srd.
set -euo pipefail
cd "$(dirname "$0")"
what=${1:-quick}
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
place=$target/python-package
profile=${PROFILE:-release}
mkdir -p "$place/wheels"

if [ ! -x "$place/build/bin/maturin" ]; then
    python3 -m venv "$place/build"
    "$place/build/bin/pip" install --quiet 'maturin>=1.7,<2'
fi
rm -f "$place"/wheels/opensrd-*.whl
"$place/build/bin/maturin" build --profile "$profile" --out "$place/wheels"

rm -rf "$place/fresh"
python3 -m venv "$place/fresh"
packages="pytest pyarrow pandas polars matplotlib"
select="not slow"
if [ "$what" = all ]; then
    packages="$packages distributed ray tqdm nbclient nbformat ipykernel mypy"
    select=""
fi
# shellcheck disable=SC2086 # words
"$place/fresh/bin/pip" install --quiet $packages "$place"/wheels/opensrd-*.whl

for program in "$target/release/srd" "$target/debug/srd"; do
    if [ -z "${OPENSRD_SRD-}" ] && [ -x "$program" ]; then
        export OPENSRD_SRD=$program
    fi
done
"$place/fresh/bin/python" -m pytest -q -rs tests -m "$select"
if [ "$what" = all ]; then
    "$place/fresh/bin/python" -m mypy --strict -p opensrd
fi
