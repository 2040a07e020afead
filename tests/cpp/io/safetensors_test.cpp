// The safetensors layout: what is written is read back bit for bit, other programs' files are read, hostile files are refused, and a
// failed save leaves the previous file alone.
#include "pyflame/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <sys/stat.h>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include "pyflame/io/checkpoint.h"
#include "support/temp_folder.h"

namespace pyflame {
namespace {

using test::read_all;
using test::TempFolder;
using test::write_all;

ErrorKind kind_of(const std::function<void()>& fn, std::string* message = nullptr) {
  try {
    fn();
  } catch (const Error& e) {
    if (message) *message = e.what();
    return e.kind();
  }
  ADD_FAILURE() << "expected an error";
  return ErrorKind::NotImplemented;
}

std::string file_bytes(const std::string& header, const std::string& data = "") {
  const uint64_t n = header.size();
  std::string bytes(sizeof n, '\0');
  std::memcpy(bytes.data(), &n, sizeof n);
  return bytes + header + data;
}

std::string tensor_bytes(const Tensor& t) {
  const Tensor c = contiguous(t);
  return t.nbytes() ? std::string(static_cast<const char*>(c.data()), static_cast<size_t>(t.nbytes())) : std::string();
}

TEST(Safetensors, EveryDtypeComesBackBitForBit) {
  const TempFolder folder;
  NamedTensors all;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (dtype == DType::complex128) continue;  // has no name in the format
    std::string bytes(static_cast<size_t>(6 * dtype_size(dtype)), '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(dtype == DType::bool_ ? i % 2 : 37 * i + 11);
    all.emplace_back("t." + std::string(dtype_name(dtype)), from_host(bytes.data(), {2, 3}, dtype));
  }
  all.emplace_back("scalar", full({}, 7, DType::int64));
  all.emplace_back("empty", zeros({0, 4}));
  all.emplace_back("ünï\"quoted\"", ones({1}));
  const Metadata metadata{{"key", "value"}, {"json", "{\"a\": [1, 2]}"}, {"utf8", "ä€😀"}};
  save_safetensors(folder / "a.safetensors", all, metadata);
  const SafetensorsFile f = load_safetensors(folder / "a.safetensors");
  EXPECT_EQ(f.metadata, metadata);
  ASSERT_EQ(f.tensors.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(f.tensors[i].first, all[i].first);
    EXPECT_EQ(f.tensors[i].second.dtype(), all[i].second.dtype());
    EXPECT_EQ(f.tensors[i].second.shape(), all[i].second.shape());
    EXPECT_EQ(tensor_bytes(f.tensors[i].second), tensor_bytes(all[i].second)) << all[i].first;
  }
  EXPECT_EQ(folder.count(), 1u) << "a temporary file was left behind";
}

TEST(Safetensors, ViewsAreSavedAsTheyLook) {
  const TempFolder folder;
  const Tensor x = reshape(arange(0, 12, 1, DType::int32), {3, 4});
  save_safetensors(folder / "v", {{"t", transpose(x, 0, 1)}, {"s", slice(x, 1, 1, 4, 2)}});
  const SafetensorsFile f = load_safetensors(folder / "v");
  EXPECT_EQ(f.tensors[0].second.shape(), (Dims{4, 3}));
  const auto* t = static_cast<const int32_t*>(f.tensors[0].second.data());
  EXPECT_EQ(std::vector<int32_t>(t, t + 4), (std::vector<int32_t>{0, 4, 8, 1}));
  const auto* s = static_cast<const int32_t*>(f.tensors[1].second.data());
  EXPECT_EQ(std::vector<int32_t>(s, s + 6), (std::vector<int32_t>{1, 3, 5, 7, 9, 11}));
}

TEST(Safetensors, ReadsAFileWrittenByHandAndAligns) {
  const TempFolder folder;
  const float values[2] = {1.5f, -2.0f};
  write_all(folder / "h",
            file_bytes(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"x":"y"}}   )",
                       std::string(reinterpret_cast<const char*>(values), 8)));
  const SafetensorsFile f = load_safetensors(folder / "h");
  ASSERT_EQ(f.tensors.size(), 1u);
  EXPECT_EQ(static_cast<const float*>(f.tensors[0].second.data())[1], -2.0f);
  EXPECT_EQ(f.metadata.at("x"), "y");
  // The data of what we write begins at a multiple of 8, wide dtypes first.
  save_safetensors(folder / "w", {{"a", ones({3}, DType::uint8)}, {"b", ones({2}, DType::float64)}});
  const std::string bytes = read_all(folder / "w");
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), sizeof n);
  EXPECT_EQ(n % 8, 0u);
  EXPECT_NE(bytes.find(R"("b":{"dtype":"F64","shape":[2],"data_offsets":[0,16]})"), std::string::npos);
}

