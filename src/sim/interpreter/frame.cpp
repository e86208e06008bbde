// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/frame.hpp"

#include <iterator>

#include "sim/ptx_tokens.hpp"

namespace cuvmm::sim {

std::uint32_t RegisterFile::add(std::uint8_t width) {
  constexpr std::uint32_t alignment = 64;
  const std::uint32_t at = program_.register_bytes;
  const std::uint32_t bytes = width == 0 ? 4 : width * warp_size;
  program_.register_bytes += static_cast<std::uint32_t>(round_up(bytes, alignment));
  program_.registers.push_back({at, width});
  return at;
}

std::uint32_t RegisterFile::constant(std::uint64_t bits, std::uint8_t width) {
  const auto [known, is_new] = constants_.try_emplace({bits, width}, 0);
  if (is_new) {
    known->second = add(width);
    program_.constants.push_back({.bits = bits, .at = known->second, .width = width});
  }
  return known->second;
}

std::uint32_t RegisterFile::special(SpecialRegister which, std::uint8_t width) {
  const auto [known, is_new] = specials_.try_emplace({which, width}, 0);
  if (is_new) {
    known->second = add(width);
    program_.special_registers.push_back({.which = which, .at = known->second, .width = width});
    program_.uses_reserved_shared |= which == SpecialRegister::ReservedSharedBegin;
  }
  return known->second;
}

void NameScopes::add_registers(std::string_view prefix, std::uint32_t count, std::uint32_t stride,
                               const RegisterPlace& first) {
  scopes_.back().families[prefix] = {.count = count, .stride = stride, .first = first};
}

void NameScopes::add_register(std::string_view name, const RegisterPlace& place) {
  scopes_.back().registers[name] = place;
}

void NameScopes::add_symbol(std::string_view name, const SymbolPlace& place) {
  scopes_.back().symbols[name] = place;
}

std::optional<RegisterPlace> NameScopes::find_register(std::string_view name) const {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  const auto number = read_ptx_integer(
      name.size() - digits > 1 && name[digits] == '0' ? std::string_view{} : name.substr(digits));
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->registers.find(name); found != scope->registers.end()) {
      return found->second;
    }
    const auto family = scope->families.find(name.substr(0, digits));
    if (family == scope->families.end() || !number || *number >= family->second.count) continue;
    RegisterPlace place = family->second.first;
    place.at += static_cast<std::uint32_t>(*number) * family->second.stride;
    return place;
  }
  return std::nullopt;
}

const SymbolPlace* NameScopes::find_symbol(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->symbols.find(name); found != scope->symbols.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

std::optional<SpecialName> find_special_register(std::string_view name, std::string_view suffix) {
  struct Known {
    std::string_view name;
    std::string_view suffix;
    SpecialName special;
  };
  using S = SpecialRegister;
  static constexpr Known known[] = {{"%tid", ".x", {S::TidX}},
                                    {"%tid", ".y", {S::TidY}},
                                    {"%tid", ".z", {S::TidZ}},
                                    {"%ntid", ".x", {S::NtidX}},
                                    {"%ntid", ".y", {S::NtidY}},
                                    {"%ntid", ".z", {S::NtidZ}},
                                    {"%ctaid", ".x", {S::CtaidX}},
                                    {"%ctaid", ".y", {S::CtaidY}},
                                    {"%ctaid", ".z", {S::CtaidZ}},
                                    {"%nctaid", ".x", {S::NctaidX}},
                                    {"%nctaid", ".y", {S::NctaidY}},
                                    {"%nctaid", ".z", {S::NctaidZ}},
                                    {"%laneid", "", {S::LaneId}},
                                    {"%warpid", "", {S::WarpId}},
                                    {"%nwarpid", "", {S::NwarpId}},
                                    {"%smid", "", {S::SmId}},
                                    {"%nsmid", "", {S::NsmId}},
                                    {"%gridid", "", {S::GridId64, 8}},
                                    {"%clock", "", {S::Clock}},
                                    {"%clock64", "", {S::Clock64, 8}},
                                    {"%globaltimer", "", {S::GlobalTimer, 8}},
                                    {"%globaltimer_lo", "", {S::Clock}},
                                    {"%lanemask_eq", "", {S::LaneMaskEq}},
                                    {"%lanemask_le", "", {S::LaneMaskLe}},
                                    {"%lanemask_lt", "", {S::LaneMaskLt}},
                                    {"%lanemask_ge", "", {S::LaneMaskGe}},
                                    {"%lanemask_gt", "", {S::LaneMaskGt}},
                                    {"%dynamic_smem_size", "", {S::DynamicSharedSize}},
                                    {"%total_smem_size", "", {S::TotalSharedSize}},
                                    {"%reserved_smem_offset_begin", "", {S::ReservedSharedBegin}},
                                    {"%reserved_smem_offset_0", "", {S::ReservedSharedBegin}},
                                    {"%reserved_smem_offset_1", "", {S::ReservedSharedBegin}},
                                    {"%reserved_smem_offset_end", "", {S::ReservedSharedEnd}},
                                    {"%reserved_smem_offset_cap", "", {S::ReservedSharedSize}},
                                    {"%envreg1", "", {S::GridWorkspaceHigh}},
                                    {"%envreg2", "", {S::GridWorkspaceLow}}};
  for (const Known& one : known) {
    if (one.name == name && one.suffix == suffix) return one.special;
  }
  return std::nullopt;
}

}  // namespace cuvmm::sim
