// src/cli/train.cc: implements attn train: trains a language model on a text and writes it to a folder.
#include "cli/memory.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/stop.h"
#include "cli/train_folder.h"
#include "cli/train_report.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <attn/text.h>
#include <attn/train.h>

#include "io/write.h"

#include "runtime/format.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace attn::cli {
namespace {

struct Arguments {
  std::vector<std::string> texts;
  std::string out = "attn-model", log, size = "nano", tokens = "characters", dtype = "f32";
  std::int64_t vocab = 0, save_every = 0, parts = 0, check_every = 0;
  std::int64_t steps = 0, batch = 0, context = 0, eval_every = 0, seed = 1337;
  double lr = 0, dropout = 0, rank_timeout = 600;
  bool resume = false;
  std::map<std::string, Option> given;
  bool has(const char* name) const { return given.at(name).given(); }
};

// --- options -------------------------------------------------------------------------------------------------------

TrainOptions options_of(const Arguments& a, std::int64_t vocab_size) {
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
void check_same(const Arguments& a, const TrainOptions& now) {
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

void say(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }

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

Tokenizer::Kind kind_of(const Arguments& a) {
  return static_cast<Tokenizer::Kind>(choose("--tokens", a.tokens, {"characters", "words", "bpe"}));
}

/// A training and what rank 0 has of it: the lock of its folder, its tokenizer, and what it creates (files, then the
/// folder).
struct Running {
  std::unique_ptr<FolderLock> lock;
  std::unique_ptr<Trainer> trainer;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::filesystem::path> made;
};

/// Gives every rank the numbers of rank 0, which alone reads files.
std::vector<std::int64_t> from_first(const Ranks& ranks, const std::vector<std::int64_t>& numbers) {
  if (ranks.size() == 1) return numbers;
  const std::string bytes =
      ranks.from_first({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t)});
  std::vector<std::int64_t> result(bytes.size() / sizeof(std::int64_t));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
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
  struct sysinfo about = {};
  ::sysinfo(&about);
  const double there = (static_cast<double>(about.totalram) + static_cast<double>(about.totalswap)) * about.mem_unit;
  if (there > 0 && needed > there)
    throw ValueError(runtime::format(
        "a step of {} of {} needs more than {:.1f} GiB of memory, this machine has {:.1f}{}",
        counted(o.batch, "window"), counted(o.model.context, "token"), needed / 0x1p30, there / 0x1p30, what_helps));
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

/// Begins a new training. It writes the first checkpoint before the first step, so that a folder that cannot be written
/// is reported at once.
Running begin(const Arguments& a, const Ranks& ranks) {
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
void extend(Trainer& trainer, const Arguments& a, const Ranks& ranks) {
  const std::int64_t before = trainer.options().steps, next = trainer.step() + 1;
  if (a.steps == before) return;
  const double rate = next <= before ? trainer.options().lr_of(next) : trainer.options().lr / 10;
  trainer.extend(a.steps);
  trainer.save(a.out);
  if (ranks.rank() != 0) return;
  say(runtime::format("{} become {}: from step {} on the learning rate is that of {}, {:.2e} instead of {:.2e}\n",
                      counted(before, "step"), a.steps, next, a.steps, trainer.options().lr_of(next), rate));
}

Running go_on(const Arguments& a, const Ranks& ranks) {
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

// --- the run -------------------------------------------------------------------------------------------------------

void introduce(const Trainer& trainer, const Tokenizer& tokenizer, const Ranks& ranks) {
  const TrainOptions& o = trainer.options();
  constexpr const char* kinds[] = {"characters", "words", "byte pairs"};
  say(runtime::format(
      "{} parameters, {}, {}, width {}, context {}; {} {}; batch {}{}; {}; {}\n",
      count(static_cast<double>(o.model.parameters())), counted(o.model.layers, "layer"),
      counted(o.model.heads, "head"), o.model.width, o.model.context, tokenizer.size(),
      kinds[static_cast<std::size_t>(tokenizer.kind())], o.batch,
      o.part_count() == 1 ? "" : runtime::format(" in {} parts", o.part_count()), name_of(o.dtype),
      (ranks.size() == 1 ? "" : runtime::format("{} ranks of ", ranks.size())) + counted(num_threads(), "thread")));
  if (!trainer.notice().empty()) say(trainer.notice() + "\n");
}

/// Trains until all steps are done or a signal asks to stop, at any rank. The best weights are saved before the state
/// that refers to them, so that after a crash between the two only some steps are repeated.
void steps(const Running& running, const Arguments& a, const Ranks& ranks) {
  Trainer& trainer = *running.trainer;
  const std::int64_t save_every = a.has("save-every") ? a.save_every : trainer.options().eval_every;
  std::int64_t saved = trainer.step();
  std::optional<TrainReport> report;  // of rank 0
  std::vector<std::int64_t> whole{1};
  at_first(ranks, [&] {
    std::error_code unknown;
    report.emplace(trainer, a.log);
    whole[0] = std::filesystem::exists(std::filesystem::path(a.out) / "config.json", unknown);
  });
  const bool has_model = from_first(ranks, whole)[0] != 0;
  const StopSignals stop;
  if (report) report->start();
  const auto whole_until = [&](std::string_view what) {
    return runtime::format("{}; the checkpoint of step {} is whole, --resume goes on from it", what, saved);
  };
  try {
    if (saved == 0 && (!a.resume || !has_model)) trainer.save_model(a.out);
    bool stopping = ranks.any(stop.wanted());
    while (!trainer.done() && !stopping) {
      const TrainStep done = trainer.advance();
      if (a.check_every > 0 && done.step % a.check_every == 0)
        ranks.same(runtime::format("step {}: the digest of the weights", done.step), trainer.weights_digest());
      at_first(ranks, [&] {
        report->step(done);
        running.lock->check();
      });
      if (done.best) trainer.save_model(a.out);
      stopping = ranks.any(stop.wanted());
      if (done.step % save_every != 0 && !trainer.done() && !stopping) continue;
      trainer.save(a.out);
      saved = trainer.step();
    }
    if (report) report->close();
  } catch (const IoError& error) { throw IoError(whole_until(error.what())); } catch (const RankError& error) {
    const std::string_view text = error.what();
    throw RankError(error.rank(), whole_until(text.substr(text.find(": ") + 2)));
  }
}

/// Reports that the first step does not fit into memory. The files of a new training are removed, so that the folder
/// can be used again with smaller options.
[[noreturn]] void no_memory(const Running& running, const Arguments& a) {
  const TrainOptions& o = running.trainer->options();
  const bool unbegun = !a.resume && running.trainer->step() == 0;
  if (unbegun) remove_all(running.made);
  throw ValueError(runtime::format("not enough memory for a step of {} of {}{}", counted(o.batch, "window"),
                                   counted(o.model.context, "token"),
                                   unbegun ? "; a smaller --batch or --context needs less" : ""));
}

void train(const Arguments& a, const Ranks& ranks) {
  at_first(ranks, [&] { check_log(a.log, a.out, a.resume); });
  const Running running = a.resume ? go_on(a, ranks) : begin(a, ranks);
  const Trainer& trainer = *running.trainer;
  if (ranks.rank() == 0) introduce(trainer, *running.tokenizer, ranks);
  try {
    steps(running, a, ranks);
  } catch (const std::bad_alloc&) { no_memory(running, a); }
  const auto conclude = [&](const std::string& line) { a.log == standard_stream ? say(line) : print(line); };
  at_first(ranks, [&] {
    running.lock->check();
    const std::string curve =
        loss_curve_svg(trainer, runtime::format("attn train {}: {} parameters",
                                                one_line(std::filesystem::path(a.texts[0]).filename().string()),
                                                count(static_cast<double>(trainer.options().model.parameters()))));
    io::write_whole("attn train", (std::filesystem::path(a.out) / "loss.svg").string(),
                    {std::as_bytes(std::span(curve))});
    if (!trainer.done())
      return conclude(runtime::format("stopped at step {} of {}, saved in {}: --resume goes on\n", trainer.step(),
                                      trainer.options().steps, a.out));
    conclude(runtime::format("best validation loss {:.4f} at step {}; model and loss curve in {}\n",
                             trainer.best_loss(), trainer.best_step(), a.out));
  });
}

void run(const Arguments& a) {
  keep_freed_memory();
  if (a.texts.empty()) throw UsageError{"a text is missing, as in: attn train /usr/share/common-licenses/GPL-3"};
  for (const auto& [name, value] : {std::pair("save_every", a.save_every), {"check_every", a.check_every}})
    if (const std::string option = name[0] == 's' ? "save-every" : "check-every";
        a.given.at(option).given() && value < 1)
      throw ValueError(runtime::format("train: {} is {}; it must be 1 or more", name, value));
  if (!(a.rank_timeout >= 0))
    throw ValueError(runtime::format("train: rank_timeout is {}; it must be 0 or more", a.rank_timeout));
  if (a.out.empty()) throw UsageError{"--out is empty; it must name a folder"};
  if (a.out == standard_stream)
    throw UsageError{"--out is -, which is no folder; a model needs one (./- has that name)"};
  with_ranks([&](const Ranks& ranks) { train(a, ranks); }, a.rank_timeout);
}

}  // namespace

Verb add_train(Parser app) {
  Parser parser = app.add_verb("train", "A language model from a text, on this machine");
  auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  parser.option("TEXT", a.texts, "Text files (- is stdin), one after the other: the last tenth is for validation")
      .type_name("");
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return a.given[name] = parser.option(std::string("--") + name, value, text).type_name(type);
  };
  add("out", a.out, "FOLDER", "Where the model goes: attn-model without it");
  add("size", a.size, "NAME", "nano (4 layers, 128 wide), baby (6, 384) or small (12, 768: GPT-2's)");
  add("tokens", a.tokens, "NAME", "characters, words or bpe (byte pairs, learnt from the text)");
  add("vocab", a.vocab, "N", "How many words (all without it) or byte pairs (1024)").check(whole_number);
  add("steps", a.steps, "N", "2000, 5000 or 20000 by size").check(whole_number);
  add("batch", a.batch, "N", "Windows a step: 12, 8 or 4 by size").check(whole_number);
  add("parts", a.parts, "N", "Parts of a batch: 1, or one for 1024 tokens; more ranks need more").check(whole_number);
  add("context", a.context, "N", "Tokens a window: 64, 256 or 1024 by size").check(whole_number);
  add("lr", a.lr, "X", "The highest learning rate; a cosine takes it to a tenth").check(number);
  add("dropout", a.dropout, "X", "0.1, 0.2 or 0.1 by size").check(number);
  add("dtype", a.dtype, "NAME", "f32, or bf16 with the weights kept in f32 too");
  add("seed", a.seed, "N", "Of weights, batches and dropout").check(whole_number);
  add("eval-every", a.eval_every, "N", "Steps between validations; the best weights are kept").check(whole_number);
  add("save-every", a.save_every, "N", "Steps between checkpoints: as --eval-every without it").check(whole_number);
  add("check-every", a.check_every, "N", "Steps after which ranks compare their weights").check(whole_number);
  add("rank-timeout", a.rank_timeout, "S", "Seconds without the other ranks that end one: 600; 0: none").check(number);
  add("log", a.log, "FILE", "One JSON line a step; - is stdout").check(file_name);
  parser.flag("--resume", a.resume, "Go on with the training in --out, to the bit as if it had never stopped");
  parser.footer(
      "Ctrl-C ends the step, saves and stops; --resume goes on. FOLDER holds config.json, tokenizer.json, "
      "model.safetensors (the best\n"
      "weights so far), train_state.safetensors (all that --resume needs) and, at the end, loss.svg.\n"
      "mpirun -n 4 attn train ... shares the work among 4 ranks, with the same bits; any other number can resume it.\n"
      "\nExample\n  attn train /usr/share/common-licenses/GPL-3 --out gpl");
  return {parser,
          [arguments](const std::vector<std::string>& rest) {
            arguments->texts.insert(arguments->texts.end(), rest.begin(), rest.end());
            run(*arguments);
          },
          /*knows_ranks=*/true};
}

}  // namespace attn::cli
