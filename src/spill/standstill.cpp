// SPDX-License-Identifier: Apache-2.0
#include "spill/standstill.hpp"

namespace cuvmm {

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
                        std::uint64_t work_until) {
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
  const bool is_settled = program.settle_queued(work_until);
  if (is_settled && program.memory.wait_for_everything(work_until)) return {};
  go_on(program);
  return too_late(is_settled ? "the work that runs was not done in time"
                             : "the calls that are queued were not made in time");
}

}  // namespace cuvmm
