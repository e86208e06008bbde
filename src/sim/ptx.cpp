// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "sim/function_attributes.hpp"
#include "sim/ptx_tokens.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

// Larger than any device, and small enough that sizes never overflow.
constexpr Size most_bytes = TiB;
constexpr Size most_parameter_bytes = 32764;

// The newest language that a driver of this version reads.
int newest_version() {
  struct Step {
    int driver;
    int ptx;
  };
  constexpr Step steps[] = {{13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85},
                            {12040, 84}, {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80},
                            {11080, 78}, {11070, 77}, {11060, 76}, {11050, 75}, {11040, 74},
                            {11030, 73}, {11020, 72}, {11010, 71}};
  for (const Step& step : steps) {
    if (settings().driver >= step.driver) return step.ptx;
  }
  return 70;
}

bool is_target(std::uint64_t number) {
  constexpr unsigned known[] = {10, 11, 12, 13, 20, 21, 30, 32, 35, 37,  50,  52,  53,  60,  61, 62,
                                70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};
  return std::find(std::begin(known), std::end(known), number) != std::end(known);
}

struct Type {
  Size size = 0;
  enum class Kind : std::uint8_t { Bits, Float, Opaque } kind = Kind::Bits;
};

std::optional<Type> read_type(std::string_view token) {
  if (token == ".texref" || token == ".samplerref" || token == ".surfref") {
    return Type{8, Type::Kind::Opaque};
  }
  if (token.size() < 3 || token[0] != '.') return std::nullopt;
  const std::string_view kinds = "busf";
  if (kinds.find(token[1]) == std::string_view::npos) return std::nullopt;
  const auto kind = token[1] == 'f' ? Type::Kind::Float : Type::Kind::Bits;
  const std::string_view width = token.substr(2);
  if (width == "8") return Type{1, kind};
  if (width == "16") return Type{2, kind};
  if (width == "32" || width == "16x2") return Type{4, kind};
  if (width == "64" || width == "32x2") return Type{8, kind};
  if (width == "128") return Type{16, kind};
  return std::nullopt;
}

// `.align 8 .v2 .f32 name[4][2]`: what all declarations have in common.
struct Declaration {
  std::string name;
  Type type;
  Size lanes = 1;
  std::optional<Size> elements;  // nothing: as many as it is given
  Size alignment = 0;
  bool is_array = false;
  bool managed = false;
  bool is_pointer = false;

  Size size() const { return type.size * lanes * elements.value_or(0); }
};

class Reader {
 public:
  Reader(std::string_view text, Ptx& ptx) : tokens_(text), ptx_(ptx) {}

  PtxError read() {
    if (tokens_.now() != ".version") return {CUDA_ERROR_INVALID_IMAGE, {}};
    const bool right = header() && statements() && !tokens_.is_broken();
    if (!lacking_.empty()) return {CUDA_ERROR_NOT_SUPPORTED, lacking_};
    if (answer_ != CUDA_SUCCESS) return {answer_, {}};
    return {right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX, {}};
  }

 private:
  bool header() {
    tokens_.take();                                   // .version
    const std::string_view version = tokens_.take();  // 7.0
    const std::size_t dot = version.find('.');
    if (dot == std::string_view::npos) return false;
    const auto major = read_ptx_integer(version.substr(0, dot));
    const auto minor = read_ptx_integer(version.substr(dot + 1));
    if (!major || !minor || *major > 99 || *minor > 9) return false;
    ptx_.version = static_cast<int>(*major * 10 + *minor);
    if (ptx_.version > newest_version()) return refuse(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    if (!tokens_.skip(".target")) return false;
    do {
      if (!target(tokens_.take())) return false;
    } while (tokens_.skip(","));
    return true;
  }

  // "sm_90", "sm_90a"; beside it stand words like "debug".
  bool target(std::string_view word) {
    if (word.substr(0, 3) != "sm_") return is_ptx_name(word);
    word.remove_prefix(3);
    if (!word.empty() && (word.back() == 'a' || word.back() == 'f')) word.remove_suffix(1);
    const auto number = read_ptx_integer(word);
    if (!number || !is_target(*number)) return false;
    ptx_.target = static_cast<int>(*number);
    if (ptx_.target > compute_capability) return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU);  // assumed
    return true;
  }

