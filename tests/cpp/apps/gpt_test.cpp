// The GPT: generation with caches equals full recomputation, and a resumed run equals an uninterrupted one bit for bit.
#include <gtest/gtest.h>

#include <cstring>

#include "apps/gpt/trainer.h"
#include "pyflame/compile/program.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/device.h"
#include "support/temp_folder.h"
#include "support/tensor_values.h"

namespace pyflame::apps::gpt {
namespace {

using test::TempFolder;

GptConfig tiny(double dropout = 0.0) {
  GptConfig c;
  c.vocabulary = 11;
  c.block_size = 8;
  c.n_layer = 2;
  c.n_head = 2;
  c.n_embd = 16;
  c.dropout = dropout;
  return c;
}

std::string sample_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "abc dfe hgk";  // 11 characters, of which 10 differ
  return text + "z";
}

struct Data {
  data::Tokenizer tokenizer;
  data::TokenDataset dataset;
};
Data make_data() {
  const std::string text = sample_text();
  data::Tokenizer t = data::Tokenizer::chars(data::decode_utf8("test", text));
  data::TokenDataset d(t.encode(text), 8);
  return {std::move(t), std::move(d)};
}

GptTrainOptions options() {
  GptTrainOptions o;
  o.steps = 6;
  o.batch_size = 3;
  o.gradient_accumulation_steps = 2;
  o.warmup_steps = 2;
  o.eval_batches = 2;
  return o;
}

std::string bytes_of(const NamedTensors& tensors) {
  std::string all;
  for (const auto& [name, t] : tensors) {
    const Tensor c = contiguous(t);
    all += name + std::string(static_cast<const char*>(c.data()), static_cast<size_t>(c.nbytes()));
  }
  return all;
}

std::vector<float> last_logits(const Gpt& model, const std::vector<int64_t>& tokens) {
  grad_mode::Guard no_grad(false);
  const auto n = static_cast<int64_t>(tokens.size());
  const Tensor all = model(from_host(tokens.data(), {1, n}, DType::int64));
  const Tensor last = contiguous(select(select(all, 0, 0), 0, n - 1));
  const auto* p = static_cast<const float*>(last.data());
  return {p, p + last.numel()};
}

TEST(Gpt, NamesAndInitialValues) {
  manual_seed(3);
  GptConfig c = tiny();
  c.n_embd = 64;
  Gpt model(c);
  std::vector<std::string> names;
  for (const auto& [name, t] : nn::state_dict(model)) names.push_back(name);
  EXPECT_EQ(names.front(), "wte.weight");
  EXPECT_EQ(names[2], "blocks.0.ln1.weight");
  EXPECT_EQ(names[4], "blocks.0.attn.qkv.weight");
  EXPECT_EQ(names.back(), "head.weight");
  EXPECT_EQ(names.size(), 2u + 2 * 12 + 2 + 1);
  const auto spread = [](const Tensor& t) { return std_dev(t.detach()).item_f64(); };
  EXPECT_NEAR(spread(model.blocks.layers[0].attn.qkv.weight), 0.02, 0.001);
  EXPECT_NEAR(spread(model.blocks.layers[1].mlp.proj.weight), 0.02 / 2, 0.0005);
  EXPECT_EQ(spread(model.blocks.layers[0].mlp.fc.bias), 0.0);
  // A fresh model knows nothing: its loss is that of a guess.
  const std::vector<int64_t> tokens{1, 2, 3, 4};
  const Tensor x = from_host(tokens.data(), {1, 4}, DType::int64);
  EXPECT_NEAR(model.loss(x, x).item_f64(), std::log(11.0), 0.1);
}

TEST(Gpt, CachedGenerationEqualsRecomputation) {
  manual_seed(5);
  Gpt model(tiny());
  nn::for_each_parameter(model, [](const std::string&, Tensor& t) {
    if (t.dim() == 2) nn::init::normal_(t, 0.0, 0.3);  // far from uniform logits, so that argmax says something
  });
  nn::train(model, false);
  Generator generator(model);
  std::vector<int64_t> context{3, 1, 4};
  std::vector<int64_t> next = context;
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> cached = generator.feed(next);
    // The rule for a full context: it starts anew from its last half.
    if (context.size() > 8) context.erase(context.begin(), context.end() - 4);
    const std::vector<float> full = last_logits(model, context);
    ASSERT_EQ(cached.size(), full.size());
    for (size_t j = 0; j < full.size(); ++j) EXPECT_NEAR(cached[j], full[j], 2e-5) << "token " << i;
    const int64_t a = sample_token(cached, {.temperature = 0}, 0), b = sample_token(full, {.temperature = 0}, 0);
    EXPECT_EQ(a, b) << "token " << i;
    next = {a};
    context.push_back(a);
    EXPECT_LE(generator.context_length(), 8);
  }
}

