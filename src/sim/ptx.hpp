// SPDX-License-Identifier: Apache-2.0
// The part of PTX that module loading needs: the entries, their parameters, and the module's
// variables. An entry's instructions are read at its first launch (sim/interpreter), unless it has
// a host function.
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
  Size shared_bytes = 0;  // declared in its body
  Size most_threads = 0;  // .maxntid or .reqntid; 0: unspecified
};

enum class PtxSpace : std::uint8_t { Global, Constant };

// An address in a variable's initial value, which the loader has yet to fill in.
struct PtxAddress {
  std::string of;  // a variable or a function
  std::uint64_t addend = 0;
  Size offset = 0;     // in the variable
  unsigned shift = 0;  // of the stored byte, if only one byte is stored: 0xFF00(name)
  Size size = 8;
};

// A variable of the module, in device or managed memory.
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
  std::string text;  // the source
  int version = 0;   // of the language: 10 * major + minor
  int target = 0;    // 10 * major + minor of the target compute capability
  std::vector<PtxEntry> entries;
  std::vector<PtxVariable> variables;
  std::vector<std::string> functions;  // functions that are not entries

  // The value of a pointer to the function, at which no memory can be. 0 for unknown names.
  std::uint64_t function_address(std::string_view name) const;
  std::shared_ptr<ManagedVariables> managed;  // placed when an image is loaded
};

// Why a text was refused. `lacking` names valid PTX that is not simulated.
struct PtxError {
  CUresult answer = CUDA_SUCCESS;
  std::string lacking;
};

// Reads any text. Returns CUDA_ERROR_INVALID_IMAGE if it does not begin like PTX, and
// CUDA_ERROR_INVALID_PTX if it begins like PTX but is not valid.
PtxError read_ptx(std::string_view text, Ptx& ptx);

}  // namespace cuvmm::sim
