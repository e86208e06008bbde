// SPDX-License-Identifier: Apache-2.0
#include "vmm/access_set.hpp"

#include "vmm/location.hpp"

namespace cuvmm {
namespace {

CUmemAccess_flags cuda_flags(Access access) {
  switch (access) {
    case Access::None:
      return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    case Access::Read:
      return CU_MEM_ACCESS_FLAGS_PROT_READ;
    case Access::ReadWrite:
      break;
  }
  return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

std::string AccessSet::print() const {
  if (is_none()) return "none";
  std::string text;
  for (int device = 0; device < most_devices; ++device) {
    const Access access = of_device(device);
    if (access == Access::None) continue;
    if (!text.empty()) text += ' ';
    text += std::to_string(device) + (access == Access::Read ? ":r" : ":rw");
  }
  return text;
}

AccessChange::AccessChange(const AccessSet& before, const AccessSet& after) {
  const AccessSet named = before | after;
  for (int device = 0; device < AccessSet::most_devices; ++device) {
    if (named.of_device(device) == Access::None) continue;
    lines_[count_++] = {Location::device(device).cuda(), cuda_flags(after.of_device(device))};
  }
}

}  // namespace cuvmm
