// SPDX-License-Identifier: Apache-2.0
#include "capi/answer.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/size.hpp"
#include "driver/driver.hpp"

namespace cuvmm::capi {
namespace {

std::string message_of(const Error& error) {
  if (error.kind != ErrorKind::InvalidGranule) return error.text();
  return std::string(error.doing) + ": invalid granule, " + std::to_string(error.asked) +
         " bytes: " + error.subject + " (a power of two, a multiple of " +
         std::to_string(std::max<Size>(error.available, 64 * KiB)) + ")";
}

cuvmm_status status_of_driver(int code) {
  switch (code) {
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      return CUVMM_ERROR_NOT_SUPPORTED;
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return CUVMM_ERROR_DEVICE_LOST;
    default:
      return is_sticky(static_cast<CUresult>(code)) ? CUVMM_ERROR_DEVICE_LOST
                                                    : CUVMM_ERROR_DRIVER_FAILED;
  }
}

}  // namespace

cuvmm_status status_of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::InvalidArgument:
    case ErrorKind::InvalidOption:
      // If the driver rejects arguments that cuvmm chose, the cause is not the caller's argument.
      return error.driver_code != 0 ? CUVMM_ERROR_DRIVER_FAILED : CUVMM_ERROR_INVALID_ARGUMENT;
    case ErrorKind::OutOfMemory:
      return CUVMM_ERROR_OUT_OF_PHYSICAL_MEMORY;
    case ErrorKind::OutOfAddresses:
      return CUVMM_ERROR_OUT_OF_ADDRESSES;
    case ErrorKind::InvalidGranule:
      return CUVMM_ERROR_INVALID_GRANULE;
    case ErrorKind::InvalidOffset:
      return CUVMM_ERROR_INVALID_OFFSET;
    case ErrorKind::AlreadyMapped:
      return CUVMM_ERROR_ALREADY_MAPPED;
    case ErrorKind::NotMapped:
      return CUVMM_ERROR_NOT_MAPPED;
    case ErrorKind::NotFound:
      return CUVMM_ERROR_NOT_FOUND;
    case ErrorKind::AlreadyExists:
      return CUVMM_ERROR_ALREADY_EXISTS;
    case ErrorKind::NotAvailable:
    case ErrorKind::NotSupported:
    case ErrorKind::DriverMissing:
      return CUVMM_ERROR_NOT_SUPPORTED;
    case ErrorKind::DriverFailed:
      return status_of_driver(error.driver_code);
    case ErrorKind::SystemFailed:
      return CUVMM_ERROR_SYSTEM_FAILED;
    case ErrorKind::TimedOut:
      return CUVMM_ERROR_TIMED_OUT;
  }
  return CUVMM_ERROR_DRIVER_FAILED;
}

const char* name_of(cuvmm_status status) {
  switch (status) {
    case CUVMM_OK:
      return "ok";
    case CUVMM_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case CUVMM_ERROR_INVALID_GRANULE:
      return "invalid granule";
    case CUVMM_ERROR_INVALID_OFFSET:
      return "invalid offset";
    case CUVMM_ERROR_ALREADY_MAPPED:
      return "already mapped";
    case CUVMM_ERROR_NOT_MAPPED:
      return "not mapped";
    case CUVMM_ERROR_OUT_OF_PHYSICAL_MEMORY:
      return "out of physical memory";
    case CUVMM_ERROR_OUT_OF_ADDRESSES:
      return "out of addresses";
    case CUVMM_ERROR_MODEL_ALREADY_EXISTS:
      return "model already exists";
    case CUVMM_ERROR_MODEL_NOT_FOUND:
      return "model not found";
    case CUVMM_ERROR_NOT_SUPPORTED:
      return "not supported";
    case CUVMM_ERROR_DEVICE_LOST:
      return "device lost";
    case CUVMM_ERROR_DRIVER_FAILED:
      return "refused by the driver";
    case CUVMM_ERROR_SYSTEM_FAILED:
      return "refused by the system";
    case CUVMM_ERROR_TIMED_OUT:
      return "timed out";
    case CUVMM_ERROR_NOT_FOUND:
      return "not found";
    case CUVMM_ERROR_ALREADY_EXISTS:
      return "already exists";
  }
  return "unknown status";
}

cuvmm_status refuse(const Error& error, cuvmm_error* out) {
  const cuvmm_status status = status_of(error);
  if (out == nullptr) return status;
  *out = {};
  out->status = status;
  out->driver_code = error.driver_code;
  out->system_code = error.system_code;
  if (status == CUVMM_ERROR_OUT_OF_PHYSICAL_MEMORY || status == CUVMM_ERROR_OUT_OF_ADDRESSES) {
    out->requested = error.asked;
    out->available = error.available != unlimited ? error.available : 0;
  }
  std::snprintf(out->message, sizeof out->message, "%s", message_of(error).c_str());
  return status;
}

}  // namespace cuvmm::capi
