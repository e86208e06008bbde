// SPDX-License-Identifier: Apache-2.0
// Hooks dlsym, one of the ways in which programs find driver functions. RTLD_NEXT and RTLD_DEFAULT
// depend on the caller, which the real dlsym identifies by the return address. So a lookup that
// cuvmm does not answer itself is a jump to the real dlsym, with the caller's registers and stack
// unchanged.
#include <dlfcn.h>
#include <unwind.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/processor.h"
#include "hook/door_of.hpp"
#include "hook/next_definition.hpp"
#include "hook/nvml.hpp"
#include "hook/unlisted.hpp"

extern "C" {
// Used by the assembly below: the function that it calls and the jump target.
[[gnu::visibility("hidden")]] void* (*cuvmm_next_dlsym)(void*, const char*) = nullptr;
[[gnu::visibility("hidden")]] void* cuvmm_decide_dlsym(void** library, const char* name);
}

// The registers of the arguments are saved on the stack, where cuvmm_decide_dlsym may change the
// library. A non-null result is the answer.
#if defined(__x86_64__)
asm(R"(
.pushsection .text
.globl cuvmm_dlsym
.hidden cuvmm_dlsym
.type cuvmm_dlsym,%function
cuvmm_dlsym:
  .cfi_startproc
  endbr64
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  lea 16(%rsp), %rdi
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
  jmp *cuvmm_next_dlsym(%rip)
  .cfi_endproc
.size cuvmm_dlsym,.-cuvmm_dlsym
.popsection
)");
#elif defined(__aarch64__)
asm(R"(
.pushsection .text
.globl cuvmm_dlsym
.hidden cuvmm_dlsym
.type cuvmm_dlsym,%function
cuvmm_dlsym:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  mov x29, sp
  stp x0, x1, [sp, #16]
  add x0, sp, #16
  bl cuvmm_decide_dlsym
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x29
  .cfi_restore x30
  cbz x16, 1f
  mov x0, x16
  ret
1:
  adrp x16, cuvmm_next_dlsym
  ldr x16, [x16, :lo12:cuvmm_next_dlsym]
  br x16
  .cfi_endproc
.size cuvmm_dlsym,.-cuvmm_dlsym
.popsection
)");
#endif

asm(".globl cuvmm_dlsym_old\n"
    ".type cuvmm_dlsym_old,%function\n"
    ".set cuvmm_dlsym_old, cuvmm_dlsym\n"
    ".globl cuvmm_dlsym_new\n"
    ".type cuvmm_dlsym_new,%function\n"
    ".set cuvmm_dlsym_new, cuvmm_dlsym\n"
    ".symver cuvmm_dlsym_old, dlsym@" CUVMM_FIRST_GLIBC
    "\n"
    ".symver cuvmm_dlsym_new, dlsym@@GLIBC_2.34\n");

namespace cuvmm::hook {
namespace {

using Dlsym = void* (*)(void*, const char*);

// glibc 2.34 moved its functions for libraries.
template <class Function>
Function versioned(void* library, const char* name) {
  for (const char* version : {"GLIBC_2.34", CUVMM_FIRST_GLIBC}) {
    if (void* found = dlvsym(library, name, version)) return reinterpret_cast<Function>(found);
  }
  return nullptr;
}

// dlvsym is not hooked, so this works before anything else does. Another preload library after
// cuvmm's may export a dlsym with glibc's versions as well (nvshare does); glibc's own is then
// found in the file that also holds dlvsym. MemorySanitizer, which is part of the program and looks
// up symbols while it starts, has a dladdr that does not work yet.
Dlsym find_real_dlsym() {
  const auto found = versioned<Dlsym>(RTLD_NEXT, "dlsym");
  const auto real_dladdr = versioned<decltype(&dladdr)>(RTLD_NEXT, "dladdr");
  Dl_info here{};
  Dl_info glibc{};
  if (real_dladdr == nullptr || real_dladdr(reinterpret_cast<const void*>(found), &here) == 0 ||
      real_dladdr(reinterpret_cast<const void*>(&dlvsym), &glibc) == 0 ||
      here.dli_fbase == glibc.dli_fbase) {
    return found;
  }
  cuvmm_next_dlsym = found;  // a hook of dlopen may call dlsym
  void* const library = dlopen(glibc.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  const Dlsym real = library != nullptr ? versioned<Dlsym>(library, "dlsym") : nullptr;
  return real != nullptr ? real : found;
}

// Another preload library's dlsym may stand between cuvmm's and glibc's. The program's lookups go
// there, cuvmm's own to glibc.
Dlsym find_next_dlsym(Dlsym real) {
  void* next = real != nullptr ? real(RTLD_NEXT, "dlsym") : nullptr;
  return next != nullptr ? reinterpret_cast<Dlsym>(next) : real;
}

// The file that the program opened may no longer exist at its first call.
void* open_driver(const char* path) {
  constexpr int how = RTLD_NOW | RTLD_LOCAL;
  void* const library = dlopen(path, how);
  return library != nullptr ? library : dlopen("libcuda.so.1", how);
}

// When a thread is cancelled inside a hooked call, glibc's unwinder runs the cleanups of this
// library with functions of the unwinder that is linked into it. These abort unless that one has
// unwound before, which fills its table of register sizes. Not on demand: ThreadSanitizer looks up
// symbols while it starts, when its pthread_once, which the unwinder calls, does not work yet.
[[gnu::constructor]] void prepare_unwinder() {
  _Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_NORMAL_STOP; }, nullptr);
}

// Runs before any constructor of the program, or on demand for callers that run even earlier.
[[gnu::constructor(101)]] void prepare_lookups() {
  if (cuvmm_next_dlsym != nullptr) return;
  const int kept_errno = errno;
  const Dlsym real = find_real_dlsym();
  driver_source().doors = {.open = &open_driver, .symbol = real};
  cuvmm_next_dlsym = find_next_dlsym(real);
  errno = kept_errno;
}

}  // namespace
}  // namespace cuvmm::hook

