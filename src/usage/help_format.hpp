// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace cuvmm::usage {

// What the option's value is, without CLI11's notes on checks: "SIZE", "auto[:SIZE]",
// "{loose,tight}".
std::string type_of(const CLI::Option& option);

// How --help shows options: a flag, its value and its default, without CLI11's notes on checks,
// which the descriptions and the errors give.
class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

}  // namespace cuvmm::usage
