// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "driver/absent_call.hpp"

namespace cuvmm {
namespace {

ErrorKind kind_of(CUresult answer) {
  switch (answer) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorKind::OutOfMemory;
    case CUDA_ERROR_INVALID_VALUE:
      return ErrorKind::InvalidArgument;
    case CUDA_ERROR_NOT_SUPPORTED:
      return ErrorKind::NotSupported;
    case CUDA_ERROR_NOT_FOUND:
      return ErrorKind::NotFound;
    default:
      return ErrorKind::DriverFailed;
  }
}

}  // namespace

constinit thread_local const CallInfo* last_absent_call = nullptr;

// The members come first, two per row, in the order of driver_api.def.
static_assert(std::is_standard_layout_v<Driver> &&
              offsetof(Driver, version) == call_count * sizeof(FunctionPair));

FunctionPair Driver::functions(Call call) const {
  FunctionPair pair;
  const auto* const rows = reinterpret_cast<const std::byte*>(this);
  std::memcpy(&pair, rows + static_cast<std::size_t>(call) * sizeof pair, sizeof pair);
  return pair;
}

void Driver::set_functions(Call call, const FunctionPair& pair) {
  auto* const rows = reinterpret_cast<std::byte*>(this);
  std::memcpy(rows + static_cast<std::size_t>(call) * sizeof pair, &pair, sizeof pair);
}

Error Driver::error_of(CUresult answer, const char* doing, Size asked) const {
  Error error{.kind = kind_of(answer), .driver_code = answer, .doing = doing, .asked = asked};
  const CallInfo* absent = std::exchange(last_absent_call, nullptr);
  if (answer == CUDA_ERROR_NOT_SUPPORTED && absent != nullptr) {
    error.kind = ErrorKind::NotAvailable;
    error.subject = absent->symbol;
    error.available = static_cast<Size>(version);
    error.asked = static_cast<Size>(absent->since);
    return error;
  }
  const char* name = nullptr;
  if (cuGetErrorName != nullptr && cuGetErrorName(answer, &name) == CUDA_SUCCESS) {
    error.subject = name;
  }
  return error;
}

Result<void> Driver::check(CUresult answer, const char* doing, Size asked) const {
  if (answer == CUDA_SUCCESS) {
    last_absent_call = nullptr;
    return {};
  }
  return error_of(answer, doing, asked);
}

bool is_sticky(CUresult answer) {
  switch (answer) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
      return true;
    default:
      return false;
  }
}

bool says_nothing_runs(CUresult answer) {
  return answer == CUDA_SUCCESS || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
         answer == CUDA_ERROR_INVALID_CONTEXT || answer == CUDA_ERROR_INVALID_HANDLE ||
         answer == CUDA_ERROR_DEINITIALIZED || is_sticky(answer);
}

CUresult to_cuda(const Error& error) {
  if (error.driver_code != 0) return static_cast<CUresult>(error.driver_code);
  switch (error.kind) {
    case ErrorKind::InvalidArgument:
    case ErrorKind::InvalidOption:
    case ErrorKind::InvalidGranule:
    case ErrorKind::InvalidOffset:
    case ErrorKind::AlreadyExists:
    case ErrorKind::AlreadyMapped:
    case ErrorKind::NotMapped:
      return CUDA_ERROR_INVALID_VALUE;
    case ErrorKind::OutOfMemory:
    case ErrorKind::OutOfAddresses:
    case ErrorKind::TimedOut:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case ErrorKind::NotFound:
      return CUDA_ERROR_NOT_FOUND;
    case ErrorKind::NotAvailable:
    case ErrorKind::NotSupported:
      return CUDA_ERROR_NOT_SUPPORTED;
    case ErrorKind::DriverMissing:
      return CUDA_ERROR_NOT_INITIALIZED;
    case ErrorKind::DriverFailed:
    case ErrorKind::SystemFailed:
      return CUDA_ERROR_OPERATING_SYSTEM;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace cuvmm
