// src/cli/train_options.cc: reads the options of attn train.
#include "cli/train_options.h"

#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>

#include "runtime/format.h"

#include <algorithm>

namespace attn::cli {
namespace {

std::size_t train_size(const TrainArguments& a) { return choose("--size", a.size, {"nano", "baby", "small"}); }

EncoderDecoderConfig pair_model(const TrainArguments& a, std::int64_t vocab_size) {
  const std::size_t size = train_size(a);
  EncoderDecoderConfig config = size == 0   ? EncoderDecoderConfig::nano(vocab_size)
                                : size == 1 ? EncoderDecoderConfig::baby(vocab_size)
                                            : EncoderDecoderConfig::small(vocab_size);
  if (a.has("context")) config.positions = a.context;
  if (a.has("dropout")) config.dropout = a.dropout;
  return config;
}

}  // namespace

void add_train_options(Parser& parser, TrainArguments& a) {
  parser.option("TEXT", a.texts, "Text files (- is stdin), one after the other: the last tenth is for validation")
      .type_name("");
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return a.given[name] = parser.option(std::string("--") + name, value, text).type_name(type);
  };
  add("pairs", a.pairs, "FILE", "Instead of TEXT: an encoder-decoder, from lines SOURCE<tab>TARGET (- is stdin)");
  add("out", a.out, "FOLDER", "Where the model goes: attn-model without it");
  add("size", a.size, "NAME", "nano (4 layers, 128 wide), baby (6, 384) or small (12, 768: GPT-2's)");
  add("tokens", a.tokens, "NAME", "characters, words or bpe (byte pairs, learnt from the text)");
  add("vocab", a.vocab, "N", "How many words (all without it) or byte pairs (1024)").check(whole_number);
  add("steps", a.steps, "N", "2000, 5000 or 20000 by size").check(whole_number);
  add("batch", a.batch, "N", "Windows a step: 12, 8 or 4 by size; pairs: 64").check(whole_number);
  add("parts", a.parts, "N", "Parts of a batch: 1, or one for 1024 tokens; more ranks need more").check(whole_number);
  add("context", a.context, "N", "Tokens a window: 64, 256 or 1024 by size; of a pair's text at most: 512")
      .check(whole_number);
  add("lr", a.lr, "X", "The highest learning rate; a cosine takes it to a tenth").check(number);
  add("dropout", a.dropout, "X", "0.1, 0.2 or 0.1 by size").check(number);
  add("label-smoothing", a.label_smoothing, "X", "Of pairs: a share of each target for all tokens; 0 without it")
      .check(number);
  add("dtype", a.dtype, "NAME", "f32, or bf16 with the weights kept in f32 too");
  add("seed", a.seed, "N", "Of weights, batches and dropout").check(whole_number);
  add("eval-every", a.eval_every, "N", "Steps between validations; the best weights are kept").check(whole_number);
  add("save-every", a.save_every, "N", "Steps between checkpoints: as --eval-every without it").check(whole_number);
  add("check-every", a.check_every, "N", "Steps after which ranks compare their weights").check(whole_number);
  add("rank-timeout", a.rank_timeout, "S", "Seconds without the other ranks that end one: 600; 0: none").check(number);
  add("log", a.log, "FILE", "One JSON line a step; - is stdout").check(file_name);
  parser.flag("--resume", a.resume, "Go on with the training in --out, to the bit as if it had never stopped");
}

void check_train_options(const TrainArguments& a) {
  if (a.texts.empty() && !a.has("pairs"))
    throw UsageError{"a text is missing, as in: attn train /usr/share/common-licenses/GPL-3"};
  if (!a.texts.empty() && a.has("pairs"))
    throw UsageError{runtime::format("--pairs trains on {} alone; leave out {}", a.pairs, a.texts[0])};
  if (a.has("pairs") && a.pairs.empty()) throw UsageError{"--pairs is empty; it must name a file"};
  if (a.has("label-smoothing") && !a.has("pairs")) throw UsageError{"--label-smoothing goes with --pairs"};
  if (a.has("vocab") && kind_of(a) == Tokenizer::Kind::characters && !a.resume)
    throw UsageError{"--vocab goes with --tokens words or bpe: characters take all there are"};
  if (a.has("save-every") && a.save_every < 1)
    throw ValueError(runtime::format("train: save_every is {}; it must be 1 or more", a.save_every));
  if (a.has("check-every") && a.check_every < 1)
    throw ValueError(runtime::format("train: check_every is {}; it must be 1 or more", a.check_every));
  if (!(a.rank_timeout >= 0))
    throw ValueError(runtime::format("train: rank_timeout is {}; it must be 0 or more", a.rank_timeout));
  if (a.out.empty()) throw UsageError{"--out is empty; it must name a folder"};
  if (a.out == standard_stream)
    throw UsageError{"--out is -, which is no folder; a model needs one (./- has that name)"};
}

