// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx.hpp"

#include <algorithm>
#include <iterator>

#include "sim/function_attributes.hpp"
#include "sim/ptx_declarations.hpp"
#include "sim/ptx_tokens.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size most_parameter_bytes = 32764;

// The newest PTX version that a driver of this version accepts.
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

class Reader {
 public:
  Reader(std::string_view text, Ptx& ptx) : tokens_(text), ptx_(ptx) {}

  PtxError read() {
    if (tokens_.now() != ".version") return {CUDA_ERROR_INVALID_IMAGE, {}};
    const bool right = header() && statements() && !tokens_.is_broken() && has_externals();
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
    return tokens_.skip(".target") && targets();
  }

  bool targets() {
    do {
      if (!target(tokens_.take())) return false;
    } while (tokens_.skip(","));
    return true;
  }

  // "sm_90", "sm_90a", or other words such as "debug".
  bool target(std::string_view word) {
    if (word.substr(0, 3) != "sm_") return is_ptx_name(word);
    word.remove_prefix(3);
    if (!word.empty() && (word.back() == 'a' || word.back() == 'f')) word.remove_suffix(1);
    const auto number = read_ptx_integer(word);
    if (!number || !is_target(*number)) return false;
    ptx_.target = std::max(ptx_.target, static_cast<int>(*number));
    if (ptx_.target > compute_capability) return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU);  // assumed
    return true;
  }

  // Whether every variable that is only declared is defined by another of the linked texts.
  bool has_externals() {
    for (const std::string& name : externals_) {
      const bool known = std::any_of(ptx_.variables.begin(), ptx_.variables.end(),
                                     [&](const PtxVariable& one) { return one.name == name; });
      if (known) continue;
      lacking_ = "a variable of another module (" + name + ")";
      return false;
    }
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
    may_repeat_ = false;
    while (is_linking(tokens_.now())) {
      const std::string_view linking = tokens_.take();
      external = external || linking == ".extern";
      may_repeat_ = may_repeat_ || linking == ".weak" || linking == ".common";
    }
    const std::string_view what = tokens_.take();
    if (what == ".address_size") return tokens_.take() == "64";
    // The next of several linked texts begins here.
    if (what == ".version") return !tokens_.take().empty();
    if (what == ".target") return targets();
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

  bool entry() {
    PtxEntry read;
    if (!is_ptx_name(tokens_.now())) return false;
    read.name = tokens_.take();
    if (tokens_.now() == "(" && !parameters(read)) return false;
    if (!directives(read)) return false;
    if (tokens_.skip(";")) return true;  // only declared
    if (!body(read)) return false;
    for (const PtxEntry& known : ptx_.entries) {
      if (known.name == read.name) return may_repeat_;
    }
    ptx_.entries.push_back(std::move(read));
    return true;
  }

  bool parameters(PtxEntry& read) {
    tokens_.take();
    if (tokens_.skip(")")) return true;
    do {
      Declaration declared;
      if (!tokens_.skip(".param") || !read_declaration(tokens_, declared)) return false;
      const Size offset = round_up(read.parameter_bytes, declared.alignment);
      const Size size = declared.size();
      if (size == 0 || size > most_parameter_bytes) return false;
      read.parameters.push_back({offset, size});
      read.parameter_bytes = offset + size;
      if (read.parameter_bytes > most_parameter_bytes) return false;
    } while (tokens_.skip(","));
    return tokens_.skip(")");
  }

  // The directives between the parameters and the body: `.maxntid 128, 1, 1`.
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

  // Only counts the shared memory that the body declares.
  bool body(PtxEntry& read) {
    if (tokens_.now() != "{") return false;
    std::size_t depth = 0;
    bool begins_statement = false;
    while (!tokens_.at_end()) {
      const std::string_view token = tokens_.take();
      if (token == ".shared" && begins_statement && is_ptx_directive(tokens_.now())) {
        Declaration declared;
        if (!read_declaration(tokens_, declared)) return false;
        read.shared_bytes = round_up(read.shared_bytes, declared.alignment) + declared.size();
        if (read.shared_bytes > most_ptx_bytes) return false;
      }
      begins_statement = token == ";" || token == "{" || token == "}";
      if (token == "{") ++depth;
      if (token == "}" && --depth == 0) return true;
    }
    return false;
  }

  bool function() {
    while (tokens_.now() == ".attribute" || tokens_.now() == ".noreturn") {
      tokens_.take();
      if (tokens_.now() == "(" && !tokens_.skip_balanced('(', ')')) return false;
    }
    if (tokens_.now() == "(" && !tokens_.skip_balanced('(', ')')) return false;
    if (is_ptx_name(tokens_.now())) {
      std::string name{tokens_.now()};
      auto& known = ptx_.functions;
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        known.push_back(std::move(name));
      }
    }
    while (!tokens_.at_end()) {
      if (tokens_.now() == "{") return tokens_.skip_balanced('{', '}');
      if (tokens_.take() == ";") return true;
    }
    return false;
  }

  bool variables(PtxSpace space, bool external) {
    Declaration declared;
    if (!read_declaration(tokens_, declared)) return false;
    InitialValue initial;
    if (tokens_.skip("=") && !read_initial_value(tokens_, declared, initial)) return false;
    if (!tokens_.skip(";")) return false;
    if (external) {
      externals_.push_back(declared.name);
      return true;
    }
    if (!declared.elements) {
      declared.elements = initial.bytes.size() / (declared.type.size * declared.lanes);
    }
    const Size size = declared.size();
    if (size == 0 || initial.bytes.size() > size) return false;
    for (const PtxVariable& known : ptx_.variables) {
      if (known.name == declared.name) return may_repeat_;
    }
    ptx_.variables.push_back({.name = std::move(declared.name),
                              .space = space,
                              .size = size,
                              .alignment = declared.alignment,
                              .managed = declared.managed,
                              .initial = std::move(initial.bytes),
                              .addresses = std::move(initial.addresses)});
    return true;
  }

  PtxTokens tokens_;
  Ptx& ptx_;
  bool may_repeat_ = false;  // of the declaration being read
  std::vector<std::string> externals_;
  std::string lacking_;
  CUresult answer_ = CUDA_SUCCESS;
};

}  // namespace

std::uint64_t Ptx::function_address(std::string_view name) const {
  constexpr std::uint64_t first = 0xfc00000000000000;  // not an address of the device or the host
  constexpr std::uint64_t step = 64;
  const auto found = std::find(functions.begin(), functions.end(), name);
  if (found == functions.end()) return 0;
  return first + step * static_cast<std::uint64_t>(found - functions.begin());
}

PtxError read_ptx(std::string_view text, Ptx& ptx) {
  ptx.text = text;
  return Reader{text, ptx}.read();
}

}  // namespace cuvmm::sim
