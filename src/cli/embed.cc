// src/cli/embed.cc: implements attn embed: the lines of a file as vectors, in a NumPy file.
#include "cli/encoder_options.h"
#include "cli/memory.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/train_report.h"
#include "cli/vectors_file.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "explain/json_values.h"
#include "io/checksum.h"

#include "runtime/format.h"
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <span>

namespace attn::cli {
namespace {

struct EmbedArguments {
  EncoderOptions model;
  std::string out;
  bool json = false;
};

/// Shows how far it is: on a terminal in one line, elsewhere a line every ten seconds.
class Progress {
 public:
  explicit Progress(std::int64_t before) : before_(before), terminal_(::isatty(STDERR_FILENO)) {}
  ~Progress() { close(); }
  void show(std::int64_t lines) {
    const double now = seconds();
    if (now - shown_ < (terminal_ ? 0.2 : 10)) return;
    shown_ = now;
    const std::string text = runtime::format("{} lines, {} lines/s", count(static_cast<double>(lines)),
                                             count(static_cast<double>(lines - before_) / now));
    say(terminal_ ? "\r" + text + "\x1b[K" : text + "\n");
    open_ = terminal_;
  }
  void close() {
    if (open_) say("\r\x1b[K");
    open_ = false;
  }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  const std::int64_t before_;
  const bool terminal_;
  bool open_ = false;
  double shown_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Returns a hash of all lines so far.
std::uint64_t mark_after(std::uint64_t before, const std::string& line) {
  return io::xxh64(std::as_bytes(std::span(line)), before + 1);
}

/// Reads the lines whose vectors an earlier run has written, and returns the mark of all of them. Throws a ValueError
/// unless they are those lines, and the last one's vector is what this model computes: since no bit depends on the
/// other lines, the continued file then has the bits of an uninterrupted run. If the mark of the earlier run is lost,
/// vectors from all parts of the file are compared instead.
std::uint64_t skip_done(Lines& lines, const VectorsFile& file, const TextEncoder& encoder, const EmbedOptions& options,
                        const StopSignals& stop) {
  constexpr std::int64_t most_compared = 256;
  const std::int64_t rows = file.rows(), apart = rows / most_compared + 1;
  std::uint64_t mark = 0;
  std::vector<std::string> compared;
  std::vector<std::int64_t> compared_rows;
  for (std::string line; lines.count() < rows && lines.next(line, stop.descriptor());) {
    mark = mark_after(mark, line);
    const std::int64_t row = lines.count() - 1;
    if (row != rows - 1 && (file.mark() || row % apart != 0)) continue;
    compared.push_back(line);
    compared_rows.push_back(row);
  }
  if (stop.wanted()) return mark;
  if (lines.count() < rows || mark != file.mark().value_or(mark))
    throw ValueError(
        runtime::format("{} holds the vectors of {} other lines; remove it to begin anew", file.part(), rows));
  bool same = true;
  try {
    for (std::size_t i = 0; same && !stop.wanted() && i < compared.size(); ++i)
      same = same_bits(encoder.embed({compared[i]}, options), file.row(compared_rows[i]));
  } catch (const ValueError&) { same = false; }  // the model takes no such line
  if (!same && !file.mark())
    throw ValueError(runtime::format(
        "{} holds vectors of other lines, or of another model, prompt or dtype; remove it to begin anew", file.part()));
  if (!same)
    throw ValueError(
        runtime::format("{} holds vectors of another model, prompt or dtype; remove it to begin anew", file.part()));
  return mark;
}

void run(const EmbedArguments& arguments) {
  if (arguments.out.empty()) throw UsageError{"--out is missing: the file for the vectors, as in: --out vectors.npy"};
  if (arguments.out == standard_stream) throw UsageError{"--out is -; vectors need a file (./- has that name)"};
  keep_freed_memory();
  const TextEncoder encoder = load_encoder(arguments.model);
  if (encoder.config.labels > 0)
    throw ValueError(
        runtime::format("embed: {} gives scores of pairs, no vectors; attn rank uses it", arguments.model.folder));
  const EmbedOptions options{.prompt = encoder.prompt(arguments.model.prompt), .batch_tokens = arguments.model.batch};
  Lines lines(arguments.model.lines);
  VectorsFile file(arguments.out, encoder.dim(), encoder.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  const StopSignals stop;
  std::uint64_t mark = skip_done(lines, file, encoder, options, stop);
  const std::int64_t before = file.rows();
  bool whole = false;
  Progress progress(before);
  try {
    while (!stop.wanted()) {
      const std::vector<std::string> texts = next_lines(lines, stop.descriptor());
      if (stop.wanted()) break;  // while it waited for lines: those that came are read again later
      whole = texts.empty();
      if (whole) break;
      const Tensor vectors = computed(lines, texts, [&](const auto& some) { return encoder.embed(some, options); });
      for (const std::string& text : texts) mark = mark_after(mark, text);
      file.append(vectors, mark);
      progress.show(file.rows());
    }
  } catch (...) {
    file.drop_if_empty();
    throw;
  }
  progress.close();
  const double seconds = progress.seconds();
  if (whole) file.finish();
  if (arguments.json)
    return print(
        runtime::format("{{\"attn_embed\": 1, \"lines\": {}, \"before\": {}, \"dim\": {}, \"whole\": {}, "
                        "\"file\": {}, \"seconds\": {:.3f}}}\n",
                        file.rows(), before, encoder.dim(), whole,
                        explain_detail::json_string(whole ? arguments.out : file.part()), seconds));
  if (!whole)
    return print(runtime::format("stopped after {}, kept in {}: the same command goes on\n",
                                 counted(file.rows(), "line"), file.part()));
  print(runtime::format("{}{}, {} numbers each, in {}\n", counted(file.rows(), "line"),
                        before > 0 ? runtime::format(" ({} were there)", before) : "", encoder.dim(), arguments.out));
}

Run add_embed_options(Parser parser) {
  auto arguments = std::make_shared<EmbedArguments>();
  EmbedArguments& a = *arguments;
  parser
      .option("MODEL", a.model.folder,
              "A folder of an encoder (BERT, RoBERTa, MPNet, DistilBERT, ModernBERT), or a GGUF file")
      .type_name("");
  parser.option("LINES", a.model.lines, "A text a line; - is stdin").type_name("");
  parser.option("--out", a.out, "Where the vectors go, a row a line: a file of NumPy")
      .type_name("FILE")
      .check(file_name);
  add_encoder_options(parser, a.model, "The model's prompt of that name stands before each text");
  parser.flag("--json", a.json, "What was done, as JSON");
  parser.footer(
      "A vector has the same bits whatever lines stand beside it. Until all are there they are in FILE.part; the same "
      "command\ngoes on with it after Ctrl-C or a kill.\n"
      "\nExample\n  attn embed all-MiniLM-L6-v2 lines.txt --out vectors.npy");
  return run_with(arguments, run);
}

}  // namespace

const Verb embed_verb{"embed", "The lines of a file as vectors, with an encoder of texts", add_embed_options};

}  // namespace attn::cli
