// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx_linking.hpp"

#include <set>
#include <string_view>

#include "sim/ptx_tokens.hpp"

namespace cuvmm::sim {
namespace {

bool is_for_others(std::string_view token) {
  return token == ".visible" || token == ".extern" || token == ".weak" || token == ".common";
}

bool declares(std::string_view token) {
  return token == ".global" || token == ".const" || token == ".shared" || token == ".func" ||
         token == ".entry";
}

// The declared name: after the types, the alignment and a function's results.
std::string_view declared_name(PtxTokens& tokens) {
  while (!tokens.at_end()) {
    if (tokens.now() == "(") {
      if (!tokens.skip_balanced('(', ')')) return {};
    } else if (tokens.now() == ".align") {
      tokens.take();
      tokens.take();
    } else if (is_ptx_directive(tokens.now())) {
      tokens.take();
    } else {
      return is_ptx_name(tokens.now()) ? tokens.now() : std::string_view{};
    }
  }
  return {};
}

// The names that the text declares outside of functions and does not export.
std::set<std::string_view> own_names(std::string_view text) {
  std::set<std::string_view> names;
  PtxTokens tokens{text};
  bool shown = false;
  while (!tokens.at_end()) {
    if (tokens.now() == "{") {
      if (!tokens.skip_balanced('{', '}')) break;
      shown = false;
      continue;
    }
    const std::string_view token = tokens.take();
    if (is_for_others(token)) shown = true;
    if (declares(token)) {
      const std::string_view name = declared_name(tokens);
      if (!shown && !name.empty()) names.insert(name);
      shown = false;
    }
  }
  return names;
}

void append_renamed(std::string& linked, std::string_view text, std::size_t number) {
  const auto names = own_names(text);
  const std::string suffix = "$file" + std::to_string(number);
  const char* copied = text.data();
  for (PtxTokens tokens{text}; !tokens.at_end();) {
    const std::string_view token = tokens.take();
    if (names.count(token) == 0) continue;
    const char* end = token.data() + token.size();
    linked.append(copied, static_cast<std::size_t>(end - copied));
    linked += suffix;
    copied = end;
  }
  linked.append(copied, static_cast<std::size_t>(text.data() + text.size() - copied));
  linked += '\n';
}

}  // namespace

std::string link_ptx(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts.front();
  std::string linked;
  for (std::size_t i = 0; i < texts.size(); ++i) append_renamed(linked, texts[i], i);
  return linked;
}

}  // namespace cuvmm::sim
