// SPDX-License-Identifier: Apache-2.0
// Describes every copy and every set in one form, which is checked once and then run.
#pragma once

#include <memory>

#include "base/size.hpp"
#include "sim/cost_model.hpp"
#include "sim/cuda.hpp"
#include "sim/named_memory.hpp"
#include "sim/operation.hpp"

namespace cuvmm::sim {

class Context;

// Rows of bytes: one side of a copy.
struct CopySide {
  CUdeviceptr address = 0;  // of the first byte
  Size pitch = 0;           // from row to row
  Size slice = 0;           // from slice to slice
  int device = 0;           // the device of the context that names it
  NamedMemory memory;
};

// A number of slices, each a number of rows of bytes, copied from one side to the other.
class CopyPlan {
 public:
  // Returns CUDA_SUCCESS and sets `plan`, or returns the error for a call with these parameters.
  // The devices are those of the contexts that name the sides.
  static CUresult make(const CUDA_MEMCPY3D& asked, int source_device, int target_device,
                       CopyPlan* plan);
  static CUresult make(const CUDA_MEMCPY3D& asked, int device, CopyPlan* plan) {
    return make(asked, device, device, plan);
  }

  bool is_empty() const { return width_ == 0; }
  Size bytes() const { return width_ * rows_ * slices_; }
  const NamedMemory& source() const { return source_.memory; }
  const NamedMemory& target() const { return target_.memory; }

  // Whether the source can be staged, which requires that the host can read it.
  bool can_stage() const;
  // Copies the source's bytes now, so that the program may change them right away.
  void stage();

  Operation operation() const;

 private:
  void run() const;
  Activity activity() const;

  CUDA_MEMCPY3D asked_{};
  CopySide source_;
  CopySide target_;
  Size width_ = 0;
  Size rows_ = 0;
  Size slices_ = 0;
  std::shared_ptr<std::byte[]> staged_;
};

// Rows of elements that are all set to one value.
class SetPlan {
 public:
  static CUresult make(const CUDA_MEMSET_NODE_PARAMS& asked, int device, SetPlan* plan);

  bool is_empty() const { return asked_.width == 0 || asked_.height == 0; }
  const NamedMemory& target() const { return target_; }
  Operation operation() const;

 private:
  void run() const;

  CUDA_MEMSET_NODE_PARAMS asked_{};
  int device_ = 0;
  NamedMemory target_;
};

// For graph nodes that are added by hand. check_* returns the error for adding a node with these
// parameters in this context; if it returns CUDA_SUCCESS, *_operation returns the work itself.
CUresult check_copy(const CUDA_MEMCPY3D& asked, const Context& context);
Operation copy_operation(const CUDA_MEMCPY3D& asked, const Context& context);
CUresult check_set(const CUDA_MEMSET_NODE_PARAMS& asked, const Context& context);
Operation set_operation(const CUDA_MEMSET_NODE_PARAMS& asked, const Context& context);

// The addresses from the first byte of a side to its last; empty for an array, and for parameters
// that are refused.
struct CopiedRange {
  CUdeviceptr address = 0;
  Size size = 0;
};
CopiedRange source_range(const CUDA_MEMCPY3D& copy);
CopiedRange target_range(const CUDA_MEMCPY3D& copy);

// One dimension. The addresses of sides of type HOST go into the host members, others into the
// device members.
CUDA_MEMCPY3D linear_copy(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type,
                          CUdeviceptr from, Size size);
CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& copy);
CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY3D_PEER& copy);

}  // namespace cuvmm::sim
