// SPDX-License-Identifier: Apache-2.0
#include "observe/devices.hpp"

#include <dlfcn.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "base/text.hpp"

namespace cuvmm::observe {

// NVML's stable binary interface. The build does not depend on any package with its header.
using NvmlHandle = struct NvmlOpaque*;
struct NvmlMemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct NvmlProcessInfo {
  unsigned process;
  unsigned long long used;
  unsigned gpu_instance;
  unsigned compute_instance;
};

namespace {

constexpr const char* asking_nvml = "ask NVML";

constexpr int nvml_insufficient_size = 7;
constexpr unsigned long long nvml_not_available = ~0ULL;

Error nvml_error(int code) {
  return {.kind = ErrorKind::NotSupported,
          .doing = asking_nvml,
          .subject = "it refuses",
          .asked = static_cast<Size>(code),
          .counts = true};
}

}  // namespace

struct Nvml::Calls {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlHandle*) = nullptr;
  int (*uuid)(NvmlHandle, char*, unsigned) = nullptr;
  int (*memory)(NvmlHandle, NvmlMemoryInfo*) = nullptr;
  int (*processes)(NvmlHandle, unsigned*, NvmlProcessInfo*) = nullptr;
  int (*of_mps)(NvmlHandle, unsigned*, NvmlProcessInfo*) = nullptr;

  template <class Function>
  bool find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }
  std::map<pid_t, Size> used_by_process(NvmlHandle device) const;
  ~Calls() {
    if (shutdown != nullptr) shutdown();
  }
};

Nvml::Nvml(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

Result<Nvml> Nvml::load(const char* library) {
  auto calls = std::make_unique<Calls>();
  calls->library = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (calls->library == nullptr) {
    return Error{.kind = ErrorKind::NotFound,
                 .doing = "load NVML",
                 .subject = "libnvidia-ml.so.1; without a card, use --sim=card=NAME,memory=8G"};
  }
  const bool has_all = calls->find(calls->init, "nvmlInit_v2") &&
                       calls->find(calls->count, "nvmlDeviceGetCount_v2") &&
                       calls->find(calls->handle, "nvmlDeviceGetHandleByIndex_v2") &&
                       calls->find(calls->uuid, "nvmlDeviceGetUUID") &&
                       calls->find(calls->memory, "nvmlDeviceGetMemoryInfo");
  if (!has_all) {
    return Error{.kind = ErrorKind::NotSupported, .doing = "load NVML", .subject = "it is too old"};
  }
  calls->find(calls->processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  calls->find(calls->of_mps, "nvmlDeviceGetMPSComputeRunningProcesses_v3");
  if (const int code = calls->init(); code != 0) return nvml_error(code);
  calls->find(calls->shutdown, "nvmlShutdown");
  return Nvml{std::move(calls)};
}

Result<std::vector<NodeDevice>> Nvml::devices() const {
  unsigned count = 0;
  if (const int code = calls_->count(&count); code != 0) return nvml_error(code);
  std::vector<NodeDevice> devices;
  for (unsigned index = 0; index < count; ++index) {
    NvmlHandle handle = nullptr;
    std::array<char, 96> text{};
    NvmlMemoryInfo memory{};
    int code = calls_->handle(index, &handle);
    if (code == 0) code = calls_->uuid(handle, text.data(), text.size());
    if (code == 0) code = calls_->memory(handle, &memory);
    if (code != 0) return nvml_error(code);
    const auto uuid = read_uuid(text.data());
    if (!uuid) return nvml_error(0);
    devices.push_back({index, *uuid, memory.total});
  }
  return devices;
}

std::optional<DeviceUse> Nvml::use(std::uint32_t index) const {
  NvmlHandle handle = nullptr;
  NvmlMemoryInfo memory{};
  if (calls_->handle(index, &handle) != 0 || calls_->memory(handle, &memory) != 0) return {};
  DeviceUse use{.memory = memory.total, .used = memory.used};
  if (calls_->of_mps != nullptr) {
    unsigned count = 0;
    use.has_mps_clients = calls_->of_mps(handle, &count, nullptr) == nvml_insufficient_size;
  }
  use.processes = calls_->used_by_process(handle);
  // Memory that a process has just released, or is about to take, must not appear to be in use
  // without belonging to it.
  if (calls_->memory(handle, &memory) == 0) use.used = std::min<Size>(use.used, memory.used);
  return use;
}

std::map<pid_t, Size> Nvml::Calls::used_by_process(NvmlHandle device) const {
  std::map<pid_t, Size> used;
  if (processes == nullptr) return used;
  std::vector<NvmlProcessInfo> found(64);
  for (int tries = 0; tries < 4; ++tries) {
    auto count = static_cast<unsigned>(found.size());
    const int code = processes(device, &count, found.data());
    if (code == nvml_insufficient_size) {
      found.resize(count + 16);
      continue;
    }
    if (code != 0) return used;
    for (unsigned i = 0; i < count; ++i) {
      if (found[i].used == nvml_not_available) continue;
      used[static_cast<pid_t>(found[i].process)] += found[i].used;
    }
    break;
  }
  return used;
}

std::string print_uuid(const node::PlaceUuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", unsigned{uuid[i]});
    text += digits.data();
  }
  return text;
}

std::optional<node::PlaceUuid> read_uuid(const std::string& text) {
  node::PlaceUuid uuid{};
  std::size_t digits = 0;
  if (!text.starts_with("GPU-") && !text.starts_with("MIG-")) return {};
  for (const char letter : text.substr(4)) {
    if (letter == '-') continue;
    if (std::isxdigit(static_cast<unsigned char>(letter)) == 0 || digits == 32) return {};
    const char low = lower(letter);
    const int value = low >= 'a' ? low - 'a' + 10 : low - '0';
    uuid[digits / 2] = static_cast<std::uint8_t>(uuid[digits / 2] * 16 + value);
    ++digits;
  }
  if (digits != 32) return {};
  return uuid;
}

Size host_capacity() {
  struct sysinfo host {};
  if (::sysinfo(&host) != 0) return 0;
  const Size memory = static_cast<Size>(host.totalram) * host.mem_unit;
  const Size kept = std::max(memory / 10, GiB);
  return memory > kept ? memory - kept : 0;
}

}  // namespace cuvmm::observe
