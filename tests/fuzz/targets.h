// One function for each reader of foreign data: it reads the bytes, and uses what came out as the tools do. A reader
// may refuse with pyflame::Error; anything else that it throws, and any fault, is a finding. The fuzzer (fuzz.cpp) and
// the test that replays what it once found (tests/cpp/fuzz) use the same table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/metrics.h"
#include "cpp/support/temp_folder.h"
#include "pyflame/base/error.h"
#include "pyflame/base/gpu_arch.h"
#include "pyflame/data/tokenizer.h"
#include "pyflame/doctor/audit.h"
#include "pyflame/doctor/shell_env.h"
#include "pyflame/doctor/text.h"
#include "pyflame/inspect/archive.h"
#include "pyflame/inspect/bundle.h"
#include "pyflame/inspect/code_object.h"
#include "pyflame/inspect/container.h"
#include "pyflame/inspect/demangle.h"
#include "pyflame/inspect/disasm.h"
#include "pyflame/inspect/document.h"
#include "pyflame/inspect/elf.h"
#include "pyflame/inspect/isa_classify.h"
#include "pyflame/inspect/isa_lint.h"
#include "pyflame/inspect/isa_loops.h"
#include "pyflame/inspect/isa_stats.h"
#include "pyflame/inspect/kdb.h"
#include "pyflame/inspect/msgpack.h"
#include "pyflame/inspect/scan.h"
#include "pyflame/inspect/source_lines.h"
#include "pyflame/inspect/text.h"
#include "pyflame/io/safetensors_file.h"
#include "pyflame/profile/analyse.h"
#include "pyflame/profile/document.h"
#include "pyflame/profile/importer.h"
#include "pyflame/profile/tuned_read.h"
#include "pyflame/system/facts.h"
#include "pyflame/system/host.h"
#include "pyflame/view/page.h"

