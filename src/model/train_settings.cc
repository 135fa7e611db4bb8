// src/model/train_settings.cc: converts the options of a training to JSON and back, field by field.
#include "model/train_settings.h"

#include "model/fields.h"

#include <attn/error.h>
#include "runtime/format.h"

#include <optional>
#include <utility>
#include <vector>

namespace attn {
namespace {

using Json = nlohmann::json;

/// Writes the fields into a JSON object.
struct Writer {
  Json json = Json::object();

  template <typename T>
  void operator()(const char* name, const T& value) {
    json[name] = value;
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  template <typename T>
    requires(Fields<T, nn::RotaryScaling> || Fields<T, EncoderDecoderConfig>)
  void operator()(const char* name, const T& scaling) {
    json[name] = object_of(scaling);
  }
  void operator()(const char* name, const std::vector<LayerConfig>& layers) {
    if (layers.empty()) return;
    json[name] = Json::array();
    for (const LayerConfig& layer : layers) json[name].push_back(object_of(layer));
  }
  void operator()(const char*, const std::pair<double, double>& betas) {
    (*this)("beta1", betas.first), (*this)("beta2", betas.second);
  }
  void operator()(const char*, const ModelConfig& model) { each_field(model, *this); }

 private:
  template <typename T>
  static Json object_of(const T& value) {
    Writer inner;
    each_field(value, inner);
    return inner.json;
  }
};

/// Reads the fields and counts how many there were.
struct FieldReader {
  const Json& json;
  std::size_t taken = 0;

  template <typename T>
  void operator()(const char* name, T& value) {
    take(name, json.at(name), value);
  }
  // A missing optional field keeps its default: the writer leaves out those that are not set, an older file those that
  // it does not know.
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    if (json.contains(name)) take(name, json.at(name), value.emplace());
  }
  void operator()(const char* name, std::vector<std::int64_t>& value) { if_there(name, value); }
  void operator()(const char* name, std::vector<LayerConfig>& value) { if_there(name, value); }
  void operator()(const char* name, bool& value) { of_later(name, value); }
  void operator()(const char* name, std::int64_t& value) { of_later(name, value); }
  void operator()(const char* name, double& value) { of_later(name, value); }
  void operator()(const char*, std::pair<double, double>& betas) {
    (*this)("beta1", betas.first), (*this)("beta2", betas.second);
  }
  void operator()(const char*, ModelConfig& model) { each_field(model, *this); }

  void nothing_left() const {
    if (taken != json.size())
      throw ValueError(runtime::format("{} settings, of which {} are known here", json.size(), taken));
  }

 private:
  /// Fields that an older file lacks keep their default.
  template <typename T>
  void of_later(const char* name, T& value) {
    for (const std::string_view later : {"qk_norm", "sliding_window", "rotary_dim", "query_scalar", "attention_softcap",
                                         "post_norms", "scaled_embedding", "final_softcap", "parts", "label_smoothing"})
      if (later == name) return if_there(name, value);
    take(name, json.at(name), value);
  }
  template <typename T>
  void if_there(const char* name, T& value) {
    if (json.contains(name)) take(name, json.at(name), value);
  }
  template <typename T>
  void take(const char* name, const Json& given, T& value) {
    ++taken;
    if ((std::is_integral_v<T> && !std::is_same_v<T, bool> && !given.is_number_integer()) ||
        (std::is_same_v<T, bool> && !given.is_boolean()))
      throw ValueError(runtime::format("{} is of another kind", name));
    if constexpr (std::is_enum_v<T>) {
      const int number = given.get<int>();
      value = static_cast<T>(number);
      if constexpr (std::is_same_v<T, Dtype>) {
        if (number < 0 || number > static_cast<int>(Dtype::boolean))
          throw ValueError(runtime::format("{} is {}", name, number));
      } else if (!has_value(value)) {
        throw ValueError(runtime::format("{} is {}", name, number));
      }
    } else if constexpr (std::is_same_v<T, nn::RotaryScaling> || std::is_same_v<T, EncoderDecoderConfig>) {
      FieldReader inner{given};
      each_field(value, inner);
      inner.nothing_left();
    } else if constexpr (std::is_same_v<T, std::vector<LayerConfig>>) {
      for (const Json& each : given) {
        FieldReader inner{each};
        each_field(value.emplace_back(), inner);
        inner.nothing_left();
      }
    } else {
      value = given.get<T>();
    }
  }
};

}  // namespace

Json settings_of(const TrainOptions& options) {
  Writer writer;
  each_field(options, writer);
  return writer.json;
}

TrainOptions options_of(const Json& settings) {
  TrainOptions options;
  options.parts = 1;  // files without the field are of trainings whose batch was one graph
  FieldReader reader{settings};
  each_field(options, reader);
  reader.nothing_left();
  options.check();
  return options;
}

}  // namespace attn
