// SPDX-License-Identifier: Apache-2.0
#include "cli/completions.hpp"

#include <fmt/core.h>

namespace cuvmm::cli {
namespace {

using usage::DescribedCommand;
using usage::DescribedOption;

// Whether the operands are running processes, which `cuvmm COMMAND --list` lists.
bool takes_processes(const DescribedCommand& command) {
  return command.operand.type == "PID";
}
// Whether the operands are a program and its arguments.
bool takes_program(const DescribedCommand& command) {
  return command.operand.type == "COMMAND";
}

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string escaped(const std::string& text, const char* letters, const char* by) {
  std::string safe;
  for (const char letter : text) {
    if (std::string_view{letters}.find(letter) != std::string_view::npos) safe += by;
    safe += letter;
  }
  return safe;
}

std::vector<std::string> flags_of(const DescribedCommand& command) {
  std::vector<std::string> flags;
  for (const DescribedOption& option : command.options) {
    flags.insert(flags.end(), option.flags.begin(), option.flags.end());
  }
  return flags;
}

std::vector<std::string> names_of(const std::vector<DescribedCommand>& commands) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < commands.size(); ++i) names.push_back(commands[i].name);
  return names;
}

constexpr const char* bash_head = R"(# bash completion of cuvmm
_cuvmm() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      declare -F _command_offset >/dev/null && _command_offset $((i + 1))
      return
    fi
    if [[ -z $command && ${COMP_WORDS[i]} != -* ]]; then command=${COMP_WORDS[i]}; fi
  done
  case $command:$before in
)";
constexpr const char* bash_middle = R"(  esac
)";
constexpr const char* bash_processes = R"sh(  if [[ $current != -* && $command == {0} ]]; then
    COMPREPLY=($(compgen -W "$(command cuvmm {0} --list 2>/dev/null | cut -f 1)" -- "$current"))
    return
  fi
)sh";
constexpr const char* bash_operands = R"sh(  if [[ $current != -* && $command == {} ]]; then
    mapfile -t COMPREPLY < <(compgen {} -- "$current")
    return
  fi
)sh";
constexpr const char* bash_files = R"(  if [[ $current != -* && -n $command ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    return
  fi
  case $command in
)";
constexpr const char* bash_end = R"(  esac
}
complete -o filenames -F _cuvmm cuvmm
)";

std::string for_bash(const std::vector<DescribedCommand>& commands) {
  std::string text = bash_head;
  for (const DescribedCommand& command : commands) {
    for (const DescribedOption& option : command.options) {
      if (option.choices.empty()) continue;
      for (const std::string& flag : option.flags) {
        text +=
            fmt::format("    {}:{}) COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n",
                        command.name, flag, joined(option.choices));
      }
    }
  }
  text += bash_middle;
  for (const DescribedCommand& command : commands) {
    if (takes_processes(command)) text += fmt::format(bash_processes, command.name);
    if (takes_program(command)) {
      text += fmt::format(bash_operands, command.name, "-A command -A file");
    }
    if (!command.operand.choices.empty()) {
      text +=
          fmt::format(bash_operands, command.name, "-W '" + joined(command.operand.choices) + "'");
    }
  }
  text += bash_files;
  text += fmt::format("    '') COMPREPLY=($(compgen -W '{} {}' -- \"$current\")) ;;\n",
                      joined(names_of(commands)), joined(flags_of(commands.front())));
  for (std::size_t i = 1; i < commands.size(); ++i) {
    text += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$current\")) ;;\n",
                        commands[i].name, joined(flags_of(commands[i])));
  }
  return text + bash_end;
}

std::string zsh_argument(const DescribedOption& option) {
  const std::string text = escaped(option.text, "[]:'", "\\");
  std::string value;
  if (!option.choices.empty()) {
    value = fmt::format(":value:({})", joined(option.choices));
  } else if (!option.value.empty()) {
    value = fmt::format(":{}:_files", escaped(option.value, ":", "\\"));
  }
  std::string lines;
  for (const std::string& flag : option.flags) {
    lines += fmt::format("        $'{}[{}]{}' \\\n", flag, text, value);
  }
  return lines;
}

constexpr const char* zsh_processes =
    "        '*:process:{{ local -a running; running=(${{(f)\"$(command cuvmm {0} --list "
    "2>/dev/null | cut -f 1)\"}}); compadd -a running }}' ;;\n";

std::string for_zsh(const std::vector<DescribedCommand>& commands) {
  std::string text = "#compdef cuvmm\n_cuvmm() {\n  local -a commands\n  commands=(\n";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    text += fmt::format("    $'{}:{}'\n", commands[i].name, escaped(commands[i].text, ":'", "\\"));
  }
  text +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    const auto& choices = commands[i].operand.choices;
    text += fmt::format("    {})\n      _arguments \\\n", commands[i].name);
    for (const DescribedOption& option : commands[i].options) text += zsh_argument(option);
    if (takes_processes(commands[i])) {
      text += fmt::format(zsh_processes, commands[i].name);
    } else if (takes_program(commands[i])) {
      text += "        '*::command:_normal' ;;\n";
    } else if (!choices.empty()) {
      text += fmt::format("        '*:what:({})' ;;\n", joined(choices));
    } else {
      text += "        '*:file:_files' ;;\n";
    }
  }
  return text + "  esac\n}\n_cuvmm \"$@\"\n";
}

std::string for_fish(const std::vector<DescribedCommand>& commands) {
  std::string text;
  for (std::size_t i = 1; i < commands.size(); ++i) {
    text += fmt::format("complete -c cuvmm -n __fish_use_subcommand -f -a {} -d '{}'\n",
                        commands[i].name, escaped(commands[i].text, "'\\", "\\"));
    if (takes_processes(commands[i])) {
      text += fmt::format(
          "complete -c cuvmm -n '__fish_seen_subcommand_from {0}' -f -a '(cuvmm {0} --list "
          "2>/dev/null)'\n",
          commands[i].name);
    }
    if (const auto& choices = commands[i].operand.choices; !choices.empty()) {
      text += fmt::format("complete -c cuvmm -n '__fish_seen_subcommand_from {}' -f -a '{}'\n",
                          commands[i].name, joined(choices));
    }
    for (const DescribedOption& option : commands[i].options) {
      text +=
          fmt::format("complete -c cuvmm -n '__fish_seen_subcommand_from {}'", commands[i].name);
      for (const std::string& flag : option.flags) {
        text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      }
      if (!option.value.empty()) text += " -r";
      if (!option.choices.empty()) text += fmt::format(" -f -a '{}'", joined(option.choices));
      text += fmt::format(" -d '{}'\n", escaped(option.text, "'\\", "\\"));
    }
  }
  return text;
}

}  // namespace

std::string completions(const std::vector<DescribedCommand>& commands, const std::string& shell) {
  if (shell == "bash") return for_bash(commands);
  return shell == "zsh" ? for_zsh(commands) : for_fish(commands);
}

}  // namespace cuvmm::cli
