// SPDX-License-Identifier: Apache-2.0
#include "usage/wrong_usage.hpp"

#include <algorithm>

#include "base/printable.hpp"

namespace cuvmm::usage {

std::string unexpected(const CLI::App& app) {
  std::vector<std::string> words = app.remaining();
  std::erase(words, "--");  // CLI11 keeps it, though it is no word
  const auto option = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word.starts_with('-') && word != "-";
  });
  if (option != words.end()) return option->substr(0, option->find('='));
  return words.empty() ? "" : words.front();
}

std::string problem_of(const CLI::Error& error) {
  const std::string what = error.what();
  // "--limit: At Most 1 required but received 2"
  const std::size_t too_many = what.find(": At Most 1 required");
  return too_many == std::string::npos ? what : what.substr(0, too_many) + ": may be given once";
}

std::string wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const std::string help = "`" + app.get_name() + " --help`";
  const std::string word = unexpected(app);
  return word.empty() ? problem_of(error) + "; see " + help
                      : printable(word) + ": not expected; " + help + " lists the options";
}

}  // namespace cuvmm::usage
