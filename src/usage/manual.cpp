// SPDX-License-Identifier: Apache-2.0
#include "usage/manual.hpp"

#include <string_view>

#include "cuvmm/version.h"

namespace cuvmm::usage {
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

std::string bold(const std::string& text) {
  return "\\fB" + plain(text) + "\\fR";
}
std::string italic(const std::string& text) {
  return "\\fI" + plain(text) + "\\fR";
}

std::string capital(std::string text) {
  for (char& letter : text) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return text;
}

std::string synopsis(const ManualPage& page, const DescribedCommand& of) {
  std::string text = bold(page.command) + " [" + italic("OPTION") + "...]";
  const DescribedOperand& operand = of.operand;
  if (operand.type.empty()) return text;
  const std::string name = italic(operand.type) + (operand.is_repeatable ? "..." : "");
  return text + (operand.is_required ? " " + name : " [" + name + "]");
}

std::string option_lines(const DescribedCommand& command) {
  std::string text;
  for (const DescribedOption& option : command.options) {
    text += ".TP\n";
    for (std::size_t i = 0; i < option.flags.size(); ++i) {
      text += (i > 0 ? ", " : "") + bold(option.flags[i]);
    }
    if (!option.value.empty()) text += " " + italic(option.value);
    text += "\n" + plain(option.text) + "\n";
    if (!option.default_value.empty()) {
      text += ".br\nDefault: " + plain(option.default_value) + "\n";
    }
  }
  return text;
}

std::string section(const ManualSection& described) {
  std::string text = ".SH " + described.title + "\n";
  if (!described.text.empty()) text += plain(described.text) + "\n";
  for (const ManualEntry& entry : described.entries) {
    text += ".TP\n" + bold(entry.term) + "\n" + plain(entry.text) + "\n";
  }
  return text;
}

// What follows the options in --help, paragraph by paragraph, for the sections where readers of
// manuals look for it.
struct Footer {
  std::string notes;
  std::string exit_status;
  std::string examples;
};

std::string without(const std::string& paragraph, std::string_view title) {
  const std::size_t begin = paragraph.find_first_not_of(" \n", title.size());
  std::string rest = begin == std::string::npos ? "" : paragraph.substr(begin);
  if (!rest.empty() && rest[0] >= 'a' && rest[0] <= 'z') rest[0] = capital(rest.substr(0, 1))[0];
  return rest;
}

Footer parts_of(const std::string& footer) {
  Footer parts;
  for (std::size_t begin = 0; begin < footer.size();) {
    const std::size_t end = std::min(footer.find("\n\n", begin), footer.size());
    const std::string paragraph = footer.substr(begin, end - begin);
    begin = end + 2;
    const auto add = [](std::string& to, const std::string& text) {
      // With its line breaks.
      if (!text.empty()) to += ".PP\n.nf\n" + plain(text) + "\n.fi\n";
    };
    if (paragraph.starts_with("Example")) {
      const std::size_t first_line = paragraph.find('\n');
      if (first_line != std::string::npos) add(parts.examples, paragraph.substr(first_line + 1));
    } else if (constexpr std::string_view title = "Exit status:"; paragraph.starts_with(title)) {
      add(parts.exit_status, without(paragraph, title));
    } else {
      add(parts.notes, paragraph);
    }
  }
  return parts;
}

}  // namespace

std::string manual(const ManualPage& page, const DescribedCommand& of) {
  const Footer footer = parts_of(of.footer);
  std::string text = ".TH " + capital(plain(page.name)) + " " + std::to_string(page.number) +
                     " \"\" \"cuvmm " CUVMM_VERSION_STRING "\" \"cuvmm\"\n";
  text += ".SH NAME\n" + plain(page.name) + " \\- " + plain(of.text) + "\n";
  text += ".SH SYNOPSIS\n" + synopsis(page, of) + "\n";
  text += ".SH OPTIONS\n" + option_lines(of);
  for (const ManualSection& one : page.sections) text += section(one);
  if (!footer.exit_status.empty()) text += ".SH EXIT STATUS\n" + footer.exit_status;
  if (!footer.notes.empty()) text += ".SH NOTES\n" + footer.notes;
  if (!footer.examples.empty()) text += ".SH EXAMPLES\n" + footer.examples;
  text += ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < page.see_also.size(); ++i) {
    const std::string& other = page.see_also[i];
    const std::size_t name_end = other.find('(');
    text += (i > 0 ? ", " : "") + bold(other.substr(0, name_end)) + other.substr(name_end);
  }
  return text + "\n";
}

}  // namespace cuvmm::usage
