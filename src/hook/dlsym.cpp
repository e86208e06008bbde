// SPDX-License-Identifier: Apache-2.0
// The second door: what dlsym answers. RTLD_NEXT and RTLD_DEFAULT mean something that depends on
// who calls, which the real dlsym reads from the return address; so a call that we do not decide
// ourselves is jumped to, with the caller's registers and stack as they were.
#include <dlfcn.h>

#include <cerrno>
#include <cstring>

#include "base/text.hpp"
#include "hook/door_of.hpp"

extern "C" {
// What the assembler below calls, and where it jumps.
[[gnu::visibility("hidden")]] void* (*cuvmm_real_dlsym)(void*, const char*) = nullptr;
[[gnu::visibility("hidden")]] void* cuvmm_decide_dlsym(void* library, const char* name);
}

// rdi and rsi are the arguments; a result other than null is the answer.
asm(R"(
.pushsection .text
.globl cuvmm_dlsym
.hidden cuvmm_dlsym
.type cuvmm_dlsym,@function
cuvmm_dlsym:
  .cfi_startproc
  endbr64
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call cuvmm_decide_dlsym
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  test %rax, %rax
  jz 1f
  ret
1:
  jmp *cuvmm_real_dlsym(%rip)
  .cfi_endproc
.size cuvmm_dlsym,.-cuvmm_dlsym
.globl dlsym
.type dlsym,@function
.set dlsym, cuvmm_dlsym
.popsection
)");

namespace cuvmm::hook {
namespace {

using Dlsym = void* (*)(void*, const char*);

// dlvsym is not hooked, so this works before anything else does. glibc 2.34 moved dlsym.
Dlsym find_real_dlsym() {
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5"}) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Dlsym>(found);
  }
  return nullptr;
}

// Before any constructor of the program, and again by whoever comes still earlier.
[[gnu::constructor(101)]] void prepare() {
  if (cuvmm_real_dlsym != nullptr) return;
  const int kept_errno = errno;
  cuvmm_real_dlsym = find_real_dlsym();
  driver_source().doors.symbol = cuvmm_real_dlsym;
  errno = kept_errno;
}

}  // namespace
}  // namespace cuvmm::hook

// Null: let the real dlsym answer. Decided by the name first, so that a lookup which is none of
// ours costs three comparisons and touches nothing. (cudaMalloc, cudnnCreate: none of the
// driver's.)
void* cuvmm_decide_dlsym(void* library, const char* name) {
  using namespace cuvmm::hook;
  if (cuvmm_real_dlsym == nullptr) prepare();
  if (name == nullptr || name[0] != 'c' || name[1] != 'u') return nullptr;
  if (name[2] < 'A' || name[2] > 'Z') return nullptr;
  // By RTLD_DEFAULT and RTLD_NEXT our exported symbols are found as any others are.
  if (library == RTLD_DEFAULT || library == RTLD_NEXT) return nullptr;
  return door_for_symbol(library, name, cuvmm_real_dlsym);
}
