// src/cli/train.cc: implements attn train: trains a language model on a text, or an encoder-decoder on pairs, and
// writes it to a folder.
#include "cli/memory.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/train_folder.h"
#include "cli/train_options.h"
#include "cli/train_report.h"
#include "cli/train_texts.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <attn/train.h>

#include "io/write.h"

#include "runtime/format.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <new>
#include <span>

namespace attn::cli {
namespace {

void say(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }

// --- the training --------------------------------------------------------------------------------------------------

/// A training, the lock of its folder, and its tokenizer.
struct Running {
  std::unique_ptr<FolderLock> lock;
  Trainer trainer;
  Tokenizer tokenizer;
  std::vector<std::filesystem::path> made;  // what this training creates: files, then the folder
};

/// Throws a ValueError if one step needs more memory than this machine has, because the system would kill the command
/// in its first step. For the backward pass, a step keeps at least this for each token: eight rows of `width` numbers
/// in each layer, and the logits.
void check_memory(const TrainOptions& o, const char* what_helps) {
  if (o.encoder_decoder) return;  // its texts are as long as they are
  const double numbers = 8 * static_cast<double>(o.model.layers) * static_cast<double>(o.model.width) +
                         static_cast<double>(o.model.vocab_size);
  const double needed =
      static_cast<double>(o.batch) * static_cast<double>(o.model.context) * numbers * (o.dtype == Dtype::bf16 ? 2 : 4);
  struct sysinfo about = {};
  ::sysinfo(&about);
  const double there = (static_cast<double>(about.totalram) + static_cast<double>(about.totalswap)) * about.mem_unit;
  if (there > 0 && needed > there)
    throw ValueError(runtime::format(
        "a step of {} of {} needs more than {:.1f} GiB of memory, this machine has {:.1f}{}",
        counted(o.batch, "window"), counted(o.model.context, "token"), needed / 0x1p30, there / 0x1p30, what_helps));
}

/// What a training reads: a text, or pairs.
struct TrainTexts {
  std::string text;
  std::vector<TextPair> pairs;
};

TrainTexts read(const TrainArguments& a, Tokenizer::Kind kind) {
  const bool any_bytes = kind == Tokenizer::Kind::bpe;
  if (a.has("pairs")) return {.text = {}, .pairs = read_pairs(a.pairs, any_bytes)};
  return {.text = read_texts(a.texts, any_bytes), .pairs = {}};
}

Tokenizer learn(const TrainTexts& texts, const TrainArguments& a) {
  return a.has("pairs") ? train_pair_tokenizer(texts.pairs, kind_of(a), a.vocab)
                        : Tokenizer::train(texts.text, kind_of(a), a.vocab);
}

/// Begins a new training. It writes the first checkpoint before the first step, so that a folder that cannot be written
/// is reported at once.
Running begin(const TrainArguments& a) {
  options_of(a, 2).check();
  check_free(a.out);
  const TrainTexts texts = read(a, kind_of(a));
  const Tokenizer tokenizer = learn(texts, a);
  const TrainOptions options = options_of(a, tokenizer.size());
  check_memory(options, "; a smaller --batch or --context needs less");
  check_tokenizer(a.out, tokenizer);
  Trainer trainer = a.has("pairs") ? Trainer::of_pairs(encode_pairs(tokenizer, texts.pairs), options)
                                   : Trainer(tokenizer.encode(texts.text), options);
  std::error_code failure;
  std::vector<std::filesystem::path> made = missing_files(a.out);
  std::filesystem::create_directories(a.out, failure);
  if (failure) throw IoError(runtime::format("{}: {}", a.out, failure.message()));
  auto lock = std::make_unique<FolderLock>(a.out);
  check_free(a.out);  // another process may have begun there in the meantime
  check_tokenizer(a.out, tokenizer);
  try {
    tokenizer.save(a.out);
    // before the weights, because check_free refuses a folder with weights but without a training
    trainer.save(a.out);
  } catch (const IoError&) {  // the folder can then be used for another text
    remove_all(made);
    throw;
  }
  return {std::move(lock), std::move(trainer), tokenizer, std::move(made)};
}

/// Resumes with the text encoded again. A character that the vocabulary lacks means that the text is another one.
Trainer resume(const Tokenizer& tokenizer, const TrainTexts& texts, const TrainArguments& a) {
  std::vector<IdPair> pairs;
  std::vector<std::int64_t> ids;
  try {
    if (a.has("pairs")) pairs = encode_pairs(tokenizer, texts.pairs);
    else ids = tokenizer.encode(texts.text);
  } catch (const ValueError& error) {
    const std::string_view what = error.what();
    const std::size_t first = a.has("pairs") ? 0 : what.find(": ") + 2;  // without "encode: "
    throw ValueError(runtime::format("{} was begun with another text: {}", a.out, what.substr(first)));
  }
  return a.has("pairs") ? Trainer::resume_pairs(a.out, std::move(pairs)) : Trainer::resume(a.out, std::move(ids));
}

/// Raises the number of steps and saves it, so that a later --resume without --steps uses it too.
void extend(Trainer& trainer, const TrainArguments& a) {
  const std::int64_t before = trainer.options().steps, next = trainer.step() + 1;
  if (a.steps == before) return;
  const double rate = next <= before ? trainer.options().lr_of(next) : trainer.options().lr / 10;
  trainer.extend(a.steps);
  trainer.save(a.out);
  say(runtime::format("{} become {}: from step {} on the learning rate is that of {}, {:.2e} instead of {:.2e}\n",
                      counted(before, "step"), a.steps, next, a.steps, trainer.options().lr_of(next), rate));
}

Running go_on(const TrainArguments& a) {
  auto lock = std::make_unique<FolderLock>(a.out);
  const auto found = Trainer::find(a.out);
  if (!found) throw ValueError(runtime::format("{} holds no training to resume; without --resume one begins", a.out));
  check_same(a, found->first);
  check_memory(found->first, "");  // the training may have begun on a larger machine
  const Tokenizer tokenizer = Tokenizer::load(a.out);
  if (a.has("tokens") && tokenizer.kind() != kind_of(a))
    throw UsageError{
        runtime::format("--tokens {} are not those of the training in {}; leave it out, or begin anew in another --out",
                        a.tokens, a.out)};
  const TrainTexts texts = read(a, tokenizer.kind());
  Trainer trainer = resume(tokenizer, texts, a);
  if (a.has("vocab") && (tokenizer.kind() == Tokenizer::Kind::characters || learn(texts, a).size() != tokenizer.size()))
    throw UsageError{runtime::format(
        "--vocab {} gives another vocabulary than that of the training in {} ({}); leave it out, or begin "
        "anew in another --out",
        a.vocab, a.out, tokenizer.size())};
  if (a.has("steps")) extend(trainer, a);
  return {std::move(lock), std::move(trainer), tokenizer, {}};
}

// --- the run -------------------------------------------------------------------------------------------------------

void introduce(const Trainer& trainer, const Tokenizer& tokenizer) {
  const TrainOptions& o = trainer.options();
  constexpr const char* kinds[] = {"characters", "words", "byte pairs"};
  std::string shape;
  if (const auto& pair = o.encoder_decoder)
    shape = runtime::format("{} + {} layers, {}, width {}", pair->encoder_layers, pair->decoder_layers,
                            counted(pair->encoder_heads, "head"), pair->width);
  else
    shape = runtime::format("{}, {}, width {}, context {}", counted(o.model.layers, "layer"),
                            counted(o.model.heads, "head"), o.model.width, o.model.context);
  say(runtime::format("{} parameters, {}; {} {}; batch {}; {}; {}\n", count(static_cast<double>(trainer.parameters())),
                      shape, tokenizer.size(), kinds[static_cast<std::size_t>(tokenizer.kind())], o.batch,
                      name_of(o.dtype), counted(num_threads(), "thread")));
  if (!trainer.notice().empty()) say(trainer.notice() + "\n");
}

/// Trains until all steps are done or a signal asks to stop. The best weights are saved before the state that refers to
/// them, so that after a crash between the two only some steps are repeated.
void steps(Trainer& trainer, const FolderLock& folder, const TrainArguments& a) {
  const std::int64_t save_every = a.has("save-every") ? a.save_every : trainer.options().eval_every;
  std::int64_t saved = trainer.step();
  TrainReport report(trainer, a.log);
  const StopSignals stop;
  report.start();
  try {
    std::error_code unknown;
    if (saved == 0 && (!a.resume || !std::filesystem::exists(std::filesystem::path(a.out) / "config.json", unknown)))
      trainer.save_model(a.out);
    while (!trainer.done() && !stop.wanted()) {
      const TrainStep done = trainer.advance();
      report.step(done);
      folder.check();
      if (done.best) trainer.save_model(a.out);
      if (done.step % save_every != 0 && !trainer.done() && !stop.wanted()) continue;
      trainer.save(a.out);
      saved = trainer.step();
    }
    report.close();
  } catch (const IoError& error) {
    throw IoError(
        runtime::format("{}; the checkpoint of step {} is whole, --resume goes on from it", error.what(), saved));
  }
}

/// Reports that the first step does not fit into memory. The files of a new training are removed, so that the folder
/// can be used again with smaller options.
[[noreturn]] void no_memory(const Running& running, const TrainArguments& a) {
  const TrainOptions& o = running.trainer.options();
  const bool unbegun = !a.resume && running.trainer.step() == 0;
  if (unbegun) remove_all(running.made);
  if (o.encoder_decoder)
    throw ValueError(runtime::format("not enough memory for a step of {}{}", counted(o.batch, "pair"),
                                     unbegun ? "; a smaller --batch needs less" : ""));
  throw ValueError(runtime::format("not enough memory for a step of {} of {}{}", counted(o.batch, "window"),
                                   counted(o.model.context, "token"),
                                   unbegun ? "; a smaller --batch or --context needs less" : ""));
}

void run(const TrainArguments& a) {
  keep_freed_memory();
  check_train_options(a);
  check_log(a.log, a.out, a.resume);
  Running running = a.resume ? go_on(a) : begin(a);
  Trainer& trainer = running.trainer;
  introduce(trainer, running.tokenizer);
  try {
    steps(trainer, *running.lock, a);
  } catch (const std::bad_alloc&) { no_memory(running, a); }
  running.lock->check();
  const std::string curve = loss_curve_svg(
      trainer,
      runtime::format("attn train {}: {} parameters",
                      one_line(std::filesystem::path(a.has("pairs") ? a.pairs : a.texts[0]).filename().string()),
                      count(static_cast<double>(trainer.parameters()))));
  io::write_whole("attn train", (std::filesystem::path(a.out) / "loss.svg").string(),
                  {std::as_bytes(std::span(curve))});
  const auto conclude = [&](const std::string& line) { a.log == standard_stream ? say(line) : print(line); };
  if (!trainer.done())
    return conclude(runtime::format("stopped at step {} of {}, saved in {}: --resume goes on\n", trainer.step(),
                                    trainer.options().steps, a.out));
  conclude(runtime::format("best validation loss {:.4f} at step {}; model and loss curve in {}\n", trainer.best_loss(),
                           trainer.best_step(), a.out));
}

}  // namespace

Verb add_train(Parser app) {
  Parser parser = app.add_verb("train", "A language model from a text, or a translation from pairs, on this machine");
  auto arguments = std::make_shared<TrainArguments>();
  add_train_options(parser, *arguments);
  parser.footer(
      "Ctrl-C ends the step, saves and stops; --resume goes on. FOLDER holds config.json, tokenizer.json, "
      "model.safetensors (the best\n"
      "weights so far), train_state.safetensors (all that --resume needs) and, at the end, loss.svg.\n"
      "\nExamples\n  attn train /usr/share/common-licenses/GPL-3 --out gpl\n"
      "  attn train --pairs numbers.tsv --tokens words --out numbers");
  return {parser, [arguments](const std::vector<std::string>& rest) {
            arguments->texts.insert(arguments->texts.end(), rest.begin(), rest.end());
            run(*arguments);
          }};
}

}  // namespace attn::cli
