// Reads a tool's document in which any key may be missing or have an unexpected type. A missing value is null, an empty
// text, not a number, or an empty list; it is never an error.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pyflame::tools::view {

using Json = nlohmann::json;

// By a dotted path: "facts.host.kernel". The empty path is the value itself.
const Json& at(const Json& value, std::string_view path);
bool has(const Json& value, std::string_view path);  // is there and not null
// A text unchanged; a number, true or false as text; a list as its items, separated by commas.
std::string str(const Json& value, std::string_view path, std::string_view otherwise = "");
// The first `most` items of a list, "and 6 more".
std::string some(const Json& list, size_t most);
double num(const Json& value, std::string_view path);  // NaN if there is no number
bool flag(const Json& value, std::string_view path, bool otherwise = false);
const Json& list(const Json& value, std::string_view path);    // an array, empty if there is none
const Json& object(const Json& value, std::string_view path);  // an object, empty if there is none
// For counts in pictures and loops, which a hostile document must not choose: the number within these limits, `low` if
// there is none.
int whole(const Json& value, std::string_view path, int low, int high);

}  // namespace pyflame::tools::view
