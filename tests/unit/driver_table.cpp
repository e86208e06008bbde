// SPDX-License-Identifier: Apache-2.0
// driver_api.def and not_hooked.def, checked against the header that they describe.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "driver/calls.hpp"
#include "driver/cuda.hpp"

namespace cuvmm::test {
namespace {

constexpr int described_version = 13000;  // the lists are complete for this one
constexpr int per_thread_since = 7000;    // the version that introduced per-thread default streams

struct Row {
  std::string name;
  std::string symbol;
  int since;
  int until;
  Flavours flavours;
  std::string reason;  // of not_hooked.def
};

std::vector<Row> hooked_rows() {
  std::vector<Row> rows;
  for (const CallInfo& call : all_calls()) {
    rows.push_back(
        {std::string(call.name), call.symbol, call.since, call.until, call.flavours, ""});
  }
  return rows;
}

std::vector<Row> not_hooked_rows() {
  using enum Flavours;
  return {
#define CUVMM_NOT_HOOKED(name, symbol, since, until, flavours, reason) \
  Row{#name, #symbol, since, until, flavours, reason},
#include "driver/not_hooked.def"
#undef CUVMM_NOT_HOOKED
  };
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = hooked_rows();
  std::ranges::move(not_hooked_rows(), std::back_inserter(rows));
  return rows;
}

// What cudaTypedefs.h declares for one function.
struct Declared {
  std::set<int> versions;              // PFN_<name>_v<version>
  std::map<int, Flavours> per_thread;  // PFN_<name>_v<version>_ptds or _ptsz
};

// Reads "<name>_v<version>[_ptds|_ptsz]" into `functions`.
bool read_typedef_name(const std::string& text, std::map<std::string, Declared>& functions) {
  std::string rest = text;
  std::optional<Flavours> flavour;
  if (rest.ends_with("_ptds")) flavour = Flavours::LegacyAndPtds;
  if (rest.ends_with("_ptsz")) flavour = Flavours::LegacyAndPtsz;
  if (flavour) rest.resize(rest.size() - 5);
  const std::size_t mark = rest.rfind("_v");
  if (mark == std::string::npos) return false;
  const std::string version = rest.substr(mark + 2);
  if (version.empty() || version.find_first_not_of("0123456789") != std::string::npos) return false;
  Declared& function = functions[rest.substr(0, mark)];
  if (flavour) {
    function.per_thread[std::stoi(version)] = *flavour;
  } else {
    function.versions.insert(std::stoi(version));
  }
  return true;
}

// Every `typedef CUresult (CUDAAPI *PFN_...)(...)` of the header.
const std::map<std::string, Declared>& header() {
  static const std::map<std::string, Declared> functions = [] {
    std::map<std::string, Declared> found;
    std::ifstream file{CUVMM_CUDA_TYPEDEFS};
    const std::string declares = "(CUDAAPI *PFN_";
    for (std::string line; std::getline(file, line);) {
      const std::size_t at = line.find(declares);
      if (line.find("typedef") == std::string::npos || at == std::string::npos) continue;
      const std::size_t start = at + declares.size();
      const std::string name = line.substr(start, line.find(')', start) - start);
      if (!read_typedef_name(name, found)) ADD_FAILURE() << "cannot read " << line;
    }
    return found;
  }();
  return functions;
}

std::string text_of(const Row& row) {
  return row.symbol + " since " + std::to_string(row.since);
}

// The header version that replaced `since`, or Now.
int replaced_in(const Declared& function, int since) {
  const auto next = function.versions.upper_bound(since);
  return next == function.versions.end() ? Now : *next;
}

// cuda.h's rule: the first version has the bare name, the n-th ends in _vn.
std::string symbol_of(const std::string& name, const Declared& function, int since) {
  const auto before = std::distance(function.versions.begin(), function.versions.find(since));
  return before == 0 ? name : name + "_v" + std::to_string(before + 1);
}

// The per-thread form of a signature is declared under the version that introduced it, or under 7.0
// if the signature is older.
Flavours flavours_of(const Declared& function, int since, int until) {
  const int brought = std::max(since, per_thread_since);
  const auto found = function.per_thread.find(brought);
  return found == function.per_thread.end() || brought >= until ? Flavours::Legacy : found->second;
}

TEST(DriverTable, HeaderIsReadWhole) {
  EXPECT_GE(header().size(), 447u) << "read from " << CUVMM_CUDA_TYPEDEFS;
  ASSERT_TRUE(header().contains("cuMemAlloc"));
  EXPECT_EQ(header().at("cuMemAlloc").versions, (std::set<int>{2000, 3020}));
  EXPECT_EQ(header().at("cuMemcpyHtoDAsync").per_thread.at(7000), Flavours::LegacyAndPtsz);
  EXPECT_EQ(header().at("cuMemcpy").per_thread.at(7000), Flavours::LegacyAndPtds);
}

TEST(DriverTable, EveryDeclaredSignatureIsInExactlyOneList) {
  std::map<std::pair<std::string, int>, int> rows;
  for (const Row& row : all_rows()) ++rows[{row.name, row.since}];
  std::string newer;
  for (const auto& [name, function] : header()) {
    for (const int version : function.versions) {
      const auto found = rows.find({name, version});
      if (found == rows.end() && version > described_version) {
        newer += " " + name + "_v" + std::to_string(version);
      } else {
        EXPECT_EQ(found == rows.end() ? 0 : found->second, 1) << name << " since " << version;
      }
    }
  }
  if (!newer.empty()) GTEST_SKIP() << "in neither list, since newer than CUDA 13.0:" << newer;
}

TEST(DriverTable, EveryRowIsDeclared) {
  for (const Row& row : all_rows()) {
    const auto function = header().find(row.name);
    ASSERT_NE(function, header().end()) << text_of(row);
    EXPECT_TRUE(function->second.versions.contains(row.since)) << text_of(row);
  }
}

TEST(DriverTable, EverySignatureEndsWhereTheNextBegins) {
  for (const Row& row : all_rows()) {
    const int until = replaced_in(header().at(row.name), row.since);
    const bool is_newer_than_described = until != Now && until > described_version;
    EXPECT_EQ(row.until, is_newer_than_described ? Now : until) << text_of(row);
  }
}

TEST(DriverTable, EverySymbolFollowsTheVersioningOfTheHeader) {
  for (const Row& row : all_rows()) {
    EXPECT_EQ(row.symbol, symbol_of(row.name, header().at(row.name), row.since));
  }
}

TEST(DriverTable, EverySymbolIsTakenOnce) {
  std::set<std::string> symbols;
  for (const Row& row : all_rows()) EXPECT_TRUE(symbols.insert(row.symbol).second) << row.symbol;
}

TEST(DriverTable, PerThreadFormsAreThoseOfTheHeader) {
  for (const Row& row : all_rows()) {
    EXPECT_EQ(row.flavours, flavours_of(header().at(row.name), row.since, row.until))
        << text_of(row);
  }
}

bool is_per_thread_form_of(const Row& row, const std::string& name, int version, Flavours flavour) {
  return row.name == name && row.since <= version && version < row.until && row.flavours == flavour;
}

TEST(DriverTable, EveryPerThreadFormBelongsToARow) {
  const std::vector<Row> rows = all_rows();
  for (const auto& function : header()) {
    const std::string& name = function.first;
    for (const auto& form : function.second.per_thread) {
      if (form.first > described_version) continue;
      EXPECT_TRUE(std::ranges::any_of(rows,
                                      [&](const Row& row) {
                                        return is_per_thread_form_of(row, name, form.first,
                                                                     form.second);
                                      }))
          << name << " per thread since " << form.first;
    }
  }
}

TEST(DriverTable, UnhookedFunctionsHaveAReason) {
  for (const Row& row : not_hooked_rows()) {
    EXPECT_GE(row.reason.size(), 10u) << text_of(row);
  }
}

TEST(DriverTable, FunctionsThatSubmitOrChangeMemoryAreHooked) {
  const char* prefixes[] = {"cuMemcpy",      "cuMemset",  "cuLaunch", "cuStreamBeginCapture",
                            "cuGraphLaunch", "cuMemPool", "cuIpc",    "cuMemMap",
                            "cuStreamWait"};
  for (const Row& row : not_hooked_rows()) {
    if (row.until <= 3020) continue;  // 32-bit signatures
    for (const char* prefix : prefixes) EXPECT_FALSE(row.name.starts_with(prefix)) << text_of(row);
  }
}

TEST(DriverTable, RequiredFunctionsExistInTheOldestDriver) {
  for (const CallInfo& call : all_calls()) {
    if (call.need != Need::Required) continue;
    EXPECT_LE(call.since, 11000) << call.symbol;
  }
}

}  // namespace
}  // namespace cuvmm::test
