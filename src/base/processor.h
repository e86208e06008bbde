/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between the processors that cuvmm runs on, for C and C++. */
#pragma once

#if defined(__x86_64__)

/* The version of glibc's first symbols. */
#define CUVMM_FIRST_GLIBC "GLIBC_2.2.5"

/* Debian's folder of libraries. */
#define CUVMM_LIBRARY_FOLDER "lib/x86_64-linux-gnu"

/* Where a function begins that is reached by an indirect jump. */
#define CUVMM_LANDING "  endbr64\n"

/* Jumps to the address that the hidden variable `slot` holds. Changes no argument. */
#define CUVMM_JUMP_THROUGH(slot) "  jmp *" slot "(%rip)\n"

#elif defined(__aarch64__)

#define CUVMM_FIRST_GLIBC "GLIBC_2.17"
#define CUVMM_LIBRARY_FOLDER "lib/aarch64-linux-gnu"

/* bti c, which older assemblers know only by its number. It admits jumps by x16 and x17 too. */
#define CUVMM_LANDING "  hint #34\n"

#define CUVMM_JUMP_THROUGH(slot) \
  "  adrp x16, " slot            \
  "\n"                           \
  "  ldr x16, [x16, :lo12:" slot \
  "]\n"                          \
  "  br x16\n"

#else
#error "cuvmm runs on x86_64 and aarch64"
#endif
