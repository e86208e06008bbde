#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_sanitized.sh BUILD CUDA_INCLUDE: programs built with sanitizers run under cuvmm as they do natively.
# Sanitizers replace functions of the C library, and look up symbols before anything else runs.
set -uo pipefail
build=$1
cuda=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_RUNTIME_DIR=$folder
status=0
wrong() { echo "wrong: $*"; status=1; }

cat >"$folder/hello.c" <<'PROGRAM'
#include <stdio.h>
int main(void) { puts("hello"); return 0; }
PROGRAM
cat >"$folder/fills.c" <<'PROGRAM'
#include <cuda.h>
#include <stdio.h>
int main(void) {
  CUcontext context;
  CUdeviceptr memory;
  unsigned char byte = 0;
  int error = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
              cuMemAlloc(&memory, 4 << 20) || cuMemsetD8(memory, 7, 4 << 20) ||
              cuMemcpyDtoH(&byte, memory + 12345, 1) || cuMemFree(memory);
  printf("error %d, byte %d\n", error, byte);
  return error;
}
PROGRAM
# AddressSanitizer's heaps of 4 TiB, in newer and in older versions, whichever is installed here.
cat >"$folder/heaps.c" <<'PROGRAM'
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
__attribute__((constructor)) static void take_heaps(void) {
  for (unsigned long begin = 80UL << 40; begin <= 96UL << 40; begin += 16UL << 40) {
    if (mmap((void *)begin, 4UL << 40, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != (void *)begin) {
      puts("a heap's addresses are not free");
      exit(1);
    }
  }
}
PROGRAM

same() {  # WHAT PROGRAM
  local natively said mode
  natively=$(LD_LIBRARY_PATH=$build/lib/cuvmm/sim timeout 60 "$2" 2>&1) || wrong "$1 fails natively: $natively"
  for mode in vmm monitor off; do
    said=$(timeout 60 "$build/bin/cuvmm" run --quiet --sim --mode "$mode" -- "$2" 2>&1) ||
      wrong "$1 fails in mode $mode"
    [[ $said == "$natively" ]] || wrong "$1 in mode $mode: '$said' instead of '$natively'"
  done
}

if gcc -I"$cuda" -o "$folder/fills" "$folder/fills.c" "$folder/heaps.c" -L"$build/lib/cuvmm/sim" -l:libcuda.so.1; then
  same "fills beside sanitizers' heaps" "$folder/fills"
else
  wrong "cannot compile fills.c with heaps.c"
fi
for compiler in gcc clang clang-14; do
  command -v "$compiler" >/dev/null || continue
  for kind in address leak undefined thread memory; do
    "$compiler" -g "-fsanitize=$kind" -o "$folder/hello" "$folder/hello.c" 2>/dev/null || continue
    # Older sanitizers do not start where the kernel randomizes more bits of addresses.
    "$folder/hello" >/dev/null 2>&1 || { echo "$compiler, $kind: fails natively"; continue; }
    echo "$compiler, $kind"
    same "hello ($compiler, $kind)" "$folder/hello"
    # The others occupy the addresses that the simulated driver needs for device memory.
    [[ $kind =~ ^(address|leak|undefined)$ ]] || continue
    "$compiler" -g "-fsanitize=$kind" -I"$cuda" -o "$folder/fills" "$folder/fills.c" \
      -L"$build/lib/cuvmm/sim" -l:libcuda.so.1 || { wrong "cannot compile ($compiler, $kind)"; continue; }
    same "fills ($compiler, $kind)" "$folder/fills"
  done
done
exit "$status"
