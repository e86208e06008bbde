// SPDX-License-Identifier: Apache-2.0
// Delays prctl in whatever it is preloaded into: a parent can be killed before its child has asked
// to be told.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>

extern "C" __attribute__((visibility("default"))) int prctl(int option, ...) {
  va_list arguments;
  va_start(arguments, option);
  const unsigned long first = va_arg(arguments, unsigned long);
  va_end(arguments);
  ::usleep(300'000);
  const auto next = reinterpret_cast<int (*)(int, ...)>(::dlsym(RTLD_NEXT, "prctl"));
  return next(option, first);
}
