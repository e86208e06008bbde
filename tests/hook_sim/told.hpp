// SPDX-License-Identifier: Apache-2.0
// What queries answer about device memory, wherever it resides.
#pragma once

#include <gtest/gtest.h>

#include <iterator>

#include "hook_sim/doors.hpp"

namespace cuvmm::test {

template <class Value>
Value told_of(CUdeviceptr address, CUpointer_attribute attribute) {
  Value value{};
  EXPECT_EQ(
      through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&value), attribute, address),
      CUDA_SUCCESS)
      << attribute;
  return value;
}

// Queries attributes one by one, and all at once as the runtime does.
inline void expect_to_be_told_of_device_memory(CUdeviceptr address) {
  EXPECT_EQ(told_of<unsigned>(address, CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
            unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(told_of<int>(address, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  EXPECT_EQ(told_of<CUdeviceptr>(address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), address);
  EXPECT_EQ(told_of<unsigned>(address, CU_POINTER_ATTRIBUTE_MAPPED), 1U);
  EXPECT_EQ(told_of<unsigned>(address, CU_POINTER_ATTRIBUTE_IS_MANAGED), 0U);
  EXPECT_EQ(told_of<unsigned>(address, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS),
            unsigned{CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE});
  void* for_the_host = nullptr;
  EXPECT_EQ(through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&for_the_host),
                                                      CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
            CUDA_ERROR_INVALID_VALUE);

  CUpointer_attribute wanted[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
      CU_POINTER_ATTRIBUTE_IS_MANAGED};
  unsigned type = 0;
  int device = -1;
  CUdeviceptr pointer = 0;
  void* host = &type;
  unsigned is_managed = 1;
  void* data[] = {&type, &device, &pointer, static_cast<void*>(&host), &is_managed};
  EXPECT_EQ(through_door<Call::cuPointerGetAttributes>(unsigned{std::size(wanted)}, &wanted[0],
                                                       &data[0], address),
            CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(device, 0);
  EXPECT_EQ(pointer, address);
  EXPECT_EQ(host, nullptr);
  EXPECT_EQ(is_managed, 0U);
}

}  // namespace cuvmm::test
