// src/cli/train.cc: implements attn train: trains a language model on a text and writes it to a folder.
#include "cli/memory.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/stop.h"
#include "cli/train_report.h"
#include "cli/train_start.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/runtime.h>

#include "io/write.h"

#include "runtime/format.h"

#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace attn::cli {
namespace {

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
void steps(const Running& running, const TrainArguments& a, const Ranks& ranks) {
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
[[noreturn]] void no_memory(const Running& running, const TrainArguments& a) {
  const TrainOptions& o = running.trainer->options();
  const bool unbegun = !a.resume && running.trainer->step() == 0;
  if (unbegun) remove_all(running.made);
  throw ValueError(runtime::format("not enough memory for a step of {} of {}{}", counted(o.batch, "window"),
                                   counted(o.model.context, "token"),
                                   unbegun ? "; a smaller --batch or --context needs less" : ""));
}

void train(const TrainArguments& a, const Ranks& ranks) {
  at_first(ranks, [&] { check_log(a.log, a.out, a.resume); });
  const Running running = a.resume ? resume_training(a, ranks) : begin_training(a, ranks);
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

void run(const TrainArguments& a) {
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

Run add_train_options(Parser parser) {
  auto arguments = std::make_shared<TrainArguments>();
  TrainArguments& a = *arguments;
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
  return [arguments](const std::vector<std::string>& rest) {
    arguments->texts.insert(arguments->texts.end(), rest.begin(), rest.end());
    run(*arguments);
  };
}

}  // namespace

const Verb train_verb{"train", "A language model from a text, on this machine", add_train_options,
                      /*knows_ranks=*/true};

}  // namespace attn::cli
