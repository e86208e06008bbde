// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "sim/address_space.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Context;

// The value of an address's attribute, and the width in which to write it.
struct PointerFact {
  CUresult answer = CUDA_SUCCESS;
  std::uint64_t value = 0;
  Size width = 0;
};

// Everything that is known of an address, as seen from the current context, if any.
class PointerFacts {
 public:
  explicit PointerFacts(CUdeviceptr address);

  // Whether no memory is at the address, even if the address is reserved.
  bool is_unknown() const { return !allocation_.has_value() && !chunk_.has_value(); }
  // Returns INVALID_VALUE for an unknown attribute, and for every attribute of an unknown address.
  PointerFact fact(CUpointer_attribute attribute) const;
  // The value that cuPointerGetAttributes reports instead if the fact does not exist. Width 0 means
  // that nothing is written.
  PointerFact fact_or_default(CUpointer_attribute attribute) const;

  // cuMemGetAddressRange.
  std::optional<std::pair<CUdeviceptr, Size>> address_range() const;

 private:
  bool is_blocking() const;
  bool is_host_allocation() const;
  bool is_reached_by(int who) const;
  int home() const;
  std::pair<CUdeviceptr, Size> mapping() const;

  PointerFact context() const;
  PointerFact memory_type() const;
  PointerFact device_pointer() const;
  PointerFact host_pointer() const;
  PointerFact access_flags() const;
  PointerFact pool() const;
  PointerFact handle_types() const;
  PointerFact block_id() const;

  CUdeviceptr address_;
  std::shared_ptr<Context> current_;
  std::optional<Allocation> allocation_;
  std::optional<Mapping> chunk_;  // mapped by the program, without an allocation
  std::optional<Mapping> block_;  // behind an allocation on a device
  std::optional<std::pair<CUdeviceptr, Size>> reservation_;
};

}  // namespace cuvmm::sim
