// SPDX-License-Identifier: Apache-2.0
#include "usage/help_format.hpp"

#include <utility>

namespace cuvmm::usage {
namespace {

// Where CLI11 adds what the value is checked for. A colon in brackets is part of the type itself.
std::size_t end_of_type(const std::string& type) {
  std::size_t colon = type.find(':');
  while (colon != std::string::npos && colon != 0 && type[colon - 1] == '[') {
    colon = type.find(':', colon + 1);
  }
  return colon;
}

bool takes_several(const CLI::Option& option) {
  return option.get_expected_max() > 1;
}

}  // namespace

// "{loose,tight}" of "TEXT:{loose,tight}"; "NUMBER" of "INT:INT in [0 - 9]".
std::string type_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t end = end_of_type(type);
  std::string check = end == std::string::npos ? "" : type.substr(end + 1);
  if (check.starts_with('{')) return check;
  const std::string name = type.substr(0, end);
  return name == "INT" || name == "UINT" ? "NUMBER" : name;
}

// CLI11 leaves two empty lines where a group of hidden options would be.
std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode mode) const {
  std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
  for (std::size_t gap = 0; (gap = text.find("\n\n\n")) != std::string::npos;) text.erase(gap, 1);
  return text;
}

// A flag's value, when it is given alone, stands in braces behind its name.
std::string HelpFormat::make_option_name(const CLI::Option* option, bool is_positional) const {
  std::string name = CLI::Formatter::make_option_name(option, is_positional);
  for (std::size_t begin = 0; (begin = name.find('{')) != std::string::npos;) {
    name.erase(begin, name.find('}', begin) + 1 - begin);
  }
  return name;
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return {};
  std::string text;
  if (const std::string type = type_of(*option); !type.empty()) text += " " + type;
  if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
  if (takes_several(*option)) text += " ...";
  if (option->get_required()) text += " REQUIRED";
  return text;
}

std::string HelpFormat::make_option_usage(const CLI::Option* option) const {
  const std::string name = make_option_name(option, true) + (takes_several(*option) ? "..." : "");
  return option->get_required() ? name : "[" + name + "]";
}

}  // namespace cuvmm::usage
