// SPDX-License-Identifier: Apache-2.0
#include "order/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "order/stacks.hpp"

namespace cuvmm::order {
namespace {

using Line = std::array<char, 120>;

std::uint64_t current_seed = 0;
bool is_verbose = false;
std::vector<Line> lines;
std::vector<std::string> ignored_kinds;
std::function<void()> explain_hang;

bool is_hanging = false;
std::atomic<const char*> current_call{nullptr};
std::atomic<std::uint64_t> calls{0};  // changes when a call begins or ends

[[noreturn]] void look_for_hangs() {
  std::uint64_t seen = 0;
  int ticks = 0;
  constexpr int ticks_per_second = 4;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1000 / ticks_per_second});
    const char* const call = current_call.load();
    const std::uint64_t now = calls.load();
    ticks = call != nullptr && now == seen ? ticks + 1 : 0;
    seen = now;
    if (ticks == patience_seconds * ticks_per_second) {
      print_stacks_of_all_threads();
      is_hanging = true;
      violation("hang", "%s has not returned for %d s, though nothing that it waits for is blocked",
                call, patience_seconds);
    }
  }
}

}  // namespace

void begin_trace(std::uint64_t seed, bool verbose) {
  current_seed = seed;
  is_verbose = verbose;
  lines.clear();
}

void trace(const char* format, ...) {
  Line& line = lines.emplace_back();
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  if (is_verbose) std::printf("%4zu  %s\n", lines.size(), line.data());
}

void violation(const char* kind, const char* format, ...) {
  static std::mutex once;
  once.lock();  // never unlocked: the first violation ends the process
  if (!is_verbose) {
    for (std::size_t i = 0; i < lines.size(); ++i)
      std::printf("%4zu  %s\n", i + 1, lines[i].data());
  }
  std::printf("VIOLATION: %s: ", kind);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  if (is_hanging && explain_hang) explain_hang();
  std::printf("\nseed %" PRIu64 ": to repeat, --only %" PRIu64 " (timing counts too)\n",
              current_seed, current_seed);
  std::fflush(stdout);
  ::_exit(1);  // work may be stuck: no destructor, no exit handler
}

void print_lines_that_end_with(std::string_view text) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (std::string_view{lines[i].data()}.ends_with(text)) {
      std::printf("\n%4zu  %s", i + 1, lines[i].data());
    }
  }
}

void explain_hangs_by(std::function<void()> explain) {
  explain_hang = std::move(explain);
}

void ignore(const char* kind) {
  ignored_kinds.emplace_back(kind);
}
bool is_ignored(const char* kind) {
  return std::find(ignored_kinds.begin(), ignored_kinds.end(), kind) != ignored_kinds.end();
}

void must(CUresult answer, const char* call) {
  if (answer == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(answer, &name);
  violation("wrong answer", "%s answered %s", call, name != nullptr ? name : "?");
}

MustReturn::MustReturn(const char* call) {
  static std::once_flag begun;
  std::call_once(begun, [] { std::thread{look_for_hangs}.detach(); });
  calls.fetch_add(1);
  current_call.store(call);
}
MustReturn::~MustReturn() {
  current_call.store(nullptr);
}

}  // namespace cuvmm::order
