// SPDX-License-Identifier: Apache-2.0
#include "hook/unlisted.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/log.hpp"
#include "engine/hook_bypass.hpp"
#include "hook/door_of.hpp"

extern "C" {
// Used by the assembly below.
[[gnu::visibility("hidden")]] std::atomic<void*>
    cuvmm_unlisted_functions[cuvmm::hook::most_unlisted] = {};
[[gnu::visibility("hidden")]] std::atomic<bool> cuvmm_unlisted_was_called{false};
[[gnu::visibility("hidden")]] void cuvmm_call_of_unlisted(unsigned index);
[[gnu::visibility("hidden")]] extern const char cuvmm_unlisted_entries[];
}

// Each entry has at most sixteen bytes: it loads its number into a register on which no caller
// relies, and jumps to the common part. The common part calls cuvmm once, with every register that
// may carry an argument saved, and then jumps to the real function with the stack unchanged.
#if defined(__x86_64__)
asm(R"(
.pushsection .text
.p2align 4
.globl cuvmm_unlisted_entries
.hidden cuvmm_unlisted_entries
.type cuvmm_unlisted_entries,%function
cuvmm_unlisted_entries:
  .cfi_startproc
.set .Lcuvmm_entry, 0
.rept 512
  .p2align 4
  endbr64
  movl $.Lcuvmm_entry, %r11d
  jmp .Lcuvmm_unlisted
.set .Lcuvmm_entry, .Lcuvmm_entry + 1
.endr
.p2align 4
.Lcuvmm_unlisted:
  cmpb $0, cuvmm_unlisted_was_called(%rip)
  je .Lcuvmm_first_call
.Lcuvmm_jump_on:
  lea cuvmm_unlisted_functions(%rip), %r10
  jmp *(%r10,%r11,8)
.Lcuvmm_first_call:
  push %rax
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  push %r11
  sub $136, %rsp
  .cfi_adjust_cfa_offset 200
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movl %r11d, %edi
  call cuvmm_call_of_unlisted
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  add $136, %rsp
  pop %r11
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  pop %rax
  .cfi_adjust_cfa_offset -200
  jmp .Lcuvmm_jump_on
  .cfi_endproc
.size cuvmm_unlisted_entries,.-cuvmm_unlisted_entries
.popsection
)");
#elif defined(__aarch64__)
// Loads the flag with acquire order: a caller that finds it set also sees everything that the first
// call did before setting it.
asm(R"(
.pushsection .text
.p2align 4
.globl cuvmm_unlisted_entries
.hidden cuvmm_unlisted_entries
.type cuvmm_unlisted_entries,%function
cuvmm_unlisted_entries:
  .cfi_startproc
.set .Lcuvmm_entry, 0
.rept 512
  .p2align 4
  hint #34
  mov w16, #.Lcuvmm_entry
  b .Lcuvmm_unlisted
.set .Lcuvmm_entry, .Lcuvmm_entry + 1
.endr
.p2align 4
.Lcuvmm_unlisted:
  adrp x17, cuvmm_unlisted_was_called
  add x17, x17, :lo12:cuvmm_unlisted_was_called
  ldarb w17, [x17]
  cbz w17, .Lcuvmm_first_call
.Lcuvmm_jump_on:
  adrp x17, cuvmm_unlisted_functions
  add x17, x17, :lo12:cuvmm_unlisted_functions
  ldr x16, [x17, x16, lsl #3]
  br x16
.Lcuvmm_first_call:
  stp x29, x30, [sp, #-224]!
  .cfi_adjust_cfa_offset 224
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  stp x8, x16, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w16
  bl cuvmm_call_of_unlisted
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldp x8, x16, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_adjust_cfa_offset -224
  .cfi_restore x29
  .cfi_restore x30
  b .Lcuvmm_jump_on
  .cfi_endproc
.size cuvmm_unlisted_entries,.-cuvmm_unlisted_entries
.popsection
)");
#endif

namespace cuvmm::hook {
namespace {

static_assert(most_unlisted == 512, "as many as the assembler above makes");
constexpr std::size_t entry_size = 16;

struct NotHooked {
  std::string_view name;
  std::string_view symbol;
  std::string_view per_thread_symbol;  // empty if there is none
  int since;
  int until;
};

using enum Flavours;
constexpr auto not_hooked = std::to_array<NotHooked>({
#define CUVMM_NOT_HOOKED(name, symbol, since, until, flavours, reason)                        \
  {#name, #symbol,                                                                            \
   flavours == Legacy ? "" : (flavours == LegacyAndPtds ? #symbol "_ptds" : #symbol "_ptsz"), \
   since, until},
#include "driver/not_hooked.def"
#undef CUVMM_NOT_HOOKED
});

// These functions only control the profiler. Their header is not the one that the lists are checked
// against.
bool is_of_the_profiler(std::string_view name) {
  return name.starts_with("cuProfiler");
}

// The interfaces to OpenGL and VDPAU exchange only memory that cuvmm never serves.
bool is_of_graphics(std::string_view name) {
  for (const std::string_view start : {"cuGL", "cuVDPAU", "cuGraphicsGL", "cuGraphicsVDPAU"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

bool is_not_hooked(std::string_view symbol) {
  return std::any_of(not_hooked.begin(), not_hooked.end(), [&](const auto& row) {
    return row.symbol == symbol || row.per_thread_symbol == symbol;
  });
}

// For the log; longer names are truncated.
std::array<std::array<char, 64>, most_unlisted> names;
std::atomic<std::size_t> taken{0};

void* entry_at(std::size_t index) {
  return const_cast<char*>(cuvmm_unlisted_entries) + index * entry_size;
}

void* known_entry(void* real) {
  const std::size_t count = std::min(taken.load(std::memory_order_acquire), most_unlisted);
  for (std::size_t i = 0; i < count; ++i) {
    if (cuvmm_unlisted_functions[i].load(std::memory_order_acquire) == real) return entry_at(i);
  }
  return nullptr;
}

void say_that_coverage_ended(const char* name) {
  CUVMM_LOG(Info, "function=%s is unknown to this version: hook coverage is no longer full", name);
}

// Two threads that request the same function at once may get two entries, which behave the same.
void* new_entry(const char* name, void* real) {
  hook_coverage().handed_out_unlisted();
  CUVMM_LOG(Debug, "function=%s handed out, although no list names it", name);
  const std::size_t mine = taken.fetch_add(1, std::memory_order_acq_rel);
  if (mine >= most_unlisted) {
    taken.store(most_unlisted, std::memory_order_relaxed);
    if (settle_and_end_coverage_of_process()) say_that_coverage_ended(name);
    return real;
  }
  std::strncpy(names[mine].data(), name, names[mine].size() - 1);
  cuvmm_unlisted_functions[mine].store(real, std::memory_order_release);
  return entry_at(mine);
}

void* entry_of(const char* name, void* real) {
  if (is_of_the_profiler(name)) return real;
  void* known = known_entry(real);
  return known != nullptr ? known : new_entry(name, real);
}

}  // namespace

bool settle_and_end_coverage(Engine& engine) {
  const bool was_whole = hook_coverage().lose();
  engine.scheduling().disable_permanently();
  // The calls to come have unknown signatures, so they cannot return an error to the program.
  static_cast<void>(engine.before({unlisted_call, every_effect}));
  return was_whole;
}

bool settle_and_end_coverage_of_process() {
  Engine* const engine = Engine::running();
  if (engine == nullptr || !engine->is_on() || HookBypass::is_active()) {
    return hook_coverage().lose();
  }
  const HookBypass bypass;
  // Inside the barrier, so that for a thread that quiesces the program, coverage ends either before
  // it begins or after it is done.
  const CallBarrier::Pass pass{engine->calls()};
  return settle_and_end_coverage(*engine);
}

void* entry_of_unlisted(const char* name, int version, void* real) {
  const bool harmless = std::any_of(not_hooked.begin(), not_hooked.end(), [&](const auto& row) {
    return row.name == name && row.since <= version && version < row.until;
  });
  return harmless ? real : entry_of(name, real);
}

void* entry_of_unlisted_symbol(const char* symbol, void* real) {
  return is_not_hooked(symbol) ? real : entry_of(symbol, real);
}

bool is_unlisted(std::string_view symbol) {
  if (!is_named_like_the_drivers(symbol) || is_not_hooked(symbol)) return false;
  return !has_door(symbol) && !is_of_the_profiler(symbol) && !is_of_graphics(symbol);
}

}  // namespace cuvmm::hook

// Settles pending work before the function runs, while every call so far has been seen.
void cuvmm_call_of_unlisted(unsigned index) {
  using namespace cuvmm;
  const int kept_errno = errno;
  if (hook::settle_and_end_coverage_of_process()) {
    hook::say_that_coverage_ended(hook::names[index].data());
  }
  cuvmm_unlisted_was_called.store(true, std::memory_order_release);
  errno = kept_errno;
}
