// SPDX-License-Identifier: Apache-2.0
#include "usage/described.hpp"

#include <algorithm>
#include <sstream>

#include "usage/help_format.hpp"

namespace cuvmm::usage {
namespace {

// Parses "{arena,expandable}", which is how CLI11 writes choices into a type's name.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) {
    if (type.find('|') == std::string::npos || type.find('-') != std::string::npos) return choices;
  }
  const bool is_list = begin != std::string::npos;
  std::istringstream words{is_list ? type.substr(begin + 1, end - begin - 1) : type};
  for (std::string word; std::getline(words, word, is_list ? ',' : '|');) {
    word.erase(std::min(word.find('['), word.size()));  // "auto[:SIZE]"
    const bool is_word = word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_-") == word.npos;
    if (is_word) choices.push_back(word);
  }
  return choices;
}

std::string value_of(const CLI::Option& option) {
  if (option.get_expected_max() == 0 || option.get_items_expected_max() == 0) return {};
  const std::string type = type_of(option);
  return type.empty() ? "VALUE" : type;
}

DescribedCommand describe(const CLI::App& app) {
  DescribedCommand command{.name = app.get_name(),
                           .text = app.get_description(),
                           .footer = app.get_footer(),
                           .operand = {},
                           .options = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (option->get_positional()) {
      command.operand = {.type = type_of(*option),
                         .is_required = option->get_required(),
                         .is_repeatable = option->get_expected_max() > 1,
                         .choices = choices_in(option->get_type_name())};
      continue;
    }
    DescribedOption row{.flags = {},
                        .value = value_of(*option),
                        .default_value = option->get_default_str(),
                        .text = option->get_description(),
                        .choices = choices_in(option->get_type_name())};
    for (const std::string& name : option->get_snames()) row.flags.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) row.flags.push_back("--" + name);
    command.options.push_back(std::move(row));
  }
  return command;
}

}  // namespace

std::vector<DescribedCommand> described(const CLI::App& app) {
  std::vector<DescribedCommand> commands{describe(app)};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) commands.push_back(describe(*command));
  }
  return commands;
}

}  // namespace cuvmm::usage