namespace pyflame::fuzz {

using Input = std::span<const uint8_t>;

inline std::string_view text_of(Input in) { return {reinterpret_cast<const char*>(in.data()), in.size()}; }

// For readers that want a file: always the same one, in a folder that goes away with the process.
inline std::string file_with(Input in, const std::string& name) {
  static const test::TempFolder folder;
  const std::string path = folder / name;
  test::write_all(path, std::string(text_of(in)));
  return path;
}

// What a reader made of the input has to be printable as well: as the program prints it.
inline void print(const nlohmann::json& document) {
  (void)document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

inline void elf(Input in) {
  (void)inspect::is_elf(in);
  (void)inspect::elf_machine(in);
  const inspect::Elf e = inspect::parse_elf(in);
  for (const inspect::ElfSymbol& s : e.symbols) (void)e.contents(s, s.size);
  (void)e.find(".text");
}

inline void code_object(Input in) { (void)inspect::parse_code_object(in); }

inline void bundle(Input in) {
  if (inspect::is_text_bundle(in)) (void)inspect::text_bundle_targets(in);
  const auto at = inspect::find_bundle(in, 0);
  if (!at) return;
  const Input rest = in.subspan(static_cast<size_t>(*at));
  (void)inspect::bundle_extent(rest);
  const std::string_view text = text_of(rest);
  if (text.starts_with(inspect::kCompressedMagic)) (void)inspect::parse_compressed_header(rest);
  else if (text.starts_with(inspect::kOffloadMagic)) (void)inspect::parse_offload_binary(rest);
  else (void)inspect::parse_bundle(rest);
}

inline void archive(Input in) { (void)inspect::parse_archive(in); }

inline void msgpack(Input in) {
  inspect::MsgpackReader skipping(in);
  skipping.skip();
  inspect::MsgpackReader reading(in);
  while (!reading.done()) (void)reading.next();
}

inline void container(Input in) {
  (void)inspect::recognise(in.first(std::min(in.size(), inspect::kHeadBytes)));
  (void)inspect::read_contents("input", {in, nullptr});
}

// The whole of `pyflame inspect`, without machine code (which LLVM reads).
inline void inspect_file(Input in) {
  inspect::ScanOptions options;
  options.isa = false;
  options.threads = 1;
  const nlohmann::json document = inspect::document(inspect::scan({file_with(in, "input")}, options), {});
  print(document);
  (void)inspect::document_text(document, {}, {});
  (void)view::inspect_page(document);
}

inline void kernel_db(Input in) {
  if (!inspect::is_sqlite(in)) return;
  inspect::read_kernel_db(file_with(in, "input.kdb"), [](std::string_view, const inspect::Memory& code) {
    try {
      (void)inspect::parse_code_object(code.bytes);
    } catch (const Error&) {
    }
  });
}

inline void dwarf(Input in) {
  // Three sections of a length that the first two bytes say.
  if (in.size() < 2) return;
  const size_t strings = std::min<size_t>(in[0], in.size() - 2),
               more = std::min<size_t>(in[1], in.size() - 2 - strings);
  const Input rest = in.subspan(2);
  const auto lines =
      inspect::SourceLines::of_sections(rest.subspan(strings + more), rest.first(strings), rest.subspan(strings, more));
  for (uint64_t address = 0; address < 0x4000; address += 0x40) (void)lines.find(address);
  (void)inspect::SourceLines::of_elf(in);
}

// The first byte says which architecture, the rest is a listing.
inline void instructions(Input in) {
  if (in.empty()) return;
  const std::span<const GpuArch> archs = gpu_archs();
  const GpuArch& arch = archs[in[0] % archs.size()];
  if (!arch.amd) return;
  const inspect::Listing listing = inspect::parse_listing(text_of(in.subspan(1)));
  inspect::Classifier classifier(inspect::IsaArch::of(std::string(arch.gfx), 0));
  std::vector<inspect::Op> ops;
  classifier.run(listing, -1, ops);
  const inspect::ControlFlow flow = inspect::control_flow(ops);
  const inspect::Regions regions = inspect::make_regions(ops, flow);
  (void)inspect::lint_isa(classifier.arch(), ops, flow, regions);
}

inline void symbol(Input in) {
  inspect::Demangler demangle;
  (void)inspect::short_name(demangle(std::string(text_of(in))));
}

// The whole of `pyflame report`.
inline void report_on(const std::string& path) {
  const profile::Profile loaded = profile::load({path});
  const nlohmann::json document = profile::make_document(loaded, {});
  print(document);
  (void)profile::to_text(document, {});
  (void)view::report_page(document);
}
inline void kineto(Input in) { report_on(file_with(in, "trace.json")); }
inline void rocprof_csv(Input in) { report_on(file_with(in, "1_kernel_trace.csv")); }
inline void rocpd(Input in) { report_on(file_with(in, "1_results.db")); }
inline void profile_file(Input in) { report_on(file_with(in, "input")); }

inline void miopen_db(Input in) { report_on(file_with(in, "gfx942130.HIP.3_1_0.ufdb.txt")); }
inline void miopen_sqlite(Input in) { (void)profile::read_miopen_sqlite(file_with(in, "miopen_1.0.0.udb")); }
inline void tunableop(Input in) { report_on(file_with(in, "tunableop_results0.csv")); }
inline void bench_lines(Input in) { report_on(file_with(in, "bench.log")); }
inline void aiter_csv(Input in) { report_on(file_with(in, "a8w8_tuned_gemm.csv")); }

// A machine whose files are in the input: a line "=== /sys/…" and what the file holds; "=== env" and lines NAME=value.
class TextHost : public system::Host {
 public:
  explicit TextHost(std::string_view text) {
    std::string* file = nullptr;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end);
      if (line.starts_with("=== ")) file = &files_[std::string(line.substr(4, line.find_last_not_of("\n") - 3))];
      else if (file != nullptr) file->append(line);
    }
    if (const auto at = files_.find("env"); at != files_.end()) {
      read_environment(at->second);
      files_.erase(at);
    }
  }

  system::Reading read(const std::string& path, size_t limit) const override {
    const auto at = files_.find(path);
    if (at == files_.end()) return {};
    return {system::Reading::ok, at->second.substr(0, limit), ""};
  }
  std::vector<std::string> list_if(const std::string& path, const Keep& keep) const override {
    std::vector<std::string> names;
    const std::string prefix = path.ends_with("/") ? path : path + "/";
    for (auto at = files_.lower_bound(prefix); at != files_.end() && at->first.starts_with(prefix); ++at) {
      const std::string name = at->first.substr(prefix.size(), at->first.find('/', prefix.size()) - prefix.size());
      if (!name.empty() && (names.empty() || names.back() != name) && (!keep || keep(name))) names.push_back(name);
    }
    return names;
  }
  system::Status status(const std::string& path) const override {
    system::Status s;
    s.exists = files_.count(path) != 0 || !list_if(path, nullptr).empty();
    s.readable = s.exists;
    return s;
  }
  std::optional<std::string> real_path(const std::string& path) const override {
    if (!status(path).exists) return {};
    return path;
  }
  std::optional<system::Space> space(const std::string&) const override { return {}; }
  std::optional<system::Environment> environment(std::optional<int64_t>) const override { return environment_; }
  system::User user() const override { return {}; }
  std::string name() const override { return "input"; }

