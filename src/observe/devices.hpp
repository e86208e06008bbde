// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/size.hpp"
#include "node/message.hpp"

namespace cuvmm::observe {

struct NodeDevice {
  std::uint32_t index = 0;
  node::PlaceUuid uuid{};
  Size memory = 0;
};

// A device's memory, how much of it is in use, and the processes that NVML reports for it.
struct DeviceUse {
  Size memory = 0;
  Size used = 0;
  std::map<pid_t, Size> processes;
  bool has_mps_clients = false;
};

// This machine's devices as NVML sees them. The library is loaded at run time, so one binary serves
// every machine.
class Nvml {
 public:
  // NotFound if the library cannot be loaded, NotSupported if it lacks a function.
  static Result<Nvml> load(const char* library = "libnvidia-ml.so.1");

  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  // The first question about a device takes 7 to 24 ms, all later ones less than one (measured).
  Result<std::vector<NodeDevice>> devices() const;
  std::optional<DeviceUse> use(std::uint32_t index) const;

 private:
  struct Calls;
  explicit Nvml(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
};

// "GPU-…", the format of NVML and nvidia-smi.
std::string print_uuid(const node::PlaceUuid& uuid);
std::optional<node::PlaceUuid> read_uuid(const std::string& text);

// The host's memory, less a reserve for the system.
Size host_capacity();

}  // namespace cuvmm::observe