struct Hostile {
  const char* what;
  std::string bytes;
};

std::vector<Hostile> hostile_files() {
  const std::string eight(8, '\0');
  const auto one = [&](const std::string& entry, const std::string& data) {
    return file_bytes("{\"a\":" + entry + "}", data);
  };
  std::string huge_length = file_bytes("{}");
  std::memset(huge_length.data(), 0xFF, 8);
  std::string too_long = file_bytes("{}");
  too_long[1] = 1;
  return {
      {"empty", ""},
      {"seven bytes", "1234567"},
      {"header length 2^64-1", huge_length},
      {"header longer than the file", too_long},
      {"header of no bytes", file_bytes("")},
      {"not an object", file_bytes("[]")},
      {"not JSON", file_bytes("{\"a\"")},
      {"trailing rubbish", file_bytes("{} x")},
      {"leading space", file_bytes(" {}")},
      {"invalid UTF-8", file_bytes("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}")},
      {"deep nesting", file_bytes("{\"a\":" + std::string(1 << 20, '[') + "}")},
      {"deep objects", file_bytes(R"({"a":{"dtype":{"x":{"y":1}}}})")},
      {"no dtype", one(R"({"shape":[2],"data_offsets":[0,8]})", eight)},
      {"no shape", one(R"({"dtype":"F32","data_offsets":[0,8]})", eight)},
      {"no offsets", one(R"({"dtype":"F32","shape":[2]})", eight)},
      {"unknown dtype", one(R"({"dtype":"F8","shape":[8],"data_offsets":[0,8]})", eight)},
      {"unknown field", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})", eight)},
      {"negative size", one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", eight)},
      {"fractional size", one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", eight)},
      {"size of 2^63", one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})", eight)},
      {"product overflows", one(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})", eight)},
      {"product overflows to the right size",
       one(R"({"dtype":"U8","shape":[4294967296,4294967296,1],"data_offsets":[0,0]})", "")},
      {"nine dimensions", one(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,8],"data_offsets":[0,8]})", eight)},
      {"wrong size", one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", eight)},
      {"end before begin", one(R"({"dtype":"F32","shape":[0],"data_offsets":[8,0]})", eight)},
      {"out of range", one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})", eight)},
      {"three offsets", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", eight)},
      {"one offset", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", eight)},
      {"gap at the end", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", eight)},
      {"gap at the start", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", eight)},
      {"overlap", file_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                             eight)},
      {"same name twice", file_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                     R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                     eight)},
      {"same field twice", one(R"({"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]})", eight)},
      {"metadata not text", file_bytes(R"({"__metadata__":{"a":1}})")},
      {"metadata not an object", file_bytes(R"({"__metadata__":"a"})")},
      {"bool of 2", one(R"({"dtype":"BOOL","shape":[1],"data_offsets":[0,1]})", "\x02")},
  };
}

TEST(Safetensors, HostileFilesAreRefused) {
  const TempFolder folder;
  for (const Hostile& h : hostile_files()) {
    write_all(folder / "x", h.bytes);
    std::string message;
    EXPECT_EQ(kind_of([&] { load_safetensors(folder / "x"); }, &message), ErrorKind::Value) << h.what;
    EXPECT_NE(message.find("load_safetensors: '"), std::string::npos) << h.what << ": " << message;
    EXPECT_LT(message.size(), 600u) << h.what;
  }
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const TempFolder folder;
  save_safetensors(folder / "a", {{"x", ones({3})}, {"y", ones({2}, DType::int64)}}, {{"k", "v"}});
  const std::string bytes = read_all(folder / "a");
  for (size_t n = 0; n < bytes.size(); ++n) {
    write_all(folder / "b", bytes.substr(0, n));
    EXPECT_EQ(kind_of([&] { load_safetensors(folder / "b"); }), ErrorKind::Value) << n;
  }
}

