// SPDX-License-Identifier: Apache-2.0
// The self-test of the runtimes of CUDA 11.2 and newer: without the right answer, all of their
// calls fail with cudaErrorSoftwareValidityNotEstablished. The protocol is published (ZLUDA): for
// two versions the answer is a constant, otherwise a keyed digest of the querying process and the
// devices.
#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "sim/bodies.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"
#include "sim/tables/md2.hpp"
#include "sim/tables/private_table.hpp"

namespace cuvmm::sim {
namespace {

constexpr Md2Digest key = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                           0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};

class Message {
 public:
  template <class Value>
  Message& operator<<(const Value& value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
    return *this;
  }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

int attribute_of(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  sim_cuDeviceGetAttribute(&value, attribute, device);
  return value;
}

CUresult check(std::uint32_t version, std::uint64_t seconds, std::uint64_t answer[2]) {
  if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (version % 10 < 2) {
    answer[0] = version % 10 == 0 ? 0x3341181c03cb675c : 0x1841181c03cb675c;
    answer[1] = 0x8ed383aa1f4cd1e8;
    return CUDA_SUCCESS;
  }
  Message message;
  message << static_cast<std::uint32_t>(settings().driver) << version
          << static_cast<std::uint32_t>(getpid())
          << static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pthread_self()))
          << tables::runtime_interface() << tables::validity_check() << tables::validity_check()[1]
          << seconds;
  for (int device = 0; device < Process::get().device_count(); ++device) {
    CUuuid uuid{};
    sim_cuDeviceGetUuid(&uuid, device);
    message << uuid << attribute_of(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
            << attribute_of(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
            << attribute_of(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  }
  const Md2Digest digest = hmac_md2(key, message.bytes());
  std::memcpy(answer, digest.data(), digest.size());
  return CUDA_SUCCESS;
}

CUresult refuse_second() {
  return refuse_entry("INTEGRITY_CHECK", 2);
}

}  // namespace

const void* const* tables::validity_check() {
  static const void* const entries[] = {reinterpret_cast<const void*>(3 * sizeof(void*)),
                                        reinterpret_cast<const void*>(&check),
                                        reinterpret_cast<const void*>(&refuse_second)};
  return entries;
}

}  // namespace cuvmm::sim
