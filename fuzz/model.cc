// fuzz/model.cc: loads a file of weights into each family of models: all parameters are loaded, or an error names what
// is wrong.
#include "folder.h"
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

static const std::string shared = R"("vocab_size":5,"max_position_embeddings":4,"hidden_size":4,"num_hidden_layers":1,
"num_attention_heads":2,"intermediate_size":3})";
static const std::string families[] = {
    R"({"model_type":"gpt2","vocab_size":5,"n_positions":4,"n_embd":4,"n_layer":1,"n_head":2})",
    R"({"model_type":"llama",)" + shared, R"({"model_type":"qwen3","head_dim":2,)" + shared};

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  folder.write("model.safetensors", data, size);
  for (const std::string& family : families) {
    folder.write("config.json", family.data(), family.size());
    answers([&] {
      const LanguageModel model = LanguageModel::load(folder.path());
      const Tensor ids = tensor<std::int64_t>({1, 4, 0}, {1, 3});
      const Tensor logits = model(ids);
      check(logits.sizes() == Dims({1, 3, 5}), "logits of another shape");
      ModelCache cache(model.config, 1, model.dtype());
      check(same_bits(model.logits(model.hidden(ids, cache)), logits), "other logits with a cache");
    });
  }
  return 0;
}
