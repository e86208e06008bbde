// SPDX-License-Identifier: Apache-2.0
// Hooks dlopen, to notice RTLD_DEEPBIND. A library opened with it, and libraries that it needs,
// find the driver's functions and dlsym itself past cuvmm's, so none of their calls is seen from
// then on. dlopen searches the caller's RUNPATH, and identifies the caller by the return address.
// So every call ends in a jump to the real dlopen, with the caller's registers and stack unchanged.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>

#include "base/log.hpp"
#include "base/processor.h"
#include "hook/unlisted.hpp"

extern "C" {
// Used by the assembly below. Returns the function to jump to.
[[gnu::visibility("hidden")]] void* cuvmm_decide_dlopen(const char* file, int mode);
}

#if defined(__x86_64__)
asm(R"(
.pushsection .text
.globl cuvmm_dlopen
.hidden cuvmm_dlopen
.type cuvmm_dlopen,%function
cuvmm_dlopen:
  .cfi_startproc
  endbr64
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call cuvmm_decide_dlopen
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
.size cuvmm_dlopen,.-cuvmm_dlopen
.popsection
)");
#elif defined(__aarch64__)
asm(R"(
.pushsection .text
.globl cuvmm_dlopen
.hidden cuvmm_dlopen
.type cuvmm_dlopen,%function
cuvmm_dlopen:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  mov x29, sp
  stp x0, x1, [sp, #16]
  bl cuvmm_decide_dlopen
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc
.size cuvmm_dlopen,.-cuvmm_dlopen
.popsection
)");
#endif

asm(".globl cuvmm_dlopen_old\n"
    ".type cuvmm_dlopen_old,%function\n"
    ".set cuvmm_dlopen_old, cuvmm_dlopen\n"
    ".globl cuvmm_dlopen_new\n"
    ".type cuvmm_dlopen_new,%function\n"
    ".set cuvmm_dlopen_new, cuvmm_dlopen\n"
    ".symver cuvmm_dlopen_old, dlopen@" CUVMM_FIRST_GLIBC
    "\n"
    ".symver cuvmm_dlopen_new, dlopen@@GLIBC_2.34\n");

namespace cuvmm::hook {
namespace {

// Another preload library's dlopen may stand between cuvmm's and glibc's.
void* find_next_dlopen() {
  for (const char* version : {"GLIBC_2.34", CUVMM_FIRST_GLIBC}) {
    if (void* const found = dlvsym(RTLD_NEXT, "dlopen", version)) return found;
  }
  return nullptr;
}

void note_deep_binding(const char* file) {
  const int kept_errno = errno;
  if (hook_coverage().is_whole() && settle_and_end_coverage_of_process()) {
    CUVMM_LOG(Info,
              "%s is opened with RTLD_DEEPBIND, so its calls of the driver are not seen: hook "
              "coverage is no longer full",
              file != nullptr ? file : "the program");
  }
  errno = kept_errno;
}

}  // namespace
}  // namespace cuvmm::hook

void* cuvmm_decide_dlopen(const char* file, int mode) {
  using namespace cuvmm::hook;
  static constinit std::atomic<void*> next{nullptr};
  if ((mode & RTLD_DEEPBIND) != 0) note_deep_binding(file);
  if (void* const found = next.load(std::memory_order_relaxed)) return found;
  next.store(find_next_dlopen(), std::memory_order_relaxed);
  return next.load(std::memory_order_relaxed);
}
