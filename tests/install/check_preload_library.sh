#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_preload_library.sh BUILD SOURCE: what libcuvmm_preload.so needs from the programs that it is
# loaded into, and what it exports to them. A preload library that needs more than a program has
# ends that program before it starts; one that exports too much changes other symbol lookups.
set -euo pipefail
library=$1/lib/libcuvmm_preload.so
source=$2
most_mib=2
status=0
wrong() { echo "$*"; status=1; }

# Only the C library's own libraries. The loader's own is for thread-local variables.
allowed_libraries='libc.so.6|libdl.so.2|libpthread.so.0|ld-linux-(x86-64.so.2|aarch64.so.1)'
needed=$(readelf -dW "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
echo "needs:" $needed
for one in $needed; do
  grep -qxE "$allowed_libraries" <<<"$one" || wrong "needs $one"
done

# Symbols of the oldest supported C library, 2.31. The symbols below have long existed. They carry a
# newer version only because the C library took them over from libpthread and libdl, or because the
# compiler's own libraries use them if they exist. The functions that parse numbers have another
# name since 2.38.
oldest=2.31
moved='pthread_[a-z_]+|__pthread_key_create|dl(open|sym|vsym|close|error|addr|addr1|info)|sem_[a-z]+'
moved+='|f?stat|lstat|fstatat|mknod|__libc_single_threaded|_dl_find_object|arc4random'
moved+='|__isoc23_(f|s)scanf|__isoc23_strtou?l'
while read -r version name; do
  [[ $(printf '%s\n' "$oldest" "$version" | sort -V | tail -n 1) == "$oldest" ]] ||
    grep -qxE "$moved" <<<"$name" || wrong "needs $name of GLIBC_$version"
done < <(readelf --dyn-syms -W "$library" |
  sed -nE 's/.* UND ([A-Za-z0-9_]+)@GLIBC_([0-9.]+).*/\2 \1/p')
others=$(readelf --dyn-syms -W "$library" | grep ' UND ' | grep -oE '@[A-Z]+[A-Z_]*_[0-9.]+' | grep -v '@GLIBC_' || true)
[[ -z $others ]] || wrong "needs symbols that are not the C library's: $others"

# What it exports: the doors, NVML's queries of memory and processes, dlsym, dlopen, an answer to
# AddressSanitizer, and the engine's own entry.
exported=$(readelf --dyn-syms -W "$library" | awk '$1 ~ /^[0-9]+:$/ && $7 != "UND" && $7 != "ABS" && $8 {sub(/@.*/, "", $8); print $8}' | sort -u)
echo "shows: $(wc -l <<<"$exported") symbols"
strays=$(grep -vxE 'cu[A-Z][A-Za-z0-9_]*|nvmlDeviceGetMemoryInfo(_v2)?|nvmlDeviceGet(Compute|Graphics|MPSCompute)RunningProcesses(_v[23])?|dlsym|dlopen|__asan_default_options|cuvmm_engine_v1' <<<"$exported" || true)
[[ -z $strays ]] || wrong "shows $strays"
rows=$(sed -nE 's/^CUVMM_API(_OLD)?\([^,]+, *([A-Za-z0-9_]+),.*/\2/p' "$source/src/driver/driver_api.def" | sort -u)
missing=$(comm -23 <(echo "$rows") <(echo "$exported"))
[[ -z $missing ]] || wrong "does not show $missing"

flags=$(readelf -dW "$library")
grep -q 'NODELETE' <<<"$flags" || wrong "can be unloaded, while threads and exit handlers of ours are about"
if grep -q 'TEXTREL' <<<"$flags"; then wrong "changes its code when it is loaded"; fi

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$library"
size=$(stat -c %s "$stripped")
echo "stripped: $size bytes"
# Where the compiler protects calls, returns and the stack unless told otherwise, as Ubuntu's does, the
# code is a tenth larger.
most=$((most_mib * 1024 * 1024))
if readelf -nW "$library" | grep -q 'x86 feature:.*IBT'; then most=$((most + most / 10)); fi
((size <= most)) || wrong "is larger than $((most / 1024)) KiB"
exit "$status"