  bool refuse(CUresult answer) {
    answer_ = answer;
    return false;
  }

  bool statements() {
    while (!tokens_.at_end()) {
      if (!statement()) return false;
    }
    return true;
  }

  static bool is_linking(std::string_view token) {
    return token == ".visible" || token == ".extern" || token == ".weak" || token == ".common";
  }

  bool statement() {
    if (tokens_.skip(";")) return true;
    bool external = false;
    while (is_linking(tokens_.now())) external = tokens_.take() == ".extern" || external;
    const std::string_view what = tokens_.take();
    if (what == ".address_size") return tokens_.take() == "64";
    if (what == ".entry") return entry();
    if (what == ".func") return function();
    if (what == ".global") return variables(PtxSpace::Global, external);
    if (what == ".const") return variables(PtxSpace::Constant, external);
    if (what == ".shared" || what == ".tex") return skip_statement();
    if (what == ".file") return file();
    if (what == ".section") return section();
    if (what == ".loc" || what == "@@DWARF") return skip_numbers();
    if (what == ".pragma" || what == ".alias") return skip_statement();
    return false;
  }

  bool skip_statement() {
    while (!tokens_.at_end()) {
      if (tokens_.take() == ";") return true;
    }
    return false;
  }

  // `.file 1 "name.cu", 1600000000, 1234`
  bool file() {
    if (!read_ptx_integer(tokens_.take())) return false;
    const std::string_view name = tokens_.take();
    if (name.empty() || name.front() != '"') return false;
    while (tokens_.skip(",")) tokens_.take();
    return true;
  }

  bool section() {
    tokens_.take();
    return tokens_.now() == "{" && tokens_.skip_balanced('{', '}');
  }

  bool skip_numbers() {
    while (!tokens_.at_end() && !is_ptx_directive(tokens_.now())) tokens_.take();
    return true;
  }

