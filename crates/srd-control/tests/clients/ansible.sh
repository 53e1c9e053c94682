#!/bin/sh
# Installs Ansible, and its modules for EC2, in a new or existing environment of Python.
#
#   crates/srd-control/tests/clients/ansible.sh FOLDER [PACKAGE ...]
#
# Further packages are installed together with them, so that the versions of all fit.
#
# The modules are in the package `ansible` (54 MB), together with hundreds of other collections. So the
# package is fetched, the collection amazon.aws (5 MB) is taken out of it, and the rest is dropped.
#
# All modules are compiled here: each task of Ansible is a new process, which would compile them again.
set -eu
folder=${1:?the folder of the environment}
shift
[ -e "$folder/bin/python3" ] || python3 -m venv "$folder"
"$folder/bin/pip" install --quiet ansible-core==2.18.19 boto3 "$@"
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
"$folder/bin/pip" download --quiet --no-deps --dest "$fetched" ansible==12.3.0
"$folder/bin/python3" - "$fetched" <<'END'
import pathlib, shutil, sys, sysconfig, zipfile

packages = pathlib.Path(sysconfig.get_path("purelib"))
# Python imports the part of a collection that it finds. So the folder gets its name when it is whole.
new, name = packages / "ansible_collections.new", "ansible_collections/amazon/aws"
shutil.rmtree(new, ignore_errors=True)
wheel, = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(new, [of for of in archive.namelist() if of.startswith(name + "/")])
shutil.rmtree(packages / name, ignore_errors=True)
(packages / name).parent.mkdir(parents=True, exist_ok=True)
(new / name).rename(packages / name)
shutil.rmtree(new)
END
"$folder/bin/python3" -m compileall -q "$(echo "$folder"/lib/python3*/site-packages/ansible_collections)"
