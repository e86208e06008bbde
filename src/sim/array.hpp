// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/size.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Context;
class Device;

struct ArrayShape {
  Size row_bytes = 0;
  Size rows = 1;
  Size slices = 1;
  Size element_bytes = 0;

  Size bytes() const { return row_bytes * rows * slices; }
};

// A CUDA array: device memory that is accessible only to copies, since the simulation samples no
// textures. Its rows are contiguous.
class Array {
 public:
  // Returns CUDA_SUCCESS and sets `array`, or returns the error.
  static CUresult create(const std::shared_ptr<Context>& context,
                         const CUDA_ARRAY3D_DESCRIPTOR& asked, CUarray* array);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const CUDA_ARRAY3D_DESCRIPTOR& descriptor() const { return descriptor_; }
  const ArrayShape& shape() const { return shape_; }
  CUdeviceptr storage() const { return storage_; }
  Device& device() const { return device_; }
  std::shared_ptr<Context> context() const { return context_.lock(); }

 private:
  Array(const std::shared_ptr<Context>& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
        const ArrayShape& shape, CUdeviceptr storage);
  const std::weak_ptr<Context> context_;
  Device& device_;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor_;
  const ArrayShape shape_;
  const CUdeviceptr storage_;
};

// Return nullptr if there is no such array.
std::shared_ptr<Array> find_array(CUarray array);
std::shared_ptr<Array> remove_array(CUarray array);
// Destroys the arrays of a context that ends.
void remove_arrays_of(const std::shared_ptr<Context>& context);

}  // namespace cuvmm::sim
