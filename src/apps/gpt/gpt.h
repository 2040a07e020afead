// A GPT-2-like language model: token and position embeddings, blocks of LayerNorm, causal attention with one packed projection and
// a GELU MLP, a final LayerNorm and a head. The head is not tied to the token embedding, and biases are used as in GPT-2.
//
// Generation keeps the keys and values of the context in caches of fixed size, [1, heads, block, head size]. It writes
// each new position by slice assignment at a run-time position, so the cost per token is constant and no token needs a
// new program. Positions are learned, so a full context cannot slide: it is computed anew from its last half (see
// Generator).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pyflame/nn/layers.h"

namespace pyflame::apps::gpt {

struct GptConfig {
  int64_t vocabulary = 0, block_size = 128, n_layer = 4, n_head = 4, n_embd = 128;
  double dropout = 0.0;
  void check() const;  // ValueError
  std::string to_json() const;
  static GptConfig from_json(const std::string& json);
};

struct KvCache {
  Tensor k, v;  // [1, heads, block, head size]
};

struct CausalSelfAttention {
  int64_t n_head;
  double dropout_p;
  bool is_training = true;
  nn::Linear qkv, proj;
  nn::Dropout residual_dropout;
  explicit CausalSelfAttention(const GptConfig& c);
  Tensor operator()(const Tensor& x) const;
  // x is [1, T, C] at `position`; reads and extends the cache.
  Tensor with_cache(const Tensor& x, KvCache& cache, int64_t position) const;
  template <class V>
  void visit(V& v) {
    v.child("qkv", qkv);
    v.child("proj", proj);
    v.child("residual_dropout", residual_dropout);
    v.training(is_training);
  }

 private:
  struct Heads {
    Tensor q, k, v;
  };
  Heads heads(const Tensor& x) const;
  Tensor merge(const Tensor& attended) const;
};

struct GptMlp {
  nn::Linear fc, proj;
  nn::Dropout drop;
  explicit GptMlp(const GptConfig& c);
  Tensor operator()(const Tensor& x) const { return drop(proj(gelu(fc(x), "tanh"))); }
  template <class V>
  void visit(V& v) {
    v.child("fc", fc);
    v.child("proj", proj);
    v.child("drop", drop);
  }
};

struct GptBlock {
  nn::LayerNorm ln1;
  CausalSelfAttention attn;
  nn::LayerNorm ln2;
  GptMlp mlp;
  explicit GptBlock(const GptConfig& c);
  Tensor operator()(const Tensor& x) const;
  Tensor with_cache(const Tensor& x, KvCache& cache, int64_t position) const;
  template <class V>
  void visit(V& v) {
    v.child("ln1", ln1);
    v.child("attn", attn);
    v.child("ln2", ln2);
    v.child("mlp", mlp);
  }
};

struct Gpt {
  GptConfig config;
  nn::Embedding wte, wpe;
  nn::Dropout drop;
  nn::ModuleList<GptBlock> blocks;
  nn::LayerNorm ln_f;
  nn::Linear head;
  // Draws from the global generator: first the layers' own initial values in the order of their declaration; then, in
  // the same order, N(0, 0.02) for every weight matrix, where residual projections are scaled by 1 / sqrt(2 n_layer).
  // Biases are zero.
  explicit Gpt(const GptConfig& c);

  Tensor operator()(const Tensor& index) const;  // int64 [B, T] -> logits [B, T, vocabulary]
  Tensor loss(const Tensor& index, const Tensor& target) const;
  std::vector<KvCache> make_caches() const;
  // index is int64 [1, T] at `position`; returns the logits [1, vocabulary] of the last position.
  Tensor with_cache(const Tensor& index, std::vector<KvCache>& caches, int64_t position) const;

  template <class V>
  void visit(V& v) {
    v.child("wte", wte);
    v.child("wpe", wpe);
    v.child("drop", drop);
    v.child("blocks", blocks);
    v.child("ln_f", ln_f);
    v.child("head", head);
  }
};

struct Sampling {
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: off
  double top_p = 1.0;        // 1: off
  uint64_t seed = 0;
  void check() const;
};

// The token that `u` in [0, 1) selects from the logits. A pure function, so a seed gives the same text everywhere.
int64_t sample_token(const std::vector<float>& logits, const Sampling& s, double u);

// Takes tokens and returns the logits of the next one. When the context is full, it is computed anew from its last
// block_size / 2 tokens; this costs one pass over them every block_size / 2 tokens.
class Generator {
 public:
  explicit Generator(const Gpt& model);  // the model must be in evaluation mode (nn::train(model, false))
  // Logits after all tokens so far. At least one token must have been given.
  std::vector<float> feed(const std::vector<int64_t>& tokens);
  int64_t context_length() const { return static_cast<int64_t>(context_.size()); }

 private:
  std::vector<float> run(const std::vector<int64_t>& tokens, int64_t position);
  const Gpt& model_;
  std::vector<KvCache> caches_;
  std::vector<int64_t> context_;  // the tokens in the caches
};

}  // namespace pyflame::apps::gpt
