// src/model/train_settings.h: converts the options of a training to JSON and back.
#pragma once
#include <attn/train.h>

#include <nlohmann/json.hpp>

namespace attn {

/// Writes every field of the options and of their model into one flat object.
nlohmann::json settings_of(const TrainOptions& options);
/// Reads an object that `settings_of` wrote. Fields that older versions did not have may be missing; throws for
/// anything else.
TrainOptions options_of(const nlohmann::json& settings);

}  // namespace attn
