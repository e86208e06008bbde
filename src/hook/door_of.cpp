// SPDX-License-Identifier: Apache-2.0
#include "hook/door_of.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/made_once.hpp"
#include "hook/unlisted.hpp"

namespace cuvmm::hook {
namespace {

struct NamedDoor {
  std::string_view symbol;
  void* door;
};

constexpr std::size_t most_doors = 2 * call_count;

// Sorted by symbol, in both flavours.
struct NamedDoors {
  std::array<NamedDoor, most_doors> doors;
  std::size_t count = 0;

  NamedDoors() {
    for (std::size_t i = 0; i < call_count; ++i) {
      const CallInfo& row = all_calls()[i];
      doors[count++] = {row.symbol, all_doors()[i].legacy};
      if (row.per_thread_symbol != nullptr) {
        doors[count++] = {row.per_thread_symbol, all_doors()[i].per_thread};
      }
    }
    std::sort(doors.begin(), doors.begin() + count,
              [](const NamedDoor& a, const NamedDoor& b) { return a.symbol < b.symbol; });
  }

  void* find(std::string_view symbol) const {
    const auto* end = doors.begin() + count;
    const auto* found = std::lower_bound(
        doors.begin(), end, symbol,
        [](const NamedDoor& door, std::string_view wanted) { return door.symbol < wanted; });
    return found != end && found->symbol == symbol ? found->door : nullptr;
  }
};
constinit MadeOnce<const NamedDoors> named_doors;

// Whether the address lies in the driver's library; `file` is that library's path.
bool is_of_driver(void* address, const char** file) {
  Dl_info where{};
  if (dladdr(address, &where) == 0 || where.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(where.dli_fname, '/');
  const char* name = slash != nullptr ? slash + 1 : where.dli_fname;
  *file = where.dli_fname;
  return std::strncmp(name, "libcuda.so", 10) == 0;
}

// The loader's own string disappears with the library, which the program may close before its first
// call. Only a few copies are kept, one per driver that a program opens. They are never freed,
// since other threads may read them.
struct KeptPath {
  const KeptPath* before;
  char path[PATH_MAX];
};
constinit std::atomic<const KeptPath*> kept_paths{nullptr};

const char* find_kept(const char* path) {
  for (const KeptPath* one = kept_paths.load(std::memory_order_acquire); one != nullptr;
       one = one->before) {
    if (std::strcmp(one->path, path) == 0) return one->path;
  }
  return nullptr;
}

// nullptr if there is no memory for it, or the path is too long to be valid.
const char* keep(const char* path) {
  if (const char* const known = find_kept(path)) return known;
  const std::size_t size = std::strlen(path) + 1;
  auto* const kept = size <= PATH_MAX ? new (std::nothrow) KeptPath : nullptr;
  if (kept == nullptr) return nullptr;
  std::memcpy(kept->path, path, size);
  kept->before = kept_paths.load(std::memory_order_relaxed);
  while (!kept_paths.compare_exchange_weak(kept->before, kept, std::memory_order_acq_rel)) {
  }
  return kept->path;
}

void note_driver(const char* file) {
  std::atomic<const char*>& path = driver_source().path;
  if (std::strcmp(path.load(), file) == 0) return;
  if (const char* const kept = keep(file)) path.store(kept);
}

}  // namespace

bool has_door(std::string_view symbol) {
  return named_doors.get().find(symbol) != nullptr;
}

bool driver_has(const char* symbol) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  const bool has = driver_source().doors.symbol(driver, symbol) != nullptr;
  dlclose(driver);
  return has;
}

FoundSymbol door_for_symbol(void* library, const char* name,
                            void* (*real_dlsym)(void*, const char*)) {
  if (HookBypass::is_active()) return {};
  void* door = named_doors.get().find(name);
  const int kept_errno = errno;
  void* real = real_dlsym(library, name);
  const char* file = nullptr;
  const bool ours = real != nullptr && is_of_driver(real, &file);
  if (ours) note_driver(file);
  if (ours && door == nullptr) door = entry_of_unlisted_symbol(name, real);
  errno = kept_errno;
  // If the symbol was not found, the jump to the real dlsym fails again and sets dlerror.
  return {.address = ours ? door : real, .is_of_driver = ours};
}

namespace {

// Maps the functions of this engine's driver to their doors.
class RealDoors {
 public:
  explicit RealDoors(const Driver& driver) : driver_(driver) {
    doors_.reserve(2 * most_doors);
    for (std::size_t i = 0; i < call_count; ++i) add(static_cast<Call>(i));
  }

  void* find(void* real) const {
    const auto found = doors_.find(real);
    return found != doors_.end() ? found->second : nullptr;
  }

 private:
  // cuGetProcAddress may return another address than the symbol's, so both are stored. Passing
  // `since` requests exactly this signature.
  void add(Call call) {
    if (!driver_.has(call)) return;
    const CallInfo& row = info(call);
    const DoorPair& pair = all_doors()[static_cast<std::size_t>(call)];
    const FunctionPair real = driver_.functions(call);
    add_one(real.legacy, pair.legacy);
    add_one(answered(row, row.since, CU_GET_PROC_ADDRESS_LEGACY_STREAM), pair.legacy);
    if (pair.per_thread == nullptr) return;
    add_one(real.per_thread, pair.per_thread);
    add_one(answered(row, std::max(row.since, 7000), CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
            pair.per_thread);
  }

  // If several rows share a function, the first one counts.
  void add_one(void* real, void* door) {
    if (real != nullptr) doors_.try_emplace(real, door);
  }

  void* answered(const CallInfo& row, int version, cuuint64_t flags) const {
    void* found = nullptr;
    if (driver_.has(Call::cuGetProcAddress_v2)) {
      CUdriverProcAddressQueryResult status{};
      driver_.cuGetProcAddress(row.name.data(), &found, version, flags, &status);
    } else if (driver_.has(Call::cuGetProcAddress)) {
      driver_.cuGetProcAddress_v11030(row.name.data(), &found, version, flags);
    }
    return found;
  }

  const Driver& driver_;
  std::unordered_map<void*, void*> doors_;
};
constinit MadeOnce<const RealDoors> real_doors;

}  // namespace

void* door_for_function(Engine& engine, void* real) {
  // The process has one driver and so one table; a forked child's engine uses the same.
  return real_doors.get([&] { return RealDoors{engine.driver()}; }).find(real);
}

}  // namespace cuvmm::hook