namespace cuvmm::hook {
namespace {

// A library in which no driver symbol can be found.
void* library_without_driver() {
  return dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
}

// For a lookup that found or will find what cuvmm exports, although there is no driver: in a scope,
// or in the program itself (dlopen(nullptr)), whose scope includes cuvmm's. A program that only
// checks whether a driver is present must not mistake the export for one.
void* without_exports(void** library, const char* name) {
  if (*library == RTLD_DEFAULT && another_comes_first(name)) return nullptr;
  void* const next = next_definition(name);
  if (next == nullptr) *library = library_without_driver();
  // A caller that comes after cuvmm in the search order has another next definition, or none.
  return *library == RTLD_NEXT ? nullptr : next;
}

void* door_of_nvmls(void** library, const char* name) {
  const bool is_named = *library != RTLD_DEFAULT && *library != RTLD_NEXT;
  void* const answer = is_named ? nvml_door(*library, name, cuvmm_next_dlsym) : nullptr;
  if ((is_named && !is_export(answer)) || nvml_is_loaded()) return answer;
  return without_exports(library, name);
}

// Only the caller's own lookup finds what its scope has under the name, so no entry can take the
// function's place, and its calls would not be seen.
void end_coverage_if_of_driver(const char* name) {
  if (HookBypass::is_active() || !hook_coverage().is_whole() || !driver_has(name)) return;
  const int kept_errno = errno;
  if (settle_and_end_coverage_of_process()) {
    CUVMM_LOG(
        Info,
        "function=%s is unknown to this version and is looked up in a scope: hook coverage is "
        "no longer full",
        name);
  }
  errno = kept_errno;
}

void* door_of_drivers(void** library, const char* name) {
  if (*library == RTLD_DEFAULT || *library == RTLD_NEXT) {
    // cuvmm's exported symbols are found like any others.
    if (has_door(name) && !driver_has(name)) return without_exports(library, name);
    if (is_unlisted(name)) end_coverage_if_of_driver(name);
    return nullptr;
  }
  const FoundSymbol found = door_for_symbol(*library, name, cuvmm_next_dlsym);
  if (found.is_of_driver || found.address == nullptr) return found.address;
  if (is_export(found.address) && !driver_has(name)) return without_exports(library, name);
  // A hook of dlsym after cuvmm's may answer with a function of its own, which calls the driver
  // past cuvmm.
  const auto real = driver_source().doors.symbol;
  if (real == cuvmm_next_dlsym || !has_door(name)) return found.address;
  return door_for_symbol(*library, name, real).address;
}

}  // namespace
}  // namespace cuvmm::hook

// Returns nullptr to let the real dlsym answer. Checks the name first, so that an unrelated lookup
// (cudaMalloc, cudnnCreate) touches nothing.
void* cuvmm_decide_dlsym(void** library, const char* name) {
  using namespace cuvmm::hook;
  if (cuvmm_next_dlsym == nullptr) prepare_lookups();
  if (name == nullptr) return nullptr;
  if (is_named_like_nvmls(name)) return door_of_nvmls(library, name);
  if (is_named_like_the_drivers(name)) return door_of_drivers(library, name);
  return nullptr;
}
