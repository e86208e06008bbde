// SPDX-License-Identifier: Apache-2.0
// The loader, given drivers that consist only of names: what it asks for, what it refuses, what is
// absent.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "driver/driver.hpp"

namespace cuvmm::test {
namespace {

// A driver of one version. Each of its functions is a numbered address, never called, so that a
// test can tell which functions the table holds.
class NamedDriver {
 public:
  explicit NamedDriver(int version) : version_(version) {
    current = this;
    for (const CallInfo& call : all_calls()) {
      if (call.since > version) continue;
      add(call.symbol);
      if (call.per_thread_symbol != nullptr) add(call.per_thread_symbol);
    }
    functions_["cuDriverGetVersion"] = reinterpret_cast<void*>(&get_version);
    functions_["cuGetErrorName"] = reinterpret_cast<void*>(&get_error_name);
    for (const char* door : {"cuGetProcAddress", "cuGetProcAddress_v2"}) functions_.erase(door);
  }
  ~NamedDriver() { current = nullptr; }
  NamedDriver(const NamedDriver&) = delete;
  NamedDriver& operator=(const NamedDriver&) = delete;

  void lacks(const std::string& symbol) { functions_.erase(symbol); }
  void has_get_proc_address() {
    functions_["cuGetProcAddress_v2"] = reinterpret_cast<void*>(&get_proc_address);
  }
  void is_not_a_driver() { functions_.clear(); }
  void is_not_installed() { installed_ = false; }

  Result<Driver> load() const {
    return load_driver("libcuda.so.1", {.open = &open, .symbol = &find});
  }
  void* at(const std::string& symbol) const {
    const auto found = functions_.find(symbol);
    return found == functions_.end() ? nullptr : found->second;
  }

  struct Question {
    std::string name;
    int version;
    cuuint64_t flags;
    auto operator<=>(const Question&) const = default;
  };
  std::set<Question> asked;

 private:
  void add(const std::string& symbol) { functions_[symbol] = &places_[functions_.size()]; }

