// SPDX-License-Identifier: Apache-2.0
#include "view/stack_names.hpp"

#include <charconv>

namespace cuvmm::view {
namespace {

std::string last_part(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

StackNames::StackNames(const TraceHeader& header) : wall_ns_(header.wall_ns) {
  for (const TraceStack& stack : header.facts.stacks) {
    if (stack.caller < stack.number) stacks_.try_emplace(stack.number, stack);  // rules out cycles
  }
  for (const TraceName& name : header.facts.names) {
    if (name.subject == TraceSubject::Place) recorded_.try_emplace(name.number, name.text);
  }
}

std::uint32_t StackNames::caller_of(std::uint32_t stack) const {
  const auto found = stacks_.find(stack);
  return found == stacks_.end() ? 0 : found->second.caller;
}

std::string StackNames::name_of(std::uint32_t stack) {
  const auto found = stacks_.find(stack);
  if (found == stacks_.end()) return "(unknown)";
  const auto [name, is_new] = names_.try_emplace(found->second.place);
  if (is_new) {
    const auto recorded = recorded_.find(found->second.place);
    name->second = recorded == recorded_.end() ? "(unknown)" : in_words(recorded->second);
  }
  return name->second;
}

std::vector<std::string> StackNames::names_of(std::uint32_t stack) {
  std::vector<std::string> names;
  do {
    names.push_back(name_of(stack));
    stack = caller_of(stack);
  } while (stack != 0);
  return names;
}

// A place in compiled code is recorded as "/usr/lib/libfoo.so+0x1234".
std::string StackNames::in_words(const std::string& recorded) {
  const std::size_t plus = recorded.rfind("+0x");
  if (recorded.ends_with(')') || plus == std::string::npos) return recorded;
  std::uint64_t address = 0;
  const char* const end = recorded.data() + recorded.size();
  if (std::from_chars(recorded.data() + plus + 3, end, address, 16).ptr != end) return recorded;
  const std::string path = recorded.substr(0, plus);
  auto known = files_.find(path);
  if (known == files_.end()) {
    known = files_.emplace(path, ElfSymbols::of_file(path, wall_ns_)).first;
  }
  const auto function = known->second.function_at(address);
  return function ? *function + " (" + last_part(path) + ")" : recorded;
}

}  // namespace cuvmm::view
