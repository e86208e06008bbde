// SPDX-License-Identifier: Apache-2.0
// The log: one line a record, to standard error or to a file (docs/log_format.md). Each line is
// one write(2) from a buffer on the stack, so that lines of several threads and processes never
// mix, nothing is allocated, and no lock can be left behind in a forked child.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/result.hpp"

namespace cuvmm {

// How much is logged, as VMM_LOG_LEVEL says it.
enum class LogLevel : std::uint8_t { Error, Warning, Info, Debug };

// What a line is. Each level logs its own and those before it.
enum class Severity : std::uint8_t { Error, Warning, Info, Debug };

struct LogSetup {
  const char* name =
      "cuvmm";  // who speaks, at the start of each line; lives as long as the process
  LogLevel level = LogLevel::Warning;
  std::string_view file = {};  // may hold %p and %h; empty: standard error
};

// Until it is called: errors and warnings, on standard error. A file that cannot be had is
// answered with its Error and one warning, and standard error is used. Not for two threads at once.
Result<void> set_up_log(const LogSetup& setup);

namespace detail {
extern std::atomic<Severity> least_severe_logged;
[[gnu::format(printf, 2, 3)]] void write_log(Severity severity, const char* format, ...);
// Takes it for the one that it is now, as at the start of the process; for tests that put another
// in its place.
void look_at_standard_error();
}  // namespace detail

inline bool is_logged(Severity severity) {
  return severity <= detail::least_severe_logged.load(std::memory_order_relaxed);
}

// True for the first caller in this process.
class Once {
 public:
  bool first() {
    return !done_.load(std::memory_order_relaxed) &&
           !done_.exchange(true, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> done_{false};
};

// CUVMM_LOG(Info, "map address=0x%llx size=%llu", ...): a macro, so that a line that is not logged
// costs a load and a branch, whatever its arguments would.
#define CUVMM_LOG(severity, ...)                                            \
  do {                                                                      \
    if (::cuvmm::is_logged(::cuvmm::Severity::severity)) {                  \
      ::cuvmm::detail::write_log(::cuvmm::Severity::severity, __VA_ARGS__); \
    }                                                                       \
  } while (false)

// The same, once for each place in the code.
#define CUVMM_LOG_ONCE(severity, ...)                                           \
  do {                                                                          \
    static constinit ::cuvmm::Once said_here;                                   \
    if (::cuvmm::is_logged(::cuvmm::Severity::severity) && said_here.first()) { \
      ::cuvmm::detail::write_log(::cuvmm::Severity::severity, __VA_ARGS__);     \
    }                                                                           \
  } while (false)

}  // namespace cuvmm
