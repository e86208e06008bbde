// SPDX-License-Identifier: Apache-2.0
// Stores the version as a note in the library file, so that it can be read without loading the
// library (readelf -n shows it too).
#include "cuvmm/version.h"

// Sizes of name and content, the type, then both, padded with zeros to a multiple of four.
asm(".pushsection .note.cuvmm, \"a\", @note\n"
    ".p2align 2\n"
    ".long 6\n"
    ".long 2f - 1f\n"
    ".long 1\n"
    ".asciz \"cuvmm\"\n"
    ".p2align 2\n"
    "1: .asciz \"" CUVMM_VERSION_STRING
    "\"\n"
    "2: .p2align 2\n"
    ".popsection");
