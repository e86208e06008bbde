// SPDX-License-Identifier: Apache-2.0
#include "hook/nvml.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "engine/engine.hpp"
#include "hook/next_definition.hpp"

namespace cuvmm::hook {
namespace {

constexpr const char* soname = "libnvidia-ml.so.1";
constexpr const char* prefix = "nvmlDeviceGet";

using Answer = int;
constexpr Answer success = 0;
constexpr Answer function_not_found = 13;
using Device = void*;

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

// An element of a list of processes; those of versions 2 and 3 are longer.
struct NvmlProcess {
  unsigned process;
  unsigned long long used;
};
constexpr std::size_t size_of_v2 = sizeof(NvmlProcess) + 2 * sizeof(unsigned);

// NVML's process lists: three versions of each kind.
// clang-format off
#define CUVMM_NVML_LISTS(list)                                          \
  list(0, nvmlDeviceGetComputeRunningProcesses, sizeof(NvmlProcess))    \
  list(1, nvmlDeviceGetComputeRunningProcesses_v2, size_of_v2)          \
  list(2, nvmlDeviceGetComputeRunningProcesses_v3, size_of_v2)          \
  list(3, nvmlDeviceGetGraphicsRunningProcesses, sizeof(NvmlProcess))   \
  list(4, nvmlDeviceGetGraphicsRunningProcesses_v2, size_of_v2)         \
  list(5, nvmlDeviceGetGraphicsRunningProcesses_v3, size_of_v2)         \
  list(6, nvmlDeviceGetMPSComputeRunningProcesses, sizeof(NvmlProcess)) \
  list(7, nvmlDeviceGetMPSComputeRunningProcesses_v2, size_of_v2)       \
  list(8, nvmlDeviceGetMPSComputeRunningProcesses_v3, size_of_v2)
// clang-format on
struct ProcessList {
  const char* name;
  std::size_t stride;
  std::atomic<Answer (*)(Device, unsigned*, void*)> real{nullptr};
};
#define CUVMM_LIST(number, name, stride) {#name, stride},
constinit ProcessList process_lists[] = {CUVMM_NVML_LISTS(CUVMM_LIST)};
#undef CUVMM_LIST

// NVML's own functions, from the library in which the program last found them.
struct RealNvml {
  std::atomic<Answer (*)(Device, NvmlMemory*)> memory{nullptr};
  std::atomic<Answer (*)(Device, NvmlMemoryV2*)> memory_v2{nullptr};
  std::atomic<Answer (*)(Device, char*, unsigned)> uuid{nullptr};
};
constinit RealNvml real_nvml;

template <class Function>
void find(std::atomic<Function>& function, void* library, const char* name,
          void* (*symbol)(void*, const char*)) {
  if (void* const found = symbol(library, name)) function = reinterpret_cast<Function>(found);
}

// Programs may close the library and load another one linked to it, whose calls find these
// functions without a lookup. So the library stays loaded.
void keep_loaded(void* function) {
  static constinit std::atomic<void*> kept{nullptr};
  Dl_info where{};
  if (function == nullptr || dladdr(function, &where) == 0) return;
  if (kept.exchange(where.dli_fbase) == where.dli_fbase) return;
  static_cast<void>(dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
}

void find_all(void* library, void* (*symbol)(void*, const char*)) {
  keep_loaded(symbol(library, "nvmlDeviceGetUUID"));
  find(real_nvml.memory, library, "nvmlDeviceGetMemoryInfo", symbol);
  find(real_nvml.memory_v2, library, "nvmlDeviceGetMemoryInfo_v2", symbol);
  find(real_nvml.uuid, library, "nvmlDeviceGetUUID", symbol);
  for (ProcessList& list : process_lists) find(list.real, library, list.name, symbol);
}

// For a program linked to NVML, or to another library with its functions, which calls cuvmm's
// functions without a lookup.
void find_loaded() {
  if (real_nvml.uuid.load() != nullptr) return;
  void* const library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return find_all(nullptr, [](void*, const char* name) { return next_definition(name); });
  }
  find_all(library, driver_source().doors.symbol);
  dlclose(library);
}

bool is_of_nvml(void* address) {
  Dl_info where{};
  if (dladdr(address, &where) == 0 || where.dli_fname == nullptr) return false;
  const char* const slash = std::strrchr(where.dli_fname, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : where.dli_fname, soname, 15) == 0;
}

// "GPU-8a2f…", or "MIG-…" for a part of a GPU.
Lessor::Uuid uuid_of(Device device) {
  Lessor::Uuid uuid{};
  std::array<char, 96> text{};
  const auto ask = real_nvml.uuid.load();
  if (ask == nullptr || ask(device, text.data(), text.size()) != success) return uuid;
  const std::string_view all{text.data()};
  std::size_t digits = 0;
  for (const char letter : all.substr(std::min(all.size(), all.find('-')))) {
    const char lower = static_cast<char>(letter | 0x20);
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_digit && (lower < 'a' || lower > 'f')) continue;
    if (digits == 2 * uuid.size()) return {};
    const int value = is_digit ? letter - '0' : lower - 'a' + 10;
    uuid[digits / 2] = static_cast<std::uint8_t>(uuid[digits / 2] * 16 + value);
    ++digits;
  }
  return uuid;
}

// Until cuvmm serves memory on the device, the limit is computed from the process's options.
MemoryInfo as_told(Device device, const MemoryInfo& seen) {
  if (Engine* const engine = Engine::running()) {
    if (engine->serving() == nullptr) return seen;
    const CallBarrier::Pass question{engine->questions()};
    if (const auto served = engine->serving()->memory.info_of(uuid_of(device), seen))
      return *served;
  }
  const Options options = Options::from_environment();
  if (::getauxval(AT_SECURE) != 0 || options.mode != Mode::Vmm || options.limit.is_none()) {
    return seen;
  }
  const Size total = std::min(seen.total, options.limit.of(seen.total));
  return {.free = std::min(seen.free, total), .total = total};
}

// The bytes of the device that this process uses, as cuvmm counts them. nullopt without a limit, so
// that NVML's own figure stands.
std::optional<Size> used_by_this_process(Device device) {
  constexpr Size plenty = unlimited / 2;
  const MemoryInfo nothing_used{.free = plenty, .total = plenty};
  Engine* const engine = Engine::running();
  if (engine == nullptr || engine->serving() == nullptr) return {};
  const CallBarrier::Pass question{engine->questions()};
  const auto told = engine->serving()->memory.info_of(uuid_of(device), nothing_used);
  if (!told || told->total == plenty) return {};
  return told->total - told->free;
}

Answer list_processes(const ProcessList& list, Device device, unsigned* count, void* processes) {
  const auto ask = list.real.load();
  if (ask == nullptr) return function_not_found;
  const Answer answer = ask(device, count, processes);
  if (answer != success || count == nullptr || processes == nullptr) return answer;
  const auto own = static_cast<unsigned>(::getpid());
  for (unsigned i = 0; i < *count; ++i) {
    auto* const one =
        reinterpret_cast<NvmlProcess*>(static_cast<std::byte*>(processes) + i * list.stride);
    if (one->process != own) continue;
    if (const auto used = used_by_this_process(device)) one->used = *used;
  }
  return answer;
}

}  // namespace

