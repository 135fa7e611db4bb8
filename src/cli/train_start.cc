// src/cli/train_start.cc: reads the texts of a training, checks that it fits this machine, and begins or resumes it.
#include "cli/train_start.h"

#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/train_texts.h"

#include <attn/error.h>

#include "runtime/format.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace attn::cli {
namespace {

/// What a training reads: a text, or pairs; and their ids.
struct TrainTexts {
  std::string text;
  std::vector<TextPair> pairs;
};
struct TrainIds {
  std::vector<std::int64_t> text;
  std::vector<IdPair> pairs;
};

TrainTexts read_for(const TrainArguments& a, Tokenizer::Kind kind) {
  const bool any_bytes = kind == Tokenizer::Kind::bpe;
  if (a.has("pairs")) return {.text = {}, .pairs = read_pairs(a.pairs, any_bytes)};
  return {.text = read_texts(a.texts, any_bytes), .pairs = {}};
}

Tokenizer learn(const TrainTexts& texts, const TrainArguments& a, Tokenizer::Kind kind) {
  return a.has("pairs") ? train_pair_tokenizer(texts.pairs, kind, a.vocab)
                        : Tokenizer::train(texts.text, kind, a.vocab);
}

TrainIds encoded(const Tokenizer& tokenizer, const TrainTexts& texts, const TrainArguments& a) {
  if (a.has("pairs")) return {.text = {}, .pairs = encode_pairs(tokenizer, texts.pairs)};
  return {.text = tokenizer.encode(texts.text), .pairs = {}};
}

/// Throws a ValueError if one step needs more memory than this machine has, because the system would kill the command
/// in its first step. For the backward pass, a step keeps at least this for each token: eight rows of `width` numbers
/// in each layer, and the logits.
void check_memory(const TrainOptions& o, const char* what_helps) {
  if (o.encoder_decoder) return;  // its texts are as long as they are
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
  throw UsageError{runtime::format(
      "{} ranks, but a batch has {}: give --parts {} or more{}", needed, counted(o.part_count(), "part"), needed,
      o.batch < needed && (o.parts != 0 || o.encoder_decoder) ? runtime::format(" and --batch {}", needed)
      : o.parts == 0 && !o.encoder_decoder                    ? runtime::format(", or --batch {}", batch)
                                                              : "")};
}

/// Gives every rank the pairs of rank 0: the lengths of each pair, then its ids.
std::vector<IdPair> pairs_from_first(const Ranks& ranks, const std::vector<IdPair>& pairs) {
  if (ranks.size() == 1) return pairs;
  std::vector<std::int64_t> numbers;
  everywhere(ranks, [&] {
    for (const auto& [source, target] : pairs) {
      numbers.push_back(std::ssize(source)), numbers.push_back(std::ssize(target));
      for (const auto* ids : {&source, &target}) numbers.insert(numbers.end(), ids->begin(), ids->end());
    }
  });
  numbers = from_first(ranks, numbers);
  std::vector<IdPair> all;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const auto ids = at + 2, middle = ids + at[0], end = middle + at[1];
    all.push_back({{ids, middle}, {middle, end}});
    at = end;
  }
  return all;
}

Trainer begun(const TrainArguments& a, const TrainIds& ids, const TrainOptions& options, const Ranks& ranks) {
  if (a.has("pairs")) return Trainer::of_pairs(pairs_from_first(ranks, ids.pairs), options, ranks);
  return Trainer(from_first(ranks, ids.text), options, ranks);
}

Trainer resumed(const TrainArguments& a, const TrainIds& ids, const Ranks& ranks) {
  if (a.has("pairs")) return Trainer::resume_pairs(a.out, pairs_from_first(ranks, ids.pairs), ranks);
  return Trainer::resume(a.out, from_first(ranks, ids.text), ranks);
}

/// Encodes the texts again for --resume. A character that the vocabulary lacks means that the text is another one.
TrainIds encode_again(const Tokenizer& tokenizer, const TrainTexts& texts, const TrainArguments& a) {
  try {
    return encoded(tokenizer, texts, a);
  } catch (const ValueError& error) {
    const std::string_view what = error.what();
    const std::size_t first = a.has("pairs") ? 0 : what.find(": ") + 2;  // without "encode: "
    throw ValueError(runtime::format("{} was begun with another text: {}", a.out, what.substr(first)));
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
  options_of(a, 2).check();
  check_ranks(options_of(a, 2), ranks);
  Running running;
  TrainIds ids;
  std::vector<std::int64_t> vocab_size{0};
  at_first(ranks, [&] {
    check_free(a.out);
    const TrainTexts texts = read_for(a, kind_of(a));
    running.tokenizer = learn(texts, a, kind_of(a));
    vocab_size = {running.tokenizer->size()};
    check_memory(options_of(a, vocab_size[0]), "; a smaller --batch or --context needs less");
    check_tokenizer(a.out, *running.tokenizer);
    ids = encoded(*running.tokenizer, texts, a);
  });
  const TrainOptions options = options_of(a, from_first(ranks, vocab_size)[0]);
  running.trainer = std::make_unique<Trainer>(begun(a, ids, options, ranks));
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
  TrainIds ids;
  TrainTexts texts;
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
    texts = read_for(a, running.tokenizer->kind());
    ids = encode_again(*running.tokenizer, texts, a);
  });
  running.trainer = std::make_unique<Trainer>(resumed(a, ids, ranks));
  at_first(ranks, [&] {
    const Tokenizer& tokenizer = *running.tokenizer;
    if (a.has("vocab") && (tokenizer.kind() == Tokenizer::Kind::characters ||
                           learn(texts, a, tokenizer.kind()).size() != tokenizer.size()))
      throw UsageError{runtime::format(
          "--vocab {} gives another vocabulary than that of the training in {} ({}); leave it out, or begin "
          "anew in another --out",
          a.vocab, a.out, tokenizer.size())};
  });
  if (a.has("steps")) extend(*running.trainer, a, ranks);
  return running;
}

}  // namespace attn::cli
