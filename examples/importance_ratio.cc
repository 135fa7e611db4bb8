// examples/importance_ratio.cc: generates with a cache, a batch and a draft, and trains on what was said: the
// log-probabilities of both are equal to the bit, so the importance ratio of an unchanged policy is exactly 1.
#include "show.h"

#include <attn/generate.h>
#include <attn/ops.h>
#include <attn/optim.h>

#include <algorithm>

using attn::Dtype;
using attn::Tensor;
using show::print, show::title;
using Ids = std::vector<std::int64_t>;

namespace {

const std::vector<Ids> prompts = {{3, 1, 4}, {1}, {5, 9, 2, 6}};

/// The texts one after another, as training packs them: no padding.
struct Packed {
  Ids ids, targets;  // targets: the next token where it was generated, else -100
  Ids ends{0};
  std::vector<double> said;  // log-probabilities of the generated tokens

  explicit Packed(const std::vector<attn::Generated>& texts) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Ids text = prompts[i];
      text.insert(text.end(), texts[i].tokens.begin(), texts[i].tokens.end());
      for (std::size_t n = 0; n + 1 < text.size(); ++n) {
        ids.push_back(text[n]);
        targets.push_back(n + 1 < prompts[i].size() ? -100 : text[n + 1]);
      }
      ends.push_back(static_cast<std::int64_t>(ids.size()));
      said.insert(said.end(), texts[i].log_probabilities.begin(), texts[i].log_probabilities.end());
    }
  }

  /// Returns pi_now / pi_then of each generated token, with its gradient.
  Tensor ratios(const attn::LanguageModel& policy) const {
    const Tensor now = policy.log_probabilities(attn::tensor<std::int64_t>(ids), attn::tensor<std::int64_t>(targets),
                                                attn::tensor<std::int64_t>(ends));
    std::vector<Tensor> rows;
    for (std::size_t n = 0; n < targets.size(); ++n)
      if (targets[n] >= 0) rows.push_back(now.narrow(0, static_cast<std::int64_t>(n), 1));
    return attn::exp(attn::cat(rows, 0) - attn::tensor<double>(said).to(Dtype::f32));
  }
};

}  // namespace

int main() try {
  attn::manual_seed(7);
  const attn::LanguageModel policy(
      {.vocab_size = 10, .context = 64, .layers = 2, .heads = 2, .width = 32, .tied_head = false});

  title("1. Three texts, generated together, token by token, from a KV cache, with guesses of a draft");
  const attn::GenerateOptions options{.tokens = 20, .seed = 1, .draft = {.ngram = 2}, .log_probabilities = true};
  const std::vector<attn::Generated> texts = attn::generate(policy, prompts, options);
  const Packed batch(texts);
  print("tokens " + std::to_string(batch.said.size()) + " in " + std::to_string(texts.size()) + " texts");

  title("2. The training forward pass of the same texts, packed");
  const Tensor ratios = batch.ratios(policy);
  const std::vector<double> all = ratios.detach().to_vector();
  print("importance ratios that are exactly 1.0: " + std::to_string(std::count(all.begin(), all.end(), 1.0)) + " of " +
        std::to_string(all.size()));

  title("3. One step makes what was said likelier; only now the ratios move");
  attn::optim::SGD optimizer(policy.parameters(), {.lr = 0.1});
  (-ratios.mean()).backward();
  optimizer.step();
  const std::vector<double> after = batch.ratios(policy).detach().to_vector();
  print("exactly 1.0: " + std::to_string(std::count(after.begin(), after.end(), 1.0)) + " of " +
        std::to_string(after.size()));
  print(batch.ratios(policy).mean().item() > 1 ? "their mean is above 1" : "their mean is not above 1");
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
