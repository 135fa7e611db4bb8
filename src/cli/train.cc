// src/cli/train.cc: implements attn train: trains a language model on a text, or an encoder-decoder on pairs, and
// writes it to a folder.
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

#include <chrono>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>

namespace attn::cli {
namespace {

void introduce(const Trainer& trainer, const Tokenizer& tokenizer, const Ranks& ranks) {
  const TrainOptions& o = trainer.options();
  constexpr const char* kinds[] = {"characters", "words", "byte pairs"};
  std::string shape;
  if (const auto& pair = o.encoder_decoder)
    shape = runtime::format("{} + {} layers, {}, width {}", pair->encoder_layers, pair->decoder_layers,
                            counted(pair->encoder_heads, "head"), pair->width);
  else
    shape = runtime::format("{}, {}, width {}, context {}", counted(o.model.layers, "layer"),
                            counted(o.model.heads, "head"), o.model.width, o.model.context);
  say(runtime::format(
      "{} parameters, {}; {} {}; batch {}{}; {}; {}\n", count(static_cast<double>(trainer.parameters())), shape,
      tokenizer.size(), kinds[static_cast<std::size_t>(tokenizer.kind())], o.batch,
      o.part_count() == 1 ? "" : runtime::format(" in {} parts", o.part_count()), name_of(o.dtype),
      (ranks.size() == 1 ? "" : runtime::format("{} ranks of ", ranks.size())) + counted(num_threads(), "thread")));
  if (!trainer.notice().empty()) say(trainer.notice() + "\n");
}

/// Trains until all steps are done or a signal asks to stop, at any rank. The best weights are saved before the state
/// that refers to them, so that after a crash between the two only some steps are repeated. Returns the seconds of the
/// steps.
double steps(const Running& running, const TrainArguments& a, const Ranks& ranks) {
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
  double seconds = 0;
  if (report) report->start();
  const auto whole_until = [&](std::string_view what) {
    return runtime::format("{}; the checkpoint of step {} is whole, --resume goes on from it", what, saved);
  };
  try {
    if (saved == 0 && (!a.resume || !has_model)) trainer.save_model(a.out);
    bool stopping = ranks.any(stop.wanted());
    while (!trainer.done() && !stopping) {
      const auto begin = std::chrono::steady_clock::now();
      const TrainStep done = trainer.advance();
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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
  return seconds;
}

/// Reports that the first step does not fit into memory. The files of a new training are removed, so that the folder
/// can be used again with smaller options.
[[noreturn]] void no_memory(const Running& running, const TrainArguments& a) {
  const TrainOptions& o = running.trainer->options();
  const bool unbegun = !a.resume && running.trainer->step() == 0;
  if (unbegun) remove_all(running.made);
  if (o.encoder_decoder)
    throw ValueError(runtime::format("not enough memory for a step of {}{}", counted(o.batch, "pair"),
                                     unbegun ? "; a smaller --batch needs less" : ""));
  throw ValueError(runtime::format("not enough memory for a step of {} of {}{}", counted(o.batch, "window"),
                                   counted(o.model.context, "token"),
                                   unbegun ? "; a smaller --batch or --context needs less" : ""));
}

void train(const TrainArguments& a, const Ranks& ranks) {
  at_first(ranks, [&] { check_log(a.log, a.out, a.resume); });
  const Running running = a.resume ? resume_training(a, ranks) : begin_training(a, ranks);
  const Trainer& trainer = *running.trainer;
  if (ranks.rank() == 0) introduce(trainer, *running.tokenizer, ranks);
  double seconds = 0;
  try {
    seconds = steps(running, a, ranks);
  } catch (const std::bad_alloc&) { no_memory(running, a); }
  const auto conclude = [&](const std::string& line) { a.log == standard_stream ? say(line) : print(line); };
  at_first(ranks, [&] {
    running.lock->check();
    const std::string curve = loss_curve_svg(
        trainer,
        runtime::format("attn train {}: {} parameters",
                        one_line(std::filesystem::path(a.has("pairs") ? a.pairs : a.texts[0]).filename().string()),
                        count(static_cast<double>(trainer.parameters()))));
    io::write_whole("attn train", (std::filesystem::path(a.out) / "loss.svg").string(),
                    {std::as_bytes(std::span(curve))});
    if (!trainer.done())
      return conclude(runtime::format("stopped at step {} of {}, saved in {}: --resume goes on\n", trainer.step(),
                                      trainer.options().steps, a.out));
    const double open = trainer.exchange_seconds(), all = open + trainer.hidden_seconds();
    const std::string exchange = seconds > 0 && all > 0
                                     ? runtime::format("; {:.0f} % of the exchange not hidden, {:.0f} % of the time",
                                                       100 * open / all, 100 * open / seconds)
                                     : "";
    conclude(runtime::format("best validation loss {:.4f} at step {}; model and loss curve in {}{}\n",
                             trainer.best_loss(), trainer.best_step(), a.out, exchange));
  });
}

/// Returns the verb with the options that decide what the ranks do together: which files they begin with, and when they
/// save and compare.
std::string shared_options(const TrainArguments& a) {
  std::string text = "train";
  const auto add = [&](const char* name, std::int64_t value) {
    if (a.has(name)) text += runtime::format(" --{} {}", name, value);
  };
  if (a.resume) text += " --resume";
  if (a.resume) add("steps", a.steps);  // a new training compares its steps with its other options
  if (a.has("pairs")) text += " --pairs";
  add("save-every", a.save_every), add("check-every", a.check_every);
  return text;
}

void run(const TrainArguments& a) {
  keep_freed_memory();
  check_train_options(a);
  with_ranks(shared_options(a), [&](const Ranks& ranks) { train(a, ranks); }, a.rank_timeout);
}

Run add_train(Parser parser) {
  auto arguments = std::make_shared<TrainArguments>();
  add_train_options(parser, *arguments);
  parser.footer(
      "Ctrl-C ends the step, saves and stops; --resume goes on. FOLDER holds config.json, tokenizer.json, "
      "model.safetensors (the best\n"
      "weights so far), train_state.safetensors (all that --resume needs) and, at the end, loss.svg.\n"
      "mpirun -n 4 attn train ... shares the work among 4 ranks, with the same bits; any other number can resume it.\n"
      "\nExamples\n  attn train /usr/share/common-licenses/GPL-3 --out gpl\n"
      "  attn train --pairs numbers.tsv --tokens words --out numbers");
  return [arguments](const std::vector<std::string>& rest) {
    arguments->texts.insert(arguments->texts.end(), rest.begin(), rest.end());
    run(*arguments);
  };
}

}  // namespace

const Verb train_verb{"train", "A language model from a text, or a translation from pairs, on this machine", add_train,
                      /*knows_ranks=*/true};

}  // namespace attn::cli
