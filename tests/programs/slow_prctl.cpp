// SPDX-License-Identifier: Apache-2.0
// Delays prctl in whatever it is preloaded into: a parent can be killed before its child has asked
// to be told.
#include <dlfcn.h>
#include <unistd.h>

using Word = unsigned long;
extern "C" __attribute__((visibility("default"))) int prctl(int option, Word a, Word b, Word c,
                                                            Word d) {
  ::usleep(300'000);
  const auto next =
      reinterpret_cast<int (*)(int, Word, Word, Word, Word)>(::dlsym(RTLD_NEXT, "prctl"));
  return next(option, a, b, c, d);
}
