// SPDX-License-Identifier: Apache-2.0
#include "share/token.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fd.hpp"
#include "base/without_signals.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {

Result<Token> Token::make() {
  Token token;
  std::size_t filled = 0;
  while (filled < token.bytes.size()) {
    const ssize_t got = ::getrandom(token.bytes.data() + filled, token.bytes.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("make a token");
    filled += static_cast<std::size_t>(got);
  }
  return token;
}

bool same(const Token& a, const Token& b) {
  std::uint8_t different = 0;
  for (std::size_t i = 0; i < a.bytes.size(); ++i) {
    different = static_cast<std::uint8_t>(different | (a.bytes[i] ^ b.bytes[i]));
    // Keeps the compiler from stopping at the first difference.
    __asm__ volatile("" : "+r"(different));
  }
  return different == 0;
}

namespace {

// A path that is wrong must not cost anyone a file. An earlier process may have died while it wrote
// a token.
bool may_replace(const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return true;
  return S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() &&
         facts.st_size <= static_cast<off_t>(sizeof(Token::bytes));
}

}  // namespace

// Puts the complete file in place atomically, so that no reader sees half of it.
Result<void> write_token(const std::string& path, const Token& token) {
  constexpr const char* doing = "write the token";
  const std::string fresh = path + ".new";
  if (!may_replace(path) || !may_replace(fresh)) {
    return Error{.kind = ErrorKind::AlreadyExists,
                 .doing = doing,
                 .subject = "another file is there, which is no token"};
  }
  ::unlink(fresh.c_str());
  const Fd file{::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                       S_IRUSR | S_IWUSR)};
  if (!file.is_open()) return system_error(doing);
  const WithoutWriteSignals quiet;
  const ssize_t written = ::write(file.number(), token.bytes.data(), token.bytes.size());
  if (written != static_cast<ssize_t>(token.bytes.size()) ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    const Error error = system_error(doing);
    ::unlink(fresh.c_str());
    return error;
  }
  return {};
}

Result<Token> read_token(const std::string& path) {
  constexpr const char* doing = "read the token";
  const Fd file{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
  if (!file.is_open()) return system_error(doing);
  struct stat facts;
  if (::fstat(file.number(), &facts) != 0) return system_error(doing);
  const bool others_may = (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0;
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid() || others_may) {
    return Error::invalid(doing, "the file is not this user's alone");
  }
  Token token;
  const ssize_t got = ::read(file.number(), token.bytes.data(), token.bytes.size());
  if (got != static_cast<ssize_t>(token.bytes.size())) {
    return Error::invalid(doing, "the file is too short");
  }
  return token;
}

}  // namespace cuvmm::share
