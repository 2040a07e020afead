// Output of the tools as text, JSON and pages, and input of the files that the user names.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pyflame::apps::cli {

void print(std::string_view text);
void print_json(const nlohmann::json& document);
// Indented JSON with a newline at its end. Names in a document come from files of others: bytes that are not valid UTF-8 are replaced.
std::string json_text(const nlohmann::json& document);

// For --html. Writes the whole page or nothing, and then says where it is: on stderr, because stdout may hold the document.
void write_page(const char* op, const std::string& path, std::string_view page);

// Reads at most `limit` bytes of a file. `op` names the caller in the error.
std::string read_text_file(const char* op, const std::string& path, size_t limit);

}  // namespace pyflame::apps::cli