bool is_named_like_nvmls(const char* name) {
  if (name == nullptr || name[0] != 'n') return false;
  if (std::strncmp(name, prefix, std::strlen(prefix)) != 0) return false;
  return std::strstr(name, "MemoryInfo") != nullptr ||
         std::strstr(name, "RunningProcesses") != nullptr;
}

bool nvml_is_loaded() {
  void* const library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

}  // namespace cuvmm::hook

using namespace cuvmm;        // NOLINT(google-build-using-namespace): these are C's names
using namespace cuvmm::hook;  // NOLINT(google-build-using-namespace)

extern "C" {

[[gnu::visibility("default")]] int nvmlDeviceGetMemoryInfo(void* device, NvmlMemory* memory) {
  find_loaded();
  const auto ask = real_nvml.memory.load();
  if (ask == nullptr) return function_not_found;
  const int answer = ask(device, memory);
  if (answer != success) return answer;
  const MemoryInfo told = as_told(device, {.free = memory->free, .total = memory->total});
  *memory = {.total = told.total, .free = told.free, .used = told.total - told.free};
  return answer;
}

[[gnu::visibility("default")]] int nvmlDeviceGetMemoryInfo_v2(void* device, NvmlMemoryV2* memory) {
  find_loaded();
  const auto ask = real_nvml.memory_v2.load();
  if (ask == nullptr) return function_not_found;
  const int answer = ask(device, memory);
  if (answer != success) return answer;
  const MemoryInfo told = as_told(device, {.free = memory->free, .total = memory->total});
  if (told.total == memory->total && told.free == memory->free) return answer;
  memory->total = told.total;
  memory->free = told.free;
  memory->reserved = std::min<unsigned long long>(memory->reserved, told.total - told.free);
  memory->used = told.total - told.free - memory->reserved;
  return answer;
}

#define CUVMM_LIST(number, name, stride)                                                    \
  [[gnu::visibility("default")]] int name(void* device, unsigned* count, void* processes) { \
    find_loaded();                                                                          \
    return list_processes(process_lists[number], device, count, processes);                 \
  }
CUVMM_NVML_LISTS(CUVMM_LIST)
#undef CUVMM_LIST

}  // extern "C"

void* cuvmm::hook::nvml_door(void* library, const char* name,
                             void* (*real_dlsym)(void*, const char*)) {
  const int kept_errno = errno;
  void* const real = real_dlsym(library, name);
  const bool is_nvmls = real != nullptr && is_of_nvml(real);
  if (is_nvmls) find_all(library, real_dlsym);
  errno = kept_errno;
  if (!is_nvmls) return real;
  if (std::strcmp(name, "nvmlDeviceGetMemoryInfo") == 0) {
    return reinterpret_cast<void*>(&nvmlDeviceGetMemoryInfo);
  }
  if (std::strcmp(name, "nvmlDeviceGetMemoryInfo_v2") == 0) {
    return reinterpret_cast<void*>(&nvmlDeviceGetMemoryInfo_v2);
  }
#define CUVMM_LIST(number, function, stride)              \
  if (std::strcmp(name, process_lists[number].name) == 0) \
    return reinterpret_cast<void*>(&(function));
  CUVMM_NVML_LISTS(CUVMM_LIST)
#undef CUVMM_LIST
  return real;
}
