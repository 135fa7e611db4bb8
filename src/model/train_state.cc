// src/model/train_state.cc: saves and loads a training as one file that holds everything the next step depends on.
#include <attn/error.h>
#include <attn/runtime.h>
#include <attn/safetensors.h>
#include <attn/train.h>

#include "io/safetensors_header.h"
#include "io/source.h"
#include "model/json_fields.h"
#include "model/train_internal.h"
#include "model/train_settings.h"

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>

namespace attn {
namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "train_state.safetensors";
constexpr const char* kKey = "attn_train";

std::string file_in(const char* function, const std::string& folder) {
  io::check_path(function, folder);
  return (std::filesystem::path(folder) / kFile).string();
}

/// The contents of the file's metadata. Any error in it is a FormatError.
struct Facts {
  TrainOptions options;
  std::int64_t step, best_step;
  double best;
  std::string digest;
  int numerics;  // the numerics version of the library that computed the state
};
Facts facts_of(const std::string& path, const std::map<std::string, std::string>& metadata) {
  try {
    const auto found = metadata.find(kKey);
    if (found == metadata.end()) throw ValueError(runtime::format("its metadata has no {}", kKey));
    for (const auto& [key, value] : metadata)
      if (key != kKey && key != io::checksum_key) throw ValueError(runtime::format("its metadata has {} too", key));
    const Json json = Json::parse(found->second);
    return {options_of(json.at("options")),
            json.at("step").get<std::int64_t>(),
            json.at("best_step").get<std::int64_t>(),
            json.at("best").is_null() ? std::numeric_limits<double>::infinity() : json.at("best").get<double>(),
            json.at("data").get<std::string>(),
            json.value("numerics", 1)};
  } catch (const std::bad_alloc&) {  // out of memory, which is no error of the file
    throw;
  } catch (const std::exception& error) {
    throw FormatError(
        runtime::format("Trainer: {}: not the state of a training ({})", path, io::one_line(reason_of(error))), 0);
  }
}

/// Loads the file. A dtype that the library cannot hold is a FormatError here: no training writes one, so the file is
/// damaged.
Safetensors load_state(const std::string& path) {
  try {
    return load_safetensors(path);
  } catch (const DtypeError& error) { throw FormatError(error.what(), 0); }
}

/// Returns the generator's state, its bytes packed into i64, because there is no dtype for bytes.
Tensor generator_state() {
  const std::lock_guard lock(default_generator_mutex());
  const std::vector<std::uint8_t> bytes = default_generator().state();
  Tensor words = zeros({static_cast<std::int64_t>(bytes.size() + 7) / 8}, Dtype::i64);
  std::copy(bytes.begin(), bytes.end(), static_cast<std::uint8_t*>(words.data()));
  return words;
}
void set_generator_state(const Tensor& words) {
  const auto* first = static_cast<const std::uint8_t*>(words.contiguous().data());
  const std::lock_guard lock(default_generator_mutex());
  default_generator().set_state({first, first + words.numel() * 8});
}

/// Reads the losses of the steps up to `last`.
std::vector<LossPoint> points_of(const Tensor& x, std::int64_t last) {
  std::vector<LossPoint> points;
  if (x.dim() != 2 || x.size(1) != 2) throw ValueError("losses have another shape");
  const std::vector<double> values = x.to_vector();
  for (std::size_t i = 0; i < values.size(); i += 2) {
    if (!(values[i] >= 1 && values[i] <= static_cast<double>(last)))
      throw ValueError(runtime::format("a loss of step {} in a training of {}", values[i], last));
    points.push_back({static_cast<std::int64_t>(values[i]), values[i + 1]});
  }
  return points;
}

/// Returns a lower bound of the number of weights.
double least_parameters(const TrainOptions& options) {
  if (!options.encoder_decoder) return static_cast<double>(options.model.parameters());
  const EncoderDecoderConfig& c = *options.encoder_decoder;
  const auto of = [](std::int64_t n) { return static_cast<double>(n); };
  return of(c.vocab_size) * of(c.width) +
         2 * of(c.width) *
             (of(c.encoder_layers) * of(c.encoder_mlp_width) + of(c.decoder_layers) * of(c.decoder_mlp_width));
}

/// Returns the tensors whose names begin with `prefix`, with the prefix removed.
nn::StateDict part_of(const Safetensors& file, const std::string& prefix) {
  nn::StateDict part;
  for (const auto& [name, value] : file.tensors)
    if (name.starts_with(prefix)) part.emplace_back(name.substr(prefix.size()), value);
  return part;
}

}  // namespace

