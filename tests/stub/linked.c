// SPDX-License-Identifier: Apache-2.0
// A program that is linked to the driver. EXPECT_TOTAL is the device memory that it must see.
#include "direct.h"

#include "seen.h"

int main(void) {
  must(!engine_is_mapped(), "the engine is not loaded before the first call");
  const size_t total = total_by_direct_calls();
  must(engine_is_mapped() == engine_is_expected(), "the first call loads the engine if it may");
  must(total == strtoull(getenv("EXPECT_TOTAL"), NULL, 10), "it sees the memory it may have");
  must(copies_by_direct_calls(), "what it copies there and back is the same");
  return 0;
}