TEST(Safetensors, PathsThatCannotBeRead) {
  const TempFolder folder;
  EXPECT_EQ(kind_of([&] { load_safetensors(folder / "missing"); }), ErrorKind::OS);
  EXPECT_EQ(kind_of([&] { load_safetensors(folder.str()); }), ErrorKind::OS);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(kind_of([&] { load_safetensors(folder / "pipe"); }), ErrorKind::OS);
}

TEST(Safetensors, WrongArgumentsOfSave) {
  const TempFolder folder;
  const Tensor t = ones({2});
  const std::string path = folder / "x";
  EXPECT_EQ(kind_of([&] { save_safetensors(path, {{"a", t}, {"a", t}}); }), ErrorKind::Value);
  EXPECT_EQ(kind_of([&] { save_safetensors(path, {{"__metadata__", t}}); }), ErrorKind::Value);
  EXPECT_EQ(kind_of([&] { save_safetensors(path, {{"\xff", t}}); }), ErrorKind::Value);
  EXPECT_EQ(kind_of([&] { save_safetensors(path, {{"a", t}}, {{"k", "\xff"}}); }), ErrorKind::Value);
  EXPECT_EQ(kind_of([&] { save_safetensors(path, {{"a", Tensor()}}); }), ErrorKind::Value);
  EXPECT_EQ(kind_of([&] { save_safetensors("", {{"a", t}}); }), ErrorKind::Value);
  EXPECT_EQ(kind_of([&] { save_safetensors(folder / "no/such/folder", {{"a", t}}); }), ErrorKind::OS);
  EXPECT_EQ(kind_of([&] { save_safetensors(folder.str(), {{"a", t}}); }), ErrorKind::OS);
  EXPECT_EQ(folder.count(), 0u);
}

// A limit on the size of files stands for a full disk: write() fails half-way.
TEST(Safetensors, AFullDiskKeepsThePreviousFile) {
  const TempFolder folder;
  const std::string path = folder / "x.safetensors";
  save_safetensors(path, {{"a", ones({4})}});
  const std::string before = read_all(path);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 1 << 16;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  const ErrorKind kind = kind_of([&] { save_safetensors(path, {{"a", zeros({1 << 20})}}); }, &message);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(kind, ErrorKind::OS);
  EXPECT_NE(message.find("wrote 65536 of 4194"), std::string::npos) << message;
  EXPECT_NE(message.find("previous file is unchanged"), std::string::npos) << message;
  EXPECT_EQ(read_all(path), before);
  EXPECT_EQ(folder.count(), 1u);
}

TEST(Safetensors, SavingThroughALinkKeepsTheLink) {
  const TempFolder folder;
  save_safetensors(folder / "real", {{"a", ones({1})}});
  std::filesystem::create_symlink(folder / "real", folder / "link");
  save_safetensors(folder / "link", {{"b", ones({1})}});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(load_safetensors(folder / "real").tensors[0].first, "b");
}

// The fuzzer tests the reader of files. This tests the code that makes tensors and a checkpoint from what was read.
TEST(Checkpoint, DamagedInAnyByteItIsReadOrRefused) {
  const TempFolder folder;
  const std::string path = folder / "checkpoint";
  save_checkpoint(path,
                  {{{"w", ones({2, 3})}, {"flag", zeros({3}, DType::bool_)}}, {{"m", zeros({2, 3})}}, {{"step", "7"}}});
  const std::string good = read_all(path);
  std::mt19937 gen(1);
  int read = 0, refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bad = good;
    for (unsigned n = gen() % 3 + 1; n > 0; --n) bad[gen() % bad.size()] = static_cast<char>(gen());
    if (gen() % 8 == 0) bad.resize(gen() % bad.size());
    write_all(path, bad);
    try {
      const Checkpoint c = load_checkpoint(path);
      for (const auto& [name, t] : c.model) EXPECT_EQ(tensor_bytes(t).size(), static_cast<size_t>(t.nbytes())) << name;
      ++read;
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::Value) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace pyflame
