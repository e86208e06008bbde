// SPDX-License-Identifier: Apache-2.0
// A program with AddressSanitizer's shared runtime aborts if another library is loaded before the
// runtime, unless this check is disabled. This function is the runtime's own interface for that; a
// program's own definition takes precedence.
extern "C" const char* __asan_default_options();  // NOLINT(*-reserved-identifier)
[[gnu::visibility("default")]] const char* __asan_default_options() {
  return "verify_asan_link_order=0";
}
