// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, in our words rather than CLI11's.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace cuvmm::usage {

// Of several unexpected words, the first option, or else the first word; empty if there is none.
std::string unexpected(const CLI::App& app);

std::string problem_of(const CLI::Error& error);

// For a program without commands: "--foo: not expected; `cuvmmd --help` lists the options".
std::string wrong_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace cuvmm::usage
