// SPDX-License-Identifier: Apache-2.0
#include "sim/entry.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <set>
#include <string>

#include "base/made_once.hpp"
#include "base/no_forks.hpp"
#include "sim/cost_model.hpp"
#include "sim/executor.hpp"
#include "sim/faults.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"
#include "sim/waiting_frees.hpp"

namespace cuvmm::sim {
namespace {

thread_local Flavour flavour_now = Flavour::Legacy;
thread_local int host_functions_deep = 0;

// A process whose calls are locked may still make these, too.
constexpr bool works_before_start(Row row) {
  return row == Row::cuInit || row == Row::cuDriverGetVersion || row == Row::cuGetErrorName ||
         row == Row::cuGetErrorString || row == Row::cuGetProcAddress ||
         row == Row::cuGetProcAddress_v2 || row == Row::cuGetExportTable ||
         row == Row::cuCheckpointProcessGetState || row == Row::cuCheckpointProcessLock ||
         row == Row::cuCheckpointProcessCheckpoint || row == Row::cuCheckpointProcessRestore ||
         row == Row::cuCheckpointProcessUnlock;
}

constexpr int since_versions[] = {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) since,
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
};

}  // namespace

Entry::Entry(Row row, Flavour flavour) : answer_(enter(row)), outer_(flavour_now) {
  flavour_now = flavour;
}

Entry::~Entry() {
  flavour_now = outer_;
  if (is_last_) ::kill(::getpid(), SIGKILL);
}

CUresult Entry::enter(Row row) {
  if (since_versions[static_cast<std::size_t>(row)] > settings().driver) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const Process& process = Process::get();
  if (!works_before_start(row)) {
    if (process.is_forked_child() || !process.started()) return CUDA_ERROR_NOT_INITIALIZED;
    if (host_functions_deep != 0) return CUDA_ERROR_NOT_PERMITTED;
  }
  if (!works_before_start(row)) inside_.emplace(process.card());
  const Interfered interfered = interfere_before(row);
  is_last_ = interfered.is_last;
  if (interfered.answer != CUDA_SUCCESS) return interfered.answer;
  cost_of(row, 0);
  if (!works_before_start(row)) wait_behind_frees(row);
  // In a forked child, the queues may be locked forever by a thread that exists only in the parent.
  if (process.started() && !process.is_forked_child()) run_random_queues();
  return CUDA_SUCCESS;
}

Flavour current_flavour() {
  return flavour_now;
}

CUresult lacking(const char* symbol) {
  return lacking(symbol, "is not simulated");
}

CUresult lacking(const char* symbol, const char* what) {
  static constinit std::mutex lock;
  static constinit MadeOnce<std::set<std::string>> said;
  const NoForks meanwhile;  // a child forked before cuInit needs the lock
  const std::lock_guard holding{lock};
  if (said.get().insert(std::string{symbol} + what).second) {
    CUVMM_LOG(Warning, "%s %s: it answers CUDA_ERROR_NOT_SUPPORTED", symbol, what);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

InHostFunction::InHostFunction() {
  ++host_functions_deep;
}
InHostFunction::~InHostFunction() {
  --host_functions_deep;
}

}  // namespace cuvmm::sim