Tokenizer::Kind kind_of(const TrainArguments& a) {
  return static_cast<Tokenizer::Kind>(choose("--tokens", a.tokens, {"characters", "words", "bpe"}));
}

TrainOptions options_of(const TrainArguments& a, std::int64_t vocab_size) {
  const std::size_t size = train_size(a);
  const bool pairs = a.has("pairs");
  TrainOptions o;
  constexpr std::int64_t steps[] = {2000, 5000, 20000}, batches[] = {12, 8, 4};
  constexpr double rates[] = {1e-3, 1e-3, 6e-4}, dropouts[] = {0.1, 0.2, 0.1};
  if (pairs) {
    o.encoder_decoder = pair_model(a, vocab_size);
    o.label_smoothing = a.label_smoothing;
  } else {
    o.model = size == 0   ? ModelConfig::nano(vocab_size)
              : size == 1 ? ModelConfig::baby(vocab_size)
                          : ModelConfig::small(vocab_size);
    o.model.vocab_size = vocab_size;
    o.model.context = a.has("context") ? a.context : o.model.context;
    o.model.dropout = a.has("dropout") ? a.dropout : dropouts[size];
  }
  o.dtype = choose("--dtype", a.dtype, {"f32", "bf16"}) == 0 ? Dtype::f32 : Dtype::bf16;
  o.steps = a.has("steps") ? a.steps : steps[size];
  o.batch = a.has("batch") ? a.batch : pairs ? 64 : batches[size];
  o.lr = a.has("lr") ? a.lr : rates[size];
  o.eval_every =
      a.has("eval-every") ? a.eval_every : std::max<std::int64_t>(1, std::min<std::int64_t>(250, o.steps / 4));
  o.seed = static_cast<std::uint64_t>(a.seed);
  o.parts = a.parts;
  return o;
}

void check_same(const TrainArguments& a, const TrainOptions& now) {
  if (!a.has("pairs") && now.encoder_decoder)
    throw UsageError{runtime::format("the training in {} is of pairs (--pairs); --resume needs them again", a.out)};
  if (a.has("pairs") && !now.encoder_decoder)
    throw UsageError{runtime::format("the training in {} is of a text; --resume needs it again", a.out)};
  const TrainOptions as_given =
      options_of(a, now.encoder_decoder ? now.encoder_decoder->vocab_size : now.model.vocab_size);
  const auto same = [&](const char* name, const auto& given, const auto& then) {
    if (a.has(name) && !(given == then))
      throw UsageError{
          runtime::format("--{} is {}, the training in {} has {}; leave it out, or begin anew in another --out", name,
                          given, a.out, then)};
  };
  same("steps", std::min(as_given.steps, now.steps), now.steps);
  same("batch", as_given.batch, now.batch);
  if (a.has("parts")) {
    TrainOptions then = now;
    then.parts = a.parts;
    same("parts", then.part_count(), now.part_count());
  }
  same("eval-every", as_given.eval_every, now.eval_every);
  same("seed", as_given.seed, now.seed);
  same("lr", as_given.lr, now.lr);
  same("label-smoothing", as_given.label_smoothing, now.label_smoothing);
  same("dtype", std::string(name_of(as_given.dtype)), std::string(name_of(now.dtype)));
  const auto shape = [](const TrainOptions& o) {
    return o.encoder_decoder ? std::pair(o.encoder_decoder->encoder_layers, o.encoder_decoder->width)
                             : std::pair(o.model.layers, o.model.width);
  };
  if (now.encoder_decoder) {
    same("context", as_given.encoder_decoder->positions, now.encoder_decoder->positions);
    same("dropout", as_given.encoder_decoder->dropout, now.encoder_decoder->dropout);
  } else {
    same("context", as_given.model.context, now.model.context);
    same("dropout", as_given.model.dropout, now.model.dropout);
  }
  if (a.has("size") && shape(as_given) != shape(now))
    throw UsageError{runtime::format(
        "--size {} is not that of the training in {}; leave it out, or begin anew in another --out", a.size, a.out)};
}

}  // namespace attn::cli
