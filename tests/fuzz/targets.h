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

#include "apps/gpt/metrics.h"
#include "cpp/support/temp_folder.h"
#include "pyflame/base/error.h"
#include "pyflame/base/gpu_arch.h"
#include "pyflame/data/tokenizer.h"
#include "pyflame/io/gguf_file.h"
#include "pyflame/io/safetensors_file.h"
#include "pyflame/io/torch_file.h"
#include "tools/doctor/audit.h"
#include "tools/doctor/page.h"
#include "tools/doctor/shell_env.h"
#include "tools/doctor/text.h"
#include "tools/inspect/archive.h"
#include "tools/inspect/bundle.h"
#include "tools/inspect/code_object.h"
#include "tools/inspect/container.h"
#include "tools/inspect/demangle.h"
#include "tools/inspect/disasm.h"
#include "tools/inspect/document.h"
#include "tools/inspect/elf.h"
#include "tools/inspect/isa_classify.h"
#include "tools/inspect/isa_lint.h"
#include "tools/inspect/isa_loops.h"
#include "tools/inspect/isa_stats.h"
#include "tools/inspect/kdb.h"
#include "tools/inspect/msgpack.h"
#include "tools/inspect/names.h"
#include "tools/inspect/page.h"
#include "tools/inspect/scan.h"
#include "tools/inspect/source_lines.h"
#include "tools/inspect/text.h"
#include "tools/model_files/document.h"
#include "tools/model_files/page.h"
#include "tools/model_files/text.h"
#include "tools/profile/analyse.h"
#include "tools/profile/document.h"
#include "tools/profile/importer.h"
#include "tools/profile/page.h"
#include "tools/profile/tuned_read.h"
#include "tools/system/facts.h"
#include "tools/system/host.h"

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
  (void)tools::inspect::is_elf(in);
  (void)tools::inspect::elf_machine(in);
  const tools::inspect::Elf e = tools::inspect::parse_elf(in);
  for (const tools::inspect::ElfSymbol& s : e.symbols) (void)e.contents(s, s.size);
  (void)e.find(".text");
}

inline void code_object(Input in) { (void)tools::inspect::parse_code_object(in); }

inline void bundle(Input in) {
  if (tools::inspect::is_text_bundle(in)) (void)tools::inspect::text_bundle_targets(in);
  const auto at = tools::inspect::find_bundle(in, 0);
  if (!at) return;
  const Input rest = in.subspan(static_cast<size_t>(*at));
  (void)tools::inspect::bundle_extent(rest);
  const std::string_view text = text_of(rest);
  if (text.starts_with(tools::inspect::kCompressedMagic)) (void)tools::inspect::parse_compressed_header(rest);
  else if (text.starts_with(tools::inspect::kOffloadMagic)) (void)tools::inspect::parse_offload_binary(rest);
  else (void)tools::inspect::parse_bundle(rest);
}

inline void archive(Input in) { (void)tools::inspect::parse_archive(in); }

inline void msgpack(Input in) {
  tools::inspect::MsgpackReader skipping(in);
  skipping.skip();
  tools::inspect::MsgpackReader reading(in);
  while (!reading.done()) (void)reading.next();
}

inline void container(Input in) {
  (void)tools::inspect::recognise(in.first(std::min(in.size(), tools::inspect::kHeadBytes)));
  (void)tools::inspect::read_contents("input", {in, nullptr});
}

// The whole of `pyflame inspect`, without machine code (which LLVM reads).
inline void inspect_file(Input in) {
  tools::inspect::ScanOptions options;
  options.isa = false;
  options.threads = 1;
  const nlohmann::json document = tools::inspect::document(tools::inspect::scan({file_with(in, "input")}, options), {});
  print(document);
  (void)tools::inspect::document_text(document, {}, {});
  (void)tools::inspect::html_page(document);
}