TEST(Gpt, GeneratesOnTheDeviceOfItsModel) {
  set_current_device({DeviceType::reference});
  manual_seed(5);
  Gpt model(tiny());
  set_current_device({});
  nn::train(model, false);
  for (const KvCache& c : model.make_caches()) EXPECT_EQ(c.k.device(), model.wte.weight.device());
  const std::vector<float> logits = Generator(model).feed({3, 1, 4});
  ASSERT_EQ(logits.size(), 11u);
  for (const float v : logits) EXPECT_TRUE(std::isfinite(v));
}

// Positions, lengths and learning rates are run-time numbers: neither a token nor a step may need a program of its own.
TEST(Gpt, GenerationAndTrainingPlanNothingNewInALoop) {
  manual_seed(8);
  Gpt model(tiny());
  nn::train(model, false);
  Generator generator(model);
  std::vector<int64_t> next{1, 2};
  const auto make = [&](int tokens) {
    for (int i = 0; i < tokens; ++i) next = {sample_token(generator.feed(next), {}, 0.3)};
  };
  make(16);  // the first token, the ones that follow, and a context started anew
  const uint64_t before = cache_stats().misses;
  make(40);
  EXPECT_EQ(cache_stats().misses, before);

  Data d = make_data();
  GptConfig c = tiny(0.1);
  c.vocabulary = d.tokenizer.vocabulary();
  GptTrainOptions o = options();
  o.steps = 40;
  GptTrainer trainer(c, o, d.tokenizer, d.dataset);
  for (int i = 0; i < 10; ++i) trainer.step();
  synchronize();
  const uint64_t after_ten = cache_stats().misses;
  for (int i = 0; i < 20; ++i) trainer.step();
  synchronize();
  EXPECT_EQ(cache_stats().misses, after_ten);
}

TEST(Gpt, PromptsInPiecesAndLongPrompts) {
  manual_seed(6);
  Gpt model(tiny());
  nn::train(model, false);
  Generator whole(model), pieces(model), longer(model);
  const std::vector<float> a = whole.feed({1, 2, 3, 4, 5});
  pieces.feed({1, 2});
  const std::vector<float> b = pieces.feed({3, 4, 5});
  for (size_t j = 0; j < a.size(); ++j) EXPECT_NEAR(a[j], b[j], 1e-5);
  const std::vector<float> c = longer.feed({9, 9, 9, 9, 9, 9, 9, 9, 9, 2, 3, 4, 5});
  const std::vector<float> d = last_logits(model, {2, 3, 4, 5});
  for (size_t j = 0; j < c.size(); ++j) EXPECT_NEAR(c[j], d[j], 1e-5);
}

void expect_resume_is_identical(double dropout) {
  const TempFolder folder;
  Data d = make_data();
  GptConfig c = tiny(dropout);
  c.vocabulary = d.tokenizer.vocabulary();
  std::vector<double> whole_losses, parts_losses;
  GptTrainer whole(c, options(), d.tokenizer, d.dataset);
  for (int i = 0; i < 6; ++i) whole_losses.push_back(whole.step().item_f64());
  const double whole_eval = whole.evaluate();
  const Checkpoint expected = whole.checkpoint();

  GptTrainer first(c, options(), d.tokenizer, d.dataset);
  for (int i = 0; i < 3; ++i) parts_losses.push_back(first.step().item_f64());
  first.evaluate();  // must not move anything
  save_checkpoint(folder / "c", first.checkpoint());
  rand({5});  // the global generator is somewhere else when the run goes on
  GptTrainer second(load_checkpoint(folder / "c"), options(), d.dataset);
  EXPECT_EQ(second.steps_done(), 3);
  for (int i = 0; i < 3; ++i) parts_losses.push_back(second.step().item_f64());
  EXPECT_EQ(whole_losses, parts_losses);
  EXPECT_EQ(whole_eval, second.evaluate());
  const Checkpoint got = second.checkpoint();
  EXPECT_EQ(bytes_of(got.model), bytes_of(expected.model));
  EXPECT_EQ(bytes_of(got.optimizer), bytes_of(expected.optimizer));
  EXPECT_EQ(got.state, expected.state);
}

TEST(GptTrainer, ResumeIsBitIdentical) { expect_resume_is_identical(0.0); }
TEST(GptTrainer, ResumeIsBitIdenticalWithDropout) { expect_resume_is_identical(0.2); }

