// SPDX-License-Identifier: Apache-2.0
// What the programs of this folder share: they report each stage on a line of their output, and if
// STAGES_WAIT is set, wait there for a line of input. Meanwhile their caller may pause them.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace stages {

inline void reach(const char* stage) {
  std::printf("%s\n", stage);
  std::fflush(stdout);
  if (std::getenv("STAGES_WAIT") == nullptr) return;
  for (int letter = std::getchar(); letter != '\n' && letter != EOF;) letter = std::getchar();
}

[[noreturn]] inline void fail(const char* what, long long answer) {
  std::fprintf(stderr, "%s answered %lld\n", what, answer);
  std::exit(1);
}

inline void expect(bool holds, const char* claim) {
  if (!holds) fail(claim, 0);
}

template <class Function>
void find(Function*& function, void* library, const char* symbol) {
  function = reinterpret_cast<Function*>(::dlsym(library, symbol));
  if (function == nullptr) fail(symbol, 0);
}

inline void* open_library(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(1);
  }
  return library;
}

// Words that differ from those of another seed at every place.
inline std::vector<std::uint32_t> words(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::uint32_t> made(bytes / 4);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = seed * 0x9e3779b9U + static_cast<std::uint32_t>(i) * 2654435761U;
  }
  return made;
}

}  // namespace stages
