#include "tools/inspect/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace pyflame::tools::inspect {

namespace {

constexpr std::string_view kMagic = "!<arch>\n", kThinMagic = "!<thin>\n";
constexpr uint64_t kHeader = 60;

std::optional<uint64_t> decimal(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\0')) text.remove_suffix(1);
  return text;
}

// The name "/123" means the text at offset 123 of the member "//", up to "/\n".
std::string long_name(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  std::string_view text = table.substr(offset);
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('/')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

bool is_archive(Bytes data) { return starts_with(data, kMagic) || starts_with(data, kThinMagic); }

Archive parse_archive(Bytes data) {
  Archive archive;
  archive.thin = starts_with(data, kThinMagic);
  std::string_view names;
  uint64_t at = kMagic.size();
  while (at < data.size()) {
    const auto head = slice(data, at, kHeader);
    const std::string_view h = head ? as_text(*head) : std::string_view();
    const auto size = head ? decimal(h.substr(48, 10)) : std::nullopt;
    if (!size || h.substr(58, 2) != "`\n") {
      archive.problems.push_back(fmt::format("the archive cannot be read after offset {}: no member begins there", at));
      break;
    }
    at += kHeader;
    const std::string_view name = trimmed(h.substr(0, 16));
    const bool table = name == "/" || name == "//" || name == "/SYM64/" || name.starts_with("__.SYMDEF");
    const bool inside = !archive.thin || table;
    Bytes body;
    if (inside) {
      const auto part = slice(data, at, *size);
      if (!part)
        archive.problems.push_back(
            fmt::format("member '{}' ({} bytes at offset {}) extends beyond the archive ({} bytes): is it truncated?",
                        name, *size, at, data.size()));
      body = part.value_or(data.subspan(static_cast<size_t>(at)));
      at += std::min<uint64_t>(*size + (*size & 1), data.size() - at);
    }
    if (name == "//") names = as_text(body);
    if (table) continue;
    ArchiveMember member{std::string(name), body};
    if (name.starts_with("#1/")) {  // BSD: the name is in front of the data
      const uint64_t length = std::min<uint64_t>(decimal(name.substr(3)).value_or(0), body.size());
      member.name = trimmed(as_text(body.first(length)));
      member.data = body.subspan(length);
    } else if (name.starts_with('/')) {
      member.name = long_name(names, decimal(name.substr(1)).value_or(~uint64_t{0}));
    } else if (member.name.ends_with('/')) {
      member.name.pop_back();
    }
    archive.members.push_back(std::move(member));
  }
  return archive;
}

}  // namespace pyflame::tools::inspect