 private:
  void read_environment(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      if (const size_t equals = line.find('='); equals != std::string_view::npos)
        environment_[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  std::map<std::string, std::string> files_;
  system::Environment environment_;
};

// The whole of `pyflame doctor`.
inline void doctor_on(const system::Host& host) {
  doctor::AuditOptions options;
  options.host = &host;
  const nlohmann::json document = doctor::audit(system::collect(host), options);
  print(document);
  (void)doctor::report_text(document, {});
  (void)doctor::fix_script(document);
  (void)view::doctor_page(document);
}
inline void machine(Input in) { doctor_on(TextHost(text_of(in))); }

// The file beside a recorded tree.
inline void record(Input in) {
  const std::string path = file_with(in, "pyflame-record.json");
  doctor_on(*system::recorded(path.substr(0, path.find_last_of('/'))));
}

inline void settings(Input in) {
  const doctor::SettingsFile file = doctor::read_settings(text_of(in), "env.sh");
  (void)doctor::read_settings(text_of(in), "Dockerfile");
  (void)doctor::read_settings(text_of(in), "guide.rst");
  nlohmann::json facts = {{"env", nlohmann::json::object()}};
  for (const auto& [name, a] : file.environment)
    if (system::audited_variable(name)) facts["env"][name] = a.value;
  doctor::AuditOptions options;
  options.settings_only = true;
  (void)doctor::fix_script(doctor::audit(facts, options));
}

// Tensors on disk, as they are for load_safetensors and load_checkpoint: the header, then every tensor's bytes.
inline void safetensors_file(Input in) {
  const safetensors::InputFile file(file_with(in, "fuzz.safetensors"));
  for (const safetensors::Entry& e : file.entries()) (void)file.read(e);
}

// What a resumed run reads of the one before, and draws.
inline void metrics(Input in) {
  const cli::MetricsFile file(file_with(in, "metrics.jsonl"), int64_t{1} << 62);
  (void)cli::running_mean(file.all());
  (void)cli::loss_curve_svg(file.all(), std::string(text_of(in.first(std::min<size_t>(in.size(), 40)))));
}

// Text to train on, and the description of a tokenizer that a checkpoint carries.
inline void training_text(Input in) {
  const std::string_view text = text_of(in);
  data::Utf8Stream stream;
  const std::string shown =
      stream.push(text.substr(0, text.size() / 2)) + stream.push(text.substr(text.size() / 2)) + stream.finish();
  if (!data::is_utf8(shown)) throw std::logic_error("Utf8Stream made something that is not UTF-8");
  if (!data::is_utf8(text)) return (void)data::decode_utf8("fuzz", text);  // refuses
  const std::u32string points = data::decode_utf8("fuzz", text);
  if (data::encode_utf8(points) != text || shown != text) throw std::logic_error("text is not what it was");
  if (points.empty()) return;
  const data::Tokenizer tokenizer = data::Tokenizer::from_json(data::Tokenizer::chars(points).to_json());
  if (tokenizer.decode(tokenizer.encode(text)) != text) throw std::logic_error("tokens are not the text");
}
inline void tokenizer(Input in) {
  const data::Tokenizer t = data::Tokenizer::from_json(std::string(text_of(in)));
  (void)t.decode(data::Token{0});
  (void)t.to_json();
}

struct Target {
  const char* name;
  void (*read)(Input);
};

inline std::span<const Target> targets() {
  static constexpr Target kTargets[] = {
      {"elf", elf},
      {"code_object", code_object},
      {"bundle", bundle},
      {"archive", archive},
      {"msgpack", msgpack},
      {"container", container},
      {"inspect", inspect_file},
      {"kernel_db", kernel_db},
      {"dwarf", dwarf},
      {"instructions", instructions},
      {"symbol", symbol},
      {"kineto", kineto},
      {"rocprof_csv", rocprof_csv},
      {"rocpd", rocpd},
      {"profile", profile_file},
      {"miopen_db", miopen_db},
      {"miopen_sqlite", miopen_sqlite},
      {"tunableop", tunableop},
      {"bench_lines", bench_lines},
      {"aiter_csv", aiter_csv},
      {"machine", machine},
      {"record", record},
      {"settings", settings},
      {"safetensors", safetensors_file},
      {"metrics", metrics},
      {"training_text", training_text},
      {"tokenizer", tokenizer},
  };
  return kTargets;
}

inline const Target* find_target(std::string_view name) {
  for (const Target& t : targets())
    if (name == t.name) return &t;
  return nullptr;
}

// An Error is a refusal, which is right.
inline void run(const Target& target, Input in) {
  try {
    target.read(in);
  } catch (const Error&) {
  }
}

}  // namespace pyflame::fuzz
