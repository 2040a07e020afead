// Turns the tokens of a JSON file into flat records.
#include "tools/profile/json_records.h"

#include <istream>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/profile/file_input.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

using nlohmann::json;

namespace {

constexpr size_t kMaxRecordFields = 1 << 16, kMaxFieldText = 8192, kMaxFieldPath = 512, kMaxRecordDepth = 64;

}  // namespace

// The token handler. `path_` holds the keys of the open objects, and `levels_` where the path of each level ends.
class RecordHandler {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  RecordHandler(const std::function<bool(const std::string&)>& wanted, const RecordCallback& record)
      : wanted_(wanted), callback_(record) {}

  bool null() { return true; }
  bool boolean(bool v) { return scalar(v ? "1" : "0"); }
  bool number_integer(number_integer_t v) { return scalar(std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) { return scalar(std::to_string(v)); }
  bool number_float(number_float_t, const string_t& raw) { return scalar(raw); }
  bool string(string_t& v) { return scalar(v); }
  bool binary(binary_t&) { return true; }

  bool start_object(size_t) {
    const bool begins = record_level_ == 0 && !levels_.empty() && levels_.back().wanted;
    if (!open(false)) return false;
    if (begins) {
      record_level_ = levels_.size();
      record_path_ = path_.size();
      record_.used_ = 0;
    }
    return true;
  }
  bool end_object() {
    if (record_level_ == levels_.size() && record_level_ != 0) {
      ++records_;
      list_.assign(path_, 0, record_path_);
      callback_(list_, record_);
      record_level_ = 0;
    }
    return close();
  }
  bool start_array(size_t) { return open(record_level_ == 0 && wanted_(path_)); }
  bool end_array() { return close(); }
  bool key(string_t& k) {
    path_.resize(levels_.back().path);
    if (path_.size() + k.size() < kMaxFieldPath) {
      if (!path_.empty()) path_ += '.';
      path_ += k;
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) {
    error_position_ = static_cast<int64_t>(position);
    return false;
  }

  int64_t records() const { return records_; }
  int64_t error_position() const { return error_position_; }

 private:
  struct Level {
    size_t path = 0;
    bool wanted = false;  // an array whose objects are records
  };

  bool open(bool wanted) {
    if (levels_.size() >= kMaxRecordDepth) return false;
    levels_.push_back({path_.size(), wanted});
    return true;
  }
  bool close() {
    path_.resize(levels_.back().path);
    levels_.pop_back();
    return true;
  }
  bool scalar(std::string_view text) {
    if (record_level_ == 0 || record_.used_ >= kMaxRecordFields) return true;
    if (record_.used_ == record_.fields_.size()) record_.fields_.emplace_back();
    JsonRecord::Field& field = record_.fields_[record_.used_++];
    field.path.assign(path_, std::min(path_.size(), record_path_ == 0 ? 0 : record_path_ + 1));
    field.text.assign(text.substr(0, kMaxFieldText));
    return true;
  }

  const std::function<bool(const std::string&)>& wanted_;
  const RecordCallback& callback_;
  std::string path_, list_;
  std::vector<Level> levels_;
  size_t record_level_ = 0, record_path_ = 0;  // of the open record; level 0: none
  JsonRecord record_;
  int64_t records_ = 0, error_position_ = -1;
};

std::string_view JsonRecord::text(std::string_view path) const {
  for (size_t i = 0; i < used_; ++i)
    if (fields_[i].path == path) return fields_[i].text;
  return {};
}

int64_t JsonRecord::integer(std::string_view path, int64_t otherwise) const {
  int64_t value = 0;
  return to_int(text(path), value) ? value : otherwise;
}

std::vector<std::string_view> JsonRecord::all(std::string_view path) const {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < used_; ++i)
    if (fields_[i].path == path) out.emplace_back(fields_[i].text);
  return out;
}

void read_json_records(const Source& source, Profile& profile, const Progress& progress,
                       const std::function<bool(const std::string&)>& wanted, const RecordCallback& record) {
  FileInput input(source.path);
  JsonStreambuf buffer(input, [&] {
    if (progress) progress(source.path, input.fraction());
  });
  std::istream stream(&buffer);
  RecordHandler handler(wanted, record);
  const bool whole = json::sax_parse(stream, &handler, json::input_format_t::json, false);
  if (!whole || !input.error().empty()) {
    profile.trace.truncated = true;
    const std::string why = !input.error().empty() ? input.error()
                            : handler.error_position() < 0
                                ? std::string("it is nested too deeply")
                                : fmt::format("it is cut off or damaged at byte {}", handler.error_position());
    PF_CHECK(handler.records() > 0, Value, "report: '{}' holds no records: {}", source.path, why);
    profile.problem(source.path, fmt::format("{}; the {} records before it are reported", why, handler.records()));
  }
  PF_CHECK(handler.records() > 0, Value, "report: '{}' holds no records", source.path);
  if (buffer.repaired() > 0)
    profile.problem(source.path,
                    fmt::format("{} places were not valid JSON (such as inf, nan or broken text) and were repaired",
                                buffer.repaired()));
}

}  // namespace pyflame::tools::profile
