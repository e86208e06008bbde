// SPDX-License-Identifier: Apache-2.0
// What loading a module needs to know of PTX text: which entries there are, what parameters they
// take, and which variables the module has. The instructions are read at an entry's first launch
// (sim/interpreter), if no host function stands for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/size.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

struct PtxParameter {
  Size offset = 0;
  Size size = 0;
};

struct PtxEntry {
  std::string name;
  std::vector<PtxParameter> parameters;
  Size parameter_bytes = 0;
  Size shared_bytes = 0;  // what its body declares
  Size most_threads = 0;  // .maxntid or .reqntid; 0: not said
};

enum class PtxSpace : std::uint8_t { Global, Constant };

// An address in a variable's initial value, as long as the loader does not know it.
struct PtxAddress {
  std::string of;  // a variable or a function
  std::uint64_t addend = 0;
  Size offset = 0;     // in the variable
  unsigned shift = 0;  // of the byte that is stored, where it is only one: 0xFF00(name)
  Size size = 8;
};

// A variable of the module, which lives in device memory, or in managed memory.
struct PtxVariable {
  std::string name;
  PtxSpace space = PtxSpace::Global;
  Size size = 0;
  Size alignment = 1;
  bool managed = false;
  std::vector<std::byte> initial;  // shorter than size: the rest is zero
  std::vector<PtxAddress> addresses = {};
};

class ManagedVariables;

struct Ptx {
  std::string text;  // what it was read from
  int version = 0;   // of the language: 10 * major + minor
  int target = 0;    // 10 * major + minor of the compute capability that it was written for
  std::vector<PtxEntry> entries;
  std::vector<PtxVariable> variables;
  std::vector<std::string> functions;  // that are not entries

  // What a pointer to the function holds: nothing that memory could lie at. 0 for unknown names.
  std::uint64_t function_address(std::string_view name) const;
  std::shared_ptr<ManagedVariables> managed;  // placed when an image is loaded
};

// Why a text was not read. `lacking` names PTX that is right but not simulated.
struct PtxError {
  CUresult answer = CUDA_SUCCESS;
  std::string lacking;
};

// Reads the text, which may be anything: what does not begin as PTX answers
// CUDA_ERROR_INVALID_IMAGE, what does not go on as such CUDA_ERROR_INVALID_PTX.
PtxError read_ptx(std::string_view text, Ptx& ptx);

}  // namespace cuvmm::sim
