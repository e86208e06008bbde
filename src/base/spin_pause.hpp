// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// One round of a loop that waits for another processor. On aarch64, `yield` does nothing on cores
// without hardware threads; `isb` delays for about as long as x86's pause.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

}  // namespace cuvmm
