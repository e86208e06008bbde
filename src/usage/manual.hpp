// SPDX-License-Identifier: Apache-2.0
// Manual pages, in man(7) format, made of what --help prints.
#pragma once

#include <string>
#include <vector>

#include "usage/described.hpp"

namespace cuvmm::usage {

struct ManualEntry {
  std::string term;
  std::string text;
};

struct ManualSection {
  std::string title;  // "ENVIRONMENT"
  std::string text;   // one line before the entries; may be empty
  std::vector<ManualEntry> entries;
};

struct ManualPage {
  std::string name;                     // "cuvmm-run"
  int number = 1;                       // of the manual's section: 1, or 8 for services
  std::string command;                  // as it is typed: "cuvmm run"
  std::vector<ManualSection> sections;  // after those that every page has
  std::vector<std::string> see_also;    // "cuvmm(1)"
};

std::string manual(const ManualPage& page, const DescribedCommand& of);

}  // namespace cuvmm::usage
