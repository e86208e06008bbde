// SPDX-License-Identifier: Apache-2.0
// Declarations of PTX: what variables and parameters are called, how large they are, and what
// variables begin with.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "sim/ptx.hpp"
#include "sim/ptx_tokens.hpp"

namespace cuvmm::sim {

// Larger than any device, and small enough that sizes never overflow.
inline constexpr Size most_ptx_bytes = TiB;

struct DeclaredType {
  Size size = 0;
  enum class Kind : std::uint8_t { Bits, Float, Opaque } kind = Kind::Bits;
};

// `.align 8 .v2 .f32 name[4][2]`: what all declarations have in common.
struct Declaration {
  std::string name;
  DeclaredType type;
  Size lanes = 1;
  std::optional<Size> elements;  // nothing: as many as it is given
  Size alignment = 0;
  bool is_array = false;
  bool managed = false;
  bool is_pointer = false;

  Size size() const { return type.size * lanes * elements.value_or(0); }
};

// Reads behind the state space, up to and with the name and its dimensions. False if the text is no
// declaration.
bool read_declaration(PtxTokens& tokens, Declaration& declared);

struct InitialValue {
  std::vector<std::byte> bytes;  // with zeros where addresses belong
  std::vector<PtxAddress> addresses;
};

// Reads behind the equals sign: one value, or rows of them in braces.
bool read_initial_value(PtxTokens& tokens, const Declaration& declared, InitialValue& initial);

}  // namespace cuvmm::sim
