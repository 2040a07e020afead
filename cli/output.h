// How the tools hand out what they made: one way for text, JSON and pages, and one for the files that they are given.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pyflame::apps::cli {

void print(std::string_view text);
void print_json(const nlohmann::json& document);
// Indented, with a newline at its end. Names in a document come from files of others: bytes that are no UTF-8 are replaced.
std::string json_text(const nlohmann::json& document);

// --html: the page as a whole or not at all, and where it is. On stderr, because stdout may be the document.
void write_page(const char* op, const std::string& path, std::string_view page);

// At most `limit` bytes of a file. `op` names the caller in the error.
std::string read_text_file(const char* op, const std::string& path, size_t limit);

}  // namespace pyflame::apps::cli
