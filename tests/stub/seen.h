// SPDX-License-Identifier: Apache-2.0
// What a program sees of the engine; prints one line for each failed expectation.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int engine_is_mapped(void) {
  FILE* maps = fopen("/proc/self/maps", "re");
  char line[4096];
  int found = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    if (strstr(line, "libcuvmm_preload.so") != NULL) found = 1;
  }
  if (maps != NULL) fclose(maps);
  return found;
}

// Whether this program should be served: EXPECT_ENGINE=1 or 0.
static inline int engine_is_expected(void) {
  const char* expected = getenv("EXPECT_ENGINE");
  return expected != NULL && expected[0] == '1';
}

static inline void must(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}
