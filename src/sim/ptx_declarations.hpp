// SPDX-License-Identifier: Apache-2.0
// PTX declarations: the names, sizes and initial values of variables and parameters.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "sim/ptx.hpp"
#include "sim/ptx_tokens.hpp"

namespace cuvmm::sim {

// Larger than any device's memory, and small enough that sizes never overflow.
inline constexpr Size most_ptx_bytes = TiB;

struct DeclaredType {
  Size size = 0;
  enum class Kind : std::uint8_t { Bits, Float, Opaque } kind = Kind::Bits;
};

// `.align 8 .v2 .f32 name[4][2]`: the common part of all declarations.
struct Declaration {
  std::string name;
  DeclaredType type;
  Size lanes = 1;
  std::optional<Size> elements;  // nothing: as many as the initial value has
  Size alignment = 0;
  bool is_array = false;
  bool managed = false;
  bool is_pointer = false;

  Size size() const { return type.size * lanes * elements.value_or(0); }
};

// Reads from after the state space up to and including the name and its dimensions. Returns false
// if the text is not a declaration.
bool read_declaration(PtxTokens& tokens, Declaration& declared);

struct InitialValue {
  std::vector<std::byte> bytes;  // with zeros in place of addresses
  std::vector<PtxAddress> addresses;
};

// Reads from after the equals sign: one value, or nested rows of values in braces.
bool read_initial_value(PtxTokens& tokens, const Declaration& declared, InitialValue& initial);

}  // namespace cuvmm::sim