  static void* open(const char*) { return current->installed_ ? current : nullptr; }
  static void* find(void* library, const char* name) {
    EXPECT_EQ(library, current);
    return current->at(name);
  }
  static CUresult get_version(int* version) {
    *version = current->version_;
    return CUDA_SUCCESS;
  }
  static CUresult get_error_name(CUresult answer, const char** name) {
    *name = answer == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
    return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  // As a card's driver does: the newest signature of the name that is not newer than the requested
  // version.
  static CUresult get_proc_address(const char* name, void** found, int version, cuuint64_t flags,
                                   CUdriverProcAddressQueryResult*) {
    current->asked.insert({name, version, flags});
    *found = nullptr;
    const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    for (const CallInfo& call : all_calls()) {
      if (call.name != name || version < call.since || version >= call.until) continue;
      const bool has_form = per_thread && call.per_thread_symbol != nullptr && version >= 7000;
      *found = current->at(has_form ? call.per_thread_symbol : call.symbol);
    }
    return *found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  }

  static inline NamedDriver* current = nullptr;
  int version_;
  bool installed_ = true;
  std::map<std::string, void*> functions_;
  std::vector<char> places_ = std::vector<char>(4 * call_count);
};

template <class Function>
void* place(Function function) {
  return reinterpret_cast<void*>(function);
}

// The legacy member of every row, in the rows' order. Kept as data, since one check per row makes a
// function that sanitizers take minutes to compile.
std::array<void*, call_count> legacy_members(const Driver& driver) {
  return {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) place(driver.name),
#define CUVMM_API_OLD(name, symbol, since, until, flavours, effect, need) \
  place(driver.name##_v##since),
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
  };
}

Driver loaded(const NamedDriver& named) {
  return MUST(named.load(), "a named driver of a supported version loads");
}

TEST(LoadDriver, FillsEveryRowThatTheDriverHas) {
  const NamedDriver named{13000};
  const auto driver = named.load();
  ASSERT_TRUE(driver) << driver.error().text();
  EXPECT_EQ(driver->version, 13000);
  const auto members = legacy_members(*driver);
  for (std::size_t row = 0; row < call_count; ++row) {
    const CallInfo& call = all_calls()[row];
    void* const there = named.at(call.symbol);
    EXPECT_EQ(driver->present[row], there != nullptr) << call.symbol;
    if (there != nullptr) {
      EXPECT_EQ(members[row], there) << call.symbol;
    }
  }
}

TEST(LoadDriver, PerThreadMembersAreThePerThreadForms) {
  const NamedDriver named{13000};
  const auto driver = named.load();
  ASSERT_TRUE(driver);
  EXPECT_EQ(place(driver->cuLaunchKernel), named.at("cuLaunchKernel"));
  EXPECT_EQ(place(driver->cuLaunchKernel_per_thread), named.at("cuLaunchKernel_ptsz"));
  EXPECT_EQ(place(driver->cuMemcpyHtoD_per_thread), named.at("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(place(driver->cuMemcpyBatchAsync_v12080_per_thread),
            named.at("cuMemcpyBatchAsync_ptsz"));
  EXPECT_EQ(place(driver->cuMemFree_per_thread), named.at("cuMemFree_v2")) << "has one form only";
}

TEST(LoadDriver, AsksCuGetProcAddressForTheRowsOwnSignature) {
  NamedDriver named{13000};
  named.has_get_proc_address();
  const auto driver = named.load();
  ASSERT_TRUE(driver);
  EXPECT_TRUE(named.asked.contains({"cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_LEGACY_STREAM}));
  EXPECT_EQ(place(driver->cuMemAlloc), named.at("cuMemAlloc_v2"));
  EXPECT_EQ(place(driver->cuCtxSynchronize), named.at("cuCtxSynchronize_v2"));
  EXPECT_EQ(place(driver->cuCtxSynchronize_v2000), named.at("cuCtxSynchronize"));
}

TEST(LoadDriver, PerThreadFormIsAskedForInAVersionThatHasIt) {
  NamedDriver named{13000};
  named.has_get_proc_address();
  const auto driver = named.load();
  ASSERT_TRUE(driver);
  EXPECT_TRUE(named.asked.contains(
      {"cuStreamSynchronize", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}));
  EXPECT_EQ(place(driver->cuStreamSynchronize_per_thread), named.at("cuStreamSynchronize_ptsz"));
  EXPECT_EQ(place(driver->cuMemcpyHtoD_per_thread), named.at("cuMemcpyHtoD_v2_ptds"));
}

TEST(LoadDriver, FunctionsUnknownToCuGetProcAddressAreFoundBySymbol) {
  NamedDriver named{12080};
  named.has_get_proc_address();
  const auto driver = named.load();
  ASSERT_TRUE(driver);
  EXPECT_EQ(place(driver->cuMemcpyBatchAsync_v12080), named.at("cuMemcpyBatchAsync"));
  EXPECT_FALSE(driver->has(Call::cuMemcpyBatchAsync_v2));
}

TEST(LoadDriver, AMissingDriverIsReported) {
  NamedDriver named{13000};
  named.is_not_installed();
  const auto driver = named.load();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().kind, ErrorKind::DriverMissing);
}

TEST(LoadDriver, ALibraryThatIsNoDriverIsReported) {
  NamedDriver named{13000};
  named.is_not_a_driver();
  EXPECT_EQ(named.load().error().kind, ErrorKind::DriverMissing);
}

TEST(LoadDriver, ADriverTooOldIsRefusedWithBothVersions) {
  const NamedDriver named{10020};
  const auto driver = named.load();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().kind, ErrorKind::NotAvailable);
  EXPECT_EQ(driver.error().text(),
            "load driver: not available in this driver, needs CUDA 11.0, "
            "the driver has 10.2");
}

TEST(LoadDriver, TheOldestSupportedDriverLoads) {
  const NamedDriver named{11000};
  const auto driver = named.load();
  ASSERT_TRUE(driver) << driver.error().text();
  EXPECT_FALSE(driver->has(Call::cuMemAllocAsync));
}

TEST(LoadDriver, AMissingRequiredFunctionIsNamed) {
  NamedDriver named{12000};
  named.lacks("cuMemMap");
  const auto driver = named.load();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().kind, ErrorKind::NotAvailable);
  EXPECT_STREQ(driver.error().subject, "cuMemMap");
}

class AbsentFunction : public ::testing::Test {
 protected:
  const NamedDriver named_{11000};
  const Driver driver_ = loaded(named_);

  CUresult call_absent() const {
    CUdeviceptr address = 0;
    return driver_.cuMemAllocAsync(&address, 64, nullptr);
  }
};

TEST_F(AbsentFunction, AnswersNotSupportedAndCheckNamesItAndItsVersion) {
  const auto result = driver_.check(call_absent(), "allocate", 64);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::NotAvailable);
  EXPECT_EQ(result.error().driver_code, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(result.error().text(),
            "allocate: not available in this driver (cuMemAllocAsync, CUDA error 801), "
            "needs CUDA 11.2, the driver has 11.0");
}

TEST_F(AbsentFunction, PerThreadFormIsAbsentToo) {
  CUdeviceptr address = 0;
  EXPECT_EQ(driver_.cuMemAllocAsync_per_thread(&address, 64, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  (void)driver_.check(CUDA_ERROR_NOT_SUPPORTED, "allocate");
}

TEST_F(AbsentFunction, IsNotBlamedForALaterRefusal) {
  (void)call_absent();  // and no further reason is asked for
  EXPECT_TRUE(driver_.check(CUDA_SUCCESS, "map"));
  EXPECT_EQ(driver_.check(CUDA_ERROR_NOT_SUPPORTED, "map at an offset").error().kind,
            ErrorKind::NotSupported);
}

TEST_F(AbsentFunction, IsBlamedOnce) {
  EXPECT_EQ(driver_.check(call_absent(), "allocate").error().kind, ErrorKind::NotAvailable);
  EXPECT_EQ(driver_.check(CUDA_ERROR_NOT_SUPPORTED, "map at an offset").error().kind,
            ErrorKind::NotSupported);
}

TEST(DriverCheck, TurnsAnAnswerIntoATypedError) {
  const NamedDriver named{13000};
  const Driver driver = loaded(named);
  EXPECT_TRUE(driver.check(CUDA_SUCCESS, "map chunk"));
  const std::pair<CUresult, ErrorKind> table[] = {
      {CUDA_ERROR_OUT_OF_MEMORY, ErrorKind::OutOfMemory},
      {CUDA_ERROR_INVALID_VALUE, ErrorKind::InvalidArgument},
      {CUDA_ERROR_NOT_SUPPORTED, ErrorKind::NotSupported},
      {CUDA_ERROR_NOT_FOUND, ErrorKind::NotFound},
      {CUDA_ERROR_ILLEGAL_ADDRESS, ErrorKind::DriverFailed},
  };
  for (const auto& [answer, kind] : table) {
    const auto result = driver.check(answer, "map chunk", 4096);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, kind);
    EXPECT_EQ(result.error().driver_code, answer);
    EXPECT_EQ(result.error().asked, 4096u);
  }
  EXPECT_EQ(
      driver.error_of(CUDA_ERROR_OUT_OF_MEMORY, "map chunk", 2 << 20).text(),
      "map chunk: out of memory (CUDA_ERROR_OUT_OF_MEMORY, CUDA error 2), 2.00 MiB requested");
}

TEST(ToCuda, KeepsTheDriversOwnAnswer) {
  const Error error{.kind = ErrorKind::DriverFailed, .driver_code = CUDA_ERROR_ILLEGAL_ADDRESS};
  EXPECT_EQ(to_cuda(error), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(ToCuda, MapsOurErrorsToDriverErrors) {
  const std::pair<ErrorKind, CUresult> table[] = {
      {ErrorKind::InvalidArgument, CUDA_ERROR_INVALID_VALUE},
      {ErrorKind::InvalidOption, CUDA_ERROR_INVALID_VALUE},
      {ErrorKind::OutOfMemory, CUDA_ERROR_OUT_OF_MEMORY},
      {ErrorKind::OutOfAddresses, CUDA_ERROR_OUT_OF_MEMORY},
      {ErrorKind::AlreadyMapped, CUDA_ERROR_INVALID_VALUE},
      {ErrorKind::NotMapped, CUDA_ERROR_INVALID_VALUE},
      {ErrorKind::NotFound, CUDA_ERROR_NOT_FOUND},
      {ErrorKind::NotAvailable, CUDA_ERROR_NOT_SUPPORTED},
      {ErrorKind::NotSupported, CUDA_ERROR_NOT_SUPPORTED},
      {ErrorKind::DriverMissing, CUDA_ERROR_NOT_INITIALIZED},
      {ErrorKind::SystemFailed, CUDA_ERROR_OPERATING_SYSTEM},
      {ErrorKind::TimedOut, CUDA_ERROR_OUT_OF_MEMORY},
  };
  for (const auto& [kind, answer] : table)
    EXPECT_EQ(to_cuda({.kind = kind}), answer) << name_of(kind);
}

}  // namespace
}  // namespace cuvmm::test
