// src/cli/train_start.cc: checks what a training is asked for, reads its text, and begins or resumes it.
#include "cli/train_start.h"

#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/text.h>

#include "runtime/format.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace attn::cli {
namespace {

// --- options -------------------------------------------------------------------------------------------------------

TrainOptions options_of(const TrainArguments& a, std::int64_t vocab_size) {
  const std::size_t size = choose("--size", a.size, {"nano", "baby", "small"});
  TrainOptions o;
  o.model = size == 0   ? ModelConfig::nano(vocab_size)
            : size == 1 ? ModelConfig::baby(vocab_size)
                        : ModelConfig::small(vocab_size);
  o.model.vocab_size = vocab_size;
  constexpr std::int64_t steps[] = {2000, 5000, 20000}, batches[] = {12, 8, 4};
  constexpr double rates[] = {1e-3, 1e-3, 6e-4}, dropouts[] = {0.1, 0.2, 0.1};
  o.model.context = a.has("context") ? a.context : o.model.context;
  o.model.dropout = a.has("dropout") ? a.dropout : dropouts[size];
  o.dtype = choose("--dtype", a.dtype, {"f32", "bf16"}) == 0 ? Dtype::f32 : Dtype::bf16;
  o.steps = a.has("steps") ? a.steps : steps[size];
  o.batch = a.has("batch") ? a.batch : batches[size];
  o.lr = a.has("lr") ? a.lr : rates[size];
  o.eval_every =
      a.has("eval-every") ? a.eval_every : std::max<std::int64_t>(1, std::min<std::int64_t>(250, o.steps / 4));
  o.seed = static_cast<std::uint64_t>(a.seed);
  o.parts = a.parts;
  return o;
}

/// Checks that the options given together with --resume equal those of the saved training; only --steps may be larger.
void check_same(const TrainArguments& a, const TrainOptions& now) {
  const TrainOptions as_given = options_of(a, now.model.vocab_size);
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
  same("context", as_given.model.context, now.model.context);
  same("eval-every", as_given.eval_every, now.eval_every);
  same("seed", as_given.seed, now.seed);
  same("lr", as_given.lr, now.lr);
  same("dropout", as_given.model.dropout, now.model.dropout);
  same("dtype", std::string(name_of(as_given.dtype)), std::string(name_of(now.dtype)));
  if (a.has("size") && (as_given.model.layers != now.model.layers || as_given.model.width != now.model.width))
    throw UsageError{runtime::format(
        "--size {} is not that of the training in {}; leave it out, or begin anew in another --out", a.size, a.out)};
}

// --- the text and the training -------------------------------------------------------------------------------------

std::string read_texts(const std::vector<std::string>& paths, bool any_bytes) {
  std::string all;
  for (const std::string& path : paths) {
    std::string text = read_file(path);
    const auto wrong = any_bytes ? std::nullopt : text::invalid_utf8(text);
    if (wrong)
      throw ValueError(
          runtime::format("{}: the byte at offset {} is not UTF-8; --tokens bpe takes any bytes", path, *wrong));
    all += without_mark(std::move(text));
  }
  if (all.empty()) throw ValueError(runtime::format("{}: there is no text", runtime::join(paths, ", ")));
  return all;
}

Tokenizer::Kind kind_of(const TrainArguments& a) {
  return static_cast<Tokenizer::Kind>(choose("--tokens", a.tokens, {"characters", "words", "bpe"}));
}

/// Throws a ValueError if one step needs more memory than this machine has, because the system would kill the command
/// in its first step. For the backward pass, a step keeps at least this for each token: eight rows of `width` numbers
/// in each layer, and the logits.
void check_memory(const TrainOptions& o, const char* what_helps) {
  const double numbers = 8 * static_cast<double>(o.model.layers) * static_cast<double>(o.model.width) +
                         static_cast<double>(o.model.vocab_size);
  const std::int64_t windows = (o.batch + o.part_count() - 1) / o.part_count();  // the parts follow each other
  const double needed =
      static_cast<double>(windows) * static_cast<double>(o.model.context) * numbers * (o.dtype == Dtype::bf16 ? 2 : 4);
  // of the whole batch: where its windows begin, and a loss for each token
  const double whole = static_cast<double>(o.batch) * (8 + 4 * static_cast<double>(o.model.context));
  struct sysinfo about = {};
  ::sysinfo(&about);
  const double there = (static_cast<double>(about.totalram) + static_cast<double>(about.totalswap)) * about.mem_unit;
  if (there > 0 && needed + whole > there)
    throw ValueError(
        runtime::format("a step of {} of {} needs more than {:.1f} GiB of memory, this machine has {:.1f}{}",
                        counted(o.batch, "window"), counted(o.model.context, "token"), (needed + whole) / 0x1p30,
                        there / 0x1p30, what_helps));
}

/// Throws a UsageError if there are more ranks than parts of a batch.
void check_ranks(const TrainOptions& o, const Ranks& ranks) {
  const std::int64_t needed = ranks.size();
  if (needed <= o.part_count()) return;
  const std::int64_t batch = std::max(needed, (1024 * needed + o.model.context - 1) / o.model.context);
  throw UsageError{runtime::format("{} ranks, but a batch has {}: give --parts {} or more{}", needed,
                                   counted(o.part_count(), "part"), needed,
                                   o.parts == 0       ? runtime::format(", or --batch {}", batch)
                                   : o.batch < needed ? runtime::format(" and --batch {}", needed)
                                                      : "")};
}

/// Encodes the text again for --resume. A character that the vocabulary lacks means that the text is another one.
std::vector<std::int64_t> encode_again(const Tokenizer& tokenizer, const std::string& text, const std::string& out) {
  try {
    return tokenizer.encode(text);
  } catch (const ValueError& error) {
    const std::string_view what = error.what();
    throw ValueError(runtime::format("{} was begun with another text: {}", out, what.substr(what.find(": ") + 2)));
  }
}

/// Raises the number of steps and saves it, so that a later --resume without --steps uses it too.
void extend(Trainer& trainer, const TrainArguments& a, const Ranks& ranks) {
  const std::int64_t before = trainer.options().steps, next = trainer.step() + 1;
  if (a.steps == before) return;
  const double rate = next <= before ? trainer.options().lr_of(next) : trainer.options().lr / 10;
  trainer.extend(a.steps);
  trainer.save(a.out);
  if (ranks.rank() != 0) return;
  say(runtime::format("{} become {}: from step {} on the learning rate is that of {}, {:.2e} instead of {:.2e}\n",
                      counted(before, "step"), a.steps, next, a.steps, trainer.options().lr_of(next), rate));
}

}  // namespace

