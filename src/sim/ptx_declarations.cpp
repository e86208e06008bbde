// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx_declarations.hpp"

#include <cstring>

namespace cuvmm::sim {
namespace {

std::optional<DeclaredType> read_type(std::string_view token) {
  if (token == ".texref" || token == ".samplerref" || token == ".surfref") {
    return DeclaredType{8, DeclaredType::Kind::Opaque};
  }
  if (token.size() < 3 || token[0] != '.') return std::nullopt;
  const std::string_view kinds = "busf";
  if (kinds.find(token[1]) == std::string_view::npos) return std::nullopt;
  const auto kind = token[1] == 'f' ? DeclaredType::Kind::Float : DeclaredType::Kind::Bits;
  const std::string_view width = token.substr(2);
  if (width == "8") return DeclaredType{1, kind};
  if (width == "16") return DeclaredType{2, kind};
  if (width == "32" || width == "16x2") return DeclaredType{4, kind};
  if (width == "64" || width == "32x2") return DeclaredType{8, kind};
  if (width == "128") return DeclaredType{16, kind};
  return std::nullopt;
}

class DeclarationReader {
 public:
  explicit DeclarationReader(PtxTokens& tokens) : tokens_(tokens) {}

  // Reads from after the state space up to and including the name and its dimensions.
  bool declaration(Declaration& declared) {
    bool typed = false;
    while (is_ptx_directive(tokens_.now())) {
      const std::string_view word = tokens_.take();
      if (word == ".align") {
        const auto alignment = read_ptx_integer(tokens_.take());
        if (!alignment || !is_power_of_two(*alignment) || *alignment > 512) return false;
        // After .ptr it applies to the memory pointed to.
        if (!declared.is_pointer) declared.alignment = *alignment;
      } else if (word == ".attribute") {
        if (tokens_.now() != "(") return false;
        tokens_.take();
        declared.managed = tokens_.now() == ".managed";
        while (!tokens_.at_end() && tokens_.now() != ")") tokens_.take();
        if (!tokens_.skip(")")) return false;
      } else if (word == ".v2" || word == ".v4" || word == ".v8") {
        declared.lanes = static_cast<Size>(word[2] - '0');
      } else if (word == ".ptr") {
        declared.is_pointer = true;
      } else if (const auto type = read_type(word)) {
        declared.type = *type;
        typed = true;
      } else if (!declared.is_pointer) {
        return false;
      }
    }
    if (!typed || !is_ptx_name(tokens_.now())) return false;
    declared.name = tokens_.take();
    return dimensions(declared);
  }

  bool dimensions(Declaration& declared) {
    declared.elements = 1;
    while (tokens_.skip("[")) {
      declared.is_array = true;
      if (tokens_.skip("]")) {
        declared.elements.reset();
        continue;
      }
      const auto count = read_ptx_integer(tokens_.take());
      if (!count || *count > most_ptx_bytes || !tokens_.skip("]")) return false;
      if (declared.elements) {
        declared.elements = *declared.elements * *count;
        if (*declared.elements > most_ptx_bytes / 64) return false;
      }
    }
    const Size natural = declared.type.size * declared.lanes;
    if (declared.alignment == 0) declared.alignment = natural;
    return true;
  }

  // One value, or nested rows of values in braces. Values may be omitted only at the very end, as
  // every compiler writes full rows.
  bool initial_value(const Declaration& declared, InitialValue& initial) {
    std::size_t depth = 0;
    do {
      while (tokens_.skip("{")) ++depth;
      if (tokens_.now() != "}" && !one_value(declared, initial)) return false;
      while (depth > 0 && tokens_.skip("}")) --depth;
    } while (tokens_.skip(","));
    return depth == 0;
  }

  bool one_value(const Declaration& declared, InitialValue& initial) {
    bool negative = false;
    while (tokens_.now() == "-" || tokens_.now() == "+")
      negative = (tokens_.take() == "-") != negative;
    const std::string_view token = tokens_.take();
    if (is_ptx_name(token)) return address_value(token, 0, declared.type.size, initial);
    std::uint64_t bits = 0;
    const auto whole = read_ptx_integer(token);
    if (whole && tokens_.now() == "(") return masked_address(*whole, initial);
    if (declared.type.kind == DeclaredType::Kind::Float && declared.type.size >= sizeof(float)) {
      const auto value = read_ptx_float(token, static_cast<unsigned>(declared.type.size));
      if (!value) return false;
      const unsigned sign = static_cast<unsigned>(declared.type.size) * 8 - 1;
      bits = *value ^ (negative ? std::uint64_t{1} << sign : 0);
    } else if (whole) {
      bits = negative ? 0 - *whole : *whole;
    } else {
      return false;
    }
    std::byte bytes[16] = {};
    std::memcpy(bytes, &bits, sizeof bits);
    initial.bytes.insert(initial.bytes.end(), bytes, bytes + declared.type.size);
    return true;
  }

  // `name` or `generic(name)`, each optionally followed by `+4`. Leaves zeros for the loader to
  // fill.
  bool address_value(std::string_view token, unsigned shift, Size size, InitialValue& initial) {
    PtxAddress address{
        .of = std::string{token}, .offset = initial.bytes.size(), .shift = shift, .size = size};
    if (token == "generic") {
      if (!tokens_.skip("(")) return false;
      address.of = tokens_.take();
      if (!is_ptx_name(address.of) || !addend(address) || !tokens_.skip(")")) return false;
    }
    if (!addend(address)) return false;
    initial.bytes.resize(initial.bytes.size() + size);
    initial.addresses.push_back(std::move(address));
    return true;
  }

  bool addend(PtxAddress& address) {
    while (tokens_.now() == "+" || tokens_.now() == "-") {
      const bool negative = tokens_.take() == "-";
      const auto value = read_ptx_integer(tokens_.take());
      if (!value) return false;
      address.addend += negative ? 0 - *value : *value;
    }
    return true;
  }

  // `0xFF00(name)`: one byte of an address.
  bool masked_address(std::uint64_t mask, InitialValue& initial) {
    unsigned shift = 0;
    while (shift < 64 && mask >> shift != 0xff) shift += 8;
    if (shift == 64 || mask != std::uint64_t{0xff} << shift || !tokens_.skip("(")) return false;
    const std::string_view token = tokens_.take();
    return is_ptx_name(token) && address_value(token, shift, 1, initial) && tokens_.skip(")");
  }

 private:
  PtxTokens& tokens_;
};

}  // namespace

bool read_declaration(PtxTokens& tokens, Declaration& declared) {
  return DeclarationReader{tokens}.declaration(declared);
}

bool read_initial_value(PtxTokens& tokens, const Declaration& declared, InitialValue& initial) {
  return DeclarationReader{tokens}.initial_value(declared, initial);
}

}  // namespace cuvmm::sim
