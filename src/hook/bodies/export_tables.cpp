// SPDX-License-Identifier: Apache-2.0
// The driver's private tables. Calls through them bypass the doors, so a table that is not known to
// be harmless ends full hook coverage, just as an unlisted function does.
#include "hook/export_tables.hpp"

#include "base/log.hpp"
#include "hook/door.hpp"
#include "hook/unlisted.hpp"

namespace cuvmm::hook {
namespace {

void take_note(Engine& engine, const CUuuid& id) {
  const bool is_known = is_known_export_table(id);
  CUVMM_LOG(Debug, "the program asked for the driver's table %s (%s)", text_of(id).data(),
            is_known ? "known" : "unknown");
  if (is_known || !hook_coverage().is_whole()) return;
  if (engine.serving() != nullptr) {
    CUVMM_LOG_ONCE(Warning,
                   "the program uses a table of the driver's that this version does not know (%s): "
                   "from here on live memory stays where it is, and each free waits as natively",
                   text_of(id).data());
  }
  // Inside the barrier, so that for a thread that quiesces the program, coverage ends either before
  // it begins or after it is done.
  const CallBarrier::Pass pass{engine.calls()};
  settle_and_end_coverage(engine);
}

}  // namespace

CUVMM_HOOK(cuGetExportTable, const void** table, const CUuuid* id) {
  const CUresult answer = forward(table, id);
  if (answer == CUDA_SUCCESS && id != nullptr) take_note(forward.engine(), *id);
  return answer;
}

}  // namespace cuvmm::hook
