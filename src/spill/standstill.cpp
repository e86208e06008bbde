// SPDX-License-Identifier: Apache-2.0
#include "spill/standstill.hpp"

#include <algorithm>

#include "base/clock.hpp"

namespace cuvmm {
namespace {

enum class Ended : std::uint8_t { Well, TooLate, Unwanted };

// Waits in parts, so that it is noticed soon where nobody wants it any more.
Ended wait_in_parts(const std::function<bool(std::uint64_t)>& wait, std::uint64_t until,
                    const StillWanted& is_wanted) {
  constexpr std::uint64_t a_part = 100'000'000;  // ns
  for (;;) {
    const std::uint64_t part = std::min(until, now_ns() + a_part);
    if (wait(part)) return Ended::Well;
    if (part == until) return Ended::TooLate;
    if (!is_wanted()) return Ended::Unwanted;
  }
}

}  // namespace

const char* why_it_runs_on(const Surroundings& program) {
  if (!program.memory.sees_everything()) {
    return "the program makes calls that are not known here, which would not wait";
  }
  if (program.memory.may_be_registered_by_address()) {
    return "its memory may be registered for transfers past the driver";
  }
  return nullptr;
}

Result<void> hold_still(const Surroundings& program, const char* doing, std::uint64_t calls_until,
                        std::uint64_t work_until, const StillWanted& is_wanted) {
  const auto too_late = [&](const char* why) {
    return Error{.kind = ErrorKind::TimedOut, .doing = doing, .subject = why};
  };
  if (!program.calls.shut(calls_until, Threshold::Exempt::Nobody)) {
    return too_late("a call did not return in time");
  }
  // What only now turned out to be called unseen has not been kept out.
  if (const char* const why = why_it_runs_on(program)) {
    go_on(program);
    return Error{.kind = ErrorKind::NotSupported, .doing = doing, .subject = why};
  }
  const char* what = "the calls that are queued were not made in time";
  Ended ended = wait_in_parts(program.settle_queued, work_until, is_wanted);
  if (ended == Ended::Well) {
    what = "the work that runs was not done in time";
    ended = wait_in_parts(
        [&](std::uint64_t until) { return program.memory.wait_for_everything(until); }, work_until,
        is_wanted);
  }
  if (ended == Ended::Well) return {};
  go_on(program);
  return too_late(ended == Ended::TooLate ? what : "nobody wants it any more");
}

}  // namespace cuvmm
