#include "apps/gpt/gpt.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "pyflame/tensor/grad_node.h"

namespace pyflame::apps::gpt {

namespace {
constexpr double kInitStd = 0.02;
}

// ---- configuration

void GptConfig::check() const {
  PF_CHECK(vocabulary > 0 && block_size > 0 && n_layer > 0 && n_head > 0 && n_embd > 0, Value,
           "gpt: sizes must be positive; got vocabulary {}, block_size {}, n_layer {}, n_head {}, n_embd {}",
           vocabulary, block_size, n_layer, n_head, n_embd);
  PF_CHECK(n_embd % n_head == 0, Value, "gpt: n_head must divide n_embd; got n_embd {}, n_head {}", n_embd, n_head);
  PF_CHECK(dropout >= 0 && dropout < 1, Value, "gpt: dropout is out of range; got {}; expected 0 <= dropout < 1",
           dropout);
}

std::string GptConfig::to_json() const {
  const nlohmann::ordered_json j = {{"vocabulary", vocabulary}, {"block_size", block_size}, {"n_layer", n_layer},
                                    {"n_head", n_head},         {"n_embd", n_embd},         {"dropout", dropout}};
  return j.dump();
}

GptConfig GptConfig::from_json(const std::string& json) {
  GptConfig c;
  try {
    const nlohmann::json j = nlohmann::json::parse(json);
    j.at("vocabulary").get_to(c.vocabulary);
    j.at("block_size").get_to(c.block_size);
    j.at("n_layer").get_to(c.n_layer);
    j.at("n_head").get_to(c.n_head);
    j.at("n_embd").get_to(c.n_embd);
    j.at("dropout").get_to(c.dropout);
  } catch (const nlohmann::json::exception&) {
    PF_FAIL(Value, "gpt: the model's description is not valid; got {}", json.substr(0, 120));
  }
  c.check();
  return c;
}

// ---- layers

CausalSelfAttention::CausalSelfAttention(const GptConfig& c)
    : n_head(c.n_head),
      dropout_p(c.dropout),
      qkv(c.n_embd, 3 * c.n_embd),
      proj(c.n_embd, c.n_embd),
      residual_dropout(c.dropout) {}

// [B, T, C] -> three views [B, H, T, D] of one projection.
CausalSelfAttention::Heads CausalSelfAttention::heads(const Tensor& x) const {
  const int64_t b = x.size(0), t = x.size(1), c = x.size(2);
  const Tensor all = view(qkv(x), {b, t, 3, n_head, c / n_head});
  const auto part = [&](int64_t i) { return transpose(select(all, 2, i), 1, 2); };
  return {part(0), part(1), part(2)};
}

Tensor CausalSelfAttention::merge(const Tensor& attended) const {
  const Tensor y = transpose(attended, 1, 2);
  return residual_dropout(proj(reshape(y, {y.size(0), y.size(1), y.size(2) * y.size(3)})));
}

Tensor CausalSelfAttention::operator()(const Tensor& x) const {
  const Heads h = heads(x);
  return merge(scaled_dot_product_attention(h.q, h.k, h.v, {}, is_training ? dropout_p : 0.0, true));
}

Tensor CausalSelfAttention::with_cache(const Tensor& x, KvCache& cache, int64_t position) const {
  const Heads h = heads(x);
  const int64_t t = x.size(1);
  copy_(narrow(cache.k, 2, position, t), h.k);
  copy_(narrow(cache.v, 2, position, t), h.v);
  return merge(scaled_dot_product_attention(h.q, cache.k, cache.v, {}, 0.0, true, {}, false, position + t));
}

GptMlp::GptMlp(const GptConfig& c) : fc(c.n_embd, 4 * c.n_embd), proj(4 * c.n_embd, c.n_embd), drop(c.dropout) {}

GptBlock::GptBlock(const GptConfig& c) : ln1({c.n_embd}), attn(c), ln2({c.n_embd}), mlp(c) {}

Tensor GptBlock::operator()(const Tensor& x) const {
  const Tensor y = add(x, attn(ln1(x)));
  return add(y, mlp(ln2(y)));
}

Tensor GptBlock::with_cache(const Tensor& x, KvCache& cache, int64_t position) const {
  const Tensor y = add(x, attn.with_cache(ln1(x), cache, position));
  return add(y, mlp(ln2(y)));
}

Gpt::Gpt(const GptConfig& c)
    : config((c.check(), c)),
      wte(c.vocabulary, c.n_embd),
      wpe(c.block_size, c.n_embd),
      drop(c.dropout),
      blocks([&] {
        nn::ModuleList<GptBlock> list;
        for (int64_t i = 0; i < c.n_layer; ++i) list.layers.emplace_back(c);
        return list;
      }()),
      ln_f({c.n_embd}),
      head(c.n_embd, c.vocabulary, false) {
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(c.n_layer));
  nn::for_each_parameter(*this, [&](const std::string& name, Tensor& t) {
    if (t.dim() == 2) {
      nn::init::normal_(t, 0.0, name.ends_with("proj.weight") ? residual_std : kInitStd);
    } else if (name.ends_with("bias")) {
      nn::init::constant_(t, 0.0);
    }
  });
}

