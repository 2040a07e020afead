#include "output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "pyflame/base/error.h"
#include "pyflame/io/atomic_file.h"

namespace pyflame::apps::cli {

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_json(const nlohmann::json& document) { print(json_text(document)); }

std::string json_text(const nlohmann::json& document) {
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_page(const char* op, const std::string& path, std::string_view page) {
  write_file_atomically(op, path, page);
  fmt::print(stderr, "pyflame: the page is in {}\n", path);
}

std::string read_text_file(const char* op, const std::string& path, size_t limit) {
  std::string text;
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  char chunk[1 << 16];
  while (in && text.size() < limit) {
    in.read(chunk, static_cast<std::streamsize>(std::min(sizeof(chunk), limit - text.size())));
    text.append(chunk, static_cast<size_t>(in.gcount()));
  }
  PF_CHECK(in.is_open() && !in.bad() && (!text.empty() || in.eof()), OS,
           "{}: '{}' cannot be read: {}; expected a text file", op, path,
           errno == 0 ? "it is not a file" : std::generic_category().message(errno));
  return text;
}

}  // namespace pyflame::apps::cli
