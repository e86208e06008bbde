// SPDX-License-Identifier: Apache-2.0
#include "support/driver_under_test.hpp"

#include <dlfcn.h>
#include <strings.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

struct LoadedDriver {
  Driver table;
  void* library = nullptr;
  std::optional<SimControls> sim;
};

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "cuvmm tests: cannot use the driver %s: %s\n", driver_path().c_str(), why);
  std::abort();
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) give_up(name);
}

std::optional<SimControls> find_sim_controls(void* library) {
  if (::dlsym(library, "cuvmm_sim_leaks") == nullptr) return std::nullopt;
  SimControls controls{};
  find(library, "cuvmm_sim_set_kernel", controls.set_kernel);
  find(library, "cuvmm_sim_set_faults", controls.set_faults);
  find(library, "cuvmm_sim_read_counters", controls.read_counters);
  find(library, "cuvmm_sim_read_card", controls.read_card);
  find(library, "cuvmm_sim_calls", controls.calls);
  find(library, "cuvmm_sim_modelled_microseconds", controls.modelled_microseconds);
  find(library, "cuvmm_sim_leaks", controls.leaks);
  return controls;
}

void* open_for_everybody(const char* path) {
  return ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

LoadedDriver load() {
  LoadedDriver loaded;
  loaded.library = open_for_everybody(driver_path().c_str());
  if (loaded.library == nullptr) give_up(::dlerror());
  LoaderDoors doors = LoaderDoors::of_the_system();
  doors.open = open_for_everybody;
  const Result<Driver> table = load_driver(driver_path().c_str(), doors);
  if (!table.ok()) give_up(table.error().subject);
  loaded.table = table.value();
  loaded.sim = find_sim_controls(loaded.library);
  return loaded;
}

const LoadedDriver& loaded_driver() {
  static const LoadedDriver* const loaded = new LoadedDriver(load());
  return *loaded;
}

}  // namespace

const std::string& driver_path() {
  static const auto* const path = [] {
    const char* chosen = std::getenv("CUVMM_TEST_DRIVER");
    return new std::string(chosen != nullptr && *chosen != 0 ? chosen : CUVMM_SIM_DRIVER);
  }();
  return *path;
}

const Driver& driver() {
  return loaded_driver().table;
}
const SimControls* sim() {
  const auto& controls = loaded_driver().sim;
  return controls.has_value() ? &*controls : nullptr;
}

Size reserved_addresses() {
  cuvmm_sim_counters counters{};
  sim()->read_counters(0, &counters);
  return counters.reserved_bytes;
}

void* driver_symbol(const char* name) {
  return ::dlsym(loaded_driver().library, name);
}

CUdevice device(int ordinal) {
  CUdevice found = 0;
  GIVEN(driver().cuDeviceGet(&found, ordinal));
  return found;
}

int device_count() {
  int count = 0;
  GIVEN(driver().cuInit(0));
  GIVEN(driver().cuDeviceGetCount(&count));
  return count;
}

int attribute(CUdevice_attribute which, int ordinal) {
  int value = 0;
  GIVEN(driver().cuDeviceGetAttribute(&value, which, device(ordinal)));
  return value;
}

std::string name_of(CUresult answer) {
  const char* name = nullptr;
  if (driver().cuGetErrorName(answer, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown";
  return std::string(name) + " (" + std::to_string(static_cast<int>(answer)) + ")";
}

void given(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string("given ") + what + ": " + name_of(answer));
}

::testing::AssertionResult succeeds(const char* expression, CUresult answer) {
  if (answer == CUDA_SUCCESS) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << expression << "\n  answered " << name_of(answer);
}

::testing::AssertionResult answers(const char*, const char* expression, CUresult expected,
                                   CUresult answer) {
  if (answer == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << expression << "\n  answered " << name_of(answer)
                                       << "\n  expected " << name_of(expected);
}

// The form without a context argument, which every driver has.
CUresult synchronize() {
  return driver().cuCtxSynchronize_v2000();
}

PrimaryContext::PrimaryContext(int ordinal) {
  GIVEN(driver().cuInit(0));
  device_ = device(ordinal);
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context_, device_));
  GIVEN(driver().cuCtxPushCurrent(context_));
}

PrimaryContext::~PrimaryContext() {
  CUcontext popped = nullptr;
  EXPECT_CUDA(driver().cuCtxPopCurrent(&popped));
  EXPECT_EQ(popped, context_) << "another context was left current";
  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device_));
}

OwnContext::OwnContext(int ordinal) {
  GIVEN(driver().cuInit(0));
  GIVEN(driver().cuCtxCreate_v3020(&context_, 0, device(ordinal)));
}

OwnContext::~OwnContext() {
  if (context_ != nullptr) {
    EXPECT_CUDA(destroy());
  }
}

void OwnContext::leave() {
  CUcontext popped = nullptr;
  EXPECT_CUDA(driver().cuCtxPopCurrent(&popped));
  EXPECT_EQ(popped, context_) << "another context was left current";
}

CUresult OwnContext::destroy() {
  const CUcontext context = std::exchange(context_, nullptr);
  return driver().cuCtxDestroy(context);
}

bool served() {
  static const bool is_served = [] {
    const char* preloaded = std::getenv("LD_PRELOAD");
    const char* mode = std::getenv("VMM_MODE");
    return preloaded != nullptr && std::strstr(preloaded, "libcuvmm_preload") != nullptr &&
           (mode == nullptr || strcasecmp(mode, "vmm") == 0);
  }();
  return is_served;
}

DriverContract::DriverContract() = default;
DriverContract::~DriverContract() = default;

void DriverContract::SetUp() {
  context_ = std::make_unique<PrimaryContext>();
  ASSERT_CUDA(synchronize()) << "an earlier test has ended the life of the context";
  if (simulated()) held_before_ = sim()->leaks(nullptr, 0);
}

void DriverContract::TearDown() {
  if (context_ == nullptr) return;
  EXPECT_CUDA(synchronize()) << "an error was left in the context";
  kernels_.reset();
  if (simulated() && !served()) {
    std::vector<char> text(std::size_t{64} << 10, '\0');
    const uint64_t held = sim()->leaks(text.data(), text.size());
    EXPECT_EQ(held, held_before_) << "the test changed what the process holds, which is now:\n"
                                  << text.data();
  }
  context_.reset();
}

const Kernels& DriverContract::kernels() {
  if (kernels_ == nullptr) kernels_ = std::make_unique<Kernels>();
  return *kernels_;
}

}  // namespace cuvmm::test
