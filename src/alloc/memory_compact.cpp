// SPDX-License-Identifier: Apache-2.0
// Memory: moving live stream-ordered memory, while no work runs.
#include "alloc/device_compactor.hpp"
#include "alloc/memory_visits.hpp"
#include "base/log.hpp"
#include "base/undo.hpp"

namespace cuvmm {

Size Memory::DeviceCompactor::could_share(Size wanted) const {
  Size could = 0;
  memory_.for_each_pool(device_, [&](PoolMemory& pool) {
    if (could < wanted) could += pool.could_share(wanted - could);
  });
  return could;
}

Size Memory::DeviceCompactor::share(Size wanted, const CopyBy& copy) const {
  Size freed = 0;
  memory_.for_each_pool(device_, [&](PoolMemory& pool) {
    if (freed >= wanted) return;
    const Result<Size> more = pool.share(wanted - freed, copy);
    if (more.ok()) {
      freed += *more;
    } else {
      CUVMM_LOG(Warning, "device %d: %s; live memory stays where it is", device_,
                more.error().text().c_str());
    }
  });
  return freed;
}

// Stops the program only if that can yield enough.
bool Memory::DeviceCompactor::make_room(Size missing) {
  if (!memory_.may_move_live_memory() || memory_.dependencies_.captures.any()) return false;
  if (could_share(missing) < missing) return false;
  const CUcontext context = memory_.some_context_on(device_);
  if (context == nullptr) return false;
  QuiescedContext quiescence{memory_, context};
  const auto wait = std::chrono::nanoseconds{memory_.settings_.wait};
  if (!quiescence.begin(now_ns() + static_cast<std::uint64_t>(wait.count()))) return false;
  const Undo end{[&] { quiescence.end(); }};
  const std::uint64_t began = now_ns();
  const Size freed = share(missing, quiescence.copy_by());
  CUVMM_LOG(Info, "device %d: moved live stream-ordered memory, which freed %llu MiB in %llu us",
            device_, static_cast<unsigned long long>(freed / MiB),
            static_cast<unsigned long long>((now_ns() - began) / 1000));
  return freed != 0;
}

}  // namespace cuvmm
