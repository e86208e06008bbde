// SPDX-License-Identifier: Apache-2.0
#include "alloc/out_of_memory.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "trace/record_event.hpp"
#include "vmm/access_set.hpp"

namespace cuvmm {
namespace {

// The last report for a device. Programs that search for the largest possible size ask again and
// again, and many run close to the limit, so each situation gets one line.
class LastReport {
 public:
  // Returns how many went unreported since the last line, or nullopt if this one is not worth a
  // line.
  std::optional<std::uint64_t> next(Size live) {
    const std::uint64_t now = now_ns();
    std::uint64_t before = when_.load(std::memory_order_relaxed);
    const bool is_news =
        before == 0 || now - before >= long_ago_ns || (now - before >= soon_ns && is_another(live));
    if (!is_news || !when_.compare_exchange_strong(before, now)) {
      unreported_.fetch_add(1, std::memory_order_relaxed);
      return std::nullopt;
    }
    live_.store(live, std::memory_order_relaxed);
    return unreported_.exchange(0, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t soon_ns = 1'000'000'000;
  static constexpr std::uint64_t long_ago_ns = 60 * soon_ns;

  // By more than an eighth.
  bool is_another(Size live) const {
    const Size before = live_.load(std::memory_order_relaxed);
    const Size difference = live > before ? live - before : before - live;
    return difference > before / 8;
  }

  std::atomic<std::uint64_t> when_{0};
  std::atomic<std::uint64_t> unreported_{0};
  std::atomic<Size> live_{0};
};

std::array<LastReport, AccessSet::most_devices> last_reports;
std::array<std::atomic<std::uint64_t>, AccessSet::most_devices> refusals;

[[gnu::tls_model("initial-exec")]] constinit thread_local bool are_unreported = false;

}  // namespace

UnreportedRefusals::UnreportedRefusals(bool may_retry) {
  are_unreported = may_retry;
}
UnreportedRefusals::~UnreportedRefusals() {
  are_unreported = false;
}

std::uint64_t refused_allocations(int ordinal) {
  return refusals[static_cast<std::size_t>(ordinal)].load(std::memory_order_relaxed);
}

CUresult refuse_allocation(int ordinal) {
  const auto at = static_cast<std::size_t>(ordinal);
  if (at < refusals.size() && !are_unreported) refusals[at].fetch_add(1, std::memory_order_relaxed);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void report_out_of_memory(const Error& error, Size asked, const DeviceMemory& device,
                          Size mapped_free) {
  if (are_unreported) return;
  const ChunkCounters counters = device.chunk_counters();
  const Size cached = counters.physical_free + mapped_free;
  const Size held = counters.physical_in_use + counters.physical_free;
  const Size live = held > cached ? held - cached : 0;
  record_event({.event = TraceEvent::OutOfMemory,
                .device = static_cast<std::int16_t>(device.ordinal()),
                .detail = error.tried,
                .address = error.available,
                .size = asked,
                .stream = live,
                .other = cached});
  const auto unreported = last_reports[static_cast<std::size_t>(device.ordinal())].next(live);
  if (!unreported) return;
  std::string besides;
  if (const Size native = device.budget().native_bytes(); native != 0) {
    besides += ", " + print_size(native) + " taken natively";
  }
  if (device.store().spills()) {
    const Size most = device.most_spilled();
    besides += ", " + print_size(device.store().spilled().physical_in_use) + " spilled";
    if (most != unlimited) besides += " of at most " + print_size(most);
  }
  const std::string limit =
      device.limit() == unlimited ? "no limit" : "limit " + print_size(device.limit());
  std::array<char, 64> more{};
  if (*unreported != 0) {
    std::snprintf(more.data(), more.size(), "; %llu more since the last such line",
                  static_cast<unsigned long long>(*unreported));
  }
  CUVMM_LOG(Warning,
            "device %d: out of memory: %s requested, %s live, %s cached%s, %s, largest contiguous "
            "%s; %s%s%s",
            device.ordinal(), print_size(asked).c_str(), print_size(live).c_str(),
            print_size(cached).c_str(), besides.c_str(), limit.c_str(),
            print_size(error.available).c_str(), error.tried != 0 ? "tried: " : "",
            *error.subject != '\0' ? error.subject : "nothing could be tried", more.data());
}

}  // namespace cuvmm