TEST(GptTrainer, LearnsAndGenerates) {
  const TempFolder folder;
  Data d = make_data();
  GptConfig c = tiny();
  c.vocabulary = d.tokenizer.vocabulary();
  GptTrainOptions o = options();
  o.steps = 150;
  o.lr = 1e-2;
  o.gradient_accumulation_steps = 1;
  o.batch_size = 8;
  GptTrainer t(c, o, d.tokenizer, d.dataset);
  const double before = t.evaluate();
  for (int i = 0; i < 150; ++i) t.step();
  const double after = t.evaluate();
  EXPECT_LT(after, 0.5) << "the text repeats, so it can be learned; at the start the loss was " << before;
  EXPECT_GT(before, 2.0);
  save_checkpoint(folder / "c", t.checkpoint());
  const TrainedGpt trained = load_trained_gpt(folder / "c");
  EXPECT_EQ(trained.steps, 150);
  Generator generator(*trained.model);
  std::vector<int64_t> next;
  for (data::Token token : trained.tokenizer.encode("abc d")) next.push_back(token);
  std::string text = "abc d";
  for (int i = 0; i < 12; ++i) {
    next = {sample_token(generator.feed(next), {.temperature = 0}, 0)};
    text += trained.tokenizer.decode(static_cast<data::Token>(next[0]));
  }
  EXPECT_EQ(text, "abc dfe hgkabc df");
}

TEST(GptTrainer, RefusesOtherData) {
  Data d = make_data();
  GptConfig c = tiny();
  c.vocabulary = d.tokenizer.vocabulary();
  GptTrainer t(c, options(), d.tokenizer, d.dataset);
  const Checkpoint saved = t.checkpoint();
  std::string other = sample_text();
  std::swap(other[0], other[1]);
  EXPECT_ERROR(Value, "not the data", GptTrainer(saved, options(), data::TokenDataset(d.tokenizer.encode(other), 8)));
}

TEST(GptTrainer, BrokenCheckpoints) {
  const TempFolder folder;
  Data d = make_data();
  GptConfig c = tiny();
  c.vocabulary = d.tokenizer.vocabulary();
  GptTrainer t(c, options(), d.tokenizer, d.dataset);
  const Checkpoint good = t.checkpoint();
  save_checkpoint(folder / "good", good);
  for (const char* key : {"model", "tokenizer", "progress"}) {
    for (const char* value : {"", "{}", "[1", "{\"n_layer\": -1}"}) {
      Checkpoint bad = good;
      bad.state[key] = value;
      save_checkpoint(folder / "bad", bad);
      EXPECT_THROW(load_trained_gpt(folder / "bad"), Error) << key << " = " << value;
    }
    Checkpoint without = good;
    without.state.erase(key);
    save_checkpoint(folder / "bad", without);
    EXPECT_THROW(load_trained_gpt(folder / "bad"), Error) << key;
  }
  // A description that is much larger than its tensors must not be built.
  Checkpoint huge = good;
  huge.state["model"] = R"({"vocabulary":10,"block_size":8,"n_layer":1000000000,"n_head":2,"n_embd":16,"dropout":0.0})";
  save_checkpoint(folder / "bad", huge);
  EXPECT_ERROR(Value, "does not fit", load_trained_gpt(folder / "bad"));
  save_safetensors(folder / "plain", {{"x", ones({1})}});
  EXPECT_ERROR(Value, "not a checkpoint", load_checkpoint(folder / "plain"));
}

TEST(Gpt, BadInput) {
  GptConfig c = tiny();
  c.n_head = 3;
  EXPECT_ERROR(Value, "n_head must divide", Gpt(c));
  Gpt model(tiny());
  EXPECT_ERROR(Value, "expected [batch, 1 to 8]", model(zeros({1, 9}, DType::int64)));
  EXPECT_ERROR(Value, "expected [batch, 1 to 8]", model(zeros({9}, DType::int64)));
  Generator g(model);
  EXPECT_ERROR(Value, "no tokens", g.feed({}));
}

TEST(Sampling, PicksByProbability) {
  const std::vector<float> logits{0.0f, 2.0f, 1.0f, -1.0f};
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_k = 1}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_k = 2}, 0.999), 2);
  EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_p = 0.5}, 0.999), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 1}, 0.999), 3);
  std::vector<int> counts(4);
  for (int i = 0; i < 1000; ++i)
    ++counts[static_cast<size_t>(sample_token(logits, {.temperature = 1}, (i + 0.5) / 1000))];
  EXPECT_NEAR(counts[1], 644, 2);
  EXPECT_NEAR(counts[2], 237, 2);
  EXPECT_NEAR(counts[0], 87, 2);
  EXPECT_ERROR(Value, "not numbers", sample_token({NAN, 1.0f}, {}, 0.5));
  EXPECT_ERROR(Value, "top_p", Sampling{.top_p = 0}.check());
  EXPECT_ERROR(Value, "temperature", Sampling{.temperature = -1}.check());
}

}  // namespace
}  // namespace pyflame::apps::gpt