Tensor Gpt::operator()(const Tensor& index) const {
  PF_CHECK(index.dim() == 2 && index.size(1) >= 1 && index.size(1) <= config.block_size, Value,
           "gpt: the index has a shape that does not fit; got {}; expected [batch, 1 to {}]", index.shape().str(),
           config.block_size);
  const Tensor position = narrow(wpe.weight, 0, 0, index.size(1));
  Tensor x = drop(add(wte(index), position));
  for (const GptBlock& b : blocks.layers) x = b(x);
  return head(ln_f(x));
}

Tensor Gpt::loss(const Tensor& index, const Tensor& target) const {
  const Tensor logits = (*this)(index);
  return cross_entropy(reshape(logits, {target.numel(), config.vocabulary}), reshape(target, {target.numel()}));
}

// ---- generation

std::vector<KvCache> Gpt::make_caches() const {
  std::vector<KvCache> caches;
  const Dims shape{1, config.n_head, config.block_size, config.n_embd / config.n_head};
  const Device device = wte.weight.device();
  // Zeros, because positions behind the current length are masked in the product, but must not be NaN.
  for (int64_t i = 0; i < config.n_layer; ++i) caches.push_back({zeros(shape, {}, device), zeros(shape, {}, device)});
  return caches;
}

Tensor Gpt::with_cache(const Tensor& index, std::vector<KvCache>& caches, int64_t position) const {
  const int64_t t = index.size(1);
  PF_CHECK(index.dim() == 2 && index.size(0) == 1 && position >= 0 && t >= 1 && position + t <= config.block_size,
           Value, "gpt: the tokens do not fit the cache; got {} at position {}; expected [1, T] within {}",
           index.shape().str(), position, config.block_size);
  Tensor x = add(wte(index), narrow(wpe.weight, 0, position, t));
  for (size_t i = 0; i < blocks.layers.size(); ++i) x = blocks.layers[i].with_cache(x, caches[i], position);
  return head(ln_f(select(x, 1, t - 1)));
}

Generator::Generator(const Gpt& model) : model_(model), caches_(model.make_caches()) {}

std::vector<float> Generator::run(const std::vector<int64_t>& tokens, int64_t position) {
  grad_mode::Guard no_grad(false);
  const Tensor index =
      from_host(tokens.data(), {1, static_cast<int64_t>(tokens.size())}, DType::int64, model_.wte.weight.device());
  const Tensor logits = contiguous(model_.with_cache(index, caches_, position));
  const Tensor host = logits.on_host();
  const float* p = static_cast<const float*>(host.data());
  return {p, p + logits.numel()};
}

std::vector<float> Generator::feed(const std::vector<int64_t>& tokens) {
  PF_CHECK(!tokens.empty(), Value, "generate: no tokens; expected at least one");
  const auto block = static_cast<size_t>(model_.config.block_size);
  if (context_.size() + tokens.size() <= block) {
    const auto position = static_cast<int64_t>(context_.size());
    context_.insert(context_.end(), tokens.begin(), tokens.end());
    return run(tokens, position);
  }
  // The cache is full: keep the last half, or as much of a long prompt as leaves room for half a context of new tokens.
  context_.insert(context_.end(), tokens.begin(), tokens.end());
  const size_t keep = std::max<size_t>(1, block / 2);
  context_.erase(context_.begin(), context_.end() - static_cast<std::ptrdiff_t>(keep));
  return run(context_, 0);
}

void Sampling::check() const {
  PF_CHECK(temperature >= 0 && std::isfinite(temperature), Value,
           "generate: temperature must be a number from 0 upwards; got {}", temperature);
  PF_CHECK(top_k >= 0, Value, "generate: top_k must not be negative; got {}; 0 switches it off", top_k);
  PF_CHECK(top_p > 0 && top_p <= 1, Value, "generate: top_p is out of range; got {}; expected 0 < top_p <= 1", top_p);
}

int64_t sample_token(const std::vector<float>& logits, const Sampling& s, double u) {
  PF_CHECK(!logits.empty() && std::all_of(logits.begin(), logits.end(), [](float v) { return v < INFINITY; }), Value,
           "generate: the logits are not numbers; the model's parameters are probably not finite");
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto logit = [&](int64_t i) { return static_cast<double>(logits[static_cast<size_t>(i)]); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  if (s.temperature == 0) return order[0];
  if (s.top_k > 0 && s.top_k < static_cast<int64_t>(order.size())) order.resize(static_cast<size_t>(s.top_k));
  std::vector<double> p;
  for (int64_t i : order) p.push_back(std::exp((logit(i) - logit(order[0])) / s.temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  // The smallest set of most likely tokens whose probability reaches top_p.
  size_t n = 0;
  double kept = 0;
  while (n < p.size() && (n == 0 || kept < s.top_p * total)) kept += p[n++];
  double target = u * kept;
  for (size_t i = 0; i < n; ++i) {
    if (target < p[i]) return order[i];
    target -= p[i];
  }
  return order[n - 1];
}

}  // namespace pyflame::apps::gpt