void Trainer::save(const std::string& folder) const {
  const State& s = state();
  const std::string path = file_in("Trainer::save", folder);
  if (!s.ranks) return write_state(folder, path, s.adamw.state_dict());
  const optim::StateDict optimizer = s.ranks->optimizer_state();
  s.ranks->write([&] { write_state(folder, path, optimizer); });
}

void Trainer::write_state(const std::string& folder, const std::string& path, const optim::StateDict& optimizer) const {
  const State& s = state();
  if (std::error_code failure; std::filesystem::create_directories(folder, failure), failure)
    throw IoError(runtime::format("Trainer::save: {}: {}", folder, failure.message()));
  nn::StateDict tensors;
  for (const auto& [name, value] : s.task->module().state_dict()) tensors.emplace_back("model." + name, value);
  for (const auto& [name, value] : optimizer) tensors.emplace_back("optimizer." + name, value);
  tensors.emplace_back("generator", generator_state());
  tensors.emplace_back("losses", losses());
  tensors.emplace_back("validations", validations());
  // JSON has no infinity, so an infinite `best` is written as null.
  const Json facts{{"options", settings_of(s.options)}, {"step", s.step},           {"best", s.best},
                   {"best_step", s.best_step},          {"data", s.task->digest()}, {"numerics", numerics_version}};
  io::save_with_checksum("Trainer::save", path, tensors, {{kKey, facts.dump()}});
}

void Trainer::save_model(const std::string& folder) const {
  const State& s = state();
  s.ranks ? s.ranks->write([&] { s.task->save(folder); }) : s.task->save(folder);
}

std::optional<std::pair<TrainOptions, std::int64_t>> Trainer::find(const std::string& folder) {
  const std::string path = file_in("Trainer::find", folder);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return std::nullopt;
  const Facts facts = facts_of(path, io::read_safetensors_header(io::FileSource("Trainer", path)).metadata);
  return std::pair(facts.options, facts.step);
}

std::unique_ptr<Trainer::State> Trainer::State::resumed(
    const std::string& folder, const std::function<std::unique_ptr<TrainTask>(const TrainOptions& options)>& make) {
  const std::string path = file_in("Trainer::resume", folder);
  const Safetensors file = load_state(path);
  const Facts facts = facts_of(path, file.metadata);
  std::int64_t numbers = 0;  // checked before memory is allocated, so that a file cannot claim more weights than it has
  for (const auto& [name, value] : file.tensors) numbers += value.numel();
  if (least_parameters(facts.options) > static_cast<double>(numbers))
    throw FormatError(runtime::format("Trainer: {}: the weights are not all there", path), 0);
  auto state = std::make_unique<State>(make(facts.options), facts.options);
  if (const std::string digest = state->task->digest(); digest != facts.digest)
    throw ValueError(runtime::format("Trainer: {} was begun with another text: its tokens have the digest {}, these {}",
                                     folder, facts.digest, digest));
  try {
    state->task->module().load_state_dict(part_of(file, "model."));
    const nn::StateDict moments = part_of(file, "optimizer.");
    state->adamw.load_state_dict(moments);
    // Each parameter needs step, exp_avg and exp_avg_sq, and a half float also the f32 master. The optimiser itself
    // would accept a parameter without a state and start it anew, and make a master from the parameter.
    const std::size_t of_each = facts.options.dtype == Dtype::f32 ? 3 : 4,
                      wanted = facts.step == 0 ? 0 : of_each * state->parameters.size();
    if (moments.size() != wanted)
      throw ValueError(runtime::format("the optimiser has {} tensors; it must have {}", moments.size(), wanted));
    state->losses = points_of(file.at("losses"), facts.step);
    state->validations = points_of(file.at("validations"), facts.step);
    if (static_cast<std::int64_t>(state->losses.size()) != facts.step)
      throw ValueError(runtime::format("{} losses of {} steps", state->losses.size(), facts.step));
    set_generator_state(file.at("generator"));
  } catch (const std::bad_alloc&) { throw; } catch (const std::exception& error) {
    throw FormatError(runtime::format("Trainer: {}: {}", path, io::one_line(error.what())), 0);
  }
  state->step = facts.step;
  state->best = facts.best;
  state->best_step = facts.best_step;
  // f32 has the same bits in every numerics version
  if (facts.options.dtype == Dtype::bf16 && facts.numerics != numerics_version)
    state->notice = runtime::format(
        "{} was saved under numerics version {}; this is version {}: its bits will differ from those it would have had",
        io::one_line(folder), facts.numerics, numerics_version);
  return state;
}

}  // namespace attn
