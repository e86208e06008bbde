// SPDX-License-Identifier: Apache-2.0
// What the simulated libnvidia-ml.so.1 reports to a separate process, such as `nvidia-smi`.
#include "sim/nvml/nvml.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "card_world.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

using namespace sim;

// The library as pynvml uses it: opened by path, functions looked up by name.
struct Nvml {
  void* library = ::dlopen(CUVMM_SIM_NVML, RTLD_NOW);
  template <class Function>
  Function* find(const char* name) const {
    void* found = library != nullptr ? ::dlsym(library, name) : nullptr;
    if (found == nullptr) throw std::runtime_error(name);
    return reinterpret_cast<Function*>(found);
  }
#define CUVMM_FUNCTION(name, ...) \
  NvmlAnswer (*name)(__VA_ARGS__) = find<NvmlAnswer(__VA_ARGS__)>("nvml" #name)
  CUVMM_FUNCTION(Init_v2);
  CUVMM_FUNCTION(Shutdown);
  CUVMM_FUNCTION(SystemGetDriverVersion, char*, unsigned);
  CUVMM_FUNCTION(DeviceGetCount_v2, unsigned*);
  CUVMM_FUNCTION(DeviceGetHandleByIndex_v2, unsigned, NvmlDevice*);
  CUVMM_FUNCTION(DeviceGetHandleByUUID, const char*, NvmlDevice*);
  CUVMM_FUNCTION(DeviceGetUUID, NvmlDevice, char*, unsigned);
  CUVMM_FUNCTION(DeviceGetName, NvmlDevice, char*, unsigned);
  CUVMM_FUNCTION(DeviceGetMemoryInfo, NvmlDevice, NvmlMemory*);
  CUVMM_FUNCTION(DeviceGetMemoryInfo_v2, NvmlDevice, NvmlMemoryV2*);
  CUVMM_FUNCTION(DeviceGetComputeRunningProcesses_v3, NvmlDevice, unsigned*, NvmlProcess*);
#undef CUVMM_FUNCTION
  const char* (*ErrorString)(NvmlAnswer) = find<const char*(NvmlAnswer)>("nvmlErrorString");

  NvmlDevice device(unsigned index = 0) const {
    NvmlDevice found = nullptr;
    EXPECT_EQ(DeviceGetHandleByIndex_v2(index, &found), NVML_SUCCESS);
    return found;
  }
};

struct Initialized : Nvml {
  Initialized() { EXPECT_EQ(Init_v2(), NVML_SUCCESS); }
  ~Initialized() { EXPECT_EQ(Shutdown(), NVML_SUCCESS); }
};

// A process's answers, small enough for one message.
struct Seen {
  NvmlMemory memory{};
  NvmlProcess processes[8]{};
  unsigned process_count = 0;
  unsigned devices = 0;
  char uuid[96]{};
};

Seen see(const Nvml& nvml) {
  Seen seen;
  EXPECT_EQ(nvml.DeviceGetCount_v2(&seen.devices), NVML_SUCCESS);
  const NvmlDevice device = nvml.device();
  EXPECT_EQ(nvml.DeviceGetMemoryInfo(device, &seen.memory), NVML_SUCCESS);
  seen.process_count = std::size(seen.processes);
  EXPECT_EQ(nvml.DeviceGetComputeRunningProcesses_v3(device, &seen.process_count, seen.processes),
            NVML_SUCCESS);
  EXPECT_EQ(nvml.DeviceGetUUID(device, seen.uuid, sizeof seen.uuid), NVML_SUCCESS);
  return seen;
}

CHILD_ROLE(asks_nvml) {
  const Initialized nvml;
  link.send(see(nvml));
}

Seen seen_from_outside(const std::vector<std::string>& environment) {
  Child child{"asks_nvml", {}, environment};
  const auto seen = child.link().receive<Seen>();
  EXPECT_EQ(child.wait(), 0);
  return seen;
}

Size held_by(const Seen& seen, pid_t process) {
  const NvmlProcess* end = seen.processes + seen.process_count;
  const auto* found = std::find_if(seen.processes, end, [&](const NvmlProcess& one) {
    return one.pid == static_cast<unsigned>(process);
  });
  return found == end ? 0 : found->used_bytes;
}

TEST_F(SharedCards, NvmlShowsWhatEachProcessHolds) {
  Member first = member();
  Member second = member();
  ASSERT_EQ(first.allocate(8 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(second.allocate(20 * MiB), CUDA_SUCCESS);
  const Seen seen = seen_from_outside(environment());
  EXPECT_EQ(seen.memory.total, memory);
  EXPECT_EQ(seen.memory.used, 28 * MiB);
  EXPECT_EQ(seen.memory.free, memory - 28 * MiB);
  EXPECT_EQ(seen.process_count, 2u);
  EXPECT_EQ(held_by(seen, first.pid()), 8 * MiB);
  EXPECT_EQ(held_by(seen, second.pid()), 20 * MiB);
}

TEST_F(SharedCards, NvmlForgetsAKilledProcess) {
  Member killed = member();
  ASSERT_EQ(killed.allocate(8 * MiB), CUDA_SUCCESS);
  killed.kill();
  const Seen seen = seen_from_outside(environment());
  EXPECT_EQ(seen.memory.used, 0u);
  EXPECT_EQ(seen.process_count, 0u);
}

TEST_F(SharedCards, NvmlAndTheDriverAgreeOnTheUuid) {
  Member user{environment({"VMM_SIM_DEVICES=2"})};
  const Seen seen = seen_from_outside(environment());
  EXPECT_EQ(seen.devices, 2u);
  std::string text = "GPU-";
  for (std::size_t i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", user.look().uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  EXPECT_EQ(seen.uuid, text);
}

TEST_F(SharedCards, NvmlReportsACardThatNobodyUses) {
  const Seen seen = seen_from_outside(environment({"VMM_SIM_DEVICES=3"}));
  EXPECT_EQ(seen.devices, 3u);
  EXPECT_EQ(seen.memory.total, memory);
  EXPECT_EQ(seen.memory.used, 0u);
}

CHILD_ROLE(asks_nvml_from_another_namespace) {
  if (::unshare(CLONE_NEWPID) != 0) return link.send(Seen{});
  // unshare() moves only this process's children into the new namespace.
  Child child{"asks_nvml"};
  link.send(child.link().receive<Seen>());
  ::_exit(child.wait());  // a leak checker needs a thread, which cannot start here any more
}

TEST_F(SharedCards, NvmlHidesProcessesOfAnotherNamespaceAndCountsTheirMemory) {
  Member user = member();
  ASSERT_EQ(user.allocate(8 * MiB), CUDA_SUCCESS);
  Child child{"asks_nvml_from_another_namespace", {}, environment()};
  const auto seen = child.link().receive<Seen>();
  EXPECT_EQ(child.wait(), 0);
  if (seen.devices == 0) GTEST_SKIP() << "this user may have no namespace of its own";
  EXPECT_EQ(seen.memory.used, 8 * MiB);
  EXPECT_EQ(seen.process_count, 0u);
}

// The card is not shared here.
CHILD_ROLE(sees_itself_by_nvml) {
  const Initialized nvml;
  EXPECT_EQ(see(nvml).memory.used, 0u);
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  const GivenBlocking held{8 * MiB};
  const Seen seen = see(nvml);
  EXPECT_EQ(seen.memory.total, 64 * MiB);
  EXPECT_EQ(seen.memory.used, 8 * MiB);
  EXPECT_EQ(held_by(seen, ::getpid()), 8 * MiB);
}

TEST(SimulatedNvml, ShowsAProcessItsOwnDevices) {
  EXPECT_EQ(run_child("sees_itself_by_nvml", {}, {"VMM_SIM_MEMORY=64M"}), 0);
}

CHILD_ROLE(asks_nvml_wrongly) {
  const Nvml nvml;
  unsigned count = 0;
  NvmlDevice device = nullptr;
  EXPECT_EQ(nvml.DeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvml.Shutdown(), NVML_ERROR_UNINITIALIZED);
  const Initialized initialized;
  EXPECT_EQ(nvml.DeviceGetHandleByIndex_v2(1, &device), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml.DeviceGetHandleByUUID("GPU-none", &device), NVML_ERROR_NOT_FOUND);
  device = nvml.device();
  char uuid[96];
  EXPECT_EQ(nvml.DeviceGetUUID(device, uuid, 4), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvml.DeviceGetUUID(device, uuid, sizeof uuid), NVML_SUCCESS);
  NvmlDevice again = nullptr;
  EXPECT_EQ(nvml.DeviceGetHandleByUUID(uuid, &again), NVML_SUCCESS);
  EXPECT_EQ(again, device);
  NvmlMemory memory{};
  EXPECT_EQ(nvml.DeviceGetMemoryInfo(nullptr, &memory), NVML_ERROR_INVALID_ARGUMENT);
  NvmlMemoryV2 second{};
  EXPECT_EQ(nvml.DeviceGetMemoryInfo_v2(device, &second), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  second.version = nvml_memory_version_2;
  EXPECT_EQ(nvml.DeviceGetMemoryInfo_v2(device, &second), NVML_SUCCESS);
  EXPECT_EQ(second.total, second.free);
  char text[64];
  EXPECT_EQ(nvml.DeviceGetName(device, text, sizeof text), NVML_SUCCESS);
  EXPECT_EQ(nvml.SystemGetDriverVersion(text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(nvml.ErrorString(NVML_ERROR_INSUFFICIENT_SIZE), "Insufficient Size");
}

TEST(SimulatedNvml, RefusesAsNvmlDoes) {
  EXPECT_EQ(run_child("asks_nvml_wrongly"), 0);
}

CHILD_ROLE(asks_for_too_few_processes) {
  const Initialized nvml;
  unsigned count = 0;
  EXPECT_EQ(nvml.DeviceGetComputeRunningProcesses_v3(nvml.device(), &count, nullptr),
            NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 1u);
}

TEST_F(SharedCards, NvmlSaysHowMuchRoomItsListNeeds) {
  Member user = member();
  ASSERT_EQ(user.allocate(8 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(run_child("asks_for_too_few_processes", {}, environment()), 0);
}

}  // namespace
}  // namespace cuvmm::test
