// SPDX-License-Identifier: Apache-2.0
// A kernel's PTX in the form the interpreter runs: each instruction executes for the 32 lanes of a
// warp at once. A register holds its lanes side by side in the warp's register file. Constants and
// special registers lie there too, so every operand is an offset into that file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/size.hpp"

namespace cuvmm::sim {

inline constexpr unsigned warp_size = 32;
inline constexpr std::uint32_t all_lanes = 0xffffffff;
inline constexpr std::uint32_t no_operand = 0xffffffff;

class Warp;
struct Instruction;
using Execute = void (*)(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

// How an instruction affects control flow.
enum class Flow : std::uint8_t {
  Next,
  Branch,
  BranchTable,
  Call,
  Return,
  Exit,
  Barrier,   // of the block
  Converge,  // synchronizes lanes of the warp: executes once all named lanes have arrived
  Trap,
};

enum class PtxType : std::uint8_t {
  Pred,
  B8,
  B16,
  B32,
  B64,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F32,
  F64,
  F16x2,
  BF16x2,
  Other
};
unsigned size_of(PtxType type);  // 0 for predicates

struct Instruction {
  Execute execute = nullptr;
  // Byte offsets of the operands' lanes.
  std::uint32_t d = no_operand;
  std::uint32_t a = no_operand;
  std::uint32_t b = no_operand;
  std::uint32_t c = no_operand;
  std::uint32_t e = no_operand;  // a second destination, or a fourth source
  std::uint32_t guard = no_operand;
  std::uint32_t target = 0;  // of a branch or call; of a table, its index
  std::uint32_t first = 0;   // of a list of operands
  std::int64_t immediate = 0;
  Execute inner = nullptr;  // the operation to run under float_mode
  std::uint32_t float_mode = 0;
  std::uint32_t text = 0;
  std::uint8_t count = 0;  // of the list of operands
  std::uint8_t width_d = 0;
  std::uint8_t width_a = 0;
  std::uint8_t variant = 0;
  bool guard_negated = false;
  bool c_negated = false;
  Flow flow = Flow::Next;
};

// An operand of a list: ld.v4, brx.
struct ListedOperand {
  std::uint32_t at = no_operand;
  std::uint8_t width = 0;
};

enum class SpecialRegister : std::uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NwarpId,
  SmId,
  NsmId,
  GridId,
  GridId64,
  Clock,
  Clock64,
  GlobalTimer,
  LaneMaskEq,
  LaneMaskLe,
  LaneMaskLt,
  LaneMaskGe,
  LaneMaskGt,
  DynamicSharedSize,
  TotalSharedSize,
  ParameterBase,
  DynamicSharedBase,
  ReservedSharedBegin,
  ReservedSharedEnd,
  ReservedSharedSize,
  GridWorkspaceLow,
  GridWorkspaceHigh,
  Zero
};

struct UsedSpecialRegister {
  SpecialRegister which = SpecialRegister::Zero;
  std::uint32_t at = 0;
  std::uint8_t width = 4;
};

struct UsedConstant {
  std::uint64_t bits = 0;
  std::uint32_t at = 0;
  std::uint8_t width = 4;  // 0: a predicate
};

// The state that a recursive call saves until it returns: the registers and local memory of the
// recursive function and of the functions it calls.
struct SavedFrame {
  std::size_t first_register = 0;  // of Program::registers
  std::size_t end_register = 0;
  std::size_t first_local = 0;
  std::size_t end_local = 0;
};

struct Program {
  std::string name;
  std::vector<Instruction> code;
  std::uint32_t entry = 0;
  std::vector<ListedOperand> operands;
  std::vector<std::vector<std::uint32_t>> branch_tables;
  std::vector<std::vector<std::uint64_t>> callable;  // addresses that an indirect call accepts
  std::vector<ListedOperand> registers;              // every register, in order of allocation
  std::vector<SavedFrame> saved_frames;
  std::vector<UsedConstant> constants;
  std::vector<UsedSpecialRegister> special_registers;
  std::vector<std::string_view> texts;  // of the module's text, which outlives this
  std::uint32_t register_bytes = 0;
  Size local_bytes = 0;   // per thread: its variables and the parameters of functions
  Size shared_bytes = 0;  // without dynamic shared memory
  // Whether blocks need the 1 KiB of shared memory that a card reserves for libraries.
  bool uses_reserved_shared = false;
};

}  // namespace cuvmm::sim
