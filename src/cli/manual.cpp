// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <sstream>

#include "base/options.hpp"
#include "cli/described.hpp"
#include "cuvmm/version.h"

namespace cuvmm::cli {
namespace {

// Escapes what man(7) would interpret: backslashes, hyphens, which must survive copying, and lines
// that begin with a dot or a quote.
std::string plain(const std::string& text) {
  std::string safe;
  bool begins_line = true;
  for (const char letter : text) {
    if (begins_line && (letter == '.' || letter == '\'')) safe += "\\&";
    begins_line = letter == '\n';
    if (letter == '\\') {
      safe += "\\e";
    } else if (letter == '-') {
      safe += "\\-";
    } else {
      safe += letter;
    }
  }
  return safe;
}

std::string capital(std::string text) {
  for (char& letter : text) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return text;
}

std::string option_lines(const DescribedCommand& command) {
  std::string text;
  for (const DescribedOption& option : command.options) {
    text += ".TP\n";
    for (std::size_t i = 0; i < option.flags.size(); ++i) {
      text += (i > 0 ? ", " : "") + fmt::format("\\fB{}\\fR", plain(option.flags[i]));
    }
    if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", plain(option.value));
    text += "\n" + plain(option.text) + "\n";
  }
  return text;
}

// The text of --help with its line breaks.
std::string as_it_stands(const std::string& text) {
  return text.empty() ? "" : ".PP\n.nf\n" + plain(text) + "\n.fi\n";
}

}  // namespace

std::string manual(const std::vector<DescribedCommand>& commands, const DescribedCommand& of) {
  const bool is_program = &of == &commands.front();
  const std::string name = is_program ? "cuvmm" : "cuvmm-" + of.name;
  const std::string line = is_program ? "cuvmm" : "cuvmm " + of.name;
  std::string text =
      fmt::format(".TH {} 1 \"\" \"cuvmm {}\" \"cuvmm\"\n.SH NAME\n{} \\- {}\n",
                  capital(plain(name)), CUVMM_VERSION_STRING, plain(name), plain(of.text));
  text += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR", plain(line));
  text += is_program ? " \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n"
                     : fmt::format(" [\\fIOPTION\\fR...] \\fI{}\\fR\n", plain(of.operand));
  text += ".SH OPTIONS\n" + option_lines(of);
  if (!of.footer.empty()) text += ".SH NOTES\n" + as_it_stands(of.footer);
  if (is_program) {
    text += ".SH COMMANDS\n";
    for (std::size_t i = 1; i < commands.size(); ++i) {
      text +=
          fmt::format(".TP\n\\fB{}\\fR\n{} (see \\fBcuvmm\\-{}\\fR(1))\n", plain(commands[i].name),
                      plain(commands[i].text), plain(commands[i].name));
    }
    text += ".SH ENVIRONMENT\nWhat `cuvmm config` shows, and programs under cuvmm read:\n";
    for (const OptionValue& option : Options{}.list()) {
      text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", plain(option.name), plain(option.comment));
    }
    text += ".TP\n\\fBNO_COLOR\\fR\nno colours\n.TP\n\\fBCUVMM_PYTHON\\fR\nthe Python that draws\n";
  }
  text += ".SH SEE ALSO\n\\fBcuvmm\\fR(1)";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    if (&commands[i] != &of)
      text += fmt::format(", \\fBcuvmm\\-{}\\fR(1)", plain(commands[i].name));
  }
  return text + "\n";
}

}  // namespace cuvmm::cli