inline void kernel_db(Input in) {
  if (!tools::inspect::is_sqlite(in)) return;
  tools::inspect::read_kernel_db(file_with(in, "input.kdb"), [](std::string_view, const tools::inspect::Memory& code) {
    try {
      (void)tools::inspect::parse_code_object(code.bytes);
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
  const auto lines = tools::inspect::SourceLines::of_sections(rest.subspan(strings + more), rest.first(strings),
                                                              rest.subspan(strings, more));
  for (uint64_t address = 0; address < 0x4000; address += 0x40) (void)lines.find(address);
  (void)tools::inspect::SourceLines::of_elf(in);
}

// The first byte says which architecture, the rest is a listing.
inline void instructions(Input in) {
  if (in.empty()) return;
  const std::span<const GpuArch> archs = gpu_archs();
  const GpuArch& arch = archs[in[0] % archs.size()];
  if (!arch.amd) return;
  const tools::inspect::Listing listing = tools::inspect::parse_listing(text_of(in.subspan(1)));
  tools::inspect::Classifier classifier(tools::inspect::IsaArch::of(std::string(arch.gfx), 0));
  std::vector<tools::inspect::Op> ops;
  classifier.run(listing, -1, ops);
  const tools::inspect::ControlFlow flow = tools::inspect::control_flow(ops);
  const tools::inspect::Regions regions = tools::inspect::make_regions(ops, flow);
  (void)tools::inspect::lint_isa(classifier.arch(), ops, flow, regions);
}

inline void symbol(Input in) {
  tools::inspect::Demangler demangle;
  (void)tools::inspect::short_name(demangle(std::string(text_of(in))));
}

// The whole of `pyflame report`.
inline void report_on(const std::string& path) {
  const tools::profile::Profile loaded = tools::profile::load({path});
  const nlohmann::json document = tools::profile::make_document(loaded, {});
  print(document);
  (void)tools::profile::to_text(document, {});
  (void)tools::profile::html_page(document);
}
inline void kineto(Input in) { report_on(file_with(in, "trace.json")); }
inline void rocprof_csv(Input in) { report_on(file_with(in, "1_kernel_trace.csv")); }
inline void rocpd(Input in) { report_on(file_with(in, "1_results.db")); }
inline void profile_file(Input in) { report_on(file_with(in, "input")); }

inline void miopen_db(Input in) { report_on(file_with(in, "gfx942130.HIP.3_1_0.ufdb.txt")); }
inline void miopen_sqlite(Input in) { (void)tools::profile::read_miopen_sqlite(file_with(in, "miopen_1.0.0.udb")); }
inline void tunableop(Input in) { report_on(file_with(in, "tunableop_results0.csv")); }
inline void bench_lines(Input in) { report_on(file_with(in, "bench.log")); }
inline void aiter_csv(Input in) { report_on(file_with(in, "a8w8_tuned_gemm.csv")); }

// A machine whose files are in the input: a line "=== /sys/…" and what the file holds; "=== env" and lines NAME=value.
class TextHost : public tools::system::Host {
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

  tools::system::Reading read(const std::string& path, size_t limit) const override {
    const auto at = files_.find(path);
    if (at == files_.end()) return {};
    return {tools::system::Reading::ok, at->second.substr(0, limit), ""};
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
  tools::system::Status status(const std::string& path) const override {
    tools::system::Status s;
    s.exists = files_.count(path) != 0 || !list_if(path, nullptr).empty();
    s.readable = s.exists;
    return s;
  }
  std::optional<std::string> real_path(const std::string& path) const override {
    if (!status(path).exists) return {};
    return path;
  }
  std::optional<tools::system::Space> space(const std::string&) const override { return {}; }
  std::optional<tools::system::Environment> environment(std::optional<int64_t>) const override { return environment_; }
  tools::system::User user() const override { return {}; }
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
  tools::system::Environment environment_;
};

// The whole of `pyflame doctor`.
inline void doctor_on(const tools::system::Host& host) {
  tools::doctor::AuditOptions options;
  options.host = &host;
  const nlohmann::json document = tools::doctor::audit(tools::system::collect(host), options);
  print(document);
  (void)tools::doctor::report_text(document, {});
  (void)tools::doctor::fix_script(document);
  (void)tools::doctor::html_page(document);
}
inline void machine(Input in) { doctor_on(TextHost(text_of(in))); }

// The file beside a recorded tree.
inline void record(Input in) {
  const std::string path = file_with(in, "pyflame-record.json");
  doctor_on(*tools::system::recorded(path.substr(0, path.find_last_of('/'))));
}

inline void settings(Input in) {
  const tools::doctor::SettingsFile file = tools::doctor::read_settings(text_of(in), "env.sh");
  (void)tools::doctor::read_settings(text_of(in), "Dockerfile");
  (void)tools::doctor::read_settings(text_of(in), "guide.rst");
  nlohmann::json facts = {{"env", nlohmann::json::object()}};
  for (const auto& [name, a] : file.environment)
    if (tools::system::audited_variable(name)) facts["env"][name] = a.value;
  tools::doctor::AuditOptions options;
  options.settings_only = true;
  (void)tools::doctor::fix_script(tools::doctor::audit(facts, options));
}

// Tensors on disk, as they are for load_safetensors and load_checkpoint: the header, then every tensor's bytes.
inline void safetensors_file(Input in) {
  const safetensors::Reader file(file_with(in, "fuzz.safetensors"));
  for (const safetensors::Entry& e : file.entries()) (void)file.read(e);
}

// A file of torch.save: its structure, what a state dict would have of it, and the bytes of every storage.
inline void torch_file(Input in) {
  const std::string path = file_with(in, "fuzz.pt");
  if (!TorchFile::is_one(InputFile("fuzz", path))) return;
  const TorchFile file("fuzz", path);
  (void)torch_contents(file);
  for (const TorchStorage& s : file.storages()) (void)file.file().read_bytes(s.bytes, s.begin, "a storage");
}
inline void gguf_file(Input in) {
  const gguf::Reader file("fuzz", file_with(in, "fuzz.gguf"));
  print(file.metadata());
  for (const gguf::Entry& e : file.entries())
    if (e.type->dtype != nullptr || e.type->decode != nullptr) (void)file.read(e);
}

// The whole of `pyflame inspect-model`.
inline void model_file(Input in) {
  const nlohmann::json document = tools::model_files::document(file_with(in, "fuzz.model"));
  print(document);
  (void)tools::model_files::document_text(document, {}, false);
  (void)tools::model_files::document_text(document, {}, true);
  (void)tools::model_files::html_page(document);
}

// What a resumed run reads of the one before, and draws.
inline void metrics(Input in) {
  const apps::gpt::MetricsFile file(file_with(in, "metrics.jsonl"), int64_t{1} << 62);
  (void)apps::gpt::running_mean(file.all());
  (void)apps::gpt::loss_curve_svg(file.all(), std::string(text_of(in.first(std::min<size_t>(in.size(), 40)))));
}

// Text to train on, and the description of a tokenizer that a checkpoint carries.
inline void training_text(Input in) {
  const std::string_view text = text_of(in);
  data::Utf8Stream stream;
  std::string shown = stream.push(text.substr(0, text.size() / 2));  // one after the other: + has no order
  shown += stream.push(text.substr(text.size() / 2));
  shown += stream.finish();
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
      {"torch_file", torch_file},
      {"gguf_file", gguf_file},
      {"model_file", model_file},
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
