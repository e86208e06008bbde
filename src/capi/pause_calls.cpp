// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "capi/answer.hpp"
#include "capi/engine_of_process.hpp"
#include "capi/table.hpp"
#include "engine/control.hpp"

namespace cuvmm::capi {
namespace {

constexpr const char* pausing = "pause";
constexpr const char* resuming = "resume";

Result<Control*> control(const char* doing) {
  Engine& running = *TRY(engine());
  if (kind_of_this_engine == CUVMM_ENGINE_PRELOADED && running.control() != nullptr) {
    return running.control();
  }
  return Error{.kind = ErrorKind::NotSupported,
               .doing = doing,
               .subject = "the program's memory is the driver's own"};
}

Result<PauseReport> pause_process(std::uint64_t timeout, std::uint32_t flags) {
  if ((flags & ~std::uint32_t{CUVMM_PAUSE_STRICT}) != 0) {
    return Error::invalid(pausing, "there is no such flag");
  }
  const auto at_most =
      static_cast<Duration::rep>(std::min(timeout, static_cast<std::uint64_t>(an_hour.count())));
  return TRY(control(pausing))
      ->pause(Duration{at_most}, (flags & CUVMM_PAUSE_STRICT) != 0 ? Strict::Yes : Strict::No);
}

Result<PauseReport> resume_process(std::uint32_t flags) {
  if ((flags & ~std::uint32_t{CUVMM_RESUME_PARTLY}) != 0) {
    return Error::invalid(resuming, "there is no such flag");
  }
  return TRY(control(resuming))
      ->resume((flags & CUVMM_RESUME_PARTLY) != 0 ? Partly::Yes : Partly::No);
}

Result<cuvmm_away_info> describe_what_is_away() {
  const Control& known = *TRY(control("say what is away"));
  cuvmm_away_info info{};
  info.is_paused = known.is_paused() ? 1 : 0;
  info.paused_bytes = known.paused_bytes();
  info.ready_bytes = known.ready_bytes();
  const ChunkCounters spilled = known.spilled();
  info.spilled_bytes = spilled.physical_in_use;
  info.spilled_cached = spilled.physical_free + spilled.physical_unreleased;
  return info;
}

cuvmm_status answer(const Result<PauseReport>& done, cuvmm_pause_report* report,
                    cuvmm_error* error) {
  if (!done.ok()) return refuse(done.error(), error);
  if (report == nullptr) return CUVMM_OK;
  *report = {};
  copy_figures(*done, *report);
  std::strncpy(report->why, done->why, sizeof report->why - 1);
  return CUVMM_OK;
}

}  // namespace

cuvmm_status pause(uint64_t timeout, uint32_t flags, cuvmm_pause_report* report,
                   cuvmm_error* error) {
  return answer(pause_process(timeout, flags), report, error);
}

cuvmm_status resume(uint32_t flags, cuvmm_pause_report* report, cuvmm_error* error) {
  return answer(resume_process(flags), report, error);
}

cuvmm_status get_away_info(cuvmm_away_info* info, cuvmm_error* error) {
  if (info == nullptr) return refuse_missing_pointer("say what is away", error);
  const auto described = describe_what_is_away();
  if (!described.ok()) return refuse(described.error(), error);
  *info = *described;
  return CUVMM_OK;
}

}  // namespace cuvmm::capi
