// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/size.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

struct Ptx;
struct PtxVariable;

// The __managed__ variables of a PTX text: host memory at one address for all contexts that load
// the text. Lives as long as one of them has it loaded.
class ManagedVariables {
 public:
  struct Variable {
    std::string name;
    CUdeviceptr address = 0;
    Size size = 0;
  };

  // Returns nullptr if the host has no memory for them.
  static std::shared_ptr<ManagedVariables> place(const Ptx& ptx);
  ~ManagedVariables();
  ManagedVariables(const ManagedVariables&) = delete;
  ManagedVariables& operator=(const ManagedVariables&) = delete;

  const std::vector<Variable>& variables() const { return variables_; }
  const Variable* find(std::string_view name) const;

 private:
  ManagedVariables() = default;
  std::vector<Variable> variables_;
};

}  // namespace cuvmm::sim
