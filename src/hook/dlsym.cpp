// SPDX-License-Identifier: Apache-2.0
// The second door: what dlsym answers. RTLD_NEXT and RTLD_DEFAULT mean something that depends on
// who calls, which the real dlsym reads from the return address; so a call that we do not decide
// ourselves is jumped to, with the caller's registers and stack as they were.
#include <dlfcn.h>

#include <cerrno>
#include <cstring>

#include "base/text.hpp"
#include "hook/door_of.hpp"
#include "hook/nvml.hpp"

extern "C" {
// What the assembler below calls, and where it jumps.
[[gnu::visibility("hidden")]] void* (*cuvmm_next_dlsym)(void*, const char*) = nullptr;
[[gnu::visibility("hidden")]] void* cuvmm_decide_dlsym(void** library, const char* name);
}

// rdi and rsi are the arguments; a result other than null is the answer. The library may be changed
// where it was kept on the stack.
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
.globl cuvmm_dlsym_old
.type cuvmm_dlsym_old,@function
.set cuvmm_dlsym_old, cuvmm_dlsym
.globl cuvmm_dlsym_new
.type cuvmm_dlsym_new,@function
.set cuvmm_dlsym_new, cuvmm_dlsym
.symver cuvmm_dlsym_old, dlsym@GLIBC_2.2.5
.symver cuvmm_dlsym_new, dlsym@@GLIBC_2.34
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

// Another preload library's may stand between us and glibc's. The program's lookups go there, ours
// to glibc.
Dlsym find_next_dlsym(Dlsym real) {
  void* next = real != nullptr ? real(RTLD_NEXT, "dlsym") : nullptr;
  return next != nullptr ? reinterpret_cast<Dlsym>(next) : real;
}

// The file that the program opened may be gone by its first call.
void* open_driver(const char* path) {
  constexpr int how = RTLD_NOW | RTLD_LOCAL;
  void* const library = dlopen(path, how);
  return library != nullptr ? library : dlopen("libcuda.so.1", how);
}

// Runs before any constructor of the program, and on demand for still earlier callers.
[[gnu::constructor(101)]] void prepare() {
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

bool is_named_like_the_drivers(const char* name) {
  return name != nullptr && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

bool driver_is_loaded() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

// Where no such name can be found.
void* library_without_driver() {
  return dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace
}  // namespace cuvmm::hook

// Null: let the real dlsym answer. Decided by the name first, so that a lookup which is none of
// ours (cudaMalloc, cudnnCreate) costs four comparisons and touches nothing.
void* cuvmm_decide_dlsym(void** library, const char* name) {
  using namespace cuvmm::hook;
  if (cuvmm_next_dlsym == nullptr) prepare();
  if (is_named_like_nvmls_memory(name)) {
    const bool is_named = *library != RTLD_DEFAULT && *library != RTLD_NEXT;
    if (is_named) return nvml_door(*library, name, cuvmm_next_dlsym);
    if (!nvml_is_loaded()) *library = library_without_driver();
    return nullptr;
  }
  if (!is_named_like_the_drivers(name)) return nullptr;
  if (*library != RTLD_DEFAULT && *library != RTLD_NEXT) {
    return door_for_symbol(*library, name, cuvmm_next_dlsym);
  }
  // Our exported symbols are found as any others are. But who only asks whether there is a driver
  // must not take them for one.
  if (has_door(name) && !driver_is_loaded()) *library = library_without_driver();
  return nullptr;
}
