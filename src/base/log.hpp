// SPDX-License-Identifier: Apache-2.0
// The log: one line per record, to standard error or to a file (docs/internals/log_format.md). Each
// line is one write(2) from a buffer on the stack. So lines of different threads and processes
// never interleave, logging allocates nothing, and a forked child can inherit no locked lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/result.hpp"

namespace cuvmm {

// How much is logged; set by VMM_LOG_LEVEL.
enum class LogLevel : std::uint8_t { Error, Warning, Info, Debug };

// The severity of a line. Each level logs its own severity and more severe ones.
enum class Severity : std::uint8_t { Error, Warning, Info, Debug };

struct LogSetup {
  const char* name =
      "cuvmm";  // the program's name at the start of each line; must live as long as the process
  LogLevel level = LogLevel::Warning;
  std::string_view file = {};  // may contain %p and %h; empty: standard error
};

// Until this is called, errors and warnings go to standard error. If the file cannot be used,
// returns the Error, logs one warning, and uses standard error. Not thread-safe.
Result<void> set_up_log(const LogSetup& setup);

namespace detail {
extern std::atomic<Severity> least_severe_logged;
[[gnu::format(printf, 2, 3)]] void write_log(Severity severity, const char* format, ...);
// Records the current standard error as the original one, as process startup does. For tests that
// replace it.
void look_at_standard_error();
}  // namespace detail

inline bool is_logged(Severity severity) {
  return severity <= detail::least_severe_logged.load(std::memory_order_relaxed);
}

// first() returns true for the first caller in this process.
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
// costs a load and a branch, whatever its arguments.
#define CUVMM_LOG(severity, ...)                                            \
  do {                                                                      \
    if (::cuvmm::is_logged(::cuvmm::Severity::severity)) {                  \
      ::cuvmm::detail::write_log(::cuvmm::Severity::severity, __VA_ARGS__); \
    }                                                                       \
  } while (false)

// The same, but only once per call site.
#define CUVMM_LOG_ONCE(severity, ...)                                           \
  do {                                                                          \
    static constinit ::cuvmm::Once said_here;                                   \
    if (::cuvmm::is_logged(::cuvmm::Severity::severity) && said_here.first()) { \
      ::cuvmm::detail::write_log(::cuvmm::Severity::severity, __VA_ARGS__);     \
    }                                                                           \
  } while (false)

}  // namespace cuvmm
