#include "tests/model/toy_gguf.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"

namespace sluice::testing {
namespace {

class Builder {
 public:
  explicit Builder(const ToyGguf& toy) : toy_(toy) {}

  void U32(const std::string& key, uint32_t value) {
    if (Wanted(toy_.without_keys, key)) writer_.AddU32(key, value);
  }
  void F32(const std::string& key, float value) {
    if (Wanted(toy_.without_keys, key)) writer_.AddF32(key, value);
  }
  void String(const std::string& key, const std::string& value) {
    if (Wanted(toy_.without_keys, key)) writer_.AddString(key, value);
  }

  void Tensor(const std::string& name, std::vector<int64_t> shape) {
    if (!Wanted(toy_.without_tensors, name)) return;
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    std::vector<float> values(size_t(n), 1.0f);
    std::normal_distribution<float> normal(0, 0.1f);
    if (shape.size() > 1) {
      for (float& v : values) v = normal(rng_);
    }
    writer_.AddF32Tensor(name, shape, values);
  }

  void Keys() {
    String("general.architecture", "llama");
    U32("llama.context_length", 128);
    U32("llama.embedding_length", uint32_t(toy_.d_model));
    U32("llama.block_count", uint32_t(toy_.num_layers));
    U32("llama.feed_forward_length", uint32_t(toy_.ffn));
    U32("llama.attention.head_count", uint32_t(toy_.num_heads));
    U32("llama.attention.head_count_kv", uint32_t(toy_.num_kv_heads));
    F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    F32("llama.rope.freq_base", 1e4f);
    if (toy_.head_dim * toy_.num_heads != toy_.d_model) {
      U32("llama.attention.key_length", uint32_t(toy_.head_dim));
      U32("llama.attention.value_length", uint32_t(toy_.head_dim));
    }
  }

  void Tokenizer() {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    for (int32_t id = 0; id < toy_.vocab_size; ++id) {
      const bool control = id < 3;
      tokens.push_back(control ? std::vector<std::string>{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}[size_t(id)]
                               : std::string(1, char('!' + id - 3)));
      types.push_back(control ? 3 : 1);
    }
    const auto wanted = [&](const char* key) { return Wanted(toy_.without_keys, key); };
    String("tokenizer.ggml.model", "gpt2");
    String("tokenizer.ggml.pre", "smollm");
    if (wanted("tokenizer.ggml.tokens")) writer_.AddStrings("tokenizer.ggml.tokens", tokens);
    if (wanted("tokenizer.ggml.token_type")) writer_.AddI32s("tokenizer.ggml.token_type", types);
    if (wanted("tokenizer.ggml.merges")) writer_.AddStrings("tokenizer.ggml.merges", {});
    U32("tokenizer.ggml.bos_token_id", 1);
    U32("tokenizer.ggml.eos_token_id", 2);
    String("tokenizer.chat_template", "{{ messages[0].content }}");
  }

  void Tensors() {
    const int64_t d = toy_.d_model, q = int64_t{toy_.num_heads} * toy_.head_dim;
    const int64_t kv = int64_t{toy_.num_kv_heads} * toy_.head_dim;
    Tensor("token_embd.weight", {toy_.vocab_size, d});
    for (int32_t layer = 0; layer < toy_.num_layers; ++layer) {
      const std::string at = absl::StrCat("blk.", layer, ".");
      Tensor(at + "attn_norm.weight", {d});
      Tensor(at + "attn_q.weight", {q, d});
      Tensor(at + "attn_k.weight", {kv, d});
      Tensor(at + "attn_v.weight", {kv, d});
      Tensor(at + "attn_output.weight", {d, q});
      Tensor(at + "ffn_norm.weight", {d});
      Tensor(at + "ffn_gate.weight", {toy_.ffn, d});
      Tensor(at + "ffn_up.weight", {toy_.ffn, d});
      Tensor(at + "ffn_down.weight", {d, toy_.ffn});
    }
    Tensor("output_norm.weight", {d});
    if (!toy_.tied) Tensor("output.weight", {toy_.vocab_size, d});
  }

  std::string Bytes() {
    Keys();
    if (toy_.tokenizer) Tokenizer();
    Tensors();
    if (toy_.add) toy_.add(&writer_);
    return writer_.Bytes();
  }

 private:
  static bool Wanted(const std::vector<std::string>& without, const std::string& name) {
    return std::find(without.begin(), without.end(), name) == without.end();
  }

  const ToyGguf& toy_;
  std::mt19937 rng_{1};
  GgufWriter writer_;
};

}  // namespace

std::string ToyGgufBytes(const ToyGguf& toy) { return Builder(toy).Bytes(); }

}  // namespace sluice::testing
