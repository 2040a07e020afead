// Markup as its own type: text becomes Html only by escaping, so no name from a file can become a tag.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pyflame::tools::view {

class Html {
 public:
  Html() = default;
  // Only for markup that this program has written.
  static Html raw(std::string markup);
  Html& operator+=(const Html& other);
  const std::string& str() const { return markup_; }
  bool empty() const { return markup_.empty(); }

 private:
  std::string markup_;
};
Html operator+(Html a, const Html& b);

// Untrusted text: it is escaped, invalid UTF-8 and control characters are replaced, and it is cut after `most` code
// points with "…".
Html text(std::string_view untrusted, size_t most = 4000);

// Values are untrusted, names are not. An attribute with an empty value is left out, except "alt" and "open".
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

// A length or a position in a picture, with at most two decimals; 0 for NaN and infinity.
std::string px(double value);

}  // namespace pyflame::tools::view
