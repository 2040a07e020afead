// Markup as a type of its own: text becomes Html only by being escaped, so that no name from a file can turn into a tag.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pyflame::tools::view {

class Html {
 public:
  Html() = default;
  // Only for markup that this program wrote.
  static Html raw(std::string markup);
  Html& operator+=(const Html& other);
  const std::string& str() const { return markup_; }
  bool empty() const { return markup_.empty(); }

 private:
  std::string markup_;
};
Html operator+(Html a, const Html& b);

// Untrusted text: escaped, invalid UTF-8 and control characters replaced, at most `most` code points and "…" at the cut.
Html text(std::string_view untrusted, size_t most = 4000);

// Values are untrusted, names are not. An attribute with an empty value is left out, but for "alt" and "open".
using Attributes = std::vector<std::pair<std::string_view, std::string>>;
Html tag(std::string_view name, const Attributes& attributes, const Html& content = {});
// The common case: <name class="classes">.
Html el(std::string_view name, std::string_view classes, const Html& content = {});
Html el(std::string_view name, std::string_view classes, std::string_view untrusted);
inline Html el(std::string_view name, std::string_view classes, const char* untrusted) {
  return el(name, classes, std::string_view(untrusted));
}
inline Html el(std::string_view name, std::string_view classes, const std::string& untrusted) {
  return el(name, classes, std::string_view(untrusted));
}

// A length or a position in a picture: at most two decimals, 0 for what is not a number.
std::string px(double value);

}  // namespace pyflame::tools::view