std::vector<std::int64_t> from_first(const Ranks& ranks, const std::vector<std::int64_t>& numbers) {
  if (ranks.size() == 1) return numbers;
  const std::string bytes =
      ranks.from_first({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t)});
  std::vector<std::int64_t> result(bytes.size() / sizeof(std::int64_t));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

Running begin_training(const TrainArguments& a, const Ranks& ranks) {
  const Tokenizer::Kind kind = kind_of(a);
  if (a.has("vocab") && kind == Tokenizer::Kind::characters)
    throw UsageError{"--vocab goes with --tokens words or bpe: characters take all there are"};
  options_of(a, 2).check();
  check_ranks(options_of(a, 2), ranks);
  Running running;
  std::vector<std::int64_t> ids, vocab_size{0};
  at_first(ranks, [&] {
    check_free(a.out);
    const std::string text = read_texts(a.texts, kind == Tokenizer::Kind::bpe);
    running.tokenizer = Tokenizer::train(text, kind, a.vocab);
    vocab_size = {running.tokenizer->size()};
    check_memory(options_of(a, vocab_size[0]), "; a smaller --batch or --context needs less");
    check_tokenizer(a.out, *running.tokenizer);
    ids = running.tokenizer->encode(text);
  });
  const TrainOptions options = options_of(a, from_first(ranks, vocab_size)[0]);
  running.trainer = std::make_unique<Trainer>(from_first(ranks, ids), options, ranks);
  try {
    at_first(ranks, [&] {
      std::error_code failure;
      running.made = missing_files(a.out);
      std::filesystem::create_directories(a.out, failure);
      if (failure) throw IoError(runtime::format("{}: {}", a.out, failure.message()));
      running.lock = std::make_unique<FolderLock>(a.out);
      check_free(a.out);  // another process may have begun there in the meantime
      check_tokenizer(a.out, *running.tokenizer);
      try {
        running.tokenizer->save(a.out);
      } catch (const IoError&) {  // the folder can then be used for another text
        remove_all(running.made);
        throw;
      }
    });
    // before the weights, because check_free refuses a folder with weights but without a training
    running.trainer->save(a.out);
  } catch (const IoError&) {
    remove_all(running.made);
    throw;
  }
  return running;
}

Running resume_training(const TrainArguments& a, const Ranks& ranks) {
  Running running;
  std::vector<std::int64_t> ids;
  std::string text;
  at_first(ranks, [&] {
    running.lock = std::make_unique<FolderLock>(a.out);
    const auto found = Trainer::find(a.out);
    if (!found) throw ValueError(runtime::format("{} holds no training to resume; without --resume one begins", a.out));
    check_same(a, found->first);
    if (ranks.size() > found->first.part_count())
      throw UsageError{runtime::format("{} ranks, but the training in {} has {} a batch: start as many or fewer",
                                       ranks.size(), a.out, counted(found->first.part_count(), "part"))};
    check_memory(found->first, "");  // the training may have begun on a larger machine
    running.tokenizer = Tokenizer::load(a.out);
    if (a.has("tokens") && running.tokenizer->kind() != kind_of(a))
      throw UsageError{runtime::format(
          "--tokens {} are not those of the training in {}; leave it out, or begin anew in another --out", a.tokens,
          a.out)};
    text = read_texts(a.texts, running.tokenizer->kind() == Tokenizer::Kind::bpe);
    ids = encode_again(*running.tokenizer, text, a.out);
  });
  running.trainer = std::make_unique<Trainer>(Trainer::resume(a.out, from_first(ranks, ids), ranks));
  at_first(ranks, [&] {
    const Tokenizer& tokenizer = *running.tokenizer;
    if (a.has("vocab") && (tokenizer.kind() == Tokenizer::Kind::characters ||
                           Tokenizer::train(text, tokenizer.kind(), a.vocab).size() != tokenizer.size()))
      throw UsageError{runtime::format(
          "--vocab {} gives another vocabulary than that of the training in {} ({}); leave it out, or begin "
          "anew in another --out",
          a.vocab, a.out, tokenizer.size())};
  });
  if (a.has("steps")) extend(*running.trainer, a, ranks);
  return running;
}

}  // namespace attn::cli