  // Behind the state space, up to and with the name and its dimensions.
  bool declaration(Declaration& declared) {
    bool typed = false;
    while (is_ptx_directive(tokens_.now())) {
      const std::string_view word = tokens_.take();
      if (word == ".align") {
        const auto alignment = read_ptx_integer(tokens_.take());
        if (!alignment || !is_power_of_two(*alignment) || *alignment > 512) return false;
        // Behind .ptr it speaks of what is pointed to.
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
      if (!count || *count > most_bytes || !tokens_.skip("]")) return false;
      if (declared.elements) {
        declared.elements = *declared.elements * *count;
        if (*declared.elements > most_bytes / 64) return false;
      }
    }
    const Size natural = declared.type.size * declared.lanes;
    if (declared.alignment == 0) declared.alignment = natural;
    return true;
  }

  bool entry() {
    PtxEntry read;
    if (!is_ptx_name(tokens_.now())) return false;
    read.name = tokens_.take();
    if (tokens_.now() == "(" && !parameters(read)) return false;
    if (!directives(read)) return false;
    if (tokens_.skip(";")) return true;  // only announced
    if (!body(read)) return false;
    for (const PtxEntry& known : ptx_.entries) {
      if (known.name == read.name) return false;
    }
    ptx_.entries.push_back(std::move(read));
    return true;
  }

  bool parameters(PtxEntry& read) {
    tokens_.take();
    if (tokens_.skip(")")) return true;
    do {
      Declaration declared;
      if (!tokens_.skip(".param") || !declaration(declared)) return false;
      const Size offset = round_up(read.parameter_bytes, declared.alignment);
      const Size size = declared.size();
      if (size == 0 || size > most_parameter_bytes) return false;
      read.parameters.push_back({offset, size});
      read.parameter_bytes = offset + size;
      if (read.parameter_bytes > most_parameter_bytes) return false;
    } while (tokens_.skip(","));
    return tokens_.skip(")");
  }

  // What stands between the parameters and the body: `.maxntid 128, 1, 1`.
  bool directives(PtxEntry& read) {
    while (is_ptx_directive(tokens_.now())) {
      const std::string_view word = tokens_.take();
      if (word == ".maxntid" || word == ".reqntid") {
        Size threads = 1;
        do {
          const auto count = read_ptx_integer(tokens_.take());
          if (!count || *count == 0 || *count > 1024) return false;
          threads *= *count;
        } while (tokens_.skip(","));
        read.most_threads = threads;
        continue;
      }
      while (!tokens_.at_end() && !is_ptx_directive(tokens_.now()) && tokens_.now() != "{" &&
             tokens_.now() != ";") {
        tokens_.take();
      }
      if (word == ".pragma") tokens_.skip(";");
    }
    return true;
  }

  // Only the shared memory that it declares counts here.
  bool body(PtxEntry& read) {
    if (tokens_.now() != "{") return false;
    std::size_t depth = 0;
    bool begins_statement = false;
    while (!tokens_.at_end()) {
      const std::string_view token = tokens_.take();
      if (token == ".shared" && begins_statement && is_ptx_directive(tokens_.now())) {
        Declaration declared;
        if (!declaration(declared)) return false;
        read.shared_bytes = round_up(read.shared_bytes, declared.alignment) + declared.size();
        if (read.shared_bytes > most_bytes) return false;
      }
      begins_statement = token == ";" || token == "{" || token == "}";
      if (token == "{") ++depth;
      if (token == "}" && --depth == 0) return true;
    }
    return false;
  }

  bool function() {
    while (!tokens_.at_end()) {
      if (tokens_.now() == "{") return tokens_.skip_balanced('{', '}');
      if (tokens_.take() == ";") return true;
    }
    return false;
  }

  bool variables(PtxSpace space, bool external) {
    Declaration declared;
    if (!declaration(declared)) return false;
    std::vector<std::byte> initial;
    if (tokens_.skip("=") && !initial_value(declared, initial)) return false;
    if (!tokens_.skip(";")) return false;
    if (external) {
      lacking_ = "a variable of another module (" + declared.name + ")";
      return false;
    }
    if (!declared.elements) {
      declared.elements = initial.size() / (declared.type.size * declared.lanes);
    }
    if (declared.managed) {
      lacking_ = "a managed variable (" + declared.name + ")";
      return false;
    }
    const Size size = declared.size();
    if (size == 0 || initial.size() > size) return false;
    for (const PtxVariable& known : ptx_.variables) {
      if (known.name == declared.name) return false;
    }
    ptx_.variables.push_back({.name = std::move(declared.name),
                              .space = space,
                              .size = size,
                              .alignment = declared.alignment,
                              .initial = std::move(initial)});
    return true;
  }

  // One value, or rows of them in braces: what a row leaves out is zero only at the very end,
  // since rows are given whole by every compiler.
  bool initial_value(const Declaration& declared, std::vector<std::byte>& initial) {
    std::size_t depth = 0;
    do {
      while (tokens_.skip("{")) ++depth;
      if (tokens_.now() != "}" && !one_value(declared, initial)) return false;
      while (depth > 0 && tokens_.skip("}")) --depth;
    } while (tokens_.skip(","));
    return depth == 0;
  }

  bool one_value(const Declaration& declared, std::vector<std::byte>& initial) {
    bool negative = false;
    while (tokens_.now() == "-" || tokens_.now() == "+")
      negative = (tokens_.take() == "-") != negative;
    const std::string_view token = tokens_.take();
    if (is_ptx_name(token)) {
      lacking_ = "a variable that begins with an address (" + declared.name + ")";
      return false;
    }
    std::uint64_t bits = 0;
    const auto whole = read_ptx_integer(token);
    if (declared.type.kind == Type::Kind::Float && declared.type.size >= sizeof(float)) {
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
    initial.insert(initial.end(), bytes, bytes + declared.type.size);
    return true;
  }

  PtxTokens tokens_;
  Ptx& ptx_;
  std::string lacking_;
  CUresult answer_ = CUDA_SUCCESS;
};

}  // namespace

PtxError read_ptx(std::string_view text, Ptx& ptx) {
  ptx.text = text;
  return Reader{text, ptx}.read();
}

}  // namespace cuvmm::sim
