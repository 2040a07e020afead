// Reading a document of the tools that may lack any key, or have something else under it: what is missing is null, an empty text, not a
// number or an empty list, never an error.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pyflame::tools::view {

using Json = nlohmann::json;

// By a dotted path: "facts.host.kernel". The empty path is the value itself.
const Json& at(const Json& value, std::string_view path);
bool has(const Json& value, std::string_view path);  // is there and not null
// A text as it is; a number, true or false as one writes it; a list as its items, separated by commas.
std::string str(const Json& value, std::string_view path, std::string_view otherwise = "");
// The first `most` items of a list, "and 6 more".
std::string some(const Json& list, size_t most);
double num(const Json& value, std::string_view path);  // NaN where there is no number
bool flag(const Json& value, std::string_view path, bool otherwise = false);
const Json& list(const Json& value, std::string_view path);    // an array, empty where there is none
const Json& object(const Json& value, std::string_view path);  // likewise
// Where a picture or a loop needs a count that a hostile document must not choose: the number within these limits, `low` where there is none.
int whole(const Json& value, std::string_view path, int low, int high);

}  // namespace pyflame::tools::view
